"""Work on one phase on one of many machines: claim, fetch, run in a work tree, land, push, give the claim back.

The remote is the only truth. Each step can be repeated, so a worker that was killed and one that goes on take the same
path. A worker that has lost its claim stops; the remote takes none of its later pushes.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace

from relay.base.errors import ExitCode, LockedError, RelayError, RepoError
from relay.base.hints import Command, Hint
from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.config import Settings
from relay.fleet import exchange
from relay.fleet.claims import (
    LEASE_S,
    NOBODY,
    Bid,
    Claims,
    ClaimState,
    LeaseClock,
    NotTaken,
    PhaseClaim,
    describe_claim,
    ensure_worker,
    is_at_work,
    list_in_turn,
)
from relay.fleet.holding import Holding, LostError, locking
from relay.fleet.jobs import JobEnd
from relay.fleet.landing import Job, Landing, LandingCase, find_landing, prepare
from relay.fleet.overview import (
    AS_REMOTE,
    end_done_claims,
    explain_none,
    fetch_plan,
    open_registry,
    require_pushed,
    select_phases,
)
from relay.fleet.requests import CLOSED, Requests, Settlement, find_asked, name_asked
from relay.fleet.worktrees import ensure_job, find_jobs, name_job_branch
from relay.git import refs
from relay.git.lock_journal import clear_stale_locks
from relay.git.message import read_text
from relay.git.names import list_paths
from relay.git.notes import is_locked, lock_worktree
from relay.git.objects import is_ancestor
from relay.git.remote import Remote, RemoteError
from relay.git.repository import Repo
from relay.git.worktrees import put_on_branch
from relay.plan.model import Phase, Plan
from relay.run.selection import get_phase
from relay.session.events import Noticed, Observe, TransferShown
from relay.setup.open import hold_worktree
from relay.setup.session import make_meter
from relay.store import branches
from relay.store.attempts import read_attempt
from relay.store.completion import finish_pending
from relay.store.history import read_relay_commits
from relay.store.plan_state import read_plan_cost
from relay.store.refs import get_branch
from relay.store.spend import Whose, add_branch

_MOST_IDLE = 3
"""How many steps of a phase may change nothing before it is given up. Other phases that land first do not count."""
_CENT_USD = 0.01
_AGAIN_S = 0.2  # a remote of several machines may list a branch for a while before it can be fetched
_TWIN = "another relay is at work on phase {} in this clone"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTask:
    """A worker's task."""

    main: Repo
    """A clone, on the plan's branch."""
    remote: Remote
    plan_path: str
    settings: Settings
    words: tuple[str, ...]
    """The words after ``relay run --phase N`` for its runs."""
    environ: Mapping[str, str]
    """The environment of its runs."""
    phase_id: str = ""
    """The only phase to work on; empty for the first that is free."""
    requests: Requests | None = None
    """How a finished phase lands where the plan's branch is protected; None: relay moves the branch."""
    lease_s: int = LEASE_S
    lease_clock: LeaseClock = field(default_factory=LeaseClock)
    """Kept from one phase to the next, so that a claim is not watched twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEnd:
    """How a worker's task ended."""

    exit_code: ExitCode
    reason: str
    phase_id: str = ""
    """Empty when none was claimed."""
    is_over: bool = False
    """Whether nothing is left for any worker: the plan is done, or the rest waits for a person."""
    next_command: Hint = ""
    """What the person types next; empty when there is nothing to type."""


def work(task: WorkTask, observe: Observe, interrupts: Interrupts) -> WorkEnd:
    """Work on one phase of a plan that many machines work on.

    Raises:
        RelayError: The remote cannot be reached, or something here has to be changed first.
    """
    return _Worker(task, observe, interrupts).work()


