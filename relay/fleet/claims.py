"""Claims on phases at a remote, and what they reserve: taken, renewed, taken over and given back by compare-and-swap.

A claim is a commit without files under ``refs/relay/claims/<plan>/phase/<phase>``; only its holder, who knows its id,
can renew it. What all claims of a plan have reserved stands in ``…/account``, which moves in the same push, so that two
machines cannot both take the last of the money. No clock decides alone: a claim that looks lapsed is taken over only
when it has not moved while its holder could have renewed it.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from relay.git import objects
from relay.git.message import CommitText, Message, read_text
from relay.git.names import render_ref_part
from relay.git.remote import PushEnd, RefUpdate, Remote, RemoteError
from relay.store import trailers
from relay.values import dataclass

_WORKER = "Relay-Worker"
_EXPIRES = "Relay-Expires"
"""Seconds since the epoch, by the holder's clock."""
_LEASE = "Relay-Lease"
"""Seconds that the holder may take to its next sign of life, whatever the clocks say."""
_STATE = "Relay-PhaseClaim"
_RESERVED = "Relay-Reserved"
"""Of a claim: dollars. Of the account, one for each phase: dollars, who reserved them, the attempt, the phase."""
_ENDED = "Relay-Ended"
"""Of the account: how many claims have ended or were taken over, with what they cost in other refs since."""
_BEFORE = "Relay-Seen"
"""What was known to be spent on the phase when it was claimed, in dollars."""
_TOKEN = "Relay-Token"  # noqa: S105  # no secret: two claims that are otherwise the same have to be two commits
_PARTS = 4
_LONGEST_TIME = 12
_AMOUNT = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")

ATTEMPTS = 12
"""How often a push is tried that others keep overtaking."""


