"""The resume table, case by case: the same facts give the same words and the same deed."""

from dataclasses import replace
from typing import Any

from relay.plan.parse import parse_plan
from relay.store.resume import AttemptFacts, Facts, ResumeCase, find_resume_point

OPEN = "## Phase 1\n- [x] a — a\n## Phase 2\n- [ ] b — b\n- [ ] c — c\n"
DONE = OPEN.replace("[ ]", "[x]")
STUCK = "## Phase 1\nAfter: 2\n- [ ] a — a\n## Phase 2\nAfter: 1\n- [ ] b — b\n"
ATTEMPT = AttemptFacts(
    session_id="5e551011",
    phase_id="2",
    base_head="a" * 40,
    boot_id="boot",
    elsewhere=False,
    claims=(),
    handed_over=False,
    touched=True,
    saved=False,
)


def point(attempt=None, *, plan=OPEN, head="a" * 40, boot="boot", is_edited=False):
    return find_resume_point(
        Facts(plan=parse_plan(plan), head=head, boot_id=boot, attempt=attempt, is_edited=is_edited)
    )


def test_nothing_open():
    """Without an attempt the plan alone decides."""
    circle = "Line 1: phases wait for each other: 1 → 2 → 1; change an `After:` line (the default is the phase above)."
    for plan, phase, why, then in (
        (OPEN, "2", "Phase 2 is next.", "begins phase 2"),
        (DONE, "", "Every phase is done.", "ends"),
        (STUCK, "", circle, "cannot go on"),
    ):
        found = point(plan=plan)
        assert (found.case, found.phase_id, found.why, found.then) == (ResumeCase.NOTHING_OPEN, phase, why, then)


NOTE, MERGE = {"handed_over": True}, {"merges": "b" * 40}
CLAIMS, FAULTS, PROPOSED = {"claims": ("2.1", "2.2")}, {"faults": 2}, {"proposed": True}
SAVED, AWAY = {"saved": True}, {"elsewhere": True}
WORK, LOSS = ResumeCase.MID_ATTEMPT, ResumeCase.POWER_LOSS
ROWS: tuple[Any, ...] = (
    ({"touched": False} | SAVED, "boot", ResumeCase.UNTOUCHED, "left nothing", "opens it again"),
    ({}, "boot", WORK, "was interrupted while it worked", "keeps its work"),
    (CLAIMS, "boot", WORK, "Claimed but not committed: 2.1, 2.2.", "keeps its work"),
    (NOTE | SAVED, "boot", WORK, "handed over", "from its note"),
    (NOTE | SAVED | PROPOSED, "boot", WORK, "is finished and not committed.", "commits it or starts a session"),
    (NOTE | SAVED | FAULTS, "boot", WORK, "A review of phase 2 confirmed 2 faults.", "repairs what was confirmed"),
    ({}, "other", LOSS, "may be empty", "restores the last checkpoint"),
    (MERGE | AWAY, "boot", LOSS, "in another work tree", "restores the last checkpoint"),
    (MERGE, "boot", WORK, "merged with what others have landed", "commits the merge"),
    (MERGE | AWAY | SAVED, "boot", WORK, "merged with what others have landed", "commits the merge"),
    (NOTE | PROPOSED, "boot", WORK, "not committed; files were changed since.", "checks it again, then commits it"),
    (NOTE | FAULTS, "boot", WORK, "files were changed since", "saves what is"),
    (SAVED | PROPOSED, "boot", WORK, "was interrupted while", "starts a fresh session"),
    (SAVED | FAULTS, "boot", WORK, "was interrupted while", "starts a fresh session"),
    (SAVED, "other", WORK, "was interrupted", "keeps its work"),
    (NOTE, "other", WORK, "files were changed since", "from its note"),
    (AWAY, "boot", LOSS, "in another work tree", "restores the last checkpoint"),
    (AWAY | NOTE, "boot", LOSS, "another work tree", "restores the last"),
    (AWAY | NOTE | SAVED, "boot", WORK, "handed over, with a note; the phase is not finished", "from its note"),
)


