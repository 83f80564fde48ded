"""What a session is told is told in parts, by size."""

from typing import Any

import pytest

from relay.plan.parse import parse_plan
from relay.prompts.texts import (
    PhaseBriefing,
    list_phase_parts,
    measure_prompt,
    render_handoff_note,
    render_outdated,
    render_system,
)
from relay.session.layers import LAYERS
from relay.session.usage import estimate_tokens
from relay.session.values import HandoffNote, SessionKind, ToolSpec
from tests.sessions.reference import render as render_events

TOOL = ToolSpec(name="t", description="d", input_schema={"type": "object"})


def test_parts_of_a_first_prompt_have_sources_and_sizes() -> None:
    """Those of the same source are one; rules are told apart from the role; nothing is left out."""
    message = (("plan", "Your phase"), ("environment", "Branch é"), ("plan", "Items"), ("ledger", ""))
    parts = {part["source"]: part for part in measure_prompt(render_system("runner", "Be brief."), (TOOL,), message)}
    assert list(parts) == ["system", "tools", "rules", "plan", "environment"]
    assert parts["plan"]["bytes"] == len("Your phase\n\nItems")
    assert parts["environment"]["bytes"] == len("Branch é") + 1
    assert parts["rules"] == {"source": "rules", "bytes": 9, "tokens": estimate_tokens("Be brief.")}
    assert set(parts) <= {source for layer in LAYERS for source in layer.sources}
    assert "rules" not in {part["source"] for part in measure_prompt(render_system("runner", ""), (), ())}


def test_the_page_of_events_names_every_source() -> None:
    text = render_events()
    assert all(source in text for source in ("handoff_note", "ledger", "environment"))


PLAN = """\
# T

## Phase 1 — A
- [x] a

## Phase 2 — B
Verify: `true`
- [ ] write it
  - [x] and this — b.py
- [ ] 2.3: numbered
- [ ]* not needed
- [ ] (manual) look at it
Words below.

## Phase 3 — C
- [ ] c
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_each_item_of_the_phase_has_its_id_once_and_its_state(ending: str) -> None:
    """The rest of the phase is as the plan has it, whatever its line ends."""
    plan = parse_plan(PLAN.replace("\n", ending))
    given: dict[str, Any] = dict.fromkeys(("handoff_note", "interruption", "baseline", "ledger"), "")
    briefing = PhaseBriefing(
        plan=plan, phase=plan.phases[1], plan_path="PLAN.md", environment=(), claimed=("2.2",), **given
    )

    outline, phase = (text.replace("\r", "") for _, text in list_phase_parts(briefing))

    assert outline == "# The plan, PLAN.md\n# T\n\n- 1 — A (done)\n- 2 — B (yours)\n- 3 — C"
    assert phase == (
        "# Your phase, with the ids of its items\n## Phase 2 — B\nVerify: `true`\n- [ ] 2.1 write it\n"
        "  - [~] 2.2 and this — b.py\n- [ ] 2.3: numbered\n- [ ]* 2.4 not needed\n"
        "- [ ] 2.5 (manual) look at it\nWords below.\n\n"
        "[~]: ticked by an earlier session, not committed yet.\n\n]*: not required.\n\n"
        "2.5: for a person, not for you; leave open."
    )


def test_a_handoff_note_has_each_part_that_there_is_and_says_who_wrote_it() -> None:
    note = HandoffNote(
        done=("1.1: tests\n pass",), open=("1.2",), next_step="write b.py", learned=("JSON, for two readers",),
        recorded=("c1", "c2"), dead_ends=("pickle",), files=("a.py", "b.py"), gate="red: 1 failed", author="model",
    )  # fmt: skip
    assert render_handoff_note(note) == (
        "(written by the session itself)\nTicked:\n- 1.1: tests pass\nStill open:\n- 1.2\nNext step:\n- write b.py\n"
        "Decisions and findings:\n- JSON, for two readers\nRecorded in the ledger:\n- c1, c2\nDead ends:\n- pickle\n"
        "Files touched:\n- a.py\n- b.py\nLast gate:\n- red: 1 failed"
    )
    assert render_handoff_note(HandoffNote()) == "(written by relay from its own log)"


def test_later_items_that_a_change_made_wrong_are_listed_and_without_any_nothing_is_said() -> None:
    assert render_outdated(()) == ""
    first, *rest = render_outdated(("phase 3: 3.1", "phase 4: 4.2")).splitlines()
    assert ("made later items wrong" in first, rest) == (True, ["- phase 3: 3.1", "- phase 4: 4.2"])


def test_only_a_run_commits_phases_and_only_it_and_a_rewind_write_the_work_tree() -> None:
    rows = {
        "writes": {SessionKind.RUN, SessionKind.REWIND},
        "plans": {SessionKind.PLAN, SessionKind.CONVERGE},
        "commits_phases": {SessionKind.RUN},
    }
    assert {name: {kind for kind in SessionKind if getattr(kind, name)} for name in rows} == rows
