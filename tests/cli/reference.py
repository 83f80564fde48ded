"""Write docs/json.md from what commands print with --json: `python -m tests.cli.reference > docs/json.md`."""

import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints, is_typeddict

from relay.cli.screen import JSON_VERSION
from relay.insight.telemetry.schema import list_fields
from tests.cli.documents import DOCUMENTS
from tests.sessions.reference import render_field

HEAD = f"""\
# JSON of commands

`make docs` writes this page from the code; tests compare it with the output of the commands.

With `--json` a command prints one object on one line of ASCII. `version` (now {JSON_VERSION}) increases if a field is
removed or changes its meaning, not if a field is added: ignore fields that you do not know. Times are in seconds since
the epoch.

`relay run`, `plan`, `review`, `work`, `watch` and `gate` print events instead, one per line: `docs/events.md`. The
output of `relay report --json` and `relay inspect --json` has a `version` too; its figures have the names of the page's
figures, and may change with the page.
"""


def render() -> str:
    """Return the page."""
    parts = [HEAD]
    seen: dict[str, Any] = {}
    for command, kind in DOCUMENTS.items():
        parts.append(f"\n## `{command}`\n\n{_say(kind)}\n\n")
        parts += [render_field(entry) for entry in list_fields(kind)]
        if is_dataclass(kind):
            parts.append("- `version` (integer)\n")
        seen |= {inner.__name__: inner for inner in _find_kinds(kind)}
    for name, kind in seen.items():
        parts.append(f"\n## `{name}`\n\n{_say(kind)}\n\n")
        parts += [render_field(entry) for entry in list_fields(kind)]
    return "".join(parts).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"


def _say(kind: Any) -> str:
    return " ".join((kind.__doc__ or "").split()).replace("``", "`")


def _find_kinds(kind: Any) -> Iterator[Any]:
    """Yield the kinds of objects inside of one, each behind what holds it."""
    for hint in get_type_hints(kind).values() if is_typeddict(kind) or is_dataclass(kind) else get_args(kind):
        if is_typeddict(hint) or is_dataclass(hint):
            yield hint
        yield from _find_kinds(hint)


if __name__ == "__main__":
    sys.stdout.write(render())
