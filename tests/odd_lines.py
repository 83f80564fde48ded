"""Logs that relay did not write: lines of a real one with something else in a field, or in a part of one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
REAL = ROOT / "cli/recorded.jsonl"
ODD: tuple[Any, ...] = (
    None, True, -1, 1.5, 2**53, -(2**53), 10**4000, 1e300, float("nan"), float("inf"), "", "x\x1b[2J\x00", "\ud800",
    "../../etc/passwd", "{{7*7}}</script>[bold]", "x" * 2_000, ["x"], [[None]], {}, [{"id": []}],
)  # fmt: skip

FILLED: dict[str, dict[str, Any]] = {
    "ToolFinished": {"shown": {"path": "AGENTS.md", "first_line": 1, "last_line": 30}},
    "GateFinished": {"checks": [
        {"command": "test -s a", "status": "failed", "exit_code": 1, "duration_s": 0.1, "output": "x", "causes": ["y"]}
    ]},
}  # fmt: skip
"""Parts that no line of the recorded run has."""


def iter_odd_lines() -> Iterator[str]:
    """Yield each kind of line as it is, then with each odd value in each of its fields, and without the field."""
    kinds = set[str]()
    for line in REAL.read_text(encoding="utf-8").splitlines():
        body = json.loads(line)
        body |= FILLED.get(body["event"], {})
        if body["event"] not in kinds:
            kinds.add(body["event"])
            yield json.dumps(body)
            yield from (json.dumps(odd) for odd in _change(body))


def _change(value: Any) -> Iterator[Any]:
    """Yield a value with one part of it changed, however deep it stands; of lists the first."""
    parts = value.items() if isinstance(value, dict) else [*enumerate(value)][:1] if isinstance(value, list) else ()
    for name, part in parts:
        for odd in (*ODD, *_change(part)):
            copy = dict(value) if isinstance(value, dict) else list(value)
            copy[name] = odd
            yield copy
        if isinstance(value, dict):
            yield {key: one for key, one in value.items() if key != name}
