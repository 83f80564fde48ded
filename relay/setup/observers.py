"""Who is told of what happens in a run: what keeps and counts, then the view, then the log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING

from relay.base.errors import ExitCode, RelayError
from relay.base.redaction import redact
from relay.base.values import dataclass
from relay.insight.telemetry.log import EventLog, open_log
from relay.sandbox.sockets import Inquiries
from relay.session.events import (
    Event,
    GateStarted,
    HostAsked,
    Observe,
    OutputShown,
    RunEnded,
    RunStarted,
    SetupStarted,
    ToolStarted,
)
from relay.session.spend import Meter
from relay.setup.context import RunRequest
from relay.setup.policy import find_all_secrets
from relay.setup.run_notes import RunNotes
from relay.store.home import find_home

if TYPE_CHECKING:
    from relay.news.courier import Newsroom
EVERY_S = 1.0
"""Shortest time between two lines; a command that says little for less is not told of."""
_SLOWER = 60
"""After n minutes every n seconds: an hour of output is a few hundred lines of the log."""
LONGEST_CHARS = 200


@dataclass(slots=True, kw_only=True)
class Observers:
    """All who are told. Mutable: the log, and what counts, are made later than those who have something to tell."""

    view: Observe
    log: EventLog | None = None
    """None until the repository is this run's: the log is a file in it."""
    counters: list[Observe] = field(default_factory=list)
    meter: Meter | None = None
    """What the plan has cost; None until that is known."""
    news: "Newsroom | None" = None
    """None where nobody wants to be called."""
    is_job: bool = False
    """Whether this is the run of one of several phases that are at work side by side."""
    inquiries: list[Inquiries] = field(default_factory=list)
    """Written by threads; what stands in them is told before the next that happens."""

    def observe(self, event: Event) -> None:
        """Tell all of them; what the log could not keep is said to the view."""
        for asked in (asked for inquiries in self.inquiries for asked in inquiries.take()):
            self._tell(HostAsked(host=asked.host, refused=asked.refused))
        self._tell(event)
        self._call(event)
        if self.news:
            for lost in self.news.take_failures():
                self._tell(lost)

    def observe_job(self, event: Event) -> None:
        """Call those who want to know of what the run of a phase has said; nobody else is told."""
        if not isinstance(event, RunStarted | RunEnded):
            self._call(event)

    def _call(self, event: Event) -> None:
        # How all jobs ended, their parent tells.
        if self.news and not (self.is_job and isinstance(event, RunEnded)):
            self.news.observe(event)

    def _tell(self, event: Event) -> None:
        for tell in (*self.counters, self.view):
            tell(event)
        if self.log and (lost := self.log.append(event)):
            self.view(lost)

    @contextmanager
    def logging(self, request: RunRequest, run_id: str) -> Iterator[None]:
        """Open the run's log, which makes relay's own directory, and close it again; keep and call how it ends."""
        values = find_all_secrets(request)
        self.is_job = find_home(request.repo) != request.repo.root
        with open_log(find_home(request.repo), run_id, clock=time.time, secret_values=values) as log:
            self.log = log
            self.counters.append(RunNotes(request.repo, values).observe)
            try:
                with self._exporting(request, run_id), self._calling(request, values):
                    yield
            except RelayError as error:  # shown, and noted, by who called
                log.append(self._end(str(error)))
                raise
            finally:
                self.log = None

    def _end(self, reason: str) -> RunEnded:
        spent = self.meter.total if self.meter else None
        return RunEnded(
            exit_code=ExitCode.USER,
            reason=reason,
            next_command="",
            spent_usd=spent.cost_usd if spent else None,
            estimated=spent is not None and spent.estimated,
        )

    @contextmanager
    def _exporting(self, request: RunRequest, run_id: str) -> Iterator[None]:
        """Send the log to a collector while it grows, where the user wants it."""
        endpoint = request.settings.otel_endpoint
        if endpoint is None:
            yield
            return
        from relay.insight.telemetry.export import exporting  # as below
        from relay.insight.telemetry.log import LogTail

        try:
            log = LogTail(request.repo.root, run_id)
        except OSError:  # there is no log, as the view is told
            yield
            return
        with exporting(log, endpoint, request.environ, run_id, self._tell):
            yield

    @contextmanager
    def _calling(self, request: RunRequest, secret_values: tuple[str, ...]) -> Iterator[None]:
        """Call whom the user wants to be called, and wait a moment for that at the end."""
        if not request.settings.notify:
            yield
            return
        from relay.news.courier import open_newsroom  # the HTTP client that it needs takes its time to load

        def clean(text: str) -> str:
            return redact(text, environ_values=secret_values)

        with open_newsroom(request.settings.notify, request.environ, clean, self._tell) as room:
            self.news = room
            yield


class Progress:
    """Tells the last line of the command that runs. Mutable: knows since when it runs, and what was told.

    Args:
        observe: Told of new lines.
        clock: Steady seconds.
    """

    def __init__(self, observe: Observe, clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._since = self._told_at = clock()
        self._line = ""

    def note(self, event: Event) -> None:
        """Begin anew with each thing that runs commands."""
        if isinstance(event, ToolStarted | GateStarted | SetupStarted):
            self._since = self._told_at = self._clock()
            self._line = ""

    def hear(self, end: bytes) -> None:
        """Take the last bytes of what the command has printed so far."""
        now = self._clock()
        if now - self._told_at < max(EVERY_S, (now - self._since) / _SLOWER):
            return
        line = find_last_line(end)
        if line and line != self._line:
            self._line, self._told_at = line, now
            self._observe(OutputShown(line=line))


def find_last_line(end: bytes) -> str:
    """Return the last line with something in it, as a terminal would leave it: a carriage return begins it anew."""
    text = end.decode("utf-8", "replace").replace("\r", "\n")
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")[-LONGEST_CHARS:]