class ClaimState(StrEnum):
    """What a claim says."""

    HELD = "held"
    """Somebody works on the phase."""
    WAITS = "waits"
    """For a person: the phase failed, and no other worker takes it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseClaim:
    """What one phase's ref says."""

    phase_id: str
    worker: str
    attempt: int
    """Counts up with each worker that takes the phase."""
    state: ClaimState
    expires_s: int
    """Since the epoch, by the holder's clock."""
    reserved_usd: float | None
    """None without a cap."""
    seen_usd: float
    """What was known to be spent on the phase when it was claimed."""
    lease_s: int = 0
    """How long its holder may show no sign of life; 0 where it does not say."""
    words: str = ""
    """Why it waits."""
    noted: tuple[tuple[str, str], ...] = ()
    """The open session and its cost at the last sign of life, as trailers: its snapshots may not say so yet."""
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Money that is set aside."""

    phase_id: str
    worker: str
    attempt: int
    cost_usd: float

    def is_of(self, claim: PhaseClaim) -> bool:
        """Return whether this claim made it."""
        return (self.phase_id, self.worker, self.attempt) == (claim.phase_id, claim.worker, claim.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All that is claimed of a plan."""

    held: tuple[PhaseClaim, ...] = ()
    reserved: tuple[Reservation, ...] = ()
    """Of claims that are held, and of lost ones: what their workers may have spent and nobody can see."""
    account: str | None = None
    """The commit that says so; None before the first claim."""
    ended: int = 0
    """Counts up with each claim that ends: what was reserved for it is spent since, as its refs say."""

    def find(self, phase_id: str) -> PhaseClaim | None:
        """Return the claim on a phase; None when it is free."""
        return next((claim for claim in self.held if claim.phase_id == phase_id), None)

    @property
    def reserved_usd(self) -> float:
        """All that is set aside."""
        return sum(one.cost_usd for one in self.reserved)

    @property
    def lost(self) -> tuple[Reservation, ...]:
        """What is set aside for workers that lost their claims: they may have spent it unseen."""
        return tuple(one for one in self.reserved if not any(one.is_of(claim) for claim in self.held))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """What a worker wants."""

    phase_id: str
    reserve_usd: float | None
    """None without a cap."""
    cap_usd: float | None
    spent_usd: float
    """On the whole plan, as far as the remote knows."""
    seen_usd: float
    """On this phase."""
    instead: str = ""
    """The claim that it takes over, seen not to move; empty when the phase has to be free."""
    ended: int = 0
    """As of `Claims`, read before `spent_usd` was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """Why a phase was not claimed."""

    words: str
    by: tuple[PhaseClaim, ...] = ()
    """Who has it; nobody where the money does not suffice."""
    is_stale: bool = False
    """What the bid knew to be spent was more by then: look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDesk:
    """Where one worker claims phases of one plan."""

    remote: Remote
    plan_key: str
    """As `name_plan` makes it."""
    worker: str
    lease_s: int
    now: Callable[[], float]
    """Seconds since the epoch."""

    def read(self) -> Claims:
        """Fetch what is claimed.

        Raises:
            RemoteError: The remote cannot be reached.
        """
        repo, here = self.remote.repo, f"refs/relay/remote/{self.plan_key}/"
        self.remote.fetch(f"+{self._place}*:{here}*")
        held = (read_text(repo, commit) for commit in repo.list_refs(f"{here}phase/").values())
        account = repo.list_refs(here).get(f"{here}account")
        text = None if account is None else read_text(repo, account)
        found = sorted((claim for text in held if (claim := _parse_claim(text))), key=lambda claim: claim.phase_id)
        return Claims(
            held=tuple(found),
            reserved=_parse_account(text) if text else (),
            account=account,
            ended=trailers.parse_count(text.get(_ENDED), 0) if text else 0,
        )

    def take(self, bid: Bid) -> PhaseClaim | NotTaken:
        """Claim a phase and reserve its money, or say why not.

        Raises:
            RemoteError: The remote cannot be reached, does not want it, or is too busy.
        """
        for _ in range(ATTEMPTS):
            claims = self.read()
            there = claims.find(bid.phase_id)
            if there is not None and there.commit != bid.instead:
                return NotTaken(words=f"phase {bid.phase_id} is {describe(there, now=self.now())}", by=(there,))
            if bid.cap_usd is not None and claims.ended != bid.ended:
                return NotTaken(words="other phases ended meanwhile", by=claims.held, is_stale=True)
            kept = self._write_off(claims.reserved, there, bid.seen_usd)
            left = None if bid.cap_usd is None else bid.cap_usd - bid.spent_usd - sum(one.cost_usd for one in kept)
            if left is not None and (left <= 0 or left < (bid.reserve_usd or 0.0)):
                words = f"of {bid.cap_usd:g} USD are {bid.spent_usd:.2f} spent and {claims.reserved_usd:.2f} reserved"
                return NotTaken(words=f"{words}: not enough for phase {bid.phase_id}")
            claim = self._make(bid, there or NOBODY)
            if self._swap(claims, there, claim, kept):
                return claim
        raise self._too_busy()

    def renew(self, claim: PhaseClaim, *results: RefUpdate) -> PhaseClaim | None:
        """Hold a claim for another while, and push what has come of it; None when it is somebody else's by now.

        Raises:
            RemoteError: The remote cannot be reached; the claim stays as it was, and nothing was pushed.
        """
        fresh = self._store(replace(claim, expires_s=int(self.now()) + self.lease_s))
        own = RefUpdate(ref=self._name(claim.phase_id), old=claim.commit, new=fresh.commit)
        return fresh if self._push(own, *results) else None

    def give_back(self, claim: PhaseClaim, *results: RefUpdate, waits: str = "") -> bool:
        """Push what came of a claim, and end it with its reservation, in one step.

        Args:
            claim: As it was last renewed.
            results: Refs to push with it.
            waits: Why a person is needed; empty to leave the phase free.

        Returns:
            False when the claim is somebody else's by now, or a result is not where it was; nothing was pushed then.

        Raises:
            RemoteError: The remote cannot be reached, does not want it, or is too busy.
        """
        for _ in range(ATTEMPTS):
            claims = self.read()
            if (there := claims.find(claim.phase_id)) is None or there.commit != claim.commit:
                return False
            after = self._store(replace(claim, state=ClaimState.WAITS, words=waits)) if waits else None
            kept = tuple(one for one in claims.reserved if not one.is_of(claim))
            if self._swap(claims, there, after, kept, *results):
                return True
            now = self.remote.list_refs(*(update.ref for update in results)) if results else {}
            if any(now.get(update.ref) != update.old for update in results):
                return False
        raise self._too_busy()

    def free_lost(self) -> tuple[Reservation, ...]:
        """Free what is set aside for lost workers, for a person who knows what they have spent; return it.

        Raises:
            RemoteError: The remote cannot be reached, does not want it, or is too busy.
        """
        for _ in range(ATTEMPTS):
            claims = self.read()
            if not claims.lost:
                return ()
            kept = tuple(one for one in claims.reserved if one not in claims.lost)
            account = self._write_account(kept, ended=claims.ended)
            if self._push(RefUpdate(ref=f"{self._place}account", old=claims.account, new=account)):
                return claims.lost
        raise self._too_busy()

    def _write_off(
        self, reserved: tuple[Reservation, ...], lost: PhaseClaim | None, seen_usd: float
    ) -> tuple[Reservation, ...]:
        """Return what stays reserved when a claim is taken over: its worker may have spent all that nobody has seen."""
        if lost is None or lost.state is ClaimState.WAITS:
            return reserved
        # What this machine spent before it was killed it sees itself.
        shown = seen_usd - lost.seen_usd if lost.worker != self.worker else lost.reserved_usd or 0.0
        cut = (replace(one, cost_usd=one.cost_usd - max(0.0, shown)) if one.is_of(lost) else one for one in reserved)
        return tuple(one for one in cut if one.cost_usd > 0)

    def _swap(
        self,
        claims: Claims,
        old: PhaseClaim | None,
        new: PhaseClaim | None,
        kept: tuple[Reservation, ...],
        *results: RefUpdate,
    ) -> bool:
        """Push a claim's change with the account's; False when somebody was faster."""
        own = [] if new is None or new.reserved_usd is None or new.state is ClaimState.WAITS else [_reserve(new)]
        account = self._write_account((*kept, *own), ended=claims.ended + (old is not None))
        phase_id = (new or old or NOBODY).phase_id
        return self._push(
            RefUpdate(ref=self._name(phase_id), old=old.commit if old else None, new=new.commit if new else None),
            RefUpdate(ref=f"{self._place}account", old=claims.account, new=account),
            *results,
        )

    def _push(self, *updates: RefUpdate) -> bool:
        pushed = self.remote.push(*updates)
        if pushed.end is PushEnd.REFUSED:
            raise RemoteError(f"the remote refused a claim: {pushed.words}")
        return pushed.end is PushEnd.DONE

    def _make(self, bid: Bid, before: PhaseClaim) -> PhaseClaim:
        return self._store(
            PhaseClaim(
                phase_id=bid.phase_id,
                worker=self.worker,
                attempt=before.attempt + 1,
                state=ClaimState.HELD,
                expires_s=int(self.now()) + self.lease_s,
                reserved_usd=bid.reserve_usd if bid.cap_usd is not None else None,
                seen_usd=bid.seen_usd,
                noted=before.noted,
            )
        )

    def _store(self, claim: PhaseClaim) -> PhaseClaim:
        found = (
            (trailers.PHASE, claim.phase_id),
            (_WORKER, claim.worker),
            (trailers.ATTEMPT, str(claim.attempt)),
            (_STATE, claim.state),
            (_EXPIRES, str(claim.expires_s)),
            (_LEASE, str(self.lease_s)),
            (_RESERVED, "" if claim.reserved_usd is None else trailers.render_cost(claim.reserved_usd)),
            (_BEFORE, trailers.render_cost(claim.seen_usd)),
            (_TOKEN, secrets.token_hex(8)),
            *claim.noted,
        )
        subject = f"relay: phase {claim.phase_id} is {claim.state}"
        commit = self._write(Message(subject=subject, body=claim.words, trailers=found))
        return replace(claim, lease_s=self.lease_s, commit=commit)

    def _write_account(self, reserved: tuple[Reservation, ...], *, ended: int) -> str:
        found = tuple((_RESERVED, f"{one.cost_usd:.6f} {one.worker} {one.attempt} {one.phase_id}") for one in reserved)
        own = (*found, (_ENDED, str(ended)), (_TOKEN, secrets.token_hex(8)))
        return self._write(Message(subject="relay: what is reserved", trailers=own))

    def _write(self, message: Message) -> str:
        repo = self.remote.repo
        return objects.write_commit(repo, objects.write_paths_tree(repo, ()), (), message)

    @property
    def _place(self) -> str:
        return f"refs/relay/claims/{self.plan_key}/"

    def _name(self, phase_id: str) -> str:
        return f"{self._place}phase/{render_ref_part(phase_id)}"

    def _too_busy(self) -> RemoteError:
        return RemoteError(f"{self.remote.name} is too busy: others were faster {ATTEMPTS} times", hint="try again")


