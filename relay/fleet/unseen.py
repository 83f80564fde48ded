"""What a phase has cost in a clone and nobody else knows: booked on the remote by a worker that lost its claim.

Beside each sign of life stands in a note what it has shown: whoever goes on with the phase counts that. What was spent
since, until the worker learns that it has the phase no more, is kept under ``refs/relay/spent/<the plan's branch>/``.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, replace

from relay.base.values import dataclass
from relay.git import refs
from relay.git.names import render_ref_part
from relay.git.notes import drop_note, read_note, write_note
from relay.git.remote import RefUpdate
from relay.git.repository import Repo
from relay.session.usage import Spent
from relay.store.history import read_relay_commits
from relay.store.unrecorded_cost import Whose, add_branch, keep_spent, read_given_up

_LEAST_USD = 0.000001


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCost:
    """What a worker's last sign of life has shown of a phase."""

    token: str
    """Names what is booked, so that it is booked once."""
    attempt: int
    """Of the claim."""
    start: str
    """The commit that the plan's branch was at when the phase was taken up; empty before that."""
    cost_usd: float | None
    """Of the phase since, and of its open session; None where that is not known."""


def read_shown(repo: Repo, branch: str) -> ShownCost | None:
    """Return what was shown of a job's branch; None where this clone has not held its phase, or has given it back."""
    try:
        found = json.loads(read_note(repo, _name_note(branch)))
        return ShownCost(**{name: found[name] for name in ("token", "attempt", "start", "cost_usd")})
    except (ValueError, KeyError, TypeError):
        return None


def note_shown(repo: Repo, branch: str, shown: ShownCost) -> None:
    """Note what a sign of life has shown."""
    write_note(repo, _name_note(branch), json.dumps(asdict(shown)), synced=False)


def drop_shown(repo: Repo, branch: str) -> None:
    """Forget it: the remote has all, or the rest is booked."""
    drop_note(repo, _name_note(branch))


def note_bid(repo: Repo, branch: str, *, attempt: int) -> None:
    """Note that a phase is about to be claimed: who is killed right behind that has spent nothing on it."""
    if read_shown(repo, branch) is None:
        note_shown(repo, branch, ShownCost(token=secrets.token_hex(8), attempt=attempt, start="", cost_usd=None))


def drop_bid(repo: Repo, branch: str) -> None:
    """Forget a bid that lost."""
    if (shown := read_shown(repo, branch)) is not None and not shown.start:
        drop_shown(repo, branch)


def begin_shown(repo: Repo, plan_path: str, branch: str, phase_id: str, *, attempt: int, start: str) -> None:
    """Note what is known of a phase as a worker takes it up; what it had not shown of an earlier attempt stays so."""
    if (shown := read_shown(repo, branch)) is None or not shown.start:
        shown = ShownCost(token=secrets.token_hex(8), attempt=attempt, start=start, cost_usd=None)
        shown = replace(shown, cost_usd=find_cost(repo, plan_path, branch, phase_id, start))
    note_shown(repo, branch, replace(shown, attempt=attempt))


def find_cost(repo: Repo, plan_path: str, branch: str, phase_id: str, start: str) -> float | None:
    """Return what a phase has cost since a commit, its open session too, in USD; None where that is not known."""
    own = refs.find_ref(repo, f"refs/heads/{branch}")
    commits = read_relay_commits(repo, plan_path, rev=own, newer_than=start) if own else ()
    made = add_branch(repo, branch, (commit for commit in commits if commit.phase == phase_id))
    return (made + read_given_up(repo, branch)).cost_usd


def keep_unseen(repo: Repo, main: str, branch: str, own: Whose, shown: ShownCost) -> RefUpdate | None:
    """Keep what a phase has cost here since it was last shown; None where that is nothing.

    Args:
        main: The plan's branch.
        branch: The job's.
        own: What it is kept as.
    """
    if not shown.start:
        return None
    now = find_cost(repo, own.plan_path, branch, own.phase_id, shown.start)
    cost = None if now is None or shown.cost_usd is None else now - shown.cost_usd
    if cost is not None and cost < _LEAST_USD:
        return None
    return keep_booked(repo, main, own, Spent(cost_usd=cost, estimated=True))


def keep_booked(repo: Repo, main: str, own: Whose, spent: Spent) -> RefUpdate:
    """Keep what was spent on a plan that no commit tells of; return what has the remote know it."""
    ref = name_booked(main, own.session_id)
    return RefUpdate(ref=ref, old=None, new=refs.find_ref(repo, ref) or keep_spent(repo, ref, own, spent))


def list_given_up(main: str, here: Mapping[str, str]) -> tuple[RefUpdate, ...]:
    """Return what has the remote keep the cost of a job's given-up sessions when the job's own refs go.

    Args:
        here: The job's refs in this clone.
    """
    spent = [commit for ref, commit in here.items() if ref.startswith("refs/relay/spent/")]
    return tuple(RefUpdate(ref=name_booked(main, commit[:16]), old=None, new=commit) for commit in spent)


def name_booked(main: str, token: str) -> str:
    """Return the ref of what was booked on a plan's branch; with ``*`` for the token a pattern of all."""
    return f"refs/relay/spent/{render_ref_part(main)}/booked-{token}"


def _name_note(branch: str) -> str:
    return f"shown-{hashlib.sha256(branch.encode(errors='surrogateescape')).hexdigest()[:16]}"
