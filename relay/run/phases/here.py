"""A phase at work in this process, in a work tree of relay's own."""

from collections.abc import Iterator
from dataclasses import replace

from relay.base.errors import ExitCode, RelayError
from relay.base.hints import RUN, Command, Hint
from relay.run.loop import run
from relay.run.phases.jobs import JobEnd
from relay.run.phases.landing import Job
from relay.run.selection import Selection
from relay.session.records import LoggedEvent
from relay.session.usage import Spent, Usage
from relay.setup.context import RunContext, RunEnd


class PhaseHere:
    """A phase that this process works on. Mutable: `work` runs it to its end; the view gets its events meanwhile.

    Args:
        ctx: Of the run, in the user's work tree.
        selection: The phase, as the plan in the job's work tree counts it.
    """

    descriptors: tuple[int, ...] = ()
    has_spoken: bool = True
    has_asked: bool = True

    def __init__(self, ctx: RunContext, job: Job, selection: Selection) -> None:
        self._ctx = ctx
        self._job = job
        self._selection = selection
        self._end: RunEnd | None = None
        self._spent = Spent()

    @property
    def has_ended(self) -> bool:
        """Whether it has run."""
        return self._end is not None

    def work(self) -> None:
        """Run it to its end.

        Raises:
            RelayError: The user has to change something first.
        """
        before = self._ctx.meter.total
        try:
            with self._ctx.open_tree(self._ctx, self._job.repo) as own:
                self._end = run(own, self._selection)
        except (RelayError, OSError):
            if self._job.is_there:
                raise
            words = f"phase {self._job.phase_id}: its work tree {self._job.repo.root} is gone"
            self._end = self._ctx.end(ExitCode.STOPPED, words, RUN)
        after = self._ctx.meter.total
        known = after.cost_usd is not None and before.cost_usd is not None
        cost = (after.cost_usd or 0.0) - (before.cost_usd or 0.0) if known else None
        self._spent = Spent(usage=Usage(input_tokens=after.tokens - before.tokens), cost_usd=cost)

    def hear(self) -> Iterator[LoggedEvent]:
        """Yield nothing: the view has its events."""
        return iter(())

    def interrupt(self, *, now: bool) -> None:
        """Do nothing: it has the run's own interrupts."""

    def close(self) -> JobEnd:
        """Return how it ended."""
        end = self._end or self._ctx.end(ExitCode.USER, "an error stopped it")
        return JobEnd(exit_code=end.exit_code, reason="", own=end, spent=self._spent, unsent=end.unsent)


def leave_out_phase(hint: Hint, phase_id: str) -> Hint:
    """Return a command without ``--phase``, for a user who named none."""
    if isinstance(hint, tuple):
        return tuple(leave_out_phase(part, phase_id) for part in hint)
    if not isinstance(hint, Command) or hint.words[:3] != ("run", "--phase", phase_id):
        return hint
    return replace(hint, words=("run", *hint.words[3:]))