NOBODY = PhaseClaim(
    phase_id="", worker="", attempt=0, state=ClaimState.HELD, expires_s=0, reserved_usd=None, seen_usd=0.0
)


def name_plan(branch: str, plan_path: str) -> str:
    """Return a name for a plan that is the same on every machine: of its branch and its file."""
    return hashlib.sha256(f"{branch}\0{plan_path}".encode(errors="surrogateescape")).hexdigest()[:16]


def is_lapsed(claim: PhaseClaim, *, now: float) -> bool:
    """Return whether a claim's holder should have renewed it by now, if clocks agree."""
    return claim.state is ClaimState.HELD and now > claim.expires_s


def describe(claim: PhaseClaim, *, now: float) -> str:
    """Say who has a phase: ``claimed by …``, ``waiting for a person: …``."""
    if claim.state is ClaimState.WAITS:
        return f"waiting for a person: {claim.words}"
    left = claim.expires_s - now
    until = f"for {left:.0f} s more" if left > 0 else f"since {-left:.0f} s without a sign of life"
    return f"claimed by {claim.worker} (attempt {claim.attempt}), {until}"


def _reserve(claim: PhaseClaim) -> Reservation:
    return Reservation(
        phase_id=claim.phase_id, worker=claim.worker, attempt=claim.attempt, cost_usd=claim.reserved_usd or 0.0
    )


