"""Claims on phases at a remote, and what they reserve: taken, renewed, taken over and given back by compare-and-swap.

A claim is a commit without files under ``refs/relay/claims/<plan>/phase/<phase>``; only its holder, who knows its id,
can renew it. What all claims of a plan have reserved stands in ``…/account``, which moves in the same push, so that two
machines cannot both take the last of the money. Clocks need not agree: a claim is taken over only when the other worker
has seen by its own clock that the claim did not move for as long as its holder may be silent (`LeaseClock`).
"""

import hashlib
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum

from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.command import GitError
from relay.git.message import CommitText, Message, read_text
from relay.git.names import render_ref_part
from relay.git.remote import PushEnd, RefUpdate, Remote, RemoteError
from relay.store import trailers
from relay.store.inbox import read_clock
from relay.store.refs import SEEN_CLAIMS

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
MOST_LEASE_S = 3_600
"""Without a sign of life for longer, no claim holds, whatever it says: anybody who may push one could forge it."""
_AMOUNT = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")


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

    def find_lost(self, now: float) -> tuple[Reservation, ...]:
        """Return what is set aside for workers whose claims ran out, if clocks agree: they may have spent it unseen."""
        held = [claim for claim in self.held if claim.state is ClaimState.HELD and now <= claim.expires_s]
        return tuple(one for one in self.reserved if not any(one.is_of(claim) for claim in held))


NOBODY = PhaseClaim(
    phase_id="", worker="", attempt=0, state=ClaimState.HELD, expires_s=0, reserved_usd=None, seen_usd=0.0
)


def is_at_work(claim: PhaseClaim, *, now: float) -> bool:
    """Return whether somebody works under a claim, if clocks agree; `now` in seconds since the epoch."""
    return claim.state is ClaimState.HELD and now <= claim.expires_s <= now + MOST_LEASE_S


def describe_claim(claim: PhaseClaim, *, now: float) -> str:
    """Say who has a phase: ``claimed by …``, ``waiting for a person: …``."""
    if claim.state is ClaimState.WAITS:
        return f"waiting for a person: {claim.words}"
    left = claim.expires_s - now
    until = f"for {left:.0f} s more" if left > 0 else f"since {-left:.0f} s without a sign of life"
    until = until if left <= MOST_LEASE_S else "for longer than a claim can hold"
    return f"claimed by {claim.worker} (attempt {claim.attempt}), {until}"


def make_reservation(claim: PhaseClaim) -> Reservation:
    """Return what a claim sets aside."""
    return Reservation(
        phase_id=claim.phase_id, worker=claim.worker, attempt=claim.attempt, cost_usd=claim.reserved_usd or 0.0
    )


def render_claim(claim: PhaseClaim) -> Message:
    """Return what a claim's commit says."""
    found = (
        (trailers.PHASE, claim.phase_id),
        (_WORKER, claim.worker),
        (trailers.ATTEMPT, str(claim.attempt)),
        (_STATE, claim.state),
        (_EXPIRES, str(claim.expires_s)),
        (_LEASE, str(claim.lease_s)),
        (_RESERVED, "" if claim.reserved_usd is None else trailers.render_cost(claim.reserved_usd)),
        (_BEFORE, trailers.render_cost(claim.seen_usd)),
        (_TOKEN, secrets.token_hex(8)),
        *claim.noted,
    )
    subject = f"relay: phase {claim.phase_id} is {claim.state}"
    return Message(subject=subject, body=claim.words, trailers=found)


def render_account(reserved: tuple[Reservation, ...], *, ended: int) -> Message:
    """Return what the account's commit says."""
    found = tuple((_RESERVED, f"{one.cost_usd:.6f} {one.worker} {one.attempt} {one.phase_id}") for one in reserved)
    own = (*found, (_ENDED, str(ended)), (_TOKEN, secrets.token_hex(8)))
    return Message(subject="relay: what is reserved", trailers=own)


def parse_claim(text: CommitText) -> PhaseClaim | None:
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
        lease_s=min(MOST_LEASE_S, _parse_time(text.get(_LEASE))),
        words=text.message.body,
        noted=tuple(pair for pair in text.found if pair[0] in {trailers.SESSION, trailers.USAGE, trailers.COST}),
        commit=text.commit,
    )


