"""How phases went, from the trailers of their commits alone: what `relay report --all` adds up on any clone.

The first part is pure; `read_outcomes` asks git for the commits.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import median

from relay.base.values import dataclass
from relay.config.model import OWN_LOOP
from relay.git.command import GitError
from relay.git.repository import Repo
from relay.session.usage import Spent
from relay.store import trailers
from relay.store.history import RelayCommit, add_spent, read_all_plans, read_undone


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOutcome:
    """A phase that was done, with the commits of its sessions."""

    plan: str
    phase_id: str
    subject: str
    commit: str
    time: int
    """When it was done, in seconds since the epoch."""
    model: str
    """The models that answered; "unknown" if the commit does not say."""
    runner: str
    """The agent's name without its version; `OWN_LOOP` where relay's own loop worked."""
    sessions: int
    repairs: int | None
    """Red gates that went back to a session; None if the commit does not say."""
    spent: Spent
    is_undone: bool
    """Whether a later commit took it back: `git revert`."""

    @property
    def month(self) -> str:
        """The month when it was done, in UTC, as ``2026-11``."""
        return f"{datetime.fromtimestamp(self.time, tz=UTC):%Y-%m}"


def list_outcomes(commits: Sequence[RelayCommit], undone: Collection[str]) -> tuple[PhaseOutcome, ...]:
    """Return the phases that were done, oldest first. A phase that was taken back and done again is there twice.

    Args:
        commits: Of all plans, newest first.
        undone: Commits that later ones took back.
    """
    begun: dict[tuple[str, str], list[RelayCommit]] = {}
    found: dict[tuple[str, ...], PhaseOutcome] = {}  # a commit that was picked or rebased says the same again
    for commit in reversed(commits):
        key = (commit.plan, commit.phase)
        if commit.status == "planned":
            begun = {place: held for place, held in begun.items() if place[0] != commit.plan}
        elif commit.status in trailers.ATTEMPT_STATUSES and commit.phase:
            begun.setdefault(key, []).append(commit)
            if commit.status == "done":
                made = _sum_up(begun.pop(key), undone)
                merges = dict(commit.found).get(trailers.MERGE, "").partition(" ")[0]
                own = next((place for place, one in found.items() if merges and one.commit == merges), None)
                if own is None:
                    found[*key, commit.session or commit.commit] = made
                else:  # the phase again, on top of what others landed
                    spent = found[own].spent + made.spent
                    found[own] = replace(found[own], commit=made.commit, spent=spent, is_undone=made.is_undone)
    return tuple(found.values())


def _sum_up(commits: Sequence[RelayCommit], undone: Collection[str]) -> PhaseOutcome:
    """Add up the commits of one phase, oldest first; the last one is its end."""
    last = commits[-1]
    marks = [dict(reversed(commit.found)) for commit in commits]  # the first of a key counts
    models = [name for one in marks for name in one.get(trailers.MODEL, "").split(", ") if name]
    repairs = [_read_count(one.get(trailers.REPAIRS, "")) for one in marks]
    number = _read_count(marks[-1].get(trailers.LEG, ""))
    return PhaseOutcome(
        plan=last.plan,
        phase_id=last.phase,
        subject=last.subject,
        commit=last.commit,
        time=last.time,
        model=" + ".join(dict.fromkeys(models)) or trailers.UNKNOWN,
        runner=marks[-1].get(trailers.AGENT, "").partition(" ")[0] or OWN_LOOP,
        sessions=max(len(commits), number or 0),
        repairs=None if None in repairs else sum(filter(None, repairs)),
        spent=add_spent(commits),
        is_undone=last.commit in undone,
    )


def _read_count(text: str) -> int | None:
    """Return the number of a trailer; None if it is missing or not relay's."""
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else None


def read_outcomes(repo: Repo, rev: str = "HEAD") -> tuple[PhaseOutcome, ...]:
    """Return the phases of all plans that were done in the history of a commit, oldest first.

    Raises:
        GitError: There is no such commit.
    """
    start = repo.find_commit(rev)
    if start is None:
        raise GitError(f"there is no commit {rev!r}", hint="git log --oneline --all")
    commits = read_all_plans(repo, start)
    if not commits:
        return ()
    return list_outcomes(commits, read_undone(repo, commits, start))


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseShare:
    """A part of a number of phases."""

    part: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSums:
    """Phases of one month, model or runner, added up."""

    name: str
    phases: int
    first_pass: PhaseShare
    """Phases that no red gate sent back to a session, of those whose commits say so."""
    sessions: float
    """Sessions to done: the median."""
    repairs: int
    """Red gates that went back to a session, as far as commits say so."""
    regressions: int
    """Phases that a later commit took back."""
    usd: float | None
    """Cost to done: the median; None if the cost of one is unknown."""
    spent: Spent
    """Cost of all of them."""


def sum_outcomes(name: str, outcomes: Sequence[PhaseOutcome]) -> OutcomeSums:
    """Add up phases; at least one."""
    known = [one.repairs for one in outcomes if one.repairs is not None]
    costs = [one.spent.cost_usd for one in outcomes if one.spent.cost_usd is not None]
    return OutcomeSums(
        name=name,
        phases=len(outcomes),
        first_pass=PhaseShare(part=known.count(0), of=len(known)),
        sessions=median(one.sessions for one in outcomes),
        repairs=sum(known),
        regressions=sum(one.is_undone for one in outcomes),
        usd=median(costs) if len(costs) == len(outcomes) else None,
        spent=sum((one.spent for one in outcomes), start=Spent()),
    )


GROUPS = ("month", "model", "runner")
"""The properties of `PhaseOutcome` by which `group_outcomes` may group."""


def group_outcomes(outcomes: Iterable[PhaseOutcome], by: str) -> tuple[OutcomeSums, ...]:
    """Add up phases by one of `GROUPS`, in the order of the names."""
    groups: dict[str, list[PhaseOutcome]] = {}
    for one in outcomes:
        groups.setdefault(getattr(one, by), []).append(one)
    return tuple(sum_outcomes(name, groups[name]) for name in sorted(groups))
