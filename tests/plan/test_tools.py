"""`Tools:` below a phase's heading names the tool servers that its sessions get."""

import pytest

from relay.plan.parse import parse_plan

PHASE = "## Phase 1 — A\nVerify: `t`\n- [ ] one\n"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("Tools: postgres", ("postgres",)),
        ("- **Tools:** `postgres`, Browser, postgres", ("postgres", "browser")),
        ("Tools: none of that kind", ()),
        ("Tools: ../up, a b, é, x", ("x",)),
        ("Tools:", ()),
        ("Some tools: postgres", ()),
        (f"Tools: {'x' * 600}", ()),
    ],
)
def test_what_a_line_names(line, names):
    assert parse_plan(f"{PHASE}\n{line}\n").phases[0].tools == names


def test_only_the_phase_that_says_so_gets_it():
    plan = parse_plan(f"# P\n\nTools: above\n\n{PHASE}\nTools: db\n\n## Phase 2 — B\n- [ ] two\n")
    assert [phase.tools for phase in plan.phases] == [("db",), ()]
