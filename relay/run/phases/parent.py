"""Work through a plan: each phase in a work tree of relay's own, and its commits landed one after the other.

One phase at a time is worked on in this process; several side by side, each in a child. The parent reads the state from
git before each step, as `relay.run.loop` does. It remembers only which phases are at work, the shares of the cap, and
which phases have stopped.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from typing import Protocol

from relay.base.errors import ExitCode, LockedError, PlanError, RelayError, RepoError
from relay.base.hints import AT_ROOT, RUN, Command, Hint
from relay.base.values import dataclass
from relay.git.command import GitError
from relay.git.notes import is_locked
from relay.git.repository import BranchError, Repo, is_checked_out
from relay.git.status import check_state
from relay.plan.model import Plan
from relay.run.attempt.start import render_plan
from relay.run.commit.plan_commit import take_edit
from relay.run.loop import add_doubts, end_done, raise_cap, run
from relay.run.phases.beginning import find_begun
from relay.run.phases.jobs import (
    Amounts,
    Held,
    JobEnd,
    JobRun,
    JobTable,
    ReadyPhase,
    SharedCap,
    Working,
    count_places,
    find_code,
    find_ready_phases,
    make_own,
    tell_rest,
    tell_waits,
)
from relay.run.phases.landing import (
    Job,
    Landing,
    LandingCase,
    find_landing,
    find_obstacles,
    find_open_case,
    find_phase_id,
    get_tip,
    land,
    require_unmoved,
)
from relay.run.phases.worktrees import (
    Trees,
    adopt_jobs,
    bring_together,
    ensure_job,
    find_branch_tree,
    find_jobs,
    find_lost,
    follow_branch,
    look_at_trees,
    remove_free,
)
from relay.run.resume import settle
from relay.run.selection import Selection, choose_phase
from relay.session.events import JobMoved, Noticed
from relay.session.records import LoggedEvent
from relay.setup.context import RunContext, RunEnd
from relay.setup.open import hold_worktree
from relay.setup.session import make_meter
from relay.store.history import find_text
from relay.store.obstacles import describe_in_the_way
from relay.store.plan_state import read_plan_cost
from relay.store.plan_versions import parse_at
from relay.store.refs import get_branch
from relay.store.spend import find_phase_cost
from relay.store.worktree_notes import drop_words, leave_words, read_words, take_cap


class Tell(Protocol):
    """Takes the events of a phase's run."""

    def __call__(self, record: LoggedEvent, *, phase_id: str) -> None:
        """Take the next one."""


_LOOK_S = 1.0
"""How often the parent looks at locks and at a second Ctrl-C, of which it gets no event."""
_SOON_S = 0.2
_SAVING_S = 60.0
"""How long a run waits for a plan that cannot be used."""
_TOKENS = "RELAY_MAX_TOKENS_TOTAL"


def _get_caps(usd: float | None, tokens: float | None) -> Amounts:
    return math.inf if usd is None else usd, math.inf if tokens is None else tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a run works on, and how."""

    selection: Selection = Selection()
    jobs: int = 1
    """How many phases may be at work at once; one is worked on in this process."""
    words: tuple[str, ...] = ()
    """The children's command line, without the caps."""
    environ: Mapping[str, str] = field(default_factory=dict)


def run_plan(ctx: RunContext, order: Order, tell: Tell) -> RunEnd:
    """Work through the phases of a request; the caller holds the lock.

    Raises:
        RelayError: Something that the user has to change first.
    """
    for words in adopt_jobs(ctx.repo):
        ctx.observe(Noticed(text=words))
    plan_state, selection = settle(ctx), order.selection
    if not (selection.all or selection.phase_id):
        phase_id = next(iter(find_begun(ctx.repo, ctx.plan_path, plan_state.plan)), "")
        if not phase_id and (phase := choose_phase(plan_state, selection, ctx.plan_path)):
            phase_id = phase.id
        order = replace(order, selection=replace(selection, phase_id=phase_id))
    elif selection.phase_id:
        choose_phase(plan_state, selection, ctx.plan_path)
    ctx.observe(render_plan(ctx.files, plan_state.plan, committed=plan_state.plan))
    parent = _Parent(ctx, order, tell)
    try:
        return parent.run()
    finally:
        parent.close()


