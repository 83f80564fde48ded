"""How long claims have not moved, by this machine's own clock: whose worker is taken for dead."""

from collections.abc import Callable, Mapping

from relay.fleet.claim import Claims, PhaseClaim
from relay.fleet.claims import LEASE_S
from relay.store.claim_end import read_clock


class LeaseClock:
    """Since when each claim is as it is, as far as this process has seen. Mutable: it grows with each look.

    Args:
        clock: Seconds, on a clock of this machine alone.
    """

    def __init__(self, clock: Callable[[], float] = read_clock) -> None:
        self._clock = clock
        self._since: Mapping[str, float] = {}

    def note(self, claims: Claims) -> None:
        """Take note of what is claimed now; what has moved is seen for the first time."""
        now = self._clock()
        self._since = {claim.commit: self._since.get(claim.commit, now) for claim in claims.held}

    def find_wait_s(self, claim: PhaseClaim) -> float:
        """Return how much longer a claim must not move before its worker is taken for dead; 0 and less: it is."""
        now = self._clock()
        return (claim.lease_s or LEASE_S) - (now - self._since.get(claim.commit, now))