def test_an_open_attempt_at_its_base():
    """HEAD is where the attempt began: what the work tree holds decides."""
    for changes, boot, case, why, then in ROWS:
        found = point(replace(ATTEMPT, **changes), boot=boot)
        assert (found.case, found.phase_id) == (case, "2"), changes
        assert why in found.why, changes
        assert found.then.startswith("goes on with phase 2: "), changes
        assert then in found.then, changes


def test_after_the_commit_point():
    """The branch has the attempt's commit: only tidying up is left."""
    found = point(replace(ATTEMPT, committed=True), head="b" * 40, plan=DONE)

    assert (found.case, found.phase_id) == (ResumeCase.AFTER_COMMIT, "")
    assert found.then == "finishes what follows a commit, then ends"


def test_the_user_moved_on():
    """HEAD is elsewhere and not by this session; the words name both ends."""
    found = point(ATTEMPT, head="b" * 40)

    assert (found.case, found.phase_id) == (ResumeCase.MOVED_ON, "2")
    assert "aaaaaaaaaa → bbbbbbbbbb" in found.why
    assert found.then == "goes on with phase 2: keeps its work and starts a fresh session on the new commit"
    finished = point(replace(ATTEMPT, handed_over=True, proposed=True), head="b" * 40)
    assert "without a session if git can merge it and its gate is green" in finished.then
    landing = point(replace(ATTEMPT, merges="b" * 40), head="b" * 40)
    assert landing.why == "Phase 2 is done (bbbbbbbbbb), and others have landed meanwhile."
    assert "merges both, then commits that or starts a session" in landing.then


def test_the_user_went_back_behind_what_the_phase_comes_after():
    """The open phase is given up for the one before it."""
    found = point(ATTEMPT, head="b" * 40, plan=OPEN.replace("[x]", "[ ]"))

    assert (found.case, found.phase_id) == (ResumeCase.MOVED_ON, "1")
    assert "It comes after 1, which is not done. Phase 1 is next." in found.why
    assert found.then.startswith("keeps the old work under refs/relay/")


def test_the_plan_was_edited_under_an_open_attempt():
    """The commit of the edit moves the branch: said before it is made; where the phase went to is gone on with."""
    found = point(ATTEMPT, is_edited=True)
    assert (found.case, found.phase_id) == (ResumeCase.MOVED_ON, "2")
    assert found.why == "Phase 2 is open, and the plan was edited since it began."

    moved = point(replace(ATTEMPT, phase_id="3", began_as="2"), is_edited=True, plan=OPEN.replace("Phase 2", "Phase 3"))
    assert moved.why == "Phase 2, now 3, is open, and the plan was edited since it began."
    assert moved.then.startswith("goes on with phase 3: keeps its work")

    gone = point(replace(ATTEMPT, phase_id="", began_as="2"), is_edited=True)
    assert (gone.case, gone.phase_id) == (ResumeCase.MOVED_ON, "2")
    assert gone.why.startswith("Phase 2, which is not in the plan any more, is open, and the plan was edited")
    assert gone.then.startswith("keeps the old work under refs/relay/")


def test_an_unborn_branch_that_got_a_commit_has_moved():
    """None is a place like any other."""
    assert point(replace(ATTEMPT, base_head=None)).case is ResumeCase.MOVED_ON
    assert point(replace(ATTEMPT, base_head=None), head=None).case is ResumeCase.MID_ATTEMPT


def test_a_branch_that_lost_all_its_commits_has_moved():
    assert "aaaaaaaaaa → unborn" in point(ATTEMPT, head=None).why


def test_a_moved_branch_with_an_attempt_of_a_phase_that_is_gone_or_done_begins_what_is_next():
    """Nothing is said about what the phase would wait for."""
    for phase_id, plan in (("7", OPEN), ("1", OPEN)):
        found = point(replace(ATTEMPT, phase_id=phase_id), plan=plan, head="b" * 40)

        assert (found.case, found.phase_id) == (ResumeCase.MOVED_ON, "2")
        assert "comes after" not in found.why
