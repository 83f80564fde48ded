"""What the current plan has cost so far, and the meter that goes on from there."""

from relay.config import Settings
from relay.git.repository import Repo
from relay.meters.prices import Budget, Price
from relay.meters.spend import Meter
from relay.session.usage import Spent
from relay.state.facts import find_leg_commit
from relay.store.history import read_plan_commits, read_rewound_commits
from relay.store.legs import read_leg
from relay.store.planning_cost import read_plan_usage


def make_meter(repo: Repo, plan_path: str, settings: Settings, price: Price | None) -> Meter:
    """Return a meter that knows what the plan has cost: its commits, and its open leg where no commit records that."""
    budget = Budget(
        run_cap_usd=settings.max_cost_usd,
        phase_cap_usd=settings.max_phase_cost_usd,
        token_cap=settings.max_tokens_total,
    )
    meter = Meter(budget, price=price, before=read_spent(repo, plan_path))
    leg = read_leg(repo)
    if leg is not None and find_leg_commit(repo, leg) is None:
        meter.restore(leg.spend)
    return meter


def read_spent(repo: Repo, plan_path: str) -> Spent:
    """Return what the commits of the current plan record, rewound ones too, and planning that no commit has yet."""
    own = read_plan_commits(repo, plan_path)
    total = sum((commit.spent for commit in (*own, *read_rewound_commits(repo, plan_path, own))), start=Spent())
    planning = read_plan_usage(repo)
    return total + planning.spend if planning and planning.plan_path == plan_path else total
