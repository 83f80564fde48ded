"""What relay reads from many plans, as one text: `python -m tests.plan.golden` writes `golden.txt` anew.

The plans are those of this repository in the style of other tools, the seeds of the fuzzer, and plans put together from
pieces of Markdown by a seeded generator. A reader that is rewritten reads them the same, or the difference stands in
the commit.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from relay.base.errors import PlanError
from relay.plan.model import Item, Phase, Plan
from relay.plan.parse import parse_plan

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("golden.txt")
FOLDERS = ("tests/plan/formats", "fuzz/corpus/plan", "examples")
GENERATED = 240
_PIECES = """\
## Phase {n} — Schema
### Task {n}: Keys
## {n}. Routes
#### {n}.{m} Parts
## Later
Step {n}\\n------
Title\\n=====
# Plan
### Notes\\n- a note
## Success criteria
## Validation Commands
### Phase {n}a: More
## Phases\\n- [ ] **Phase {n}: Schema** — first\\n- [x] **Phase {m}: Keys**
Verify: `pytest -q`
- Verify: `make {n}`, `true`
Verify:\\n```\\nmake\\\\\\n  all\\n$ true\\n```
Verify:\\n- `one`\\n- `two`
Verify: make check
After: {n}
After: none
After: phases {n} and {m}
Runner: claude
Model: claude-opus-5-5
**Effort:** high
Tools: docs, web
**Files:**\\n- `src/a{n}.py`\\n- Create: src/b.ts
_Requirements: {n}.2_
- [ ] Add `load_key` — db/a{n}.py, docs/
- [x] Done in src/x{n}.rs
* [X] `Store.load` and `b.py`
{n}. [ ] numbered
{n}) [x] other
+ [ ] plus — ../out.py
- [ ] T00{n} [P] in src/p.py
- [ ] {n}.{m} Create the table
- [ ] {n}. Whole\\n  - [ ] {n}.1 part\\n  - [x] {n}.2 part
- [-] begun
- [~] queued
- [?] unsure
- [ ]* {n}.{m} optional
  - [ ] nested one
    - [x] nested two
\\t- [ ] by a tab
> - [ ] quoted
> lazy\\nline
- bullet\\n\\n  - [ ] below
- [ ] two\\n  lines `c.py`\\n  — d/e.py
- [ ]
- [] near
```\\n- [ ] code\\n```
~~~\\n- [ ] open code
<!-- - [ ] gone -->
<details>\\n- [ ] hidden\\n</details>
    - [ ] indented
prose about it
| a | b |\\n|---|---|
***
\\u2028- [ ] line separator
1. one\\n2. [ ] two
- - [ ] list in list
<br/>
"""


def list_plans() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each plan."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.md")):
            yield str(path.relative_to(ROOT)), path.read_bytes().decode("utf-8", "surrogateescape")
    pieces = [json.loads(f'"{piece}"') for piece in _PIECES.splitlines()]
    for number in range(GENERATED):
        yield f"generated {number}", _generate(random.Random(number), pieces)


def _generate(chance: random.Random, pieces: list[str]) -> str:
    lines = chance.choice([[], [], ["---", "relay: {verify: [t], model: m}", "other: [1]", "---"]])
    drawn = (chance.choice(pieces) for _ in range(chance.randint(3, 24)))
    lines += ["# Plan", *(one.format(n=chance.randint(1, 4), m=chance.randint(1, 4)) for one in drawn)]
    between = [chance.choice(["", "", "\n"]) for _ in lines]
    text = "\n".join(f"{line}{blank}" for line, blank in zip(lines, between, strict=True))
    return chance.choice(["", "", "", "\ufeff"]) + text.replace("\n", chance.choice(["\n", "\n", "\r\n", "\r"]))


def render(text: str) -> Iterator[str]:
    """Yield lines about a plan."""
    try:
        plan = parse_plan(text)
    except PlanError as error:
        yield f"refused at line {error.line}"
        return
    yield _line(title=plan.title, settings=plan.settings, goal_chars=len(plan.preamble))
    for phase in plan.phases:
        yield _render_phase(plan, phase)
        yield from (_render_item(item) for item in phase.items)


def _render_phase(plan: Plan, phase: Phase) -> str:
    start, end = (plan.outline.lines.index_at(at) + 1 for at in (phase.start, phase.end))
    verify = tuple(command for command in phase.verify if command not in phase.own_verify)
    kept = {"said": phase.wishes, "tools": phase.tool_lines, "files": phase.files, "in_list": phase.in_list}
    return _line(
        f"{phase.id} @{phase.line} {start}-{end} after {','.join(phase.after)}",
        title=phase.title,
        heading=phase.heading if phase.heading != phase.title else "",
        inherited=verify,
        verify=phase.own_verify,
        **kept,
    )


def _render_item(item: Item) -> str:
    state = "x" if item.done else " "
    place = f"  {item.id} @{item.line} [{state}]{'*' * item.optional} {item.depth}"
    reads = tuple(path for path in item.paths if path not in item.targets)
    return _line(place, text=item.text, reads=reads, makes=item.targets, names=item.symbols)


def _line(*words: str, **fields: object) -> str:
    said = (f"{name}={json.dumps(value, ensure_ascii=True)}" for name, value in fields.items() if value)
    return " ".join((*words, *said))


def render_all() -> str:
    """Return the whole text."""
    blocks = ("\n".join((f"== {name}", *render(text))) for name, text in list_plans())
    return "\n".join((*blocks, ""))


if __name__ == "__main__":
    FILE.write_text(render_all(), encoding="utf-8")