class _Parent:
    def __init__(self, ctx: RunContext, order: Order, tell: Tell) -> None:
        self._here = ctx.repo
        """The work tree where the user typed the command; its branch was the plan's then."""
        self._branch = get_branch(ctx.repo)
        self._begun = self._tip = get_tip(ctx.repo)
        self._held = ctx.repo.root
        """The work tree whose lock is held for the landings."""
        self._unusable_since, self._said, self._merged = 0.0, "", set[str]()
        self._ctx = ctx
        """Its repository is the work tree that has the plan's branch now, or one without files."""
        self._order = order
        self._tell = tell
        self._state = JobTable()
        self._trees: Trees | None = None
        """As the last look found them; None: relay looks again."""
        self._cap = SharedCap(_get_caps(ctx.settings.max_cost_usd, ctx.settings.max_tokens_total), ctx.meter.total)

    def run(self) -> RunEnd:
        state, interrupts = self._state, self._ctx.interrupts
        while True:
            if moved := take_cap(self._here):
                self._ctx.meter.move_cap(moved.cap_usd)
                self._cap.caps = _get_caps(moved.cap_usd, self._ctx.settings.max_tokens_total)
                state.is_stale = True  # a phase that waits for money may have it now
                self._ctx.observe(moved)
            if state.is_stale and not interrupts.stop_now:
                self._advance()
            if not state.working and (interrupts.finish_turn or not (state.foreign or state.held or state.is_stale)):
                return self._end()
            urgency = int(interrupts.finish_turn) + int(interrupts.stop_now)
            if urgency > state.told:  # each is passed on once
                state.told = urgency
                for child in self._children:
                    child.interrupt(now=urgency > 1)
            self._listen()

    def close(self) -> None:
        """Stop children that still run because relay itself failed."""
        for child in self._children:
            child.interrupt(now=True)
        for child in self._children:
            child.close()
        for working in self._state.working.values():
            working.held.close()

    @property
    def _children(self) -> list[JobRun]:
        return [working.child for working in self._state.working.values() if working.child]

    def _listen(self) -> None:
        state, descriptors = self._state, [fd for child in self._children for fd in child.descriptors]
        looks_soon = self._ctx.interrupts.finish_turn or not state.is_warm
        if descriptors or not state.working:
            self._ctx.interrupts.wait_for(descriptors, _SOON_S if looks_soon else _LOOK_S)
        state.is_stale = state.is_stale or bool(state.foreign or state.held)
        for phase_id, working in list(state.working.items()):
            child = working.child
            if child is None:
                self._take_end(phase_id, working, self._work_here(working))
                continue
            has_ended = child.has_ended  # asked first: what it said before is heard
            for record in child.hear():
                self._tell(record, phase_id=phase_id)
                self._ctx.observe_job(record.event)
            if child.has_spoken and not state.is_warm:
                state.is_warm = state.is_stale = True
            if has_ended:
                self._take_end(phase_id, working, child.close())

    def _work_here(self, working: Working) -> JobEnd:
        """Work on a phase in this process, to its end.

        Raises:
            RelayError: The user has to change something first.
        """
        ctx, job = self._ctx, working.job
        try:
            with working.held as held:
                if held.left is None:
                    held.hold(job.repo)
                with ctx.open_tree(ctx, job.repo, held.left or ()) as own:
                    selection = replace(self._order.selection, phase_id=find_phase_id(job), last_id="", all=False)
                    end = run(own, selection)
        except (RelayError, OSError):
            if job.is_there:
                raise
            words = f"phase {job.phase_id}: its work tree {job.repo.root} is gone"
            end = ctx.end(ExitCode.STOPPED, words, RUN)
        return JobEnd(exit_code=end.exit_code, reason=AT_ROOT.write(end.reason), own=end, unsent=end.unsent)

    def _take_end(self, phase_id: str, working: Working, end: JobEnd) -> None:
        state = self._state
        del state.working[phase_id]
        state.is_warm = state.is_stale = True
        if working.child:
            self._cap.give_back(phase_id, working.find_cost())
        state.last = end.own
        if not self._ctx.interrupts.finish_turn:
            self._judge_end(phase_id, working, replace(end, reason=end.reason.removeprefix(f"phase {phase_id}: ")))

    def _judge_end(self, phase_id: str, working: Working, end: JobEnd) -> None:
        """Decide whether an ended phase goes on: nothing is started twice unless something has changed."""
        state, job = self._state, working.job
        is_gone = not job.is_there  # somebody removed its work tree: it is made again
        if end.exit_code == ExitCode.DONE and not is_gone:
            if find_open_case(job, get_tip(job.repo)):  # its commits say it
                self._stop(phase_id, end)  # asked again, it would say the same
        elif is_locked(job.repo):
            pass  # a run of a killed parent's began there in the same moment: it is waited for
        elif phase_id not in state.retried and (is_gone or not end.began or end.exit_code < 0):
            state.retried.add(phase_id)  # that run may have ended since; one that was killed is gone on with
            if end.began:
                self._say(phase_id, "waiting", f"{end.reason}; relay tries once more")
        elif end.unsent and not working.has_all:
            state.out_of_share[phase_id] = end
            self._say(phase_id, "waiting", "it has spent its share of the cap; it goes on when others leave enough")
        else:
            self._stop(phase_id, end)

    def _stop(self, phase_id: str, end: JobEnd) -> None:
        self._state.stopped[phase_id] = end
        self._state.is_stale = True  # what was to be left for it others can have
        self._say(phase_id, "stopped", end.reason)

    def _say(self, phase_id: str, state: str, detail: str) -> None:
        self._state.told_of[phase_id] = state, detail
        if self._order.jobs > 1:
            self._ctx.observe(JobMoved(phase_id=phase_id, state=state, detail=detail))
        elif state == "waiting":  # all else of it the view has seen
            self._ctx.observe(Noticed(text=f"phase {phase_id}: {detail}", warning=True))

    def _advance(self) -> None:
        """Land what can land and start what can start; after a request to stop, only land phases that need no merge."""
        self._state.is_stale, self._state.held = False, ""
        try:
            with self._holding():
                plan, self._trees = self._settle(), None
                self._restore_lost(plan)
                found = tuple(self._find_landings(plan))
                while self._land_forward(found):
                    plan = self._settle()
                    found = tuple(self._find_landings(plan))
                if not self._ctx.interrupts.finish_turn:
                    found = tuple(self._find_to_merge(plan, found))
                    is_one = self._order.jobs == 1  # what is done lands before anything begins, unless it was overtaken
                    first = [one for one in found if is_one and one[0].phase_id not in self._merged]
                    self._start_merging(plan, first)
                    self._start_ready(plan, landings=min(1, len(found)))
                    if not (is_one and self._state.working):
                        self._start_merging(plan, (one for one in found if one not in first))
                    self._say_waits(plan)
        except BranchError:
            self._state.is_stale = True  # the user has just switched: it is looked at again
        except RelayError as error:
            # The user's edit of the plan is refused: others go on, and relay looks again when one of them ends. While
            # the user rebases, merges or bisects, relay waits.
            is_busy = isinstance(error, LockedError)
            self._state.held = check_state(self._here) or (str(error) if is_busy else self._wait_for_save(error))
            if not (self._state.working or self._state.held):
                raise
            if self._said != str(error):
                self._said = str(error)
                then = "nothing lands until then" if self._state.held else "others go on"
                self._ctx.observe(Noticed(text=f"{error}; {then}", warning=True))

    def _wait_for_save(self, error: RelayError) -> str:
        """Return what a run waits for where the plan cannot be used in this moment: somebody may be saving it."""
        if self._state.working or not isinstance(error, PlanError):
            return ""
        self._unusable_since = self._unusable_since or time.monotonic()
        return str(error) if time.monotonic() < self._unusable_since + _SAVING_S else ""

    def _settle_branch(self) -> Repo:
        """Find where the plan's branch is checked out now, and return that work tree; one without files if nowhere."""
        if (branch := follow_branch(self._here, self._branch, self._tip)) != self._branch:
            self._ctx.observe(Noticed(text=f"{self._branch} is no branch any more: the plan goes on, on {branch}"))
            self._branch = branch
        main = find_branch_tree(self._here, branch)
        self._tip = get_tip(main)
        self._ctx = replace(self._ctx, files=replace(self._ctx.files, repo=main))
        return main

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Hold another work tree that has the plan's branch: what lands changes files there."""
        main = self._settle_branch()
        if main.root == self._here.root:
            yield
            return
        with hold_worktree(main) as left:
            for words in left:
                self._ctx.observe(Noticed(text=words, warning=True))
            self._held = main.root
            try:
                yield
            finally:
                self._held = self._here.root

    def _settle(self) -> Plan:
        """Return the plan of its branch, with the user's edits committed where that is checked out and held."""
        main = self._settle_branch()
        if not is_checked_out(main) or main.root not in {self._here.root, self._held}:
            return parse_at(find_text(main, "HEAD", self._ctx.plan_path) or "", self._ctx.plan_path)
        take_edit(self._ctx, self._begun)
        plan, self._unusable_since = settle(self._ctx).plan, 0.0
        return plan

    def _restore_lost(self, plan: Plan) -> None:
        """Make removed work trees again where their phases have work that has not landed."""
        for phase_id in find_lost(self._look(), plan):
            if phase_id in self._state.working:
                continue
            with Held() as held:
                job = self._ensure_job(ReadyPhase(phase_id=phase_id), held)
            if job:
                words = f"phase {phase_id}: its work tree was gone, and is made again in {job.repo.root}"
                self._ctx.observe(Noticed(text=words, warning=True))

    def _look(self) -> Trees:
        self._trees = self._trees or look_at_trees(self._ctx.repo, self._ctx.plan_path, repair=True)
        return self._trees

    def _say_waits(self, plan: Plan) -> None:
        """Say of each waiting phase why it waits, where that is new."""
        state = self._state
        for phase_id, words in tell_waits(plan, state, jobs=self._order.jobs):
            last = state.told_of.get(phase_id, ("", ""))
            if phase_id in state.foreign or phase_id in state.in_the_way:  # it is the user's turn, or another relay's
                if last != ("waiting", words):
                    self._say(phase_id, "waiting", words)
            elif last[0] != "waiting" and last != ("held", words):
                self._say(phase_id, "held", words)

    def _land_forward(self, found: Iterable[tuple[Job, Landing]]) -> bool:
        """Land a phase that needs no merge, or find that the branch moved; False when there is none."""
        if self._is_merging():
            return False  # what it merges with must not move
        for job, landing in found:
            if landing.case is LandingCase.FORWARD and self._is_way_clear(job, landing):
                try:
                    left = land(self._ctx.repo, job, landing)
                except LockedError as error:  # a git of the user's
                    self._state.held = self._state.in_the_way[job.phase_id] = str(error)
                    return False
                if left is None:
                    return True  # the branch moved: all is to be looked at again
                for words in left:
                    self._ctx.observe(Noticed(text=words, warning=True))
                self._say(job.phase_id, "landed", landing.own)
                plan = self._settle()
                if self._order.jobs > 1:
                    self._ctx.observe(render_plan(self._ctx.files, plan, committed=plan))
                self._ctx.after_phase()
                return True
        return False

    def _is_merging(self) -> bool:
        return any(working.merges for working in self._state.working.values())

    def _find_to_merge(self, plan: Plan, found: Iterable[tuple[Job, Landing]]) -> Iterator[tuple[Job, Landing]]:
        """Yield the phases to be merged onto what others landed; none while one is being merged."""
        for job, landing in () if self._is_merging() else found:
            if not self._is_wanted(plan, job.phase_id):
                continue
            if landing.case is LandingCase.MERGING or (
                landing.case is LandingCase.APART and self._is_way_clear(job, landing)
            ):
                yield job, landing

    def _start_merging(self, plan: Plan, found: Iterable[tuple[Job, Landing]]) -> None:
        for job, landing in found:
            if not self._prepare(job, landing):
                continue
            places = self._count_places(plan, 1 + len(self._find_ready(plan)), more=1)
            places = self._find_places(job.phase_id, places, is_alone=not self._state.working)
            if places and self._start(job, merges=landing.done, places=places, held=Held()):
                self._merged.add(job.phase_id)
                return

    def _prepare(self, job: Job, landing: Landing) -> bool:
        """Have a phase's landing attempt open and up to date; if that fails, the phase stops and others go on."""
        try:
            for words in bring_together(job, landing):
                self._ctx.observe(Noticed(text=f"phase {job.phase_id}: {words}"))
        except RepoError as error:
            if isinstance(error, GitError) and job.phase_id not in self._state.retried:
                self._state.retried.add(job.phase_id)  # it may have been killed
                self._state.is_stale = True
                return False
            self._stop(job.phase_id, JobEnd(exit_code=ExitCode.USER, reason=str(error)))
            return False
        return True

    def _find_landings(self, plan: Plan) -> Iterator[tuple[Job, Landing]]:
        """Yield the jobs that are done and have not landed, in plan order; note phases that other relays work on."""
        main, state = self._ctx.repo, self._state
        jobs = {job.phase_id: job for job in self._look().jobs}
        for one in jobs.values():
            require_unmoved(main, one, plan)
        state.foreign, pending, waits = {}, dict[str, str](), plan.find_waits()
        for phase in plan.phases:
            job = jobs.get(phase.id)
            if job is None or phase.done or phase.id in state.working:
                continue
            if is_locked(job.repo):
                state.foreign[phase.id] = f"another relay is at work in {job.repo.root}; waiting for it"
                continue
            landing = find_landing(main, job)
            if landing.case not in {LandingCase.WORKING, LandingCase.LANDED}:
                pending[phase.id] = landing.done
                if phase.id not in state.stopped and not waits[phase.id]:
                    yield job, landing
        state.pending = pending

    def _is_way_clear(self, job: Job, landing: Landing) -> bool:
        main = self._ctx.repo
        files = find_obstacles(main, landing) if is_checked_out(main) else ()
        self._state.in_the_way.pop(job.phase_id, None)
        if files:
            self._state.in_the_way[job.phase_id] = describe_in_the_way(main, files)
        return not files

    def _start_ready(self, plan: Plan, *, landings: int) -> None:
        """Start the phases that can begin; leave a share of the cap for `landings`."""
        state = self._state
        while state.busy < self._order.jobs and (state.is_warm or not state.working):
            found = self._find_ready(plan)
            places = self._count_places(plan, len(found) + landings, more=landings)
            begin, places = self._choose(found, places, is_alone=not (state.working or landings))
            if begin is None:
                return
            with Held() as held:
                job = self._ensure_job(begin, held)
                if job is None:  # a run of a killed parent's begins there in this moment
                    state.foreign[begin.phase_id] = "another relay has just begun it; waiting for it"
                elif not self._start(job, merges="", places=places, held=held):
                    return

    def _choose(self, found: Iterable[ReadyPhase], places: int, *, is_alone: bool) -> tuple[ReadyPhase | None, int]:
        """Return the phase to start, those out of share last, and among how many jobs to divide the rest of the cap."""
        for alone in sorted({False, is_alone}):
            for begin in found:
                if given := self._find_places(begin.phase_id, places, is_alone=alone):
                    return begin, given
        return None, 0

    def _find_places(self, phase_id: str, places: int, *, is_alone: bool) -> int:
        """Return among how many jobs to divide the rest of the cap when a phase starts; 0: it must not start."""
        end = self._state.out_of_share.get(phase_id)
        if end is None or end.unsent is None:
            return places
        needs = end.unsent.cost_usd or 0.0, end.unsent.tokens
        if all(has >= 2 * need for has, need in zip(self._cap.offer(places), needs, strict=True)):
            return places
        if is_alone and all(has >= need for has, need in zip(self._cap.offer(1), needs, strict=True)):
            return 1
        if is_alone:
            self._stop(phase_id, end)
        return 0

    def _find_ready(self, plan: Plan) -> tuple[ReadyPhase, ...]:
        state = self._state
        done = {phase_id: commit for phase_id, commit in state.pending.items() if phase_id not in state.stopped}
        landing = state.working.items()
        done |= {phase_id: one.merges for phase_id, one in landing if one.merges and not one.has_asked}
        ready = find_ready_phases(self._ctx.repo, self._ctx.plan_path, plan, self._state.held_ids, done)
        return tuple(begin for begin in ready if self._is_wanted(plan, begin.phase_id))

    def _is_wanted(self, plan: Plan, phase_id: str) -> bool:
        selection = self._order.selection
        return selection.all or phase_id in {phase.id for phase in selection.get_named(plan)}

    def _ensure_job(self, begin: ReadyPhase, held: Held) -> Job | None:
        ctx, trees, self._trees = self._ctx, self._look(), None
        return ensure_job(
            trees,
            begin.phase_id,
            settings=ctx.settings,
            busy=self._state.held_ids,
            start=begin.commit,
            hold=held.hold,
        )

    def _count_places(self, plan: Plan, ready: int, *, more: int = 0) -> int:
        state = self._state
        waiting = sum(not phase.done and phase.id not in {*state.working, *state.stopped} for phase in plan.phases)
        free = self._order.jobs - state.busy + more
        return count_places(free, ready=ready, waiting=waiting, is_alone=not state.working)

    def _start(self, job: Job, *, merges: str, places: int, held: Held) -> bool:
        """Start a phase in a job's work tree; False when the cap leaves nothing for it."""
        ctx, phase_id = self._ctx, job.phase_id
        if 0.0 in self._cap.offer(places) and self._state.working:
            return False  # with nobody at work it says itself what the cap is
        said = read_words(self._here, phase_id)
        for heard in said:  # the session that begins in the job's work tree gets them
            leave_words(job.repo, heard.text, phase_id=heard.phase_id)
        drop_words(self._here, tuple(heard.name for heard in said))
        working = Working(job=job, merges=merges, held=Held())
        if self._order.jobs == 1:  # this process works on it, under the cap of the whole run
            working.held = held.keep()
        else:
            held.close()  # the child takes it
            here, branch, head = find_phase_id(job), get_branch(job.repo), job.repo.head() or ""
            working.read_cost = partial(find_phase_cost, ctx.repo, ctx.plan_path, branch, here, head)
            working.before = working.read_cost()
            words, environ = list(self._order.words), dict(self._order.environ)
            usd, tokens = self._cap.take(phase_id, places)
            seen = make_meter(job.repo, ctx.plan_path, ctx.settings, None).total
            if math.isfinite(usd):
                words += ["--max-cost", f"{(seen.cost_usd or 0.0) + usd:.6f}"]
            if math.isfinite(tokens):
                environ[_TOKENS] = str(int(seen.tokens + tokens))
            working.has_all = (places <= 1 and not self._state.working) or math.isinf(min(usd, tokens))
            working.child = JobRun(job.repo.root, ("run", "--phase", here, *words), environ)
        self._state.working[phase_id] = working
        self._state.out_of_share.pop(phase_id, None)
        self._say(phase_id, "merging" if merges else "started", str(job.repo.root))
        return True

    def _end(self) -> RunEnd:
        ctx, state = self._ctx, self._state
        if state.held:
            spent = read_plan_cost(ctx.repo, ctx.plan_path).spent
            words = f"interrupted while relay waited; everything is kept: {state.held}"
            return RunEnd(exit_code=ExitCode.INTERRUPTED, reason=words, next_command=self._again, spent=spent)
        plan, selection = self._settle(), self._order.selection
        ctx, spent = self._ctx, read_plan_cost(self._ctx.repo, self._ctx.plan_path).spent
        if ctx.interrupts.finish_turn and not plan.done:
            if state.last and state.last.exit_code is ExitCode.INTERRUPTED:
                return make_own(state.last, plan, selection, spent)
            words = "interrupted; everything is kept"
            return RunEnd(exit_code=ExitCode.INTERRUPTED, reason=words, next_command=self._again, spent=spent)
        for kept in remove_free(ctx.repo, ctx.plan_path):
            words = f"{kept.place} stays: {kept.why}; git worktree remove --force takes it away with that"
            ctx.observe(Noticed(text=words))
        if plan.done:
            return end_done(ctx.files, plan, spent)
        if not selection.all and all(phase.done for phase in selection.get_named(plan)):
            words = f"phases {selection.text} are done" if selection.last_id else f"phase {selection.text} is done"
            return RunEnd(exit_code=ExitCode.DONE, reason=add_doubts(ctx.files, words), next_command=RUN, spent=spent)
        if len(state.stopped) == 1 and not state.pending:
            (end,) = state.stopped.values()
            if end.own:
                return make_own(end.own, plan, selection, spent)
        reason = tell_rest(plan, state, jobs=self._order.jobs)
        again: Hint | None = self._again
        if advised := [(phase_id, end.hint) for phase_id, end in state.stopped.items() if end.hint]:
            places = {job.phase_id: job.repo.root for job in find_jobs(ctx.repo, ctx.plan_path)}
            parts = (f"in {places.get(phase_id, ctx.repo.root)}: {hint}; then " for phase_id, hint in advised)
            again = (*parts, self._again)
        if unsent := [end.unsent for end in state.stopped.values() if end.unsent]:
            dearest = max(unsent, key=lambda one: (one.cost_usd is None, one.cost_usd or 0.0, one.tokens))
            again = raise_cap(self._again, ctx.settings, ctx.meter.cap_usd, spent, dearest)
        return RunEnd(exit_code=find_code(state.stopped), reason=reason, next_command=again, spent=spent)

    @property
    def _again(self) -> Command:
        jobs, selection = self._order.jobs, self._order.selection
        phases = () if selection.all else ("--phase", selection.text)
        return Command(words=(*RUN.words, *phases, *(("--jobs", str(jobs)) if jobs > 1 else ())))
