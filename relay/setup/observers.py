"""The observers of a run's events: first counters and notes, then the view, then the log, then notifications."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from relay.base.errors import ConfigError, ErrorKind, ExitCode, RelayError
from relay.base.redaction import redact
from relay.base.values import dataclass
from relay.config import Settings
from relay.config.sources import ARM, find_unknown
from relay.git.config_guard import find_filters, find_own_filters, guard
from relay.git.names import list_paths
from relay.git.repository import Repo
from relay.git.status import find_tracked_hidden
from relay.insight.telemetry.log import EventLog, LogTail, open_log
from relay.sandbox.openings import Inquiries
from relay.sandbox.policy import describe_opened
from relay.sandbox.run import Sandbox
from relay.session import events
from relay.session.events import Event, Noticed, Observe
from relay.session.gauge import open_gauge
from relay.session.spend import Meter
from relay.session.values import SessionKind
from relay.setup.context import RunContext, RunRequest
from relay.setup.workspace import find_all_secrets, get_mechanism
from relay.store.history import find_beginning
from relay.store.refs import get_branch
from relay.store.worktree_notes import (
    LastGate,
    LastRun,
    find_home,
    is_own_tree,
    read_last_run,
    save_last_gate,
    save_last_run,
    take_cap,
)

if TYPE_CHECKING:
    from relay.news.notifier import Notifier


def announce(ctx: RunContext, request: RunRequest, run_id: str, left: tuple[str, ...]) -> None:
    """Emit the first event of a run, and a warning for each thing that a person should know before it."""
    take_cap(ctx.repo)  # one that came too late for an earlier run is not meant for this one
    started = events.RunStarted(
        run_id=run_id,
        command=request.kind,
        model=ctx.settings.model,
        plan_path=ctx.plan_path,
        branch=get_branch(ctx.repo),
        sandbox=get_mechanism(ctx.settings),
        cap_usd=ctx.settings.max_cost_usd,
        spent_usd=ctx.meter.total.cost_usd,
        estimated=ctx.meter.total.estimated,
        rehearsed=ctx.sessions.model.rehearsed,
        context=ctx.settings.strategy,
        ablated=ctx.settings.ablate,
        skills=tuple(events.HashedFile(path=skill.path, sha256=skill.sha256) for skill in ctx.rules.skills),
        plan_commit="" if request.kind is SessionKind.PLAN else find_beginning(ctx.repo, ctx.plan_path),
    )
    ctx.observe(started)
    reset_at = ctx.settings.reset_at_for(ctx.settings.model)
    limited = open_gauge(window_tokens=ctx.sessions.model.window_tokens, reset_at=reset_at).limited
    for words in (
        *left,
        *_describe_git_dir(ctx.repo),
        *describe_tracked(ctx.repo),
        *_describe_filtered(ctx.repo),
        *_describe_experiment(ctx.settings),
        *ctx.rules.warnings,
        *([limited] if limited else []),
        *(() if request.is_apart else describe_sandbox(ctx.workspace.sandbox)),
    ):
        ctx.observe(Noticed(text=words, warning=True))


def describe_sandbox(sandbox: Sandbox) -> tuple[str, ...]:
    """Return a sentence for each way out of a sandbox, and for each protection that it cannot give here."""
    return (*describe_opened(sandbox.policy), *sandbox.gaps)


def describe_settings(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each setting without effect."""
    if unknown := find_unknown(environ):
        yield f"{', '.join(unknown)}: relay has no such setting"
    for path in (*settings.paths.write, *settings.paths.read):
        if not Path(path).expanduser().is_dir():
            yield f"paths: {path} is no directory; commands cannot use it"


def _describe_git_dir(repo: Repo) -> Iterator[str]:
    """Warn of a git directory that the file .git puts elsewhere; that of a linked work tree is fine."""
    if repo.git_dir == repo.common_dir and not repo.git_dir.is_relative_to(repo.root):
        yield f"the history of this work tree is in {repo.git_dir}, which the file .git names"


def describe_tracked(repo: Repo) -> Iterator[str]:
    """Warn of hidden files that git tracks: a session can read their committed content."""
    if found := find_tracked_hidden(repo):
        yield (
            f"git tracks {list_paths(found)}: the file is hidden from sessions, but they can read its committed "
            "content with git; keep no secret in it"
        )


