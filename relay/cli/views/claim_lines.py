"""Claims of many machines on a plan's phases, as a clone knows them: no remote is asked."""

import os
import time
from collections.abc import Iterator
from typing import Any

from relay.fleet.claims import ClaimState, PhaseClaim, describe_claim, find_worker, is_at_work
from relay.fleet.overview import open_registry
from relay.git.remote import Remote
from relay.git.repository import Repo


def find_seen_claims(repo: Repo, plan_path: str) -> tuple[PhaseClaim, ...]:
    """Return the claims on a plan's phases, by phase; none where HEAD is detached."""
    if repo.branch is None:
        return ()
    return open_registry(Remote(repo=repo, name="", environ=os.environ), repo.branch, plan_path).recall().held


def tell_claims(repo: Repo, claims: tuple[PhaseClaim, ...]) -> Iterator[str]:
    """Yield a line for each."""
    own = find_worker(repo)
    for claim in claims:
        whose = ", which is this clone" if claim.worker == own and claim.state is ClaimState.HELD else ""
        yield f"claim  phase {claim.phase_id} is {describe_claim(claim, now=time.time())}{whose}"


def list_claimed_elsewhere(repo: Repo, plan_path: str) -> Iterator[str]:
    """Yield a sentence for each phase that another machine is at work on, for a run, which knows of no claims."""
    own, now = find_worker(repo), time.time()
    for claim in find_seen_claims(repo, plan_path):
        if claim.worker != own and is_at_work(claim, now=now):
            words = f"phase {claim.phase_id} is {describe_claim(claim, now=now)}, as this clone last heard"
            yield f"{words}; a run may pay for it a second time: relay work goes on as the workers do"


def render_claims(claims: tuple[PhaseClaim, ...]) -> list[dict[str, Any]]:
    """Return them as JSON has them; ``until`` is in seconds since the epoch, by the worker's clock."""
    return [
        {
            "phase": claim.phase_id,
            "worker": claim.worker,
            "attempt": claim.attempt,
            "waits": claim.words if claim.state is ClaimState.WAITS else None,
            "until": claim.expires_s,
        }
        for claim in claims
    ]
