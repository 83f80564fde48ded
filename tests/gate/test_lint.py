"""What the verify commands of a plan would prove, before it is run."""

from relay.gate.shell_line import check_gates
from relay.plan.parse import parse_plan

PLAN = """\
---
relay: {verify: ["make || true"]}
---
# P
Verify: `pytest -q`

## Phase 1 — A
Verify: `pytest || true`
- [ ] a

## Phase 2 — B
Verify: `true`
- [x] b

## Phase 3 — C
Verify: `cd x; pytest; ls`, `pytest || true`
- [ ] c

### Validation Commands
- `echo done`
"""


def test_every_command_of_the_open_phases_is_judged_once_with_its_line():
    found = [(v.line, v.warning, v.message.partition("` ")[0]) for v in check_gates(parse_plan(PLAN))]
    assert found == [
        (1, False, "the verify command `make || true"),
        (8, False, "the verify command `pytest || true"),
        (19, False, "the verify command `echo done"),
        (16, True, "the verify command `cd x; pytest; ls"),
    ]
