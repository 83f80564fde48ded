"""Claims on phases at a remote and the money that they reserve.

Workers take, renew, take over and give back claims by compare-and-swap. A claim is a commit without files under
``refs/relay/claims/<plan>/phase/<phase>``; only its holder, who knows its id, can renew it. The ref ``…/account`` holds
the reservations of all claims of a plan. It moves in the same push, so two machines cannot both take the last of the
money. Clocks need not agree: a worker takes over another one's claim only after it has seen, by its own clock, that the
claim did not move for the length of its lease (`LeaseClock`).
"""

import hashlib
import random
import re
import secrets
import socket
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
from relay.git.notes import read_note, write_note
from relay.git.remote import PushEnd, RefUpdate, Remote, RemoteError
from relay.git.repository import Repo
from relay.store import trailers
from relay.store.refs import SEEN_CLAIMS
from relay.store.worktree_notes import read_clock

_WORKER = "Relay-Worker"
_WORKER_NOTE = "worker"
_EXPIRES = "Relay-Expires"
"""Seconds since the epoch, by the holder's clock."""
_LEASE = "Relay-Lease"
"""The lease: seconds until the holder's next renewal is due, whatever the clocks say."""
_STATE = "Relay-PhaseClaim"
_RESERVED = "Relay-Reserved"
"""In a claim: dollars. In the account, one for each phase: dollars, worker, attempt, phase."""
_ENDED = "Relay-Ended"
"""In the account: how many claims have ended or were taken over. Other refs hold their cost since then."""
_BEFORE = "Relay-Seen"
"""Dollars known to be spent on the phase when it was claimed."""
_TOKEN = "Relay-Token"  # noqa: S105  # no secret: two claims that are otherwise the same have to be two commits
_PARTS = 4
_LONGEST_TIME = 12
MOST_LEASE_S = 3_600
"""The longest lease. relay ignores a longer one: anybody who may push a claim could write any number."""
_AMOUNT = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")