class _Worker:
    """Takes one phase from its claim to its landing. Mutable: the words for its runs change with its money."""

    def __init__(self, task: WorkTask, observe: Observe, interrupts: Interrupts) -> None:
        self._task, self._observe, self._interrupts = task, observe, interrupts
        self._main = task.main
        self._remote = replace(
            task.remote,
            tell=lambda text: observe(Noticed(text=text)),
            show=lambda text: observe(TransferShown(line=text)),
        )
        self._branch = get_branch(task.main)
        self._words, self._tip = task.words, ""
        self._closed = frozenset[str]()
        worker = ensure_worker(task.main)
        self._registry = open_registry(self._remote, self._branch, task.plan_path, worker=worker, lease_s=task.lease_s)
        self._settlement = Settlement(
            registry=self._registry, branch=self._branch, plan_path=task.plan_path, requests=task.requests
        )

    def work(self) -> WorkEnd:
        """Claim a phase and bring it to its end."""
        with locking(self._main, self._interrupts):
            if locks := clear_stale_locks(self._main):
                raise RepoError("; ".join(locks))
            for words in finish_pending(self._main):  # of a worker that was killed as it followed the remote
                self._observe(Noticed(text=words, warning=True))
        with ExitStack() as stack:
            while (end := self._try(stack)) is None and not self._interrupts.wait(_AGAIN_S):
                stack.close()  # other claims ended meanwhile: their spend must be counted
            return end or WorkEnd(exit_code=ExitCode.INTERRUPTED, reason="stopped before a phase was claimed")

    def _try(self, stack: ExitStack) -> WorkEnd | None:
        plan, claims = self._sync(), self._note(self._registry.recall())
        if self._settlement.settle(plan, claims, self._tip, self._observe):
            return None
        end_done_claims(self._registry, plan, claims, lambda phase_id: name_job_branch(self._main, phase_id))
        if self._book_lost(plan, claims, stack):
            return None
        if plan.done:
            return WorkEnd(exit_code=ExitCode.DONE, reason="every phase is done", is_over=True)
        if _is_done(plan, self._task.phase_id):  # a ticket that was delivered again
            return self._end_done(self._task.phase_id)
        wanted = self._task.phase_id
        found = select_phases(plan, claims, but=wanted, worker=self._registry.worker, is_alive=self._is_alive)
        phases = tuple(phase for phase in found if wanted in {"", phase.id})
        if (jobs := self._fetch_jobs()) is None or self._leave_closed(plan, stack):
            return None
        held = {claim.phase_id for claim in claims.held}
        # One share more than phases: when a worker is lost with its reservation, another one has enough to go on.
        shares = 1 + sum(not phase.done and phase.id not in held for phase in plan.phases)
        taken = self._claim_one(phases, claims, shares, stack)
        if isinstance(taken, PhaseClaim):
            return self._work_on(taken, claims.find(taken.phase_id), jobs, stack)
        # While another worker is at work its phase may be done, or its money free again.
        waiting = (*claims.held, *taken.by)
        is_over = all(claim.state is ClaimState.WAITS for claim in waiting)
        again = _take_over(waiting[0].phase_id) if is_over and waiting and not find_asked(waiting[0]) else ""
        end = WorkEnd(exit_code=ExitCode.STOPPED, reason=taken.words, is_over=is_over, next_command=again)
        return None if taken.is_stale else end

    def _work_on(
        self,
        taken: PhaseClaim,
        before: PhaseClaim | None,
        jobs: Mapping[str, Mapping[str, str]],
        stack: ExitStack,
    ) -> WorkEnd:
        words = f"phase {taken.phase_id} is claimed on {self._remote.name} by {taken.worker} (attempt {taken.attempt})"
        self._observe(Noticed(text=words))
        is_own = before is not None and before.worker == self._registry.worker
        try:
            with self._freeing(lambda: self._registry.give_back(taken)):
                job = self._take_up(taken, jobs, is_own=is_own)
            if job is None:  # a twin of this worker in the same clone
                self._registry.give_back(taken)
                return WorkEnd(exit_code=ExitCode.STOPPED, reason=_TWIN.format(taken.phase_id))
            branch, tip = get_branch(job.repo), self._tip
            exchange.begin_shown(self._main, job.plan_path, branch, taken.phase_id, attempt=taken.attempt, start=tip)
            holding = Holding(self._registry, taken, branch, jobs.get(branch, {}), self._observe, self._interrupts)
            self._words = self._list_words(taken, job)
            with self._freeing(holding.give_back):
                return self._land(holding, job)
        except LostError:
            stack.close()
            with suppress(RepoError):  # what cannot be done now is done with the next contact
                self._book_lost(self._sync(), self._note(self._registry.recall()), stack)
            words = f"phase {taken.phase_id} is another worker's by now; the work of this worker stays in this clone"
            return WorkEnd(exit_code=ExitCode.STOPPED, reason=words, phase_id=taken.phase_id)

    def _note(self, claims: Claims) -> Claims:
        self._task.lease_clock.note(claims)
        return claims

    def _fetch_jobs(self) -> Mapping[str, Mapping[str, str]] | None:
        """Fetch the plan's jobs, but for those with a work tree here, and return their refs on the remote.

        None: a phase has landed since the plan's branch was fetched. It has no claim any more, and is still open in
        the fetched plan.
        """
        others = f"refs/heads/{self._branch}", exchange.name_booked(self._branch, "*")
        jobs = dict(exchange.read_there(self._remote, name_job_branch(self._main, ""), *others, f"{CLOSED}*"))
        self._closed = frozenset(jobs.pop("", {}).values())
        booked = dict(jobs.pop(self._branch, {}))
        is_as_fetched = booked.pop(others[0], "") == self._tip
        every = {**jobs, self._branch: booked}
        is_whole = exchange.fetch_jobs(self._remote, every, but={get_branch(job.repo) for job in self._find_jobs()})
        return jobs if is_as_fetched and is_whole else None

    def _book_lost(self, plan: Plan, claims: Claims, stack: ExitStack) -> bool:
        """Book the local cost of phases that another worker has claimed or landed; False: there are none."""
        is_booked = False
        for phase in plan.phases:
            shown = exchange.read_shown(self._main, name_job_branch(self._main, phase.id))
            claim = claims.find(phase.id)
            is_own = claim and claim.worker == self._registry.worker
            if shown and not is_own and (claim or phase.done) and self._is_alone(phase.id, stack):
                self._put_aside(phase.id)
                stack.close()
                is_booked = True
        return is_booked

    def _leave_closed(self, plan: Plan, stack: ExitStack) -> bool:
        """Put this clone's work on phases aside whose requests ended without its commits; False: there is none."""
        is_left = False
        for phase in plan.phases:
            own = refs.find_ref(self._main, f"refs/heads/{name_job_branch(self._main, phase.id)}")
            if own in self._closed and self._is_alone(phase.id, stack):
                self._put_aside(
                    phase.id, f"the request of phase {phase.id} was {'squashed' if phase.done else 'closed'}"
                )
                stack.close()
                is_left = True
        return is_left

    def _put_aside(self, phase_id: str, why: str = "") -> None:
        """Put this clone's refs of a phase aside that another machine went on with, and tell the remote its cost."""
        branch = name_job_branch(self._main, phase_id)
        if job := next((job for job in self._find_jobs() if job.phase_id == phase_id), None):
            with hold_worktree(job.repo):
                pass  # repairs the state that a killed run left
        here, own = exchange.read_here(self._main, branch), refs.find_ref(self._main, f"refs/heads/{branch}")
        is_open = own is None or read_attempt(self._main, branch) or not is_ancestor(self._main, own, self._tip)
        if shown := exchange.read_shown(self._main, branch):
            whose = Whose(plan_path=self._task.plan_path, phase_id=phase_id, session_id=shown.token, base=shown.start)
            booked = exchange.keep_unseen(self._main, self._branch, branch, whose, shown) if is_open else None
            lost = replace(NOBODY, phase_id=phase_id, worker=self._registry.worker, attempt=shown.attempt)
            self._registry.free_lost(*([booked] if booked else []), own=lost)
        if is_open and here and here != exchange.read_there(self._remote, branch).get(branch, {}):
            ref = self._leave(job, branch) if job else exchange.put_aside(self._main, branch, tuple(here.values()))
            place = f"{job.repo.root} and in {ref}" if job else ref
            words = why or f"another machine went on with phase {phase_id}"
            words = f"{words}; the work of this machine stays in {place}"
            self._observe(Noticed(text=words, warning=True))
            for name, commit in here.items():
                refs.drop_ref(self._main, name, commit)
        exchange.drop_shown(self._main, branch)

    def _find_jobs(self) -> tuple[Job, ...]:
        return find_jobs(self._main, self._task.plan_path)

    def _sync(self) -> Plan:
        """Fetch claims, move this clone's branch to the remote's tip, and return the plan there.

        Raises:
            PlanError: The plan lacks the requested phase.
        """
        self._tip, plan = fetch_plan(self._remote, self._branch, self._task.plan_path, self._registry.refspec)
        if self._task.phase_id:
            get_phase(plan, self._task.phase_id)
        with locking(self._main, self._interrupts):
            self._follow(require_pushed(self._remote, self._branch, self._tip), self._tip)
        return plan

    def _is_alive(self, claim: PhaseClaim) -> bool:
        return is_at_work(claim, now=time.time()) and self._task.lease_clock.find_wait_s(claim) > 0

    def _follow(self, own: str, tip: str) -> None:
        if own == tip:
            return
        if found := branches.find_in_the_way(self._main, own, tip):
            words = f"{self._remote.name} is ahead, and these files were changed here: {list_paths(found)}"
            raise RepoError(words, hint="commit them or put them away")
        for words in branches.move_branch(self._main, self._branch, own, tip, reason=AS_REMOTE) or ():
            self._observe(Noticed(text=words, warning=True))

    def _claim_one(
        self, phases: tuple[Phase, ...], claims: Claims, shares: int, stack: ExitStack
    ) -> PhaseClaim | NotTaken:
        """Claim the first phase that is free; else one whose worker does not renew its claim."""
        refused: list[NotTaken] = []
        for phase_id in list_in_turn([phase.id for phase in phases], claims, self._registry.worker):
            there = claims.find(phase_id)
            if not self._is_alone(phase_id, stack):
                by = replace(NOBODY, phase_id=phase_id, worker=self._registry.worker)
                refused.append(NotTaken(words=_TWIN.format(phase_id), by=(by,)))
                continue
            instead = "" if there is None else self._find_takeover(there)
            bid = self._bid(phase_id, claims, shares + (there is not None), instead)
            branch = name_job_branch(self._main, phase_id)
            exchange.note_bid(self._main, branch, attempt=(there or NOBODY).attempt + 1)
            taken = self._registry.take(bid, self._registry.recall())
            if isinstance(taken, PhaseClaim):
                return taken
            exchange.drop_bid(self._main, branch)
            stack.close()
            if taken.is_stale:
                return taken
            refused.append(taken)
        if not refused:
            return NotTaken(words=explain_none(claims))
        words = "; ".join(dict.fromkeys(one.words for one in refused))
        return NotTaken(words=words, by=tuple(claim for one in refused for claim in one.by))

    def _is_alone(self, phase_id: str, stack: ExitStack) -> bool:
        """Keep other relays of this clone from a phase; False where one is at it, or a run that outlived its worker."""
        digest = hashlib.sha256(phase_id.encode()).hexdigest()[:16]
        try:
            stack.enter_context(lock_worktree(self._main, f"work-{digest}"))
        except LockedError:
            return False
        if any(job.phase_id == phase_id and is_locked(job.repo) for job in self._find_jobs()):
            stack.close()
            return False
        return True

    def _find_takeover(self, there: PhaseClaim) -> str:
        """Return the commit of a claim that may be taken over; empty where its worker may be alive."""
        if there.state is ClaimState.WAITS:
            return there.commit if self._task.phase_id else ""  # a person typed its number
        if there.worker == self._registry.worker:
            return there.commit  # it was killed: this process has the lock
        if self._is_alive(there):
            return ""
        # Clocks may differ: a living worker renews its claim meanwhile.
        if (wait_s := self._task.lease_clock.find_wait_s(there)) > 0:
            words = f"phase {there.phase_id} is {describe_claim(there, now=time.time())}; watched for {wait_s:.0f} s"
            self._observe(Noticed(text=words))
            if self._interrupts.wait(wait_s):
                return ""
        seen = self._note(self._registry.read()).find(there.phase_id)
        return there.commit if seen is not None and seen.commit == there.commit else ""

    def _bid(self, phase_id: str, claims: Claims, shares: int, instead: str) -> Bid:
        """Return a bid for a share of the remaining money, so that other phases can be worked on meanwhile."""
        settings, seen = self._task.settings, self._find_seen(phase_id)
        cap, spent = settings.max_cost_usd, read_plan_cost(self._main, self._task.plan_path).spent.cost_usd or 0.0
        others = sum(one.cost_usd for one in self._registry.write_off(claims.reserved, claims.find(phase_id), seen))
        reserve = settings.max_phase_cost_usd
        if cap is not None:
            left = max(0.0, cap - spent - others)
            reserve = left / shares if reserve is None else min(reserve, left)
        return Bid(
            phase_id=phase_id,
            reserve_usd=reserve,
            cap_usd=cap,
            spent_usd=spent,
            seen_usd=seen,
            instead=instead,
            ended=claims.ended,
        )

    def _find_seen(self, phase_id: str) -> float:
        """Return the spend on a phase that has not landed, as known here, in USD."""
        branch = name_job_branch(self._main, phase_id)
        own, tip = refs.find_ref(self._main, f"refs/heads/{branch}"), self._main.head() or ""
        commits = read_relay_commits(self._main, self._task.plan_path, rev=own, newer_than=tip) if own else ()
        return add_branch(self._main, branch, commits).cost_usd or 0.0

    def _take_up(self, claim: PhaseClaim, jobs: Mapping[str, Mapping[str, str]], *, is_own: bool) -> Job | None:
        """Return the phase's work tree, with other workers' pushed refs; None where a run is at work in it."""
        branch = name_job_branch(self._main, claim.phase_id)
        there = jobs.get(branch, {})
        own = next((job for job in self._find_jobs() if job.phase_id == claim.phase_id), None)
        # A worker that held the phase last keeps its unpushed work: nobody else has it.
        if own is not None and not is_own and there and there != exchange.read_here(self._main, branch):
            self._put_aside(claim.phase_id)
            exchange.fetch_jobs(self._remote, {branch: there}, but=())
        with locking(self._main, self._interrupts):
            copied = self._task.settings.copy
            job = ensure_job(self._main, claim.phase_id, self._task.plan_path, copied=copied, busy=())
        if job is not None and not is_own:
            exchange.save_noted(self._main, claim.noted)
        return job

    def _leave(self, job: Job, branch: str) -> str:
        """Keep a phase's refs under one ref, and leave its work tree untouched on a branch of its own."""
        with lock_worktree(job.repo):
            ref = exchange.put_aside(self._main, branch, tuple(exchange.read_here(self._main, branch).values()))
            aside = "relay-aside/" + ref.removeprefix("refs/relay/aside/")
            refs.move_ref(self._main, f"refs/heads/{aside}", job.repo.head() or "", None)
            put_on_branch(job.repo, aside)
        return ref

    @contextmanager
    def _freeing(self, give_back: Callable[[], object]) -> Iterator[None]:
        """Give a claim and its money back when something on this machine is in the way."""
        try:
            yield
        except RemoteError:
            raise  # the claim cannot be given back now; this worker takes it up again, or it expires
        except (RelayError, OSError):
            with suppress(RemoteError, LostError):
                give_back()
            raise

    def _land(self, holding: Holding, job: Job) -> WorkEnd:
        stood, idle = None, 0
        while True:
            landing = find_landing(self._main, job)
            now = (landing, holding.claim.reserved_usd)
            stood, idle = now, idle + 1 if now == stood else 0
            if idle > _MOST_IDLE:
                return self._give_up(holding, job, f"it stays {landing.case} on its branch, whatever is done")
            try:
                end = self._advance(holding, job, landing)
            except (RelayError, OSError):
                if job.is_there:
                    raise
                end = None
            if end:
                return end
            job = job if job.is_there else self._restore(job)
            if _is_done(self._sync(), job.phase_id):
                holding.give_back()
                return self._end_done(job.phase_id)

    def _restore(self, job: Job) -> Job:
        """Make a removed work tree again from the phase's last checkpoint.

        Raises:
            RepoError: Another relay is at work in it.
        """
        with locking(self._main, self._interrupts):
            copied = self._task.settings.copy
            made = ensure_job(self._main, job.phase_id, self._task.plan_path, copied=copied, busy=())
        if made is None:
            raise RepoError(_TWIN.format(job.phase_id))
        words = f"phase {job.phase_id}: its work tree was gone, and is made again in {made.repo.root}"
        self._observe(Noticed(text=words, warning=True))
        return made

    def _advance(self, holding: Holding, job: Job, landing: Landing) -> WorkEnd | None:
        """Take the next step towards the remote's branch; None to go on."""
        match landing.case:
            case LandingCase.LANDED:
                return self._give_up(holding, job, "it is done on its branch, and open in the plan")
            case LandingCase.FORWARD:
                return self._offer(holding, job) if self._task.requests else self._deliver(holding, job, landing)
            case LandingCase.APART:
                for told in prepare(job, landing):
                    self._observe(Noticed(text=told))
            case _:
                end = holding.run(job, self._words, self._task.environ)
                if not job.is_there:
                    return None
                if end.unsent and self._raise(holding, job):
                    self._words = self._list_words(holding.claim, job)
                elif end.exit_code != ExitCode.DONE:
                    return self._stop(holding, job, end)
        return None

    def _deliver(self, holding: Holding, job: Job, landing: Landing) -> WorkEnd | None:
        if not holding.deliver(self._branch, landing.tip, landing.own):
            return None  # somebody else was faster
        with locking(self._main, self._interrupts):
            if self._main.head() == landing.tip:  # or a twin has fetched it
                self._follow(landing.tip, landing.own)
        return self._end_done(job.phase_id)

    def _offer(self, holding: Holding, job: Job) -> WorkEnd:
        """Push the phase's branch and open a request of it, or bring the open one up to date; a person merges it."""
        holding.renew(job)
        branch, requests = get_branch(job.repo), self._task.requests
        done = read_text(self._main, refs.find_ref(self._main, f"refs/heads/{branch}") or "").message
        number = requests.put(branch, self._branch, done.subject, done.body) if requests else ""
        asked = name_asked(number, branch)
        holding.give_back(waits=asked)
        words = f"phase {job.phase_id} is done, and waits for a person: {asked}"
        return WorkEnd(exit_code=ExitCode.DONE, reason=words, phase_id=job.phase_id)

    def _raise(self, holding: Holding, job: Job) -> bool:
        """Reserve the rest of the money for a phase that has spent its share; False when nothing is left."""
        holding.renew(job)
        while not self._interrupts.wait(_AGAIN_S):
            before, claims = holding.claim, self._registry.read()
            self._sync()
            if self._fetch_jobs() is None:  # others' spend: it is no longer reserved
                continue
            bid = self._bid(job.phase_id, claims, 1, before.commit)
            if (bid.reserve_usd or 0.0) + bid.seen_usd <= (before.reserved_usd or 0.0) + before.seen_usd + _CENT_USD:
                return False
            taken = self._registry.take(bid)
            if isinstance(taken, PhaseClaim):
                holding.claim = taken
                branch = get_branch(job.repo)
                exchange.begin_shown(
                    self._main, job.plan_path, branch, job.phase_id, attempt=taken.attempt, start=self._tip
                )
            if not (isinstance(taken, NotTaken) and taken.is_stale):
                return isinstance(taken, PhaseClaim)
        return False

    def _give_up(self, holding: Holding, job: Job, reason: str) -> WorkEnd:
        holding.give_back(waits=reason)
        again = _take_over(job.phase_id)
        words = f"phase {job.phase_id}: {reason}"
        return WorkEnd(exit_code=ExitCode.STOPPED, reason=words, phase_id=job.phase_id, next_command=again)

    def _list_words(self, claim: PhaseClaim, job: Job) -> tuple[str, ...]:
        """Return the words for the phase's runs, with the reserved money as their cap."""
        if claim.reserved_usd is None:
            return self._task.words
        spent = make_meter(job.repo, self._task.plan_path, self._task.settings, None).total.cost_usd or 0.0
        return (*self._task.words, "--max-cost", f"{spent + claim.reserved_usd:.6f}")

    def _end_done(self, phase_id: str) -> WorkEnd:
        words = f"phase {phase_id} is done and on {self._remote.name}"
        return WorkEnd(exit_code=ExitCode.DONE, reason=words, phase_id=phase_id)

    def _stop(self, holding: Holding, job: Job, end: JobEnd) -> WorkEnd:
        """Push the phase's refs; an interrupted phase is free for the next worker, any other waits for a person."""
        code = ExitCode(end.exit_code) if end.exit_code in set(ExitCode) else ExitCode.INTERRUPTED
        holding.give_back(waits="" if code is ExitCode.INTERRUPTED else end.reason)
        again = _explain_next(job, end)
        words = f"phase {job.phase_id}: {end.reason}"
        return WorkEnd(exit_code=code, reason=words, phase_id=job.phase_id, next_command=again)


def _take_over(phase_id: str, *more: str) -> Command:
    """Return the command that works on a phase that waits for a person: its number has to be typed."""
    return Command(words=("work", "--phase", phase_id, *more))


def _explain_next(job: Job, end: JobEnd) -> Hint:
    """Return what a person types after a phase's run has stopped, from the run's own advice."""
    advice = end.hint or end.next_command
    if not advice or advice.startswith("relay run"):
        _, option, cap = advice.partition(" --max-cost ")
        return _take_over(job.phase_id, *([option.strip(), cap] if option else []))
    return f"in {job.repo.root}: {advice}; then ", _take_over(job.phase_id)


def _is_done(plan: Plan, phase_id: str) -> bool:
    return (phase := plan.find_phase(phase_id)) is not None and phase.done
