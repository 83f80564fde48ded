"""Write constraints.txt: what relay needs at run time, each in one version, with the digests of its files.

    pip install --dry-run --ignore-installed --quiet --report - . | python -m tests.setup.constraints > constraints.txt

No address goes into it: which index is asked is the reader's choice, and the digests hold for any.
"""

import json
import sys
from typing import Any, TextIO

HEAD = """\
# What relay needs at run time, as it was tested; made by `python -m tests.setup.constraints`.
#   pip install --require-hashes -r constraints.txt && pip install --no-deps .
# A package with parts in C has a file, and a digest, for each platform; here is that of CPython 3.11 on x86-64 Linux.
"""


def render(report: dict[str, Any]) -> str:
    """Return the lines for a report of pip's, sorted by name; relay itself is left out."""
    lines = []
    for entry in report["install"]:
        name, version = entry["metadata"]["name"].lower().replace("_", "-"), entry["metadata"]["version"]
        hashes = entry["download_info"].get("archive_info", {}).get("hashes")
        if hashes:
            lines.append(f"{name}=={version} --hash=sha256:{hashes['sha256']}\n")
    return HEAD + "".join(sorted(lines))


def main(source: TextIO, target: TextIO) -> None:
    """Read a report and write the file."""
    target.write(render(json.load(source)))


if __name__ == "__main__":
    main(sys.stdin, sys.stdout)
