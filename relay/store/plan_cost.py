"""What a plan has cost: by its commits, and by what no commit records."""

from collections.abc import Iterator, Sequence

from relay.base.values import dataclass
from relay.git.repository import Repo
from relay.session.usage import Spent
from relay.store.history import (
    RelayCommit,
    add_spent,
    read_plan_commits,
    read_rewound_commits,
    read_unlanded_commits,
)
from relay.store.presence import has_kept_refs


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCost:
    """What the current plan has cost, the open leg of HEAD's branch aside."""

    commits: tuple[RelayCommit, ...]
    """The plan's on this branch, newest first."""
    spent: Spent
    """By all its commits, rewound ones too, by planning that no commit has yet, and by sessions that left none."""
    rewound: Spent = Spent()
    """The part of it that `relay rewind` left on another branch."""


def read_plan_cost(repo: Repo, plan_path: str) -> PlanCost:
    """Read what the plan has cost."""
    own = read_plan_commits(repo, plan_path)
    if not has_kept_refs(repo):
        return PlanCost(commits=own, spent=add_spent(own))
    rewound = read_rewound_commits(repo, plan_path, own)
    others = (*rewound, *read_unlanded_commits(repo, plan_path, own))
    spent = sum(_read_unrecorded(repo, plan_path, own, others), start=add_spent((*own, *others)))
    return PlanCost(commits=own, spent=spent, rewound=add_spent(rewound))


def _read_unrecorded(
    repo: Repo, plan_path: str, own: Sequence[RelayCommit], others: Sequence[RelayCommit]
) -> Iterator[Spent]:
    """Yield what legs cost that are open elsewhere or were given up, and a plan that is not committed."""
    from relay.store.planning_cost import read_plan_usage
    from relay.store.unrecorded_cost import read_unrecorded

    yield from read_unrecorded(repo, plan_path, own, others)
    planning = read_plan_usage(repo)
    # A run that was killed right behind the plan's commit has both.
    recorded = {commit.session for commit in (*own, *others)}
    if planning is not None and planning.plan_path == plan_path and planning.session_id not in recorded:
        yield planning.spend
