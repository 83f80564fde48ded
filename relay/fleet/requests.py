"""Phases on their way to a protected branch: each is a request, and a person merges or closes it.

The claim on such a phase waits and names its request, so no worker takes the phase meanwhile.
"""

import re
from typing import Protocol

from relay.base.values import dataclass
from relay.fleet import exchange
from relay.fleet.claims import ClaimRegistry, Claims, ClaimState, PhaseClaim
from relay.fleet.worktrees import name_job_branch
from relay.git.objects import is_ancestor
from relay.git.remote import RefUpdate, RemoteError
from relay.git.repository import Repo
from relay.plan.model import Plan
from relay.session.events import Noticed, Observe
from relay.session.usage import Spent
from relay.store.history import read_relay_commits
from relay.store.spend import Whose

CLOSED = "refs/relay/closed/"
"""Commits of requests that the plan's branch does not have: closed without a merge, or squashed by it."""
_ASKED = re.compile(r"request ([0-9]{1,12}) of \S+ is open")


class Requests(Protocol):
    """Brings phases to a protected branch: a person merges them."""

    def put(self, branch: str, base: str, title: str, text: str) -> str:
        """Open a request of a branch, or bring the open one up to date; return its number. Raises RelayError."""

    def is_closed(self, branch: str, number: str) -> bool:
        """Return whether a request was closed without a merge."""


def name_asked(number: str, branch: str) -> str:
    """Return what a claim says of its phase's request."""
    return f"request {number} of {branch} is open"


def find_asked(claim: PhaseClaim) -> str:
    """Return the number of the request that a claim waits for; empty if it waits for none."""
    found = _ASKED.fullmatch(claim.words) if claim.state is ClaimState.WAITS else None
    return found[1] if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """Ends claims whose requests a person has merged, or closed: those phases are open again."""

    registry: ClaimRegistry
    branch: str
    """The plan's."""
    plan_path: str
    requests: Requests | None
    """None: nobody looks whether one was closed."""

    @property
    def _main(self) -> Repo:
        return self.registry.remote.repo

    def settle(self, plan: Plan, claims: Claims, tip: str, observe: Observe) -> bool:
        """End the claims; return whether there was one.

        The remote keeps the commits that the plan's branch does not get, and the cost that no commit there has.

        Args:
            plan: As the plan's branch has it on the remote, at the commit `tip`.

        Raises:
            RemoteError: The remote cannot be reached.
        """
        is_settled = False
        for claim in claims.held:
            branch, number = name_job_branch(self._main, claim.phase_id), find_asked(claim)
            phase = plan.find_phase(claim.phase_id)
            is_merged = phase is not None and phase.done
            if not number or not (is_merged or (self.requests and self.requests.is_closed(branch, number))):
                continue
            updates = self._list_updates(claim, branch, tip)
            if updates is None:
                return True
            if self.registry.give_back(claim, *updates):
                how = "was merged" if is_merged else "was closed without a merge: the phase is open again"
                observe(Noticed(text=f"request {number} of phase {claim.phase_id} {how}"))
                is_settled = True
        return is_settled

    def _list_updates(self, claim: PhaseClaim, branch: str, tip: str) -> tuple[RefUpdate, ...] | None:
        """Return the updates that end a phase's refs on the remote; None: they moved meanwhile."""
        remote = self.registry.remote
        there = exchange.read_there(remote, branch).get(branch, {})
        own, spent = there.get(f"refs/heads/{branch}"), [ref for ref in there if ref.startswith("refs/relay/spent/")]
        wanted = [f"+{ref}:{ref}" for ref in spent] + ([f"+refs/heads/{branch}:{CLOSED}{own}"] if own else [])
        try:
            if wanted:
                remote.fetch(*wanted)
        except RemoteError:
            if exchange.read_there(remote, branch).get(branch, {}) == there:
                raise
            return None
        updates = [RefUpdate(ref=ref, old=commit, new=None) for ref, commit in there.items()]
        updates += exchange.list_given_up(self.branch, there)
        if own is not None and not is_ancestor(self._main, own, tip):
            updates += [RefUpdate(ref=f"{CLOSED}{own}", old=None, new=own), *self._book(claim.phase_id, own, tip)]
        return tuple(updates)

    def _book(self, phase_id: str, own: str, tip: str) -> tuple[RefUpdate, ...]:
        """Keep the cost of commits whose sessions no commit of the plan's branch names."""
        known = {commit.session for commit in read_relay_commits(self._main, self.plan_path, rev=tip)}
        apart = read_relay_commits(self._main, self.plan_path, rev=own, newer_than=tip)
        spent = sum((commit.spent for commit in apart if commit.session not in known), Spent())
        whose = Whose(plan_path=self.plan_path, phase_id=phase_id, session_id=own[:16], base=own)
        return () if spent == Spent() else (exchange.keep_booked(self._main, self.branch, whose, spent),)
