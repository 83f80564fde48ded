"""Where a run goes on, and what it does first: the one answer for `relay status`, ``--dry-run`` and `relay run`.

`ask` changes nothing: no ref, no file of the work tree, nothing in the user's index.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from relay.base.errors import LockedError, PlanError, RelayError, RepoError
from relay.base.hints import Command, Hint, TypedPath
from relay.base.values import dataclass
from relay.git.names import SWITCH, find_plan_branch, name_jobs, parse_ref_part
from relay.git.repository import Repo
from relay.plan.model import Phase, Plan
from relay.prompts.package_data import EXAMPLE, INSTEAD, is_example
from relay.session.usage import Spent
from relay.store.history import (
    RelayCommit,
    add_spent,
    list_doubts,
    read_plan_commits,
    read_rewound_commits,
    read_undone,
    read_unlanded_commits,
)
from relay.store.plan_versions import (
    EditKind,
    PlanEdit,
    find_attempt_phase,
    find_claims,
    find_edit,
    find_phases,
    find_present_phase,
    find_questions,
    holds_another_plan,
    parse_at,
)
from relay.store.refs import ATTEMPTS, has_kept_refs
from relay.store.resume import AttemptFacts, Facts, Kept, ResumePoint, find_resume_point

if TYPE_CHECKING:
    from relay.git.message import CommitText
    from relay.store.attempts import OpenAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSource:
    """The plan, and how to read its file."""

    plan_name: str
    """Relative to the repository's root; absolute for a plan outside of it."""
    load: Callable[[], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """The state of a plan, and what a run would do."""

    edit: PlanEdit
    """The plan, and what a run does about its file."""
    kept: Kept
    """What relay keeps for the branch. Another plan's attempt blocks the run if it holds work; else a run closes it."""
    point: ResumePoint | None = None
    """None if a run would be refused, or cannot be foreseen: `obstacle`, `kept`, `edit` or `running` says why."""
    facts: AttemptFacts | None = None
    """The open attempt's facts, on which `point` rests."""
    obstacle: str = ""
    """The git operation that must be ended first, and how."""
    running: str = ""
    """Who is at work here."""

    def get_point(self) -> ResumePoint:
        """Return where a run goes on.

        Raises:
            LookupError: Nowhere; `relay.run.resume.require_point` tells the user why.
        """
        if self.point is None:
            raise LookupError(self.obstacle or self.running)
        return self.point

    @property
    def plan(self) -> Plan:
        """The plan that a run follows."""
        return self.edit.plan

    @property
    def goes_on(self) -> bool:
        """Whether a run puts its next session on the open attempt."""
        point, attempt = self.point, self.facts
        return bool(
            point
            and attempt
            and not self.kept.attempt_commit
            and attempt.phase_id
            and point.phase_id == attempt.phase_id
        )


def ask(source: PlanSource, repo: Repo, *, is_locked: bool = False) -> PlanState:
    """Read the state of the plan from git and the work tree.

    Args:
        is_locked: Whether the caller holds the work tree's lock. Comparing the work tree with an open attempt uses the
            private index, which belongs to the lock's holder; without it, the lock is taken here if it is free.

    Raises:
        PlanError: There is no plan, or it cannot be used.
    """
    kept = _read_kept(repo, source, is_locked=is_locked)
    with ExitStack() as stack:
        if not is_locked and (kept.attempt or kept.foreign):
            from relay.git.notes import lock_worktree

            try:
                stack.enter_context(lock_worktree(repo))
            except LockedError as error:
                edit = PlanEdit(kind=EditKind.NONE, plan=source.load())
                return PlanState(edit=edit, kept=kept, running=str(error))
            kept = _read_kept(repo, source, is_locked=True)  # as whoever held the lock left it
        return _answer(source, repo, kept)


def find_done(source: PlanSource, repo: Repo) -> Plan | None:
    """Return the plan if `ask` finds it done and nothing left to do; the caller holds the work tree's lock.

    With an open attempt the answer is None: the work tree is not compared with it.

    Raises:
        PlanError: There is no plan, or it cannot be used.
    """
    kept = _read_kept(repo, source, is_locked=True)
    if kept.attempt is not None or kept.move is not None:
        return None
    found = _answer(source, repo, kept)
    return found.plan if found.plan.done and found.point and found.edit.kind is EditKind.NONE else None


def _read_kept(repo: Repo, source: PlanSource, *, is_locked: bool) -> Kept:
    if not is_locked and not has_kept_refs(repo):
        return Kept()
    from relay.store.branches import read_kept

    return read_kept(repo, source.plan_name)


def _answer(source: PlanSource, repo: Repo, kept: Kept) -> PlanState:
    edit = _read_edit(source, repo, kept)
    if edit.plan.done and edit.kind is EditKind.NONE:
        kept = replace(kept, foreign=None)  # a plan that needs no run is not held up by another plan's attempt
    refused = PlanState(edit=edit, kept=kept, obstacle=_find_obstacle(repo))
    if refused.obstacle or (edit.kind is EditKind.REFUSED and not kept.attempt_commit):
        return refused
    if kept.foreign is not None and _has_work(repo, kept.foreign, source.plan_name):
        return refused
    facts = Facts(plan=edit.plan, head=None, boot_id="", attempt=None)
    if kept.attempt is not None:
        from relay.store.branches import read_facts

        facts = read_facts(repo, edit, kept, source.plan_name)
    return replace(refused, facts=facts.attempt, point=_put_first(find_resume_point(facts), kept.move))


def _read_edit(source: PlanSource, repo: Repo, kept: Kept) -> PlanEdit:
    shown = source.load()
    if kept.unfinished is not None:
        from relay.store.branches import find_projected

        if (text := find_projected(repo, source.plan_name, kept.unfinished, shown)) is not None:
            return PlanEdit(kind=EditKind.NONE, plan=parse_at(text, source.plan_name))
    made = kept.attempt_commit
    unfinished = made.commit if made is not None and made is kept.unfinished else ""
    return find_edit(repo, source.plan_name, shown, unfinished=unfinished)


def _find_obstacle(repo: Repo) -> str:
    from relay.git.status import check_state

    if (words := check_state(repo)) or repo.branch:
        return words or ""
    attempts = [find_plan_branch(parse_ref_part(ref.removeprefix(ATTEMPTS))) for ref in repo.list_refs(ATTEMPTS)]
    back = "".join(f"{SWITCH} {quote(branch)} goes back to where a phase is open, or " for branch in attempts[:1])
    return f"HEAD is detached; relay commits on a branch: {back}git switch -c NAME"


def _has_work(repo: Repo, attempt: "OpenAttempt", plan_name: str) -> bool:
    """Return whether anything was done in an attempt."""
    from relay.store.attempts import find_owned_paths
    from relay.store.snapshot import write_snapshot_tree

    return attempt.last_wip is not None or bool(find_owned_paths(repo, plan_name, attempt, write_snapshot_tree(repo)))


def _put_first(point: ResumePoint, move: "CommitText | None") -> ResumePoint:
    """Add that a run finishes an interrupted move of the branch before anything else, if there is one."""
    if move is None:
        return point

    what = f"move of the files to {move.commit[:10]}"
    return replace(point, why=f"The {what} was cut off. {point.why}", then=f"finishes the {what}, then {point.then}")


def find_obstacle(plan_state: PlanState, plan_name: str) -> RelayError | None:
    """Return what must be ended, undone or written before a run can go on; None if nothing must.

    Another relay at work is no obstacle: a run waits for it.
    """
    if plan_state.obstacle:
        return RepoError(plan_state.obstacle)
    if is_example(plan_state.plan):
        return PlanError(EXAMPLE, path=plan_name, hint=INSTEAD)
    if (point := plan_state.point) is not None:
        stands = point.phase_id or plan_state.plan.done
        return None if stands else find_disorder(plan_state.plan, plan_name)
    if plan_state.edit.violations:
        return make_refusal(plan_name, plan_state.edit)
    if (attempt := plan_state.kept.foreign) is None:
        return None
    return RepoError(
        f"phase {attempt.phase_id} of {attempt.plan_path} is open and has uncommitted work",
        hint=("`", Command(words=("run",), plan_path=attempt.plan_path), "` goes on with it"),
    )


def find_disorder(plan: Plan, plan_name: str, phase: Phase | None = None) -> PlanError | None:
    """Return why phases can never have their turn, as `relay check` says it; None if all can.

    Args:
        phase: Ask about this phase only; None for the first phase that cannot.
    """
    from relay.plan.check import check_order

    found = next((one for one in check_order(plan) if phase is None or one.line == phase.line), None)
    return PlanError(found.message, path=plan_name, line=found.line) if found else None


def make_refusal(plan_name: str, edit: PlanEdit) -> PlanError:
    """Return the error for a plan that was edited in a way that relay does not commit."""
    violations = edit.violations
    places = (f"{plan_name}:{violation.line}" if violation.line else plan_name for violation in violations)
    words = "\n  ".join(f"{place}: {violation.message}" for place, violation in zip(places, violations, strict=True))
    return PlanError(
        f"{plan_name} was edited in a way that relay does not commit by itself:\n  {words}",
        hint="undo that part; `git revert` of a phase's commit opens that phase again"
        if edit.is_loose
        else ("undo that part, or, if you mean it, commit it yourself: git commit ", TypedPath(path=plan_name)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCost:
    """What the current plan has cost, on this branch."""

    commits: tuple[RelayCommit, ...]
    """The plan's commits on this branch, newest first."""
    unlanded: tuple[RelayCommit, ...] = ()
    """Its commits on the branches of phases that have not landed."""
    closed: Spent
    """Cost of all its commits, rewound ones too, of planning without a commit, and of sessions without one."""
    rewound: Spent = Spent()
    """The part of it that `relay rewind` left on another branch."""
    open: Spent = Spent()
    """Cost of the open attempt of HEAD's branch."""

    @property
    def spent(self) -> Spent:
        """The plan's cost, as every command says it."""
        return self.closed + self.open


def read_plan_cost(repo: Repo, plan_path: str) -> PlanCost:
    """Return the cost of the plan, and its commits; for a new plan in the file of a finished one, its planning.

    It is the one sum of a plan's money: commits' trailers and refs, never a log.
    """
    if holds_another_plan(repo, plan_path):
        from relay.store.spend import read_plan_usage

        planning = read_plan_usage(repo)
        is_own = planning is not None and planning.plan_path == plan_path
        closed = planning.spend if planning and is_own else Spent()
        return PlanCost(commits=(), closed=closed, open=read_open_cost(repo, plan_path))
    own = read_plan_commits(repo, plan_path)
    if not has_kept_refs(repo):
        return PlanCost(commits=own, closed=add_spent(own))
    from relay.store.spend import read_uncommitted

    rewound = read_rewound_commits(repo, plan_path, own)
    unlanded = read_unlanded_commits(repo, plan_path, own)
    others = (*rewound, *unlanded)
    closed = sum(read_uncommitted(repo, plan_path, own, others), start=add_spent((*own, *others)))
    still_open = read_open_cost(repo, plan_path)
    return PlanCost(commits=own, unlanded=unlanded, closed=closed, rewound=add_spent(rewound), open=still_open)


def read_open_cost(repo: Repo, plan_path: str) -> Spent:
    """Return what the open attempt has spent: no commit records it yet."""
    from relay.store.attempts import read_attempt
    from relay.store.branches import find_attempt_commit, is_of_another_plan

    attempt = read_attempt(repo)
    if attempt is None or find_attempt_commit(repo, attempt) or is_of_another_plan(repo, attempt, plan_path):
        return Spent()
    return attempt.spend


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSummary:
    """The state of one phase on the branch."""

    phase_id: str
    spent: Spent
    """Cost of its commits, those that have not landed too, and of its open attempt."""
    commits: tuple[str, ...]
    """Commit ids, oldest first, without commits that a revert has undone; their cost is spent all the same."""
    claimed: tuple[str, ...] = ()
    """Items that the open attempt claims and no commit has."""
    is_open: bool = False
    """Whether it has an open attempt."""
    doubts: tuple[str, ...] = ()
    """The ``Relay-Doubt`` sentences of its commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """The state of a plan."""

    plan_name: str
    branch: str | None
    """None when HEAD is detached."""
    plan_state: PlanState
    """What a run would do."""
    phases: tuple[PhaseSummary, ...]
    """One for each phase of the plan, in its order."""
    spent: Spent
    """Cost of everything, with planning and rewound commits."""
    rewound: Spent
    """The part of it that `relay rewind` left on another branch."""
    questions: tuple[str, ...] = ()
    """Questions that sessions left for the user, and what they assumed: a line each."""

    @property
    def plan(self) -> Plan:
        """The plan that a run follows."""
        return self.plan_state.plan

    @property
    def obstacle(self) -> Hint:
        """What must be ended before a run can go on, and how; empty if nothing must."""
        error = find_obstacle(self.plan_state, self.plan_name)
        if error is None:
            return ""
        return (str(error), "; ", error.hint) if error.hint else str(error)


def summarize_plan(source: PlanSource, repo: Repo) -> PlanSummary:
    """Return the state of the plan, and its cost.

    Raises:
        PlanError: There is no plan, or it cannot be used.
    """
    plan_state = ask(source, repo)
    kept = plan_state.kept
    attempt = None if kept.attempt_commit else kept.attempt  # a commit records what its attempt has spent
    cost = read_plan_cost(repo, source.plan_name)
    return PlanSummary(
        plan_name=source.plan_name,
        branch=repo.branch,
        plan_state=plan_state,
        phases=tuple(_summarize_phases(source, repo, plan_state, cost, _list_open(repo, attempt))),
        spent=cost.spent,
        rewound=cost.rewound,
        questions=find_questions(repo, attempt, source.plan_name, plan_state.plan),
    )


def read_questions(source: PlanSource, repo: Repo) -> tuple[str, ...]:
    """Return the questions that sessions left for the user; none if the plan cannot be read."""
    from relay.store.attempts import read_attempt

    try:
        return find_questions(repo, read_attempt(repo), source.plan_name, source.load())
    except PlanError:  # the next command says what is wrong with it
        return ()


def _list_open(repo: Repo, attempt: "OpenAttempt | None") -> "list[OpenAttempt]":
    """Return the open attempts of the plan's branch: that of HEAD, and those in work trees of relay's own."""
    prefix = name_jobs(repo.branch or "")
    branches = [parse_ref_part(ref.removeprefix(ATTEMPTS)) for ref in repo.list_refs(ATTEMPTS)]
    begun = [branch for branch in branches if repo.branch and branch.startswith(prefix)]
    if not begun:
        return [attempt] if attempt else []
    from relay.store.attempts import read_attempt

    return [one for one in (attempt, *(read_attempt(repo, branch) for branch in begun)) if one is not None]


def _summarize_phases(
    source: PlanSource,
    repo: Repo,
    plan_state: PlanState,
    cost: PlanCost,
    attempts: "Sequence[OpenAttempt]",
) -> Iterator[PhaseSummary]:
    """Yield the state of each phase, whatever its number was when the work was done."""
    plan, plan_path, commits = plan_state.plan, source.plan_name, cost.commits
    phases = find_phases(repo, plan_path, plan, commits, before=plan_state.edit.before)
    gone = read_undone(repo, commits)
    begun = {find_attempt_phase(repo, attempt, plan): attempt for attempt in attempts}
    waiting = [(find_present_phase(repo, one.phase, plan, one.plan, (one.commit,)), one) for one in cost.unlanded]
    recorded = {one.session for one in cost.unlanded}
    for phase in plan.phases:
        own = [commit for commit in commits if phases.get(commit.commit) == phase.id]
        spent = add_spent([*own, *(one for phase_id, one in waiting if phase_id == phase.id)])
        attempt = begun.get(phase.id)
        yield PhaseSummary(
            phase_id=phase.id,
            spent=spent + attempt.spend if attempt and attempt.session_id not in recorded else spent,
            commits=tuple(commit.commit for commit in reversed(own) if commit.commit not in gone),
            claimed=find_claims(repo, attempt, plan_path, plan) if attempt else (),
            is_open=attempt is not None,
            doubts=_find_open_doubts(repo, plan_path, own, gone),
        )


def _find_open_doubts(
    repo: Repo, plan_path: str, commits: list[RelayCommit], undone: frozenset[str]
) -> tuple[str, ...]:
    found = list_doubts(commits, undone)
    if not found:
        return ()
    from relay.store.staleness import drop_settled

    return drop_settled(repo, plan_path, found)