def _describe_filtered(repo: Repo) -> Iterator[str]:
    """Warn of files whose filter relay does not run."""
    guarded = guard(repo)
    if own := find_own_filters(guarded.config):
        needed = find_filters(guarded, tuple(repo.git.list_files()))
        if found := sorted(path for path, driver in needed.items() if driver in own):
            yield (
                f"sessions and gates get {list_paths(found)} as git stores it, and no phase can change it: relay runs "
                "only filters of your global configuration, and no program that may be in the repository"
            )


def _describe_experiment(settings: Settings) -> Iterator[str]:
    """Warn that parts of relay are switched off or replaced in this run."""
    if settings.strategy != "reset":
        yield f"context strategy: {settings.strategy}, for comparison with relay's own; sessions are not reset"
    if settings.ablate:
        yield f"switched off ({ARM}): {', '.join(settings.ablate)}"


class RunNotes:
    """Writes the notes of `relay.store.worktree_notes` for `relay status`. Mutable: it remembers this run's notes.

    Args:
        secret_values: Redacted from the notes.
    """

    def __init__(self, repo: Repo, secret_values: tuple[str, ...]) -> None:
        self._repo = repo
        self._secret_values = secret_values
        self._run: LastRun | None = None

    def observe(self, event: Event) -> None:
        """Take one event."""
        match event:
            case events.RunStarted():
                self._run = LastRun(
                    began=time.time(), command=event.command, plan_path=event.plan_path, branch=event.branch
                )
                self._save()
            case events.GateFinished():
                gate = make_last_gate(event, at=time.time())
                save_last_gate(self._repo, gate, self._secret_values)
                if self._run is not None:
                    is_failure = not event.passed and not event.expected
                    self._run = replace(self._run, gate=gate if is_failure else None)
            case events.RunEnded() if self._run is not None:
                self._run = replace(
                    self._run,
                    ended=time.time(),
                    exit_code=event.exit_code,
                    reason=event.reason,
                    next_command=event.next_command,
                    waits_for=event.waits_for,
                )
                self._save()
            case _:
                pass

    def _save(self) -> None:
        if self._run is not None:
            save_last_run(self._repo, self._run, self._secret_values)


def make_last_gate(event: events.GateFinished, *, at: float) -> LastGate:
    """Return the note of a gate."""
    return LastGate(
        at=at,
        phase_id=event.phase_id,
        passed=event.passed,
        baseline=event.baseline,
        expected=event.expected,
        summary=event.summary,
        checks=event.checks,
    )


def note_refusal(request: RunRequest, error: RelayError, *, hint: str, began: float) -> None:
    """Note the error with which a run stopped or could not begin, unless another relay is running."""
    last = read_last_run(request.repo)
    started = last is not None and last.ended is None and last.began >= began
    if not started and error.kind is ErrorKind.REPOSITORY:
        return  # another relay has the lock, or there is no repository
    if last is None or not started:
        last = LastRun(began=began, command=request.kind, plan_path=request.plan_path, branch=request.repo.branch or "")
    ended = replace(last, ended=time.time(), exit_code=int(ExitCode.USER), reason=str(error), next_command=hint)
    save_last_run(request.repo, ended, find_all_secrets(request))


EVERY_S = 1.0
"""Shortest time between two shown lines; output of a command shorter than this is not shown."""
_SLOWER = 60
"""After n minutes a line every n seconds: an hour of output is a few hundred lines of the log."""
LONGEST_CHARS = 200


