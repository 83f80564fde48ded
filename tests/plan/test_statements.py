"""The lines of a plan that relay acts on: gates, order, who runs a phase, its tool servers and its files."""

from relay.plan.check import check_plan
from relay.plan.model import Phase
from relay.plan.parse import parse_plan

GOOD = "# P\nVerify: `t`\n- [ ] a — x.py\n"


def read(section: str) -> Phase:
    return parse_plan(f"## P\n- [ ] a\n\n{section}\n").phases[0]


VERIFY = {
    "Verify: `pytest -q`": ("pytest -q",),
    "verify : `a` and `b`": ("a", "b"),
    "**Verify:** `a`": ("a",),
    "**Verify**: `a`": ("a",),
    "*Verification:* `a` passes": ("a",),
    "**Verify: make test**": ("make test",),
    "Verify: python -m unittest tests.test_schema": ("python -m unittest tests.test_schema",),
    "- Verify: `a`": ("a",),
    "> Verify: `a`": ("a",),
    "Some text\nVerify: `a`\nmore `no`": ("a",),
    "Verify: ``a `b` c``": ("a `b` c",),
    "Verify: `` ` ``": ("`",),
    "Verify: `a`\nVerify: `b`\n\nVerify: `a`": ("a", "b"),
    "Verify:\n```sh\n# comment\n$ a\n\nb \\\n  --c\n```": ("a", "b --c"),
    "Verify:\n\n    a\n    b": ("a", "b"),
    "- Verify:\n  ~~~\n  a\n  ~~~": ("a",),
    "Verify:\n- `a`\n- `b` passes\n- looks right\n- a person runs `no`\n\ntext `no`": ("a", "b"),
    "- Verify:\n  - `a`\n- `no`": ("a",),
    "### Checks\nVerify: `a`": ("a",),
    "### Validation Commands\n- `a`\n- `b`": ("a", "b"),
    "Verify: none": (),
    "Verify: —": (),
    "Verify:\n- [ ] `no`": (),
    "Verify:": (),
    "Verify with: `no`": (),
    "To verify: `no`": (),
    "`Verify: no`": (),
    "```\nVerify: no\n```": (),
    "<!-- Verify: no -->": (),
    "- [ ] Verify: `no`": (),
    "### Notes\nVerify: `no`": (),
    "### Notes\n#### Old\nVerify: `no`": (),
}
AFTER = {
    "After: 1": ("1",),
    "after: 1, 2": ("1", "2"),
    "**After:** Phase 1 and phase 2": ("1", "2"),
    "*After*: 01 & #2.": ("1", "2"),
    "- After: 2; 1": ("2", "1"),
    "After: none": (),
    "After: None.": (),
    "After: 9": ("9",),
    "After: 1\nAfter: 2": ("1", "2"),
    **dict.fromkeys(
        (
            "", "After: the first one", "**After:**", "Afterwards: 1", "`After: 1`", "```\nAfter: 1\n```",
            "### Sub\nAfter: 1",
        ),
        ("2",),
    ),
}  # fmt: skip
TOOLS = {
    "Tools: postgres": ("postgres",),
    "- **Tools:** `postgres`, Browser, postgres": ("postgres", "browser"),
    "Tools: none of that kind": (),
    "Tools: ../up, a b, é, x": ("x",),
    "Tools:": (),
    "Some tools: postgres": (),
    f"Tools: {'x' * 600}": (),
}
WISHES = {
    **dict.fromkeys(
        ("Runner: claude", "runner: `claude`", "**Runner:** Claude", "- Runner: claude.", "Runner: `claude` (mine)"),
        ("claude", "", ""),
    ),
    **dict.fromkeys(
        ("Model: Qwen/Qwen3:30b", "**Model:** `Qwen/Qwen3:30b`", "- model: Qwen/Qwen3:30b."), ("", "Qwen/Qwen3:30b", "")
    ),
    "Effort: HIGH": ("", "", "high"),
    # Of people, in plans of people: nothing is chosen, refused or warned of.
    **dict.fromkeys(
        ("Effort: 2 days", "Effort: M", "**Effort**: small", "Effort: 3h", "Model: the user has many keys", "Runner:"),
        ("", "", ""),
    ),
}


def test_a_line_says_what_gates_a_phase():
    assert {line: read(line).verify for line in VERIFY} == VERIFY


def test_a_line_says_which_phases_come_first():
    head = "# Phase 1\n- [ ] a\n# Phase 2\n- [ ] b\n# Phase 3\n- [ ] c\n\n"
    found = {line: [phase.after for phase in parse_plan(f"{head}{line}\n").phases] for line in AFTER}
    assert found == {line: [(), ("1",), after] for line, after in AFTER.items()}


def test_a_line_names_the_tool_servers_of_its_phase_alone():
    assert {line: read(line).tools for line in TOOLS} == TOOLS
    plan = parse_plan("# P\n\nTools: above\n\n## A\n- [ ] one\n\nTools: db\n\n## B\n- [ ] two\n")
    assert [phase.tools for phase in plan.phases] == [("db",), ()]


def test_a_line_says_who_runs_a_phase():
    plans = {line: parse_plan(f"{GOOD}\n{line}\n\n# Q\nVerify: `t`\n- [ ] b — y.py\n") for line in WISHES}
    found = {line: [(p.runner, p.model, p.effort) for p in plan.phases] for line, plan in plans.items()}
    assert found == {line: [said, ("", "", "")] for line, said in WISHES.items()}
    assert [line for line, plan in plans.items() if check_plan(plan)] == []


NOT_ACTED_ON = [
    (f"{GOOD}\nRunner: Ubuntu on our CI\n", 5, True, "is read as prose, because that names no runner"),
    (f"{GOOD}\nRunner: a\n\nRunner: b\n", 7, False, "has a runner in line 5 already"),
    (f"Runner: a\n\n{GOOD}", 1, True, "the front matter says it for all phases: `relay: {runner: a}`"),
    (f"{GOOD}\n## Notes\nRunner: a\n", 6, True, "counts below a phase's own heading only"),
    (f"{GOOD}\nRunner: a\n---\n", 5, False, "underlines it"),
    (f"{GOOD}\nModel: User\n", 5, True, "is read as prose, because that names no model"),
]


def test_a_line_that_is_not_acted_on_is_named():
    found = {
        text: [(one.line, one.warning, one.message) for one in check_plan(parse_plan(text))]
        for text, *_ in NOT_ACTED_ON
    }
    wrong = [
        (text, found[text])
        for text, line, warning, words in NOT_ACTED_ON
        if [(at, is_warning, words in said) for at, is_warning, said in found[text]] != [(line, warning, True)]
    ]
    assert wrong == []


def test_what_a_phase_shows_in_a_fence_is_no_statement():
    shown = "Verify: `no`\nAfter: none\nRunner: no\nModel: no\nTools: no\nFiles: src/no.py"
    fences = "\n\n".join(f"```\n{text}\n```" for text in (shown, *shown.split("\n")))
    one = read(fences)
    assert (one.verify, one.after, one.wishes, one.tools, one.files) == ((), (), (), (), ())


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
    assert two.verify == one.verify
    assert three.verify == four.verify == ("front", "shared", "loose", "valid", "title")
    text = "# Plan\nVerify: `all`\n# One\n- [ ] a\n# Context\nVerify: `no`\n# Two\n- [ ] b\n"
    assert [phase.verify for phase in parse_plan(text).phases] == [("all",), ("all",)]
