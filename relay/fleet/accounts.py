"""What a job's run has spent, from git: for one that was killed and could not say it."""

from relay.base.values import dataclass
from relay.fleet.landing import Job
from relay.git.repository import Repo
from relay.session.usage import Spent
from relay.store.history import read_relay_commits
from relay.store.legs import get_branch
from relay.store.unrecorded_cost import add_branch


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAccount:
    """Where a job stood when its run began."""

    main: Repo
    """Its work tree may be gone when it ends."""
    plan_path: str
    branch: str
    head: str
    """The commit that it was at."""
    merges: str
    """The commit that the run lands: another one's cost; empty where it works on the phase."""
    spent: Spent
    """By the sessions of the leg that was open then."""


def open_account(main: Repo, job: Job, merges: str) -> JobAccount:
    """Note where a job stands, before its run begins."""
    branch, head = get_branch(job.repo), job.repo.head() or ""
    spent = add_branch(main, branch, ())
    return JobAccount(main=main, plan_path=job.plan_path, branch=branch, head=head, merges=merges, spent=spent)


def find_job_cost(account: JobAccount) -> tuple[float | None, float]:
    """Return the most that a run can have cost since, in USD (None: not known) and in tokens; it is over.

    A request whose answer never came counts with what was noted before it was sent.
    """
    main, before = account.main, account.spent
    rev = f"refs/heads/{account.branch}"
    made = read_relay_commits(main, account.plan_path, rev=rev, newer_than=account.head)
    total = add_branch(main, account.branch, (commit for commit in made if commit.commit != account.merges))
    known = total.cost_usd is not None and before.cost_usd is not None
    cost = max(0.0, (total.cost_usd or 0.0) - (before.cost_usd or 0.0)) if known else None
    return cost, max(0.0, total.tokens - before.tokens)