def _parse_time(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_TIME else 0


def parse_ended(text: CommitText) -> int:
    """Read how many claims have ended, of the account."""
    return trailers.parse_count(text.get(_ENDED), 0)


def parse_account(text: CommitText) -> tuple[Reservation, ...]:
    """Read what is reserved; what is no reservation is passed over."""
    rows = (value.split(" ", _PARTS - 1) for value in text.get_all(_RESERVED))
    return tuple(
        Reservation(phase_id=phase_id, worker=worker, attempt=trailers.parse_count(attempt, 1), cost_usd=float(cost))
        for cost, worker, attempt, phase_id in (row for row in rows if len(row) == _PARTS)
        if _AMOUNT.fullmatch(cost)
    )


_MOST_ASIDE = 4
"""Who lost a push waits up to as long as it took, twice as long behind the second, and so on up to this."""
LEASE_S = 300
"""How long a claim holds without a sign of life, where nobody says otherwise."""
ATTEMPTS = 12
"""How often a push is tried that others keep overtaking."""


class ContentionError(RemoteError):
    """Others were faster, each time: the remote is well, and there are many workers."""


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
    """A claim has ended since the bid: more is spent than it knows, and its phase may be done. Look again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDesk:
    """Where one worker claims phases of one plan."""

    remote: Remote
    plan_key: str
    """As `name_plan` makes it."""
    worker: str
    lease_s: int
    now: Callable[[], float]
    pause: Callable[[float], object] = time.sleep
    """Waits for seconds."""

    def read(self) -> Claims:
        """Fetch what is claimed.

        Raises:
            RemoteError: The remote cannot be reached.
        """
        self.remote.fetch(self.refspec)
        return self.recall()

    def recall(self) -> Claims:
        """Return what was claimed when this clone last asked its remote, or claimed itself; nobody is asked."""
        repo, here = self.remote.repo, self._here
        held = (read_text(repo, commit) for commit in repo.list_refs(f"{here}phase/").values())
        account = repo.list_refs(here).get(f"{here}account")
        text = None if account is None else read_text(repo, account)
        found = sorted((claim for text in held if (claim := parse_claim(text))), key=lambda claim: claim.phase_id)
        return Claims(
            held=tuple(found),
            reserved=parse_account(text) if text else (),
            account=account,
            ended=parse_ended(text) if text else 0,
        )

    def take(self, bid: Bid, known: Claims | None = None) -> PhaseClaim | NotTaken:
        """Claim a phase and reserve its money, or say why not.

        Args:
            known: What was claimed a moment ago, where that was asked; whoever was faster since is met by the push.

        Raises:
            RemoteError: The remote cannot be reached, does not want it, or is too busy.
        """
        looks = self._look(known)
        while True:
            claims = next(looks)
            there = claims.find(bid.phase_id)
            if there is not None and there.commit != bid.instead:
                return NotTaken(words=f"phase {bid.phase_id} is {describe_claim(there, now=self.now())}", by=(there,))
            if claims.ended != bid.ended:
                return NotTaken(words="other phases ended meanwhile", by=claims.held, is_stale=True)
            kept = self.write_off(claims.reserved, there, bid.seen_usd)
            left = None if bid.cap_usd is None else bid.cap_usd - bid.spent_usd - sum(one.cost_usd for one in kept)
            if left is not None and (left <= 0 or left < (bid.reserve_usd or 0.0)):
                words = f"of {bid.cap_usd:g} USD are {bid.spent_usd:.2f} spent and {claims.reserved_usd:.2f} reserved"
                freed = (
                    "; relay fleet reap --lost USD frees what lost workers had, but for what they spent"
                    if claims.find_lost(self.now())
                    else ""
                )
                return NotTaken(words=f"{words}: not enough for phase {bid.phase_id}{freed}")
            claim = self._make(bid, there or NOBODY)
            if self._swap(claims, there, claim, kept):
                return claim

    def renew(self, claim: PhaseClaim, *results: RefUpdate) -> PhaseClaim | None:
        """Hold a claim for another while, and push what has come of it; None when it is somebody else's by now.

        Raises:
            RemoteError: The remote cannot be reached; the claim stays as it was, and nothing was pushed.
        """
        fresh = self._store(replace(claim, expires_s=int(self.now()) + self.lease_s))
        own = RefUpdate(ref=self._name(claim.phase_id), old=claim.commit, new=fresh.commit)
        return fresh if self._push(own, *results) else None

    def give_back(self, claim: PhaseClaim, *results: RefUpdate, waits: str = "", known: Claims | None = None) -> bool:
        """Push what came of a claim, and end it with its reservation, in one step.

        Args:
            claim: As it was last renewed.
            results: Refs to push with it.
            waits: Why a person is needed; empty to leave the phase free.
            known: As of `take`.

        Returns:
            False when the claim is somebody else's by now, or a result is not where it was; nothing was pushed then.

        Raises:
            RemoteError: The remote cannot be reached, does not want it, or is too busy.
        """
        looks = self._look(known)
        while True:
            claims = next(looks)
            if (there := claims.find(claim.phase_id)) is None or there.commit != claim.commit:
                return False
            after = self._store(replace(claim, state=ClaimState.WAITS, words=waits)) if waits else None
            kept = tuple(one for one in claims.reserved if not one.is_of(claim))
            if self._swap(claims, there, after, kept, *results):
                return True
            now = self.remote.list_refs(*(update.ref for update in results)) if results else {}
            if any(now.get(update.ref) != update.old for update in results):
                return False

    def free_lost(self, *booked: RefUpdate, own: PhaseClaim | None = None) -> tuple[Reservation, ...]:
        """Free what is set aside for lost workers of whom is known what they have spent; return it.

        Args:
            booked: What they have spent, as refs that go to the remote with it.
            own: The lost claim; None for all of them.

        Raises:
            RemoteError: The remote cannot be reached, does not want it, or is too busy.
        """
        looks = self._look()
        while True:
            claims = next(looks)
            lost = claims.find_lost(self.now()) if own is None else tuple(r for r in claims.reserved if r.is_of(own))
            if not (lost or booked):
                return ()
            kept = tuple(one for one in claims.reserved if one not in lost)
            account = self._write(render_account(kept, ended=claims.ended + 1))  # who bids has to count it
            if self._push(RefUpdate(ref=f"{self._place}account", old=claims.account, new=account), *booked):
                return lost
            there = self.remote.list_refs(*(update.ref for update in booked)) if booked else {}
            booked = tuple(update for update in booked if update.ref not in there)  # a push whose answer was lost

    def _look(self, known: Claims | None = None) -> Iterator[Claims]:
        """Yield what is claimed, at first what is known, and again behind each push that lost.

        Not at once: others lost it at the same moment.
        """
        seen = set()
        for losses in range(1, ATTEMPTS + 1):
            begun_s = time.monotonic()
            claims, known = known or self.read(), None
            yield claims
            seen.add(claims.account)
            self.pause(random.uniform(0.0, min(losses, _MOST_ASIDE) * (time.monotonic() - begun_s)))  # noqa: S311
        if len(seen) > 1:
            words = f"{self.remote.name} is too busy: others were faster {ATTEMPTS} times"
            raise ContentionError(words, hint="try again")
        words = f"{self.remote.name} does not move its refs, {ATTEMPTS} times, and nobody else moved them"
        raise RemoteError(words, hint="a git that was killed there leaves *.lock files: remove those that are old")

    def write_off(
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
        is_paid = new is not None and new.reserved_usd is not None and new.state is ClaimState.HELD
        own = [make_reservation(new)] if new is not None and is_paid else []
        account = self._write(render_account((*kept, *own), ended=claims.ended + (old is not None)))
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
        if pushed.end is PushEnd.DONE:
            self._note_here(updates)
        return pushed.end is PushEnd.DONE

    def _note_here(self, updates: Sequence[RefUpdate]) -> None:
        """Have this clone know its own claims as they are now, also when it is killed before it asks again."""
        repo = self.remote.repo
        for update in updates:
            if not update.ref.startswith(self._place):
                continue
            ref = update.ref.replace(self._place, self._here, 1)
            with suppress(GitError, OSError):  # for a person only; the next fetch has it
                old = refs.find_ref(repo, ref)
                if update.new is not None:
                    refs.move_ref(repo, ref, update.new, old)
                elif old is not None:
                    refs.drop_ref(repo, ref, old)

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
        own = replace(claim, lease_s=self.lease_s)
        return replace(own, commit=self._write(render_claim(own)))

    def _write(self, message: Message) -> str:
        repo = self.remote.repo
        return objects.write_commit(repo, objects.write_paths_tree(repo, ()), (), message)

    @property
    def refspec(self) -> str:
        """What a fetch takes along for `recall` to know it."""
        return f"+{self._place}*:{self._here}*"

    @property
    def _here(self) -> str:
        return f"{SEEN_CLAIMS}{self.plan_key}/"

    @property
    def _place(self) -> str:
        return f"refs/relay/claims/{self.plan_key}/"

    def _name(self, phase_id: str) -> str:
        return f"{self._place}phase/{render_ref_part(phase_id)}"


def list_in_turn(phase_ids: Sequence[str], claims: Claims, worker: str) -> tuple[str, ...]:
    """Return phases in the order that a worker tries them: the first that is free, others, those that are claimed.

    Behind the first each worker has an order of its own, so that those who lost one race do not meet in the next.
    """
    held = {claim.phase_id for claim in claims.held}
    first, *rest = (*(phase for phase in phase_ids if phase not in held), "")
    rest.sort(key=lambda phase: hashlib.sha256(f"{worker}\0{phase}".encode(errors="surrogateescape")).digest())
    return tuple(phase for phase in (first, *rest, *(phase for phase in phase_ids if phase in held)) if phase)


def name_plan(branch: str, plan_path: str) -> str:
    """Return a name for a plan that is the same on every machine: of its branch and its file."""
    return hashlib.sha256(f"{branch}\0{plan_path}".encode(errors="surrogateescape")).hexdigest()[:16]


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