def _parse_claim(text: CommitText) -> PhaseClaim | None:
    """Read a claim; None when the commit is not one."""
    state, phase_id = text.get(_STATE), text.get(trailers.PHASE)
    if state not in set(ClaimState) or not phase_id:
        return None
    return PhaseClaim(
        phase_id=phase_id,
        worker=text.get(_WORKER),
        attempt=trailers.parse_count(text.get(trailers.ATTEMPT), 1),
        state=ClaimState(state),
        expires_s=_parse_time(text.get(_EXPIRES)),
        reserved_usd=trailers.parse_cost(text.get(_RESERVED)),
        seen_usd=trailers.parse_cost(text.get(_BEFORE)) or 0.0,
        lease_s=_parse_time(text.get(_LEASE)),
        words=text.message.body,
        noted=tuple(pair for pair in text.found if pair[0] in {trailers.SESSION, trailers.USAGE, trailers.COST}),
        commit=text.commit,
    )


def _parse_time(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_TIME else 0


def _parse_account(text: CommitText) -> tuple[Reservation, ...]:
    rows = (value.split(" ", _PARTS - 1) for value in text.get_all(_RESERVED))
    return tuple(
        Reservation(phase_id=phase_id, worker=worker, attempt=trailers.parse_count(attempt, 1), cost_usd=float(cost))
        for cost, worker, attempt, phase_id in (row for row in rows if len(row) == _PARTS)
        if _AMOUNT.fullmatch(cost)
    )
