"""A held claim: a run works on its phase, and each renewal pushes the phase's refs with it."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from relay.base.errors import ExitCode, LockedError, RelayError
from relay.base.interrupts import Interrupts
from relay.fleet import exchange
from relay.fleet.claims import ClaimRegistry, PhaseClaim
from relay.fleet.jobs import JobEnd, JobRun
from relay.fleet.landing import Job, find_phase_id
from relay.git.notes import lock_worktree
from relay.git.remote import RefUpdate, RemoteError
from relay.git.repository import Repo
from relay.session.events import Noticed, Observe, RunEnded, SessionEnded
from relay.session.records import LoggedEvent
from relay.store.worktree_notes import drop_claim_end, read_clock, write_claim_end

_HEARING_S = 0.5
_RETRY_S = 5.0
_LOCK_S = 60.0
_LEAST_S = 2.0
"""The shortest limit for one exchange with a remote, however soon the claim expires."""
_SPARE = 6
"""This part of the lease (1/6) is left to renew the claim alone when an upload takes too long."""


class LostError(Exception):
    """The claim is another worker's, or expired while the remote could not be reached; the user did nothing wrong."""


class UnfitError(RelayError):
    """No run can begin on this machine: no key, no sandbox. The phase is well, and other workers can have it."""


class Holding:
    """A worker's claim on a phase. Mutable: each renewal moves the claim and the phase's refs on the remote.

    Args:
        registry: Where the claim was taken.
        branch: The job's branch. Its refs are read from the clone: somebody may remove the work tree.
        there: The job's refs on the remote: ref → commit.
    """

    def __init__(
        self,
        registry: ClaimRegistry,
        claim: PhaseClaim,
        branch: str,
        there: Mapping[str, str],
        observe: Observe,
        interrupts: Interrupts,
    ) -> None:
        self.claim = claim
        self._registry, self._branch, self._there = registry, branch, there
        self._repo = registry.remote.repo
        self._observe, self._interrupts = observe, interrupts
        self._note_renewal(read_clock() - (registry.now() - (claim.expires_s - claim.lease_s)))
        self._is_silent = False
        self._is_behind = False
        self._is_over = False

    def run(self, job: Job, words: tuple[str, ...], environ: Mapping[str, str]) -> JobEnd:
        """Run relay on the phase until the run ends.

        Raises:
            LostError: The claim is not this worker's any more; the run was ended.
            UnfitError: The run could not begin.
        """
        write_claim_end(job.repo, self._ends_s)
        child = JobRun(job.repo.root, ("run", "--phase", find_phase_id(job), *words), environ)
        try:
            return self._follow(job, child)
        except BaseException:
            child.interrupt(now=True)
            for records in child.follow(self._interrupts, _HEARING_S):
                self._pass_on(records)
            child.close()
            raise
        finally:
            drop_claim_end(job.repo)

    def _follow(self, job: Job, child: JobRun) -> JobEnd:
        for records in child.follow(self._interrupts, _HEARING_S):
            ended_attempt = self._pass_on(records)
            if (ended_attempt or read_clock() >= self._due_s) and not child.has_ended:
                self._report(job)
        end = child.close()
        if end.exit_code == ExitCode.USER and not end.began:
            raise UnfitError(end.reason, hint=end.hint)
        return end

    def _pass_on(self, records: Iterable[LoggedEvent]) -> bool:
        """Pass on the run's events; return whether a session has ended, whose checkpoints are to be pushed."""
        events = [record.event for record in records]
        for event in events:
            if not isinstance(event, RunEnded):  # the phase's end is told when it has landed
                self._observe(event)
        return any(isinstance(event, SessionEnded) for event in events)

    def _report(self, job: Job) -> None:
        try:
            self.renew(job)
        except RemoteError as error:
            self._due_s = min(read_clock() + _RETRY_S, self._ends_s)
            if not self._is_silent:
                self._observe(Noticed(text=f"{error}; the phase goes on here, and relay tries again", warning=True))
            self._is_silent = True
            if read_clock() >= self._ends_s:
                raise LostError from error

    def renew(self, job: Job) -> None:
        """Renew the claim and push the phase's refs.

        Raises:
            RemoteError: The remote cannot be reached.
            LostError: Another worker has taken the phase over.
        """
        if shown := exchange.read_shown(self._repo, self._branch):
            cost = exchange.find_cost(self._repo, job.plan_path, self._branch, self.claim.phase_id, shown.start)
            shown = replace(shown, cost_usd=cost)
        here = exchange.read_here(self._repo, self._branch)
        self.claim = replace(self.claim, noted=exchange.find_noted(self._repo, self._branch))
        try:
            self._renew_with(job, here)
            if shown is not None:
                exchange.note_shown(self._repo, self._branch, shown)
        except RemoteError as error:
            if not exchange.find_updates(here, self._there):
                raise
            # The upload takes too long, or the remote refuses it: the claim must not expire because of that.
            self._renew_with(job, None)
            if not self._is_behind:
                words = (
                    f"{error}; phase {job.phase_id} stays claimed, and whoever took it over would begin without this"
                )
                self._observe(Noticed(text=f"{words}; relay work --lease gives an upload more time", warning=True))
            self._is_behind = True
        else:
            self._is_behind = False
        self._is_silent = False

    def _renew_with(self, job: Job, here: Mapping[str, str] | None) -> None:
        """Renew the claim and set the job's refs on the remote to `here`; None leaves them as they are."""
        # A remote that does not answer must not keep a run going beyond its claim.
        asked_s, remote = read_clock(), self._registry.remote
        left_s = self._ends_s - asked_s
        limit_s = min(remote.limit_s, max(_LEAST_S, left_s / 2))
        most_s = math.inf if here is None else max(_LEAST_S, left_s - self._registry.lease_s / _SPARE)
        registry = replace(self._registry, remote=replace(remote, limit_s=limit_s, most_s=most_s))
        fresh = registry.renew(self.claim, *self._list_updates(here))
        if fresh is None and self._find_own(registry):
            fresh = registry.renew(self.claim, *self._list_updates(here))
        if fresh is None:
            raise LostError
        self.claim, self._there = fresh, self._there if here is None else here
        self._note_renewal(asked_s)
        write_claim_end(job.repo, self._ends_s)

    def _list_updates(self, here: Mapping[str, str] | None) -> tuple[RefUpdate, ...]:
        return () if here is None else exchange.find_updates(here, self._there)

    def _note_renewal(self, at_s: float) -> None:
        self._due_s = at_s + self._registry.lease_s / 3
        self._ends_s: float = at_s + self._registry.lease_s

    def _find_own(self, registry: ClaimRegistry) -> bool:
        """Find out whether an unanswered renewal of this worker moved the claim; nobody else has its attempt."""
        claim, there = registry.read().find(self.claim.phase_id), self._read_there()
        if claim is None or (claim.worker, claim.attempt) != (self.claim.worker, self.claim.attempt):
            return False
        if any(self._repo.find_commit(commit) is None for commit in there.values()):
            return False  # somebody else moved the phase's branch
        is_moved = claim.commit != self.claim.commit
        self.claim, self._there = claim, there
        return is_moved

    def _read_there(self) -> Mapping[str, str]:
        return exchange.read_there(self._registry.remote, self._branch).get(self._branch, {})

    def give_back(self, *, waits: str = "") -> None:
        """Push the phase's refs and end the claim, unless it has ended.

        Args:
            waits: Why a person is needed; empty to leave the phase free.

        Raises:
            RemoteError: The remote cannot be reached.
            LostError: Another worker has taken the phase over.
        """
        if self._is_over:
            return
        here = exchange.read_here(self._repo, self._branch)
        while not self._registry.give_back(self.claim, *exchange.find_updates(here, self._there), waits=waits):
            if not self._find_own(self._registry):
                raise LostError
        exchange.drop_shown(self._repo, self._branch)

    def deliver(self, branch: str, old: str, new: str) -> bool:
        """Push the plan's branch, remove the job's refs on the remote and end the claim, in one step.

        Returns:
            False when the branch or one of those refs has moved meanwhile; nothing has changed then.

        Raises:
            RemoteError: The remote cannot be reached.
            LostError: Another worker has taken the phase over.
        """
        gone = (RefUpdate(ref=ref, old=commit, new=None) for ref, commit in self._there.items())
        landed = RefUpdate(ref=f"refs/heads/{branch}", old=old, new=new)
        kept = exchange.list_given_up(branch, exchange.read_here(self._repo, self._branch))
        if self._registry.give_back(self.claim, landed, *gone, *kept, known=self._registry.recall()):
            exchange.drop_shown(self._repo, self._branch)
            self._is_over = True
            return True
        there = self._registry.read().find(self.claim.phase_id)
        if there is None or there.commit != self.claim.commit:
            raise LostError
        self._there = self._read_there()  # a person may have removed some of it
        return False


@contextmanager
def locking(repo: Repo, interrupts: Interrupts) -> Iterator[None]:
    """Hold a work tree's lock; wait up to a minute for another relay to release it.

    Raises:
        LockedError: Another relay keeps it for longer.
    """
    ends_s = time.monotonic() + _LOCK_S
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock_worktree(repo))
                break
            except LockedError:
                if time.monotonic() > ends_s or interrupts.wait(_HEARING_S):
                    raise
        yield
