"""Write docs/reference/json.md from what commands print with --json; `make docs` calls it."""

import sys

from relay.cli.screen import JSON_VERSION
from relay.config.schema import render_types
from tests.cli.documents import DOCUMENTS
from tests.sessions.reference import render_fields, render_sections

HEAD = f"""\
# JSON of commands

`make docs` writes this page from the code; tests compare it with the output of the commands.

With `--json` a command prints one object on one line of ASCII. Each has a field `version` (now {JSON_VERSION}), which
increases if a field is removed or changes its meaning, not if a field is added: ignore fields that you do not know.
Times are in seconds since the epoch.

`relay run`, `plan`, `review`, `watch` and `gate` print [events](events.md) instead, one per line. What a fleet is at
stands in `relay status`. The figures of `relay report --json` and `relay lab` have the names of their pages' figures,
and may change with these.
"""


def render() -> str:
    """Return the page."""
    parts, known = [HEAD], render_types(DOCUMENTS.values())
    for command, kind in DOCUMENTS.items():
        top = known.pop(kind.__name__)
        parts.append(f"\n## `{command}`\n\n{top['description']}\n{render_fields(top, known)}")
    return "".join([*parts, render_sections((), known)])


if __name__ == "__main__":
    sys.stdout.write(render())
