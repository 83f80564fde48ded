"""What a job's run has spent, from git: for one that was killed and could not say it."""

from relay.fleet.landing import Job
from relay.session.usage import Spent
from relay.store.history import read_relay_commits
from relay.store.legs import read_leg
from relay.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAccount:
    """Where a job stood when its run began."""

    job: Job
    head: str
    """The commit that its branch was at."""
    merges: str
    """The commit that the run lands: another one's cost; empty where it works on the phase."""
    spent: Spent
    """By the sessions of the leg that was open then."""


def open_account(job: Job, merges: str) -> JobAccount:
    """Note where a job stands, before its run begins."""
    return JobAccount(job=job, head=job.repo.head() or "", merges=merges, spent=_read_open(job))


def find_job_cost(account: JobAccount) -> tuple[float | None, float]:
    """Return the most that a run can have cost since, in USD (None: not known) and in tokens; it is over.

    A request whose answer never came counts with what was noted before it was sent.
    """
    job, before = account.job, account.spent
    made = read_relay_commits(job.repo, job.plan_path, newer_than=account.head)
    spends = (commit.spent for commit in made if commit.commit != account.merges)
    total = sum(spends, start=_read_open(job))
    known = total.cost_usd is not None and before.cost_usd is not None
    cost = max(0.0, (total.cost_usd or 0.0) - (before.cost_usd or 0.0)) if known else None
    return cost, max(0.0, total.tokens - before.tokens)


def _read_open(job: Job) -> Spent:
    leg = read_leg(job.repo)
    return leg.spend if leg is not None else Spent()
