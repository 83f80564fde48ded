"""Which commands gate a phase."""

import pytest

from relay.plan.parse import parse_plan


def gate(section: str) -> tuple[str, ...]:
    return parse_plan(f"## P\n- [ ] a\n\n{section}\n").phases[0].verify


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("Verify: `pytest -q`", ("pytest -q",)),
        ("verify : `a` and `b`", ("a", "b")),
        ("**Verify:** `a`", ("a",)),
        ("**Verify**: `a`", ("a",)),
        ("*Verification:* `a` passes", ("a",)),
        ("**Verify: make test**", ("make test",)),
        ("Verify: python -m unittest tests.test_schema", ("python -m unittest tests.test_schema",)),
        ("- Verify: `a`", ("a",)),
        ("> Verify: `a`", ("a",)),
        ("Some text\nVerify: `a`\nmore `no`", ("a",)),
        ("Verify: ``a `b` c``", ("a `b` c",)),
        ("Verify: `a`\nVerify: `b`\n\nVerify: `a`", ("a", "b")),
        ("Verify:\n```sh\n# comment\n$ a\n\nb \\\n  --c\n```", ("a", "b --c")),
        ("Verify:\n\n    a\n    b", ("a", "b")),
        ("- Verify:\n  ~~~\n  a\n  ~~~", ("a",)),
        ("Verify:\n- `a`\n- `b` passes\n- looks right\n- a person runs `no`\n\ntext `no`", ("a", "b")),
        ("- Verify:\n  - `a`\n- `no`", ("a",)),
        ("### Checks\nVerify: `a`", ("a",)),
        ("### Validation Commands\n- `a`\n- `b`", ("a", "b")),
        ("Verify: none", ()),
        ("Verify: —", ()),
        ("Verify:\n- [ ] `no`", ()),
        ("Verify:", ()),
        ("Verify with: `no`", ()),
        ("To verify: `no`", ()),
        ("`Verify: no`", ()),
        ("```\nVerify: no\n```", ()),
        ("<!-- Verify: no -->", ()),
        ("- [ ] Verify: `no`", ()),
        ("### Notes\nVerify: `no`", ()),
        ("### Notes\n#### Old\nVerify: `no`", ()),
        ("Verify: `` ` ``", ("`",)),
    ],
)
def test_a_verify_line_gives_its_commands(line, commands):
    assert gate(line) == commands


def test_what_a_phase_shows_in_a_fence_is_no_statement():
    shown = "Verify: `no`\nAfter: none\nRunner: no\nModel: no\nTools: no\nFiles: src/no.py"
    fences = "\n\n".join(f"```\n{text}\n```" for text in (shown, *shown.split("\n")))
    phase = parse_plan(f"## P\n- [ ] a\n## Q\n- [ ] b\n\n{fences}\n").phases[1]
    assert (phase.verify, phase.after, phase.runner, phase.model, phase.tools, phase.files) == (
        (),
        ("1",),
        "",
        "",
        (),
        (),
    )


def test_a_phase_is_gated_by_the_document_then_by_its_parents_then_by_itself():
    text = """---
relay: {verify: [front, shared]}
---
Verify: `loose`
# Plan
Verify: `title`
## Validation Commands
- `valid`
Verify: no
## Part A
Verify: `part`
### One
Verify: `one`, `shared`
- [ ] a
#### Two
- [ ] b
## Part B
### Three
- [ ] c
#### Notes
Verify: `no`
##### Four
- [ ] d
"""
    one, two, three, four = parse_plan(text).phases
    assert one.verify == ("front", "shared", "loose", "valid", "title", "part", "one")
    assert two.verify == (*one.verify,)
    assert three.verify == ("front", "shared", "loose", "valid", "title")
    assert four.verify == three.verify


def test_the_first_heading_speaks_for_all_phases_even_on_their_level():
    text = "# Plan\nVerify: `all`\n# One\n- [ ] a\n# Context\nVerify: `no`\n# Two\n- [ ] b\n"
    assert [phase.verify for phase in parse_plan(text).phases] == [("all",), ("all",)]


def test_validation_commands_hold_for_what_stands_under_the_same_heading():
    text = (
        "# A\n## Validation commands:\n```\nx\n```\n## One\n- [ ] a\n# B\n## Two\n- [ ] b\n## Verify Commands\n- `y`\n"
    )
    assert [phase.verify for phase in parse_plan(text).phases] == [("x",), ("x", "y")]


def test_validation_commands_without_a_heading_above_hold_for_the_document():
    text = "### One\n- [ ] a\n## Validation Commands\n- `x`\n- run it\n### Two\n- [ ] b\n"
    assert [phase.verify for phase in parse_plan(text).phases] == [("x",), ("x",)]


FILES = """\
# P
### Task 1: A
**Files:**
- Create: `src/a.py`
- Modify: `src/b.py:12-20`, lib/c.py
- Test: `tests/test_a.py`
- Verify: `x.json`

Verify: `t`
- [ ] **Step 1:** do it
### Task 2: B
- Files to modify: `src/d.py`
  - `src/e.py` (new)
- Verify: `u`
- [ ] b — src/f.py
### Notes
**Files:** `src/g.py`
### Task 3: C
Files: `h.py`
text `i.py`
- [x] c
- `j.py`
"""


def test_lists_of_files_are_the_phases_paths_and_no_gate():
    one, two, three = parse_plan(FILES).phases
    assert one.files == ("src/a.py", "src/b.py", "lib/c.py", "tests/test_a.py", "x.json")
    assert (one.verify, two.verify) == (("t",), ("u",))
    assert two.open_paths == ("src/f.py", "src/d.py", "src/e.py")
    assert (three.files, three.open_paths) == (("h.py",), ("h.py",))
