"""Where a run goes on, from git's facts alone.

`find_resume_point` is pure: the same facts give the same case, the same words and the same action, whether
`relay status --why` asks or `relay run` acts.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from relay.base.values import dataclass
from relay.base.words import count
from relay.plan.model import Plan

if TYPE_CHECKING:
    from relay.git.message import CommitText
    from relay.store.attempts import OpenAttempt
    from relay.store.history import RelayCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What relay keeps for the branch, and what a killed run left unfinished."""

    attempt: "OpenAttempt | None" = None
    """The open attempt of the plan that is asked about; or of any plan if its commit is on the branch."""
    foreign: "OpenAttempt | None" = None
    """The open attempt of another plan, whose commit is not on the branch."""
    attempt_commit: "RelayCommit | None" = None
    """The commit of `attempt`, if it is on the branch: only the steps after a commit are missing."""
    move: "CommitText | None" = None
    """Commits of others that the files do not follow yet; they are at its parent."""
    unfinished: "CommitText | RelayCommit | None" = None
    """The commit from which a run updates the plan's file before it reads the file."""


class ResumeCase(StrEnum):
    """The line of the table of resume cases that applies."""

    NOTHING_OPEN = "nothing open"
    """No attempt is open: the next open phase begins."""
    UNTOUCHED = "untouched"
    """An attempt was opened and nothing was changed in it."""
    MID_ATTEMPT = "mid-attempt"
    """An attempt was opened and left work behind."""
    POWER_LOSS = "power loss"
    """The same, and the machine has been restarted since, or this is another one: files may be empty or missing."""
    AFTER_COMMIT = "after the commit point"
    """The attempt's commit is on the branch; only the cleanup after it is missing."""
    MOVED_ON = "moved on"
    """The branch is, or will be, somewhere else than where the attempt began.

    By a commit, a reset, a rebase, or an edit of the plan, which relay commits.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """The facts from the open attempt's ref and its snapshots."""

    session_id: str
    phase_id: str
    """Its present id, wherever it was moved to; empty if it is gone."""
    base_head: str | None
    """HEAD when the attempt began; None on an unborn branch."""
    boot_id: str
    elsewhere: bool
    """It worked in another clone or work tree: this one has none of its uncommitted work."""
    claims: tuple[str, ...]
    handed_over: bool
    """Its newest snapshot carries a handoff note: the session ended in order."""
    touched: bool
    """The work tree, or its newest snapshot, differs from the attempt's start."""
    saved: bool
    """The work tree is as in the newest snapshot."""
    committed: bool = False
    """The commit of its session is on the branch, also below later commits."""
    began_as: str = ""
    """The phase's id when the attempt began, where that may differ."""
    proposed: bool = False
    """Its newest snapshot is a finished phase that lacks only the commit."""
    faults: int = 0
    """Number of faults that the newest review of the phase confirmed."""
    merges: str = ""
    """The phase's own commit, if it is done and only merged onto what others landed; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All facts that decide."""

    plan: Plan
    """The plan that a run follows."""
    head: str | None
    boot_id: str
    attempt: AttemptFacts | None
    is_edited: bool = False
    """The user edited the plan's file, and a run commits that first, which moves the branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """The case that applies and what `relay run` will do."""

    case: ResumeCase
    phase_id: str
    """The phase to work on next; empty without one."""
    why: str
    """What was found and what it means, one or two sentences."""
    then: str
    """What `relay run` does."""


def find_resume_point(facts: Facts) -> ResumePoint:
    """Return the case that the facts select, and what follows from it."""
    if facts.attempt is None:
        return _begin(facts, ResumeCase.NOTHING_OPEN, "")
    if facts.head != facts.attempt.base_head or facts.is_edited:
        return _after_head_moved(facts, facts.attempt)
    if not facts.attempt.touched:
        return _go_on(
            facts.attempt,
            ResumeCase.UNTOUCHED,
            f"Session {facts.attempt.session_id} was opened and left nothing.",
            "opens it again",
        )
    # A session that ended in order synced its files: later differences are the user's.
    may_be_lost = facts.attempt.boot_id != facts.boot_id and not facts.attempt.handed_over
    if not facts.attempt.saved and (facts.attempt.elsewhere or may_be_lost):
        return _go_on(
            facts.attempt,
            ResumeCase.POWER_LOSS,
            f"Session {facts.attempt.session_id} worked before this machine was started, or in another work tree; what "
            "is here is not its last checkpoint, and files that were not synced may be empty.",
            "keeps what it finds under refs/relay/, restores the last checkpoint, then starts a fresh session",
        )
    return _resume_work(facts.attempt)


def _resume_work(attempt: AttemptFacts) -> ResumePoint:
    claims = f" Claimed but not committed: {', '.join(attempt.claims)}." if attempt.claims else ""
    if attempt.merges:
        why = f"Phase {attempt.phase_id} is done ({attempt.merges[:10]}) and merged with what others have landed."
        return _go_on(
            attempt, ResumeCase.MID_ATTEMPT, why, "commits the merge, or starts a fresh session that repairs it"
        )
    if attempt.handed_over and attempt.saved and attempt.faults:
        why = f"A review of phase {attempt.phase_id} confirmed {count(attempt.faults, 'fault')}.{claims}"
        return _go_on(attempt, ResumeCase.MID_ATTEMPT, why, "starts a fresh session that repairs what was confirmed")
    if attempt.handed_over and attempt.proposed:
        since = "" if attempt.saved else "; files were changed since"
        why = f"The work on phase {attempt.phase_id} is finished and not committed{since}.{claims}"
        return _go_on(
            attempt, ResumeCase.MID_ATTEMPT, why, "checks it again, then commits it or starts a session that repairs it"
        )
    if attempt.handed_over and attempt.saved:
        why = f"Session {attempt.session_id} handed over, with a note; the phase is not finished.{claims}"
        return _go_on(attempt, ResumeCase.MID_ATTEMPT, why, "starts a fresh session from its note")
    if attempt.handed_over:
        words = "handed over, with a note, and files were changed since; the phase is not finished"
        why = f"Session {attempt.session_id} {words}.{claims}"
        then = "saves what is there under refs/relay/ and starts a fresh session from its note"
        return _go_on(attempt, ResumeCase.MID_ATTEMPT, why, then)
    why = f"Session {attempt.session_id} was interrupted while it worked.{claims}"
    return _go_on(
        attempt, ResumeCase.MID_ATTEMPT, why, "keeps its work, saves it under refs/relay/ and starts a fresh session"
    )


def _after_head_moved(facts: Facts, attempt: AttemptFacts) -> ResumePoint:
    if attempt.committed:
        why = f"The commit of session {attempt.session_id} is on the branch; relay was stopped right after it."
        return _begin(facts, ResumeCase.AFTER_COMMIT, why, "finishes what follows a commit, then ")
    moved = "the plan was edited since it began"
    if facts.head != attempt.base_head:
        ends = f"{(attempt.base_head or 'unborn')[:10]} → {(facts.head or 'unborn')[:10]}"
        moved = f"the branch has moved since it began ({ends})"
    why = f"Phase {_name_phase(attempt)} is open, and {moved}."
    phase = facts.plan.find_phase(attempt.phase_id)
    waits = facts.plan.find_waits()[phase.id] if phase is not None and not phase.done else ()
    if phase is not None and not phase.done and not waits:
        then = "keeps its work and starts a fresh session on the new commit"
        if attempt.handed_over and attempt.proposed:
            then = "commits its work without a session if git can merge it and its gate is green"
        if attempt.merges:
            why = f"Phase {_name_phase(attempt)} is done ({attempt.merges[:10]}), and others have landed meanwhile."
            then = "merges both, then commits that or starts a session that repairs it"
        return _go_on(attempt, ResumeCase.MOVED_ON, why, then)
    if waits:
        why = f"{why} It comes after {', '.join(waits)}, which is not done."
    then = "keeps the old work under refs/relay/ and, once none of it is uncommitted in the work tree, "
    return _begin(facts, ResumeCase.MOVED_ON, why, then)


def _name_phase(attempt: AttemptFacts) -> str:
    """Return the phase's name; it may have another number, or none, since its attempt began."""
    if attempt.began_as in {"", attempt.phase_id}:
        return attempt.phase_id
    return (
        f"{attempt.began_as}, {f'now {attempt.phase_id}' if attempt.phase_id else 'which is not in the plan any more'},"
    )


def _go_on(attempt: AttemptFacts, case: ResumeCase, why: str, then: str) -> ResumePoint:
    return ResumePoint(
        case=case, phase_id=attempt.phase_id, why=why, then=f"goes on with phase {attempt.phase_id}: {then}"
    )


def _begin(facts: Facts, case: ResumeCase, why: str, first: str = "") -> ResumePoint:
    phase = facts.plan.next_phase()
    if phase is None and facts.plan.done:
        return ResumePoint(case=case, phase_id="", why=f"{why} Every phase is done.".strip(), then=f"{first}ends")
    if phase is None:
        words = f"{why} {_explain_wait(facts.plan)}".strip()
        return ResumePoint(case=case, phase_id="", why=words, then=f"{first}cannot go on")
    words = f"{why} Phase {phase.id} is next.".strip()
    return ResumePoint(case=case, phase_id=phase.id, why=words, then=f"{first}begins phase {phase.id}")


def _explain_wait(plan: Plan) -> str:
    from relay.plan.check import check_order

    found = next(check_order(plan))
    return f"Line {found.line}: {found.message}."