@dataclass(slots=True, kw_only=True)
class Observers:
    """All observers. Mutable: the log and the counters are made later than the first sources of events."""

    view: Observe
    log: EventLog | None = None
    """None until the repository is held: the log is a file in it."""
    counters: list[Observe] = field(default_factory=list)
    meter: Meter | None = None
    """The plan's spend; None until it is known."""
    news: "Notifier | None" = None
    """None if nobody wants notifications."""
    is_job: bool = False
    """Whether this run is a job: one of several phases side by side."""
    inquiries: list[Inquiries] = field(default_factory=list)
    """Filled by threads; emitted before the next event."""

    def observe(self, event: Event) -> None:
        """Pass an event to all observers; the view gets a notice if the log cannot keep it."""
        for asked in (asked for inquiries in self.inquiries for asked in inquiries.take()):
            self._tell(asked)
        self._tell(event)
        self._call(event)
        if self.news:
            for lost in self.news.take_failures():
                self._tell(lost)

    def observe_job(self, event: Event) -> None:
        """Notify about an event of a job; no other observer gets it."""
        if not isinstance(event, events.RunStarted | events.RunEnded):
            self._call(event)

    def _call(self, event: Event) -> None:
        # The parent notifies of the end of all its jobs.
        if self.news and not (self.is_job and isinstance(event, events.RunEnded)):
            self.news.observe(event)

    def _tell(self, event: Event) -> None:
        for tell in (*self.counters, self.view):
            tell(event)
        if self.log and (lost := self.log.append(event)):
            self.view(lost)

    @contextmanager
    def logging(self, request: RunRequest, run_id: str) -> Iterator[None]:
        """Open the run's log and notifications, and close them again; the log gets an end event even after an error."""
        values = find_all_secrets(request)
        self.is_job = is_own_tree(request.repo)
        with open_log(find_home(request.repo), run_id, clock=time.time, secret_values=values) as log:
            self.log = log
            self.counters.append(RunNotes(request.repo, values).observe)
            try:
                with self._calling(request, values):
                    yield
            except RelayError as error:  # the caller shows and notes it
                spent = self.meter.total if self.meter else None
                ended = events.RunEnded(
                    exit_code=ExitCode.USER,
                    reason=str(error),
                    next_command="",
                    spent_usd=spent.cost_usd if spent else None,
                    estimated=spent is not None and spent.estimated,
                )
                log.append(ended)
                raise
            finally:
                if failure := _send(request, run_id):
                    again = f"`relay report --otel {run_id}` sends it"
                    self._tell(Noticed(text=f"telemetry: {failure}; {again}", warning=True))
                self.log = None

    @contextmanager
    def _calling(self, request: RunRequest, secret_values: tuple[str, ...]) -> Iterator[None]:
        """Send notifications, if the settings name receivers, and wait a moment for open ones at the end."""
        if not request.settings.notify:
            yield
            return
        from relay.news.notifier import open_notifier  # slow to load

        def clean(text: str) -> str:
            return redact(text, environ_values=secret_values)

        with open_notifier(request.settings.notify, request.environ, clean, self._tell) as notifier:
            self.news = notifier
            yield


def _send(request: RunRequest, run_id: str) -> str:
    """Send a run's log to the OpenTelemetry collector of OTel's own variable; return why it was not sent, or nothing.

    Without OTel's SDK nothing is said: the variable may be there for other programs.
    """
    endpoint = request.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not endpoint:
        return ""
    try:
        from relay.insight.telemetry.otel import Collector, send_log
    except ImportError:
        return ""
    try:
        with LogTail(request.repo.root, run_id) as log:
            collector = Collector(endpoint, request.environ, timeout_s=_SEND_S)
            send_log(log.read(), collector, run_id)
    except ConfigError as error:
        return str(error)
    except OSError:  # there is no log; the view says so already
        return ""
    return ""


_SEND_S = 3.0
"""Longest wait for each step of sending the log; a run that ends waits no longer."""


class Progress:
    """Emits the last output line of the running command. Mutable: it knows the start of the command and the last line.

    Args:
        observe: Receives new lines.
        hide: Takes the values that gates are handed out of a text.
        clock: Monotonic seconds.
    """

    def __init__(
        self, observe: Observe, hide: Callable[[str], str] = str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._observe = observe
        self._hide = hide
        self._clock = clock
        self._since = self._told_at = clock()
        self._line = ""

    def note(self, event: Event) -> None:
        """Start anew with each event that starts a command."""
        if isinstance(event, events.ToolStarted | events.GateStarted | events.SetupStarted):
            self._since = self._told_at = self._clock()
            self._line = ""

    def hear(self, end: bytes) -> None:
        """Take the last bytes of the command's output."""
        now = self._clock()
        if now - self._told_at < max(EVERY_S, (now - self._since) / _SLOWER):
            return
        line = find_last_line(self._hide(end.decode("utf-8", "replace")))
        if line and line != self._line:
            self._line, self._told_at = line, now
            self._observe(events.OutputShown(line=line))


def find_last_line(end: str) -> str:
    """Return the last line that is not blank, as a terminal shows it: a carriage return starts the line anew."""
    lines = end.replace("\r", "\n").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[-LONGEST_CHARS:]