class ClaimState(StrEnum):
    """Whether a worker or a person has the phase."""

    HELD = "held"
    """Somebody works on the phase."""
    WAITS = "waits"
    """For a person: the phase failed, and no other worker takes it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseClaim:
    """The claim on one phase, as its ref holds it."""

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
    """Known to be spent on the phase when it was claimed."""
    lease_s: int = 0
    """How long the claim holds without being renewed; 0 where it does not say."""
    words: str = ""
    """Why it waits."""
    noted: tuple[tuple[str, str], ...] = ()
    """The open session and its cost at the last renewal, as trailers; its checkpoints may not have them yet."""
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Money that is set aside."""

    phase_id: str
    worker: str
    attempt: int
    cost_usd: float

    def is_of(self, claim: PhaseClaim) -> bool:
        """Return whether `claim` made this reservation."""
        return (self.phase_id, self.worker, self.attempt) == (claim.phase_id, claim.worker, claim.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All claims on the phases of a plan, and their reservations."""

    held: tuple[PhaseClaim, ...] = ()
    reserved: tuple[Reservation, ...] = ()
    """Of held claims, and of lost ones, whose workers may have spent the money unseen."""
    account: str | None = None
    """The account's commit; None before the first claim."""
    ended: int = 0
    """How many claims have ended. Other refs hold their cost."""

    def find(self, phase_id: str) -> PhaseClaim | None:
        """Return the claim on a phase; None when it is free."""
        return next((claim for claim in self.held if claim.phase_id == phase_id), None)

    @property
    def reserved_usd(self) -> float:
        """The sum of all reservations."""
        return sum(one.cost_usd for one in self.reserved)

    def find_lost(self, now: float) -> tuple[Reservation, ...]:
        """Return the reservations of expired claims, if clocks agree; their workers may have spent the money unseen."""
        held = [claim for claim in self.held if claim.state is ClaimState.HELD and now <= claim.expires_s]
        return tuple(one for one in self.reserved if not any(one.is_of(claim) for claim in held))


NOBODY = PhaseClaim(
    phase_id="", worker="", attempt=0, state=ClaimState.HELD, expires_s=0, reserved_usd=None, seen_usd=0.0
)


def is_at_work(claim: PhaseClaim, *, now: float) -> bool:
    """Return whether a worker holds the claim, if clocks agree; `now` is in seconds since the epoch."""
    return claim.state is ClaimState.HELD and now <= claim.expires_s <= now + MOST_LEASE_S


def describe_claim(claim: PhaseClaim, *, now: float) -> str:
    """Return who has a phase, in words: ``claimed by …``, ``waiting for a person: …``."""
    if claim.state is ClaimState.WAITS:
        return f"waiting for a person: {claim.words}"
    left = claim.expires_s - now
    until = f"for {left:.0f} s more" if left > 0 else f"since {-left:.0f} s without a sign of life"
    until = until if left <= MOST_LEASE_S else "for longer than a claim can hold"
    return f"claimed by {claim.worker} (attempt {claim.attempt}), {until}"


def _render_claim(claim: PhaseClaim) -> Message:
    found = (
        (trailers.PHASE, claim.phase_id),
        (_WORKER, claim.worker),
        (trailers.TRIES, str(claim.attempt)),
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


def _render_account(reserved: tuple[Reservation, ...], *, ended: int) -> Message:
    found = tuple((_RESERVED, f"{one.cost_usd:.6f} {one.worker} {one.attempt} {one.phase_id}") for one in reserved)
    own = (*found, (_ENDED, str(ended)), (_TOKEN, secrets.token_hex(8)))
    return Message(subject="relay: what is reserved", trailers=own)


def _parse_claim(text: CommitText) -> PhaseClaim | None:
    state, phase_id = text.get(_STATE), text.get(trailers.PHASE)
    if state not in set(ClaimState) or not phase_id:
        return None
    return PhaseClaim(
        phase_id=phase_id,
        worker=text.get(_WORKER),
        attempt=trailers.parse_count(text.get(trailers.TRIES), 1),
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


def _parse_account(text: CommitText) -> tuple[Reservation, ...]:
    rows = (value.split(" ", _PARTS - 1) for value in text.get_all(_RESERVED))
    return tuple(
        Reservation(phase_id=phase_id, worker=worker, attempt=trailers.parse_count(attempt, 1), cost_usd=float(cost))
        for cost, worker, attempt, phase_id in (row for row in rows if len(row) == _PARTS)
        if _AMOUNT.fullmatch(cost)
    )


_MOST_ASIDE = 4
"""After losing a push a worker waits for a random part of its duration, then of twice that, up to this factor."""
LEASE_S = 300
"""The default lease: how long a claim holds without being renewed."""
ATTEMPTS = 12
"""How often to try a push that others overtake."""


class ContentionError(RemoteError):
    """Other workers were faster each time. The remote is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """A worker's request for a phase and for money."""

    phase_id: str
    reserve_usd: float | None
    """None without a cap."""
    cap_usd: float | None
    spent_usd: float
    """Spent on the whole plan, as far as the remote knows."""
    seen_usd: float
    """Spent on this phase."""
    instead: str = ""
    """The commit of the claim to take over, which has expired; empty when the phase must be free."""
    ended: int = 0
    """`Claims.ended`, read before `spent_usd`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """Why a phase was not claimed."""

    words: str
    by: tuple[PhaseClaim, ...] = ()
    """The claims in the way; empty where the money does not suffice."""
    is_stale: bool = False
    """Whether a claim has ended since the bid: more is spent than it says, and the phase may be done. Bid again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRegistry:
    """Reads and changes the claims on one plan's phases, for one worker."""

    remote: Remote
    plan_key: str
    """From `name_plan`."""
    worker: str
    lease_s: int
    now: Callable[[], float]
    pause: Callable[[float], object] = time.sleep
    """Waits for seconds."""

    def read(self) -> Claims:
        """Fetch the claims.

        Raises:
            RemoteError: The remote cannot be reached.
        """
        self.remote.fetch(self.refspec)
        return self.recall()

    def recall(self) -> Claims:
        """Return the claims as this clone last fetched or made them, without asking the remote."""
        repo, here = self.remote.repo, self._here
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

    def take(self, bid: Bid, known: Claims | None = None) -> PhaseClaim | NotTaken:
        """Claim a phase and reserve its money, or say why not.

        Args:
            known: The claims, if they were read a moment ago. The push fails where somebody was faster since.

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
            before = there or NOBODY
            claim = self._store(
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
            if self._swap(claims, there, claim, kept):
                return claim

    def renew(self, claim: PhaseClaim, *results: RefUpdate) -> PhaseClaim | None:
        """Renew a claim and push the phase's refs with it; None when the claim is somebody else's by now.

        Raises:
            RemoteError: The remote cannot be reached; the claim stays as it was, and nothing was pushed.
        """
        fresh = self._store(replace(claim, expires_s=int(self.now()) + self.lease_s))
        own = RefUpdate(ref=self._name(claim.phase_id), old=claim.commit, new=fresh.commit)
        return fresh if self._push(own, *results) else None

    def give_back(self, claim: PhaseClaim, *results: RefUpdate, waits: str = "", known: Claims | None = None) -> bool:
        """Push the phase's refs and end the claim with its reservation, in one step.

        Args:
            claim: The last one that `renew` or `take` returned.
            results: Refs to push with it.
            waits: Why a person is needed; empty to leave the phase free.
            known: As for `take`.

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
        """Free the reservations of lost workers once their spend is known; return them.

        Args:
            booked: Refs that hold their spend, pushed with it.
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
            account = self._write(_render_account(kept, ended=claims.ended + 1))  # who bids has to count it
            if self._push(RefUpdate(ref=f"{self._place}account", old=claims.account, new=account), *booked):
                return lost
            there = self.remote.list_refs(*(update.ref for update in booked)) if booked else {}
            booked = tuple(update for update in booked if update.ref not in there)  # a push whose answer was lost

    def _look(self, known: Claims | None = None) -> Iterator[Claims]:
        """Yield the claims, at first `known`, and again after each lost push.

        It pauses before: other workers lost a push at the same moment.
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
        """Return the reservations that stay when a claim is taken over: its worker may have spent the unseen rest."""
        if lost is None or lost.state is ClaimState.WAITS:
            return reserved
        # A worker of this machine was killed: all of its spend is known here.
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
        """Push a changed claim with the account; False when somebody was faster."""
        is_paid = new is not None and new.reserved_usd is not None and new.state is ClaimState.HELD
        if new is not None and is_paid:
            cost_usd = new.reserved_usd or 0.0
            own = Reservation(phase_id=new.phase_id, worker=new.worker, attempt=new.attempt, cost_usd=cost_usd)
            kept = (*kept, own)
        account = self._write(_render_account(kept, ended=claims.ended + (old is not None)))
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
            repo = self.remote.repo
            for update in updates:
                if not update.ref.startswith(self._place):
                    continue
                ref = update.ref.replace(self._place, self._here, 1)
                with suppress(GitError, OSError):  # only `relay status` reads these before the next fetch
                    old = refs.find_ref(repo, ref)
                    if update.new is not None:
                        refs.move_ref(repo, ref, update.new, old)
                    elif old is not None:
                        refs.drop_ref(repo, ref, old)
        return pushed.end is PushEnd.DONE

    def _store(self, claim: PhaseClaim) -> PhaseClaim:
        own = replace(claim, lease_s=self.lease_s)
        return replace(own, commit=self._write(_render_claim(own)))

    def _write(self, message: Message) -> str:
        repo = self.remote.repo
        return objects.write_commit(repo, objects.write_paths_tree(repo, ()), (), message)

    @property
    def refspec(self) -> str:
        """The refspec that fetches what `recall` reads."""
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
    """Return the phases in the order in which a worker tries them: first free one, other free ones, claimed ones.

    After the first, each worker has an order of its own, so that workers that lost one race do not meet in the next.
    """
    held = {claim.phase_id for claim in claims.held}
    first, *rest = (*(phase for phase in phase_ids if phase not in held), "")
    rest.sort(key=lambda phase: hashlib.sha256(f"{worker}\0{phase}".encode(errors="surrogateescape")).digest())
    return tuple(phase for phase in (first, *rest, *(phase for phase in phase_ids if phase in held)) if phase)


def name_plan(branch: str, plan_path: str) -> str:
    """Return a name for a plan, from its branch and file; it is the same on every machine."""
    return hashlib.sha256(f"{branch}\0{plan_path}".encode(errors="surrogateescape")).hexdigest()[:16]


class LeaseClock:
    """Knows since when this process has seen each claim unchanged. Mutable: `note` updates it.

    Args:
        clock: Seconds on a clock of this machine.
    """

    def __init__(self, clock: Callable[[], float] = read_clock) -> None:
        self._clock = clock
        self._since: Mapping[str, float] = {}

    def note(self, claims: Claims) -> None:
        """Note the claims as they are now; a claim that has moved starts anew."""
        now = self._clock()
        self._since = {claim.commit: self._since.get(claim.commit, now) for claim in claims.held}

    def find_wait_s(self, claim: PhaseClaim) -> float:
        """Return the seconds until the worker of an unmoved claim counts as dead; 0 or less: it does."""
        now = self._clock()
        return (claim.lease_s or LEASE_S) - (now - self._since.get(claim.commit, now))


def find_worker(main: Repo) -> str:
    """Return this clone's worker name; empty where it never was a worker."""
    token = read_note(main, _WORKER_NOTE).strip()
    return f"{socket.gethostname()}-{token}" if token.isalnum() else ""


def ensure_worker(main: Repo) -> str:
    """Return this clone's worker name, made at first use."""
    if not (name := find_worker(main)):
        main.make_relay_dir()
        write_note(main, _WORKER_NOTE, secrets.token_hex(4))
        name = find_worker(main)
    return name
