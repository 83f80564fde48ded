"""The work on one phase of the queue: take it, work on it in a clone, push what there is, land it.

The queue says who has a phase (`relay.fleet.queue`); git carries the work. Each step can be repeated, so a worker that
was killed and one that goes on take the same path. The token of a take is checked before money is set aside, before a
phase lands, and at its end; every push of the phase moves its fence (`relay.fleet.exchange`).
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from relay.base.errors import ErrorKind, ExitCode, LockedError, RelayError
from relay.base.hints import Hint
from relay.base.redaction import find_secret_values
from relay.config import Settings
from relay.fleet import exchange
from relay.fleet.heart import Heart
from relay.fleet.overview import name_tip, read_plan
from relay.fleet.queue import AwayError
from relay.fleet.takes import (
    Bid,
    BusyError,
    DoneError,
    LostError,
    NotTaken,
    Placed,
    Standing,
    Take,
    TakeState,
    Turn,
    UnfitError,
    WorkEnd,
)
from relay.fleet.train import is_joint, leave, take_along
from relay.fleet.workplace import AS_REMOTE, HEARING_S, AnswerT, Workplace
from relay.git import refs
from relay.git.notes import is_locked, lock_worktree
from relay.git.objects import is_ancestor
from relay.git.remote import Pushed, PushEnd, RefUpdate, Remote, RemoteError
from relay.git.repository import Repo
from relay.git.worktrees import put_on_branch
from relay.plan.model import Plan
from relay.plan.waves import find_ready
from relay.run.phases.jobs import JobEnd, JobRun
from relay.run.phases.landing import Job, Landing, LandingCase, find_landing, find_phase_id, get_tip, land
from relay.run.phases.worktrees import (
    bring_together,
    ensure_job,
    find_jobs,
    look_at_trees,
    name_job_branch,
    remove_free,
)
from relay.session.events import RunEnded, SessionEnded, SessionStarted
from relay.session.records import LoggedEvent
from relay.setup.open import hold_worktree
from relay.setup.place import find_settings
from relay.store import branches
from relay.store.attempts import read_attempt
from relay.store.history import find_text
from relay.store.plan_state import read_plan_cost
from relay.store.plan_versions import parse_at
from relay.store.refs import ASIDE, get_branch
from relay.store.spend import Whose, find_phase_cost
from relay.store.worktree_notes import ensure_worker

_LOCK_S = 60.0
_MOST_LIMIT_WAIT_S = 60
"""A run waits no longer for a usage limit: its phase waits in the queue, and the worker takes another one."""
_AGAIN_S = 0.2
_MOST_IDLE = 3
"""How many steps of a phase may change nothing before it is given up. Other phases that land first do not count."""


class PhaseWork:
    """One ticket. Mutable: it is taken, its refs move, its money may grow."""

    def __init__(self, place: Workplace, heart: Heart, placed: Placed, repo: Repo, remote: Remote) -> None:
        self._place, self._heart, self._placed, self._main, self._remote = place, heart, placed, repo, remote
        self._queue, self._say, self._interrupts = place.queue, place.say, place.interrupts
        self._ticket, self._branch, self._name = placed.ticket, placed.ticket.branch, ensure_worker(repo)
        self._job_branch = name_job_branch(repo, placed.ticket.phase_id)
        self._there: Mapping[str, str] = {}
        self.plan: Plan | None = None
        """As it landed, or was last seen on the remote."""
        self._is_silent = self._is_own = False
        self._tip = ""
        self._standing: Standing
        self._listed: Mapping[str, Mapping[str, str]]
        self._take_row: Take
        self._settings: Settings
        self._waiting: Mapping[str, int] = {}
        """Phases that waited for their turn when this one had it, and the tokens of their takes."""
        self._riders: Mapping[int, Mapping[str, str]] = {}
        """Those of them that are merged below this one: token → refs on the remote, which go when they land."""

    def run(self) -> WorkEnd:
        """Take the phase and bring it to its end.

        Raises:
            BusyError: It cannot be worked on now.
            DoneError: Nothing is to be done.
            LostError: Another worker has it by now.
            UnfitError: No run can begin here.
        """
        with hold_worktree(self._main, wait_s=_LOCK_S) as left:
            for words in left:  # of a worker that was killed as it followed the remote
                self._say(words, warning=True)
        with ExitStack() as stack:
            while (take := self._take(stack)) is None:
                stack.close()
                if self._interrupts.wait(_AGAIN_S):
                    raise BusyError("stopped before a phase was taken")
            self._take_row, self._heart.take = take, take
            try:
                end = self._work(take)
            except LostError:
                self._heart.has_lost = True
                stack.close()
                with suppress(RelayError):  # what cannot be booked now is booked at the next contact
                    self._book_lost(self._look())
                words = f"phase {take.phase_id} is another worker's by now; the work of this one stays in its clone"
                raise LostError(words) from None
            except (RelayError, OSError, BusyError) as error:
                self._end(take, TakeState.FREE, str(error))
                raise
        if not self._end(take, end.state, end.reason):
            self._heart.has_lost = True
            if end.state is TakeState.DONE:  # all that it cost is on the remote
                with suppress(RelayError):
                    self._queue.settle_lost((take,))
        return end

    def _end(self, take: Take, state: TakeState, words: str) -> bool:
        """End the take in the queue; a database that is away is waited for, but not by who is asked to stop."""
        self._heart.take = None  # first: a heartbeat that finds it ended would take it for lost
        return self._place.ask(lambda: self._queue.end(take, state, words))

    def _look(self) -> Plan:
        """Bring the clone to what the queue and the remote have of the plan, by one fetch; return the plan there."""
        others = name_tip(self._branch, self._ticket.plan_path), exchange.name_booked(self._branch, "*")
        # Before git: what ends later than this has its cost there.
        self._standing = self._place.ask(lambda: self._queue.read(self._ticket.plan))
        prefix = name_job_branch(self._main, "")
        self._listed = exchange.fetch_there(self._remote, prefix, others[0], f"+{others[1]}:{others[1]}")
        self._tip, self.plan = read_plan(self._remote, self._branch, self._ticket.plan_path)
        with lock_worktree(self._main, wait_s=_LOCK_S):  # nobody makes a work tree for a branch meanwhile
            exchange.take_over(self._remote, self._listed, but={get_branch(job.repo) for job in self._find_jobs()})
            if (own := get_tip(self._main)) != self._tip:
                if not is_ancestor(self._main, own, self._tip):
                    kept = exchange.put_aside(self._main, self._branch, (own,))
                    words = f"somebody has rewritten {self._branch} on the remote; what it was is kept in {kept} here"
                    self._say(words)
                moved = branches.move_branch(self._main, self._branch, own, self._tip, reason=AS_REMOTE)
                for words in moved or ():
                    self._say(words, warning=True)
        return self.plan

    def _take(self, stack: ExitStack) -> Take | None:
        """Take the phase; None: something has changed meanwhile, and it has to be looked at again."""
        plan = self._look()
        if self._book_lost(plan):
            return None
        standing, phase = self._standing, plan.find_phase(self._ticket.phase_id)
        if phase is None:
            raise DoneError(f"{self._ticket.plan_path} has no phase {self._ticket.phase_id}")
        if words := standing.waits.get(phase.id):
            raise DoneError(f"phase {phase.id} waits for a person: {words}")
        if phase.done and phase.id not in standing.held:
            self._drop_left()
        if phase not in find_ready(plan, standing.held):
            words = "at work" if phase.id in standing.held else "not ready; it is queued again when others are done"
            raise DoneError(f"phase {phase.id} is {'done' if phase.done else words}")
        self._settings = find_settings(
            {}, self._place.environ, self._main.root, plan=plan, plan_name=self._ticket.plan_path
        )
        if not self._is_alone(phase.id, stack):
            raise BusyError(f"a run of this machine is still at work on phase {phase.id}")
        open_phases = sum(not one.done and one.id not in standing.held for one in plan.phases)
        # One share more than phases: when a worker is lost with its money, another one has enough to go on.
        taken = self._queue.take(self._placed, self._name, self._bid(1 + open_phases))
        if isinstance(taken, NotTaken):
            if taken.is_stale:
                return None
            raise BusyError(taken.words)
        latest = standing.latest.get(phase.id)
        self._is_own = latest is not None and latest.worker == self._name
        self._there = self._listed.get(self._job_branch, {})
        self._say(f"phase {phase.id} is taken by {taken.worker} (token {taken.token})")
        return taken

    def _find_jobs(self) -> tuple[Job, ...]:
        return find_jobs(self._main, self._ticket.plan_path)

    def _is_alone(self, phase_id: str, stack: ExitStack) -> bool:
        """Keep other workers of this clone from a phase; False where one, or a run that outlived its worker, has it."""
        digest = hashlib.sha256(phase_id.encode()).hexdigest()[:16]
        try:
            stack.enter_context(lock_worktree(self._main, f"work-{digest}"))
        except LockedError:
            return False
        if any(job.phase_id == phase_id and is_locked(job.repo) for job in self._find_jobs()):
            stack.close()
            return False
        return True

    def _bid(self, shares: int) -> Bid:
        return Bid(
            cap_usd=self._settings.max_cost_usd,
            phase_cap_usd=self._settings.max_phase_cost_usd,
            spent_usd=read_plan_cost(self._main, self._ticket.plan_path).spent.cost_usd or 0.0,
            seen_usd=self._find_cost() or 0.0,
            shares=shares,
            before=self._standing,
        )

    def _find_cost(self) -> float | None:
        """Return the phase's cost by now, in USD; None where unknown."""
        told = exchange.read_told(self._main, self._job_branch)
        start = told.start if told else self._tip
        ticket = self._ticket
        return find_phase_cost(self._main, ticket.plan_path, self._job_branch, ticket.phase_id, start).cost_usd

    def _book_lost(self, plan: Plan) -> bool:
        """Book the cost of phases that this clone has lost to another worker, or that others landed; False: none."""
        is_booked, standing = False, self._standing
        for phase in plan.phases:
            branch, latest = name_job_branch(self._main, phase.id), standing.latest.get(phase.id)
            told = exchange.read_told(self._main, branch)
            is_others = latest is not None and latest.worker != self._name
            with ExitStack() as stack:
                if told and (is_others or phase.done) and self._is_alone(phase.id, stack):
                    self._put_aside(phase.id, branch, told)
                    own = (told.token, told.nonce)
                    self._queue.settle_lost([take for take in standing.lost if (take.token, take.nonce) == own])
                    exchange.drop_told(self._main, branch)
                    is_booked = True
        return is_booked

    def _put_aside(self, phase_id: str, branch: str, told: exchange.ToldCost) -> None:
        """Put this clone's refs of a phase aside that another machine went on with, and tell the remote its cost."""
        job = next((job for job in self._find_jobs() if job.phase_id == phase_id), None)
        if job is not None:
            with hold_worktree(job.repo):
                pass  # repairs the state that a killed run left
        here, own = exchange.read_here(self._main, branch), refs.find_ref(self._main, f"refs/heads/{branch}")
        is_open = own is None or read_attempt(self._main, branch) or not is_ancestor(self._main, own, self._tip)
        plan_path = self._ticket.plan_path
        whose = Whose(plan_path=plan_path, phase_id=phase_id, session_id=told.nonce, base=told.start)
        if is_open and (booked := exchange.keep_untold(self._main, self._branch, branch, whose, told)):
            exchange.push_booked(self._remote, booked)
        if is_open and here and here != self._listed.get(branch, {}):
            kept = exchange.put_aside(self._main, branch, exchange.list_work(here))
            place = kept
            if job is not None:
                with lock_worktree(job.repo):
                    aside = f"relay-aside/{kept.removeprefix(ASIDE)}"
                    refs.move_ref(self._main, f"refs/heads/{aside}", job.repo.head() or "", None)
                    put_on_branch(job.repo, aside)
                place = f"{job.repo.root} and in {kept}"
            words = f"another machine went on with phase {phase_id}; the work of this machine stays in {place}"
            self._say(words, warning=True)
            for name, commit in here.items():
                refs.drop_ref(self._main, name, commit)

    def _work(self, take: Take) -> WorkEnd:
        job = self._take_up(take)
        cost = self._find_cost()
        told = exchange.read_told(self._main, self._job_branch) or exchange.ToldCost(start=self._tip, cost_usd=cost)
        exchange.note_told(self._main, self._job_branch, replace(told, token=take.token, nonce=take.nonce))
        self._patiently(self._push)
        stood, idle, is_fresh = None, 0, True
        while True:
            landing = find_landing(self._main, job)
            if landing.case is not LandingCase.MERGING and not is_fresh:
                if landing.case is not LandingCase.WORKING and self._take_turn().has_landed:
                    self.plan = None  # whoever landed it queues what waited for it
                    return self._end_done()
                self._patiently(self._look)
                if self.plan and (phase := self.plan.find_phase(take.phase_id)) and phase.done:
                    self._drop_left()
                    return self._end_done()
                landing = find_landing(self._main, job)
            is_late = landing.case is not LandingCase.FORWARD or not self._riders
            if landing.case is not LandingCase.MERGING and is_late and is_joint(self._main, job, landing):
                leave(job)
                landing = find_landing(self._main, job)
            now = (landing, self._take_row.reserved_usd)
            stood, idle = now, idle + 1 if now == stood else 0
            if idle > _MOST_IDLE:
                return self._stop(f"it stays {landing.case} on its branch, whatever is done")
            try:
                end = self._advance(job, landing)
            except (RelayError, OSError):
                if job.is_there:
                    raise
                end = None
            if end:
                return end
            if not job.is_there:
                job = self._make_job()
                self._say(f"phase {job.phase_id}: its work tree was gone, and is made again in {job.repo.root}")
            # A merge lands on the tip that it began from, or is made anew.
            is_fresh = landing.case in {LandingCase.APART, LandingCase.MERGING}

    def _take_turn(self) -> Turn:
        """Wait until no other phase is landing, or until one has landed this one along."""
        rides = False
        while (turn := self._place.ask(partial(self._queue.take_turn, self._take_row, rides=rides))).waits:
            self._require_held()
            if not rides:
                self._patiently(self._push)
                rides = True
            elif self._interrupts.wait(2 * HEARING_S) or self._heart.is_taken_back:
                raise BusyError("stopped before the phase landed; what there is is in the clone")
        self._waiting = turn.riders
        return turn

    def _board(self, job: Job, landing: Landing) -> str:
        """Return the commit to land on: the tip, or phases that waited, on top of it."""
        names = {phase_id: name_job_branch(self._main, phase_id) for phase_id in self._waiting}
        refs = {phase_id: self._listed.get(name, {}) for phase_id, name in names.items()}
        tips = {phase_id: refs[phase_id].get(f"refs/heads/{name}") for phase_id, name in names.items()}
        found = {phase_id: commit for phase_id, commit in tips.items() if commit}
        tip, taken = take_along(job, landing.tip, found, self._settings, find_secret_values(self._place.environ))
        self._riders = {self._waiting[phase_id]: refs[phase_id] for phase_id in taken}
        self._note_riders([token for phase_id, token in self._waiting.items() if phase_id not in taken])
        self._waiting = {}
        if taken:
            self._say(f"phase {job.phase_id} lands together with {', '.join(taken)}")
        return tip

    def _land_alone(self) -> None:
        """Have this phase and those that were to land along with it land each alone."""
        self._note_riders([*self._riders, self._take_row.token])
        self._riders = {}

    def _note_riders(self, tokens: Sequence[int], *, landed: bool = False) -> None:
        if tokens:
            self._place.ask(lambda: self._queue.note_riders(tokens, landed=landed))

    def _take_up(self, take: Take) -> Job:
        """Return the phase's work tree, with what other workers have pushed of it."""
        own = next((job for job in self._find_jobs() if job.phase_id == take.phase_id), None)
        # A clone that had the phase last keeps its unpushed work: nobody else has it.
        here = exchange.read_here(self._main, self._job_branch)
        if own is not None and not self._is_own and self._there and self._there != here:
            if told := exchange.read_told(self._main, self._job_branch):
                self._put_aside(take.phase_id, self._job_branch, told)
                exchange.drop_told(self._main, self._job_branch)
            exchange.take_over(self._remote, {self._job_branch: self._there})
        job = self._make_job()
        if not self._is_own:
            exchange.save_noted(self._main, self._job_branch)
        return job

    def _make_job(self) -> Job:
        with lock_worktree(self._main, wait_s=_LOCK_S):
            trees = look_at_trees(self._main, self._ticket.plan_path, repair=True)
            job = ensure_job(trees, self._ticket.phase_id, settings=self._settings, busy=())
        if job is None:
            raise BusyError(f"a run of this machine is still at work on phase {self._ticket.phase_id}")
        return job

    def _advance(self, job: Job, landing: Landing) -> WorkEnd | None:
        """Take the next step towards the plan's branch on the remote; None to go on."""
        match landing.case:
            case LandingCase.LANDED:
                return self._stop("it is done on its branch, and open in the plan")
            case LandingCase.FORWARD:
                return self._deliver(job, landing)
            case LandingCase.APART:
                for told in bring_together(job, replace(landing, tip=self._board(job, landing))):
                    self._say(told)
            case _:
                joint = landing.case is LandingCase.MERGING and is_joint(self._main, job, landing)
                end = self._run(job, landing, *(["--lands-only"] if joint else []))
                if not job.is_there:
                    return None
                if joint and end.exit_code not in {ExitCode.DONE, ExitCode.INTERRUPTED}:
                    self._say(f"phase {self._ticket.phase_id} lands alone: {end.reason}")
                    self._land_alone()
                    leave(job)
                    return None
                if end.unsent and self._raise():
                    return None
                if end.exit_code != ExitCode.DONE:
                    return self._judge(job, end)
        return None

    def _run(self, job: Job, landing: Landing, *options: str) -> JobEnd:
        """Run relay on the phase until the run ends; push what there is now and then."""
        words = ["run", "--phase", find_phase_id(job), "--plan", self._ticket.plan_path, *options]
        take = self._take_row
        if take.reserved_usd is not None:
            spent = read_plan_cost(job.repo, self._ticket.plan_path).spent.cost_usd or 0.0
            left = take.seen_usd + take.reserved_usd - (self._find_cost() or 0.0)  # earlier runs had of it
            words += ["--max-cost", f"{max(0.0, spent + left):.6f}"]
        limit_s = min(self._settings.max_wait_s, _MOST_LIMIT_WAIT_S)
        child = JobRun(job.repo.root, words, {**self._place.environ, "RELAY_MAX_WAIT_S": f"{limit_s:g}"})
        due_s, is_asked = time.monotonic() + self._place.push_s, False
        try:
            for records in child.follow(self._interrupts, HEARING_S):
                kinds = self._pass_on(records)
                self._require_held()
                if SessionStarted in kinds and landing.case is LandingCase.MERGING:
                    with suppress(AwayError):  # a session takes longer than others should wait
                        self._queue.give_turn_back(take)
                if self._heart.is_taken_back and not is_asked:
                    child.interrupt(now=False)
                    is_asked = True
                if (SessionEnded in kinds or time.monotonic() >= due_s) and not child.has_ended:
                    due_s = time.monotonic() + self._place.push_s
                    self._try(self._push)
        except BaseException:
            child.interrupt(now=True)
            for records in child.follow(self._interrupts, HEARING_S):
                self._pass_on(records)
            child.close()
            raise
        end = child.close()
        if not end.began and end.kind in {ErrorKind.RUNNER, ErrorKind.SANDBOX}:
            raise UnfitError(end.reason, hint=end.hint)
        return end

    def _pass_on(self, records: Sequence[LoggedEvent]) -> set[type]:
        """Pass on the run's events; return their kinds."""
        for record in records:
            if not isinstance(record.event, RunEnded):  # the phase's end is told when it has landed
                self._place.observe(record.event)
        return {type(record.event) for record in records}

    @property
    def _is_stopping(self) -> bool:
        return self._interrupts.finish_turn or self._heart.is_taken_back

    def _require_held(self) -> None:
        self._heart.require_alive()
        if self._heart.has_lost:
            raise LostError

    def _try(self, act: Callable[[], AnswerT]) -> tuple[AnswerT, ...]:
        """Ask the remote for something; return the answer, or nothing: one that is away is told once."""
        try:
            answer = act()
        except RemoteError as error:
            if not self._is_silent:
                self._say(f"{error}; the phase goes on here, and relay tries again", warning=True)
            self._is_silent = True
            return ()
        self._is_silent = False
        return (answer,)

    def _patiently(self, act: Callable[[], AnswerT]) -> AnswerT:
        """Ask the remote for something until it does it, however long it is away; the phase stays this worker's.

        Raises:
            BusyError: The worker is asked to stop.
        """
        while not (answer := self._try(act)):
            if self._interrupts.wait(self._place.look_s) or self._heart.is_taken_back:
                raise BusyError("stopped while the remote was away; what there is is in the clone")
            self._require_held()
        return answer[0]

    def _push(self) -> None:
        """Set the phase's refs on the remote to the clone's, with the fence.

        Raises:
            RemoteError: The remote cannot be reached, or does not take it.
            LostError: Another worker has the phase by now.
        """
        take = self._take_row
        while True:
            cost = self._find_cost()
            exchange.move_fence(self._main, self._job_branch, take)
            here = exchange.read_here(self._main, self._job_branch)
            moved = sorted(ref for ref in {*here, *self._there} if here.get(ref) != self._there.get(ref))
            updates = (RefUpdate(ref=ref, old=self._there.get(ref), new=here.get(ref)) for ref in moved)
            pushed = self._remote.push(*updates)
            if pushed.end is PushEnd.DONE:
                self._there = here
                if told := exchange.read_told(self._main, self._job_branch):
                    exchange.note_told(self._main, self._job_branch, replace(told, cost_usd=cost))
                return
            if pushed.end is PushEnd.REFUSED:
                raise RemoteError(f"{self._remote.name} does not take the phase's work: {pushed.words}")
            self._look_again()

    def _look_again(self) -> None:
        """Read the phase's refs on the remote anew, if the phase is still this worker's.

        Raises:
            LostError: It is not.
        """
        there = exchange.fetch_there(self._remote, self._job_branch).get(self._job_branch, {})
        # Read first, then asked: whoever takes the phase after that finds our push, and moves the fence on.
        self._require_token()
        self._there = there

    def _require_token(self) -> None:
        """Have the queue say that the phase is still this worker's.

        Raises:
            LostError: It is not.
        """
        if not self._place.ask(lambda: self._queue.holds(self._take_row)):
            raise LostError

    def _deliver(self, job: Job, landing: Landing) -> WorkEnd | None:
        """Push the plan's branch and remove the job's refs on the remote, in one step; None: somebody was faster."""
        along = self._riders.values()
        gone = (RefUpdate(ref=one, old=refs[one], new=None) for refs in (self._there, *along) for one in refs)
        landed = RefUpdate(ref=f"refs/heads/{self._branch}", old=landing.tip, new=landing.own)
        own = exchange.read_here(self._main, self._job_branch)
        kept = (one for here in (own, *along) for one in exchange.list_given_up(self._branch, here))
        updates = (landed, *gone, *kept)

        def push() -> Pushed:
            self._require_token()
            pushed = self._remote.push(*updates)
            if pushed.end is PushEnd.REFUSED and not along:
                self._push()  # a remote that takes nothing has to be well first: nobody else has the work
            return pushed

        pushed = self._patiently(push)
        if pushed.end is not PushEnd.DONE and along:
            self._land_alone()
            return None
        if pushed.end is PushEnd.MOVED:
            self._patiently(self._look_again)
            return None
        if pushed.end is PushEnd.REFUSED:
            return self._stop(f"{self._remote.name} does not take it on {self._branch}: {pushed.words}")
        self._note_riders(list(self._riders), landed=True)
        with lock_worktree(self._main, wait_s=_LOCK_S):
            if self._main.head() == landing.tip:  # or another worker of this clone has fetched it
                for words in land(self._main, job, landing) or ():
                    self._say(words, warning=True)
        if text := find_text(self._main, landing.own, self._ticket.plan_path):
            self.plan = parse_at(text, self._ticket.plan_path)
        return self._end_done()

    def _drop_left(self) -> None:
        """Remove a landed phase's refs from the remote, where another one landed it along as somebody took it up."""
        left, own = self._listed.get(self._job_branch, {}), exchange.read_here(self._main, self._job_branch)
        head = own.get(f"refs/heads/{self._job_branch}")
        if left and head and is_ancestor(self._main, head, self._tip):
            gone = (RefUpdate(ref=ref, old=commit, new=None) for ref, commit in left.items())
            self._patiently(partial(self._remote.push, *gone, *exchange.list_given_up(self._branch, own)))

    def _end_done(self) -> WorkEnd:
        exchange.drop_told(self._main, self._job_branch)
        if commit := refs.find_ref(self._main, fence := exchange.name_fence(self._job_branch)):
            refs.drop_ref(self._main, fence, commit)
        with suppress(RelayError), lock_worktree(self._main, wait_s=_LOCK_S):
            tuple(remove_free(self._main, self._ticket.plan_path))
        return WorkEnd(state=TakeState.DONE, reason=f"phase {self._ticket.phase_id} is done and on {self._remote.name}")

    def _raise(self) -> bool:
        """Have the rest of the money set aside for a phase that has spent its share; False when nothing is left.

        With the database away nothing is asked of a model until it is back.
        """
        self._patiently(self._push)
        while not self._is_stopping:
            self._patiently(self._look)
            taken = self._place.ask(lambda: self._queue.raise_share(self._take_row, self._bid(1)))
            if isinstance(taken, Take):
                self._take_row = taken
                return True
            if not taken.is_stale:
                return False
        return False

    def _judge(self, job: Job, end: JobEnd) -> WorkEnd:
        """Push what there is, and say who goes on: the next worker, at once or later, or a person."""
        phase_id = self._ticket.phase_id
        reason = f"phase {phase_id}: {end.reason.removeprefix(f'phase {phase_id}: ')}"
        attempt = read_attempt(job.repo)
        until = attempt.ending.wait_until if attempt else 0
        self._patiently(self._push)
        exchange.drop_told(self._main, self._job_branch)
        if self._is_stopping or end.exit_code == ExitCode.INTERRUPTED:
            return WorkEnd(state=TakeState.FREE, reason=reason, wait_s=0.0)
        if end.exit_code < 0 or end.exit_code not in set(ExitCode):
            return WorkEnd(state=TakeState.DIED, reason=reason, wait_s=0.0)
        if (wait_s := until - time.time()) > 0:
            return WorkEnd(state=TakeState.FREE, reason=f"{reason}; it waits in the queue", wait_s=wait_s)
        way: Hint = end.hint or end.next_command
        advice = (
            f" (in {job.repo.root}: {way})" if isinstance(way, str) and way and not way.startswith("relay run") else ""
        )
        return WorkEnd(state=TakeState.STOPPED, reason=f"{reason}{advice}")

    def _stop(self, reason: str) -> WorkEnd:
        return WorkEnd(state=TakeState.STOPPED, reason=f"phase {self._ticket.phase_id}: {reason}")
