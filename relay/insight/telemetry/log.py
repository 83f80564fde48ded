"""The event logs below ``.relay/``: one JSON line per event. They are written, read, listed, found and followed here.

A log can be read while its run is still writing. No run depends on it. ``.relay/`` can be deleted at any moment and may
have been planted by the author of the repository: every step into it is made by directory descriptor without following
links. A failure to write is reported once and never stops a run.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from heapq import merge
from itertools import chain, islice, repeat
from pathlib import Path
from urllib.parse import unquote

from relay.base.redaction import redact
from relay.base.values import dataclass
from relay.base.walk import open_folder, open_ignored, open_regular
from relay.git.names import JOB_BRANCHES, name_jobs
from relay.plan.text import STATE_DIR
from relay.session.events import Event, Noticed, PlanShown, RunEnded, RunStarted, ShownPhase
from relay.session.records import LoggedEvent, Recorder, parse_record, render_record

OUTPUTS = "outputs"
OUTPUT_AGE_S = 7 * 86_400
"""Spilled tool output is kept for a week by modification time: a phase may wait that long for its next session."""
FOLDER, SUFFIX = "sessions", ".jsonl"
"""Where logs lie below relay's own directory, and what the names of their files end with."""


@dataclass(slots=True, kw_only=True)
class EventLog(AbstractContextManager["EventLog"]):
    """An open log, a context manager. Mutable: holds a descriptor."""

    path: Path
    recorder: Recorder
    secret_values: tuple[str, ...] = ()
    """Redacted, as are texts that look like a secret."""
    _descriptor: int | None
    _failure: str = ""
    """Why writing has stopped; empty while it works."""
    _reported: bool = False
    _phases: tuple[ShownPhase, ...] = ()
    """Phases of the plan as it was last shown."""

    def append(self, event: Event) -> Noticed | None:
        """Write one event at once.

        Returns:
            A notice for the user the first time that writing fails; else None.
        """
        if isinstance(event, PlanShown) and not event.changed_only:
            # Only changes: whole plans would be most of the log.
            self._phases, event = event.phases, event.since(self._phases)
        if self._descriptor is not None:
            try:
                line = redact(render_record(self.recorder.record(event)), environ_values=self.secret_values)
                _write(self._descriptor, f"{line}\n")
            except OSError as exc:
                self._failure = exc.strerror or str(exc)
                self.close()
        if not self._failure or self._reported:
            return None
        self._reported = True
        return Noticed(text=f"this run leaves no log in {self.path}: {self._failure}", warning=True)

    def close(self) -> None:
        """Stop writing; later events are dropped."""
        if self._descriptor is not None:
            with suppress(OSError):  # a late write error of a network file system; the data is gone
                os.close(self._descriptor)
            self._descriptor = None

    def __exit__(self, *_: object) -> None:
        self.close()


def open_log(
    repo_root: Path, run_id: str, *, clock: Callable[[], float], secret_values: tuple[str, ...] = ()
) -> EventLog:
    """Open ``.relay/sessions/<id>.jsonl`` for appending; the first `EventLog.append` reports a failure."""
    path = repo_root / STATE_DIR / FOLDER / f"{run_id}{SUFFIX}"
    recorder = Recorder(clock)
    try:
        with open_ignored(repo_root, (STATE_DIR,), FOLDER) as folder:
            descriptor = open_regular(path.name, folder, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        _end_torn_line(descriptor)
    except OSError as exc:
        return EventLog(path=path, recorder=recorder, _descriptor=None, _failure=exc.strerror or str(exc))
    return EventLog(path=path, recorder=recorder, secret_values=secret_values, _descriptor=descriptor)


def sweep(repo_root: Path, folder: str, *, now_s: float, max_age_s: float) -> int:
    """Delete old files in a folder of relay's own, by modification time; return their number.

    A file that is gone, cannot be deleted, or is no plain file is passed over.
    """
    removed = 0
    with suppress(OSError), open_folder(repo_root, (STATE_DIR, folder)) as directory:
        for _, _, names, holder in os.fwalk(".", dir_fd=directory, follow_symlinks=False):
            for name in names:
                with suppress(OSError):
                    state = os.stat(name, dir_fd=holder, follow_symlinks=False)
                    if stat.S_ISREG(state.st_mode) and state.st_mtime < now_s - max_age_s:
                        os.unlink(name, dir_fd=holder)
                        removed += 1
    return removed


def _end_torn_line(descriptor: int) -> None:
    """End a line that a crash left open, so that the next event gets a line of its own."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        _write(descriptor, "\n")


def _write(descriptor: int, text: str) -> None:
    """Write all of a text; a lone surrogate becomes its JSON escape."""
    rest = text.encode("utf-8", "backslashreplace")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


HEAD_BYTES = 64 * 1024
"""Bytes that are read at once at a log's beginning, for the run's name, and at its end, for its result."""
_CHUNK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 32 << 20
"""relay writes no longer line; such a line is skipped and never held as a whole."""
END_BYTES = 4 << 20
"""Bytes at a log's end; a session of hours is shorter."""
_END_EVENTS = 40
_EVENT = re.compile(rb'^\{"v":\d+,"at":[\d.]+,"event":"(\w+)"')


def list_runs(root: Path) -> tuple[str, ...]:
    """Return the ids of the runs that have a log, the last written one at the end."""
    found: list[tuple[int, str]] = []
    with suppress(OSError), open_folder(root, (STATE_DIR, FOLDER)) as folder, os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                if entry.name.endswith(SUFFIX) and stat.S_ISREG(state.st_mode):
                    found.append((state.st_mtime_ns, entry.name.removesuffix(SUFFIX)))
    return tuple(name for _, name in sorted(found))


class LogTail(AbstractContextManager["LogTail"]):
    """A log, open for reading; a context manager. Mutable: knows how far it was read.

    It stays readable if its file is removed or replaced: relay itself goes on writing to the open file. Iterated it
    yields all that is left of a log to which nobody writes any more, and closes it.
    """

    def __init__(self, root: Path, run_id: str, folders: tuple[str, ...] = (STATE_DIR, FOLDER)) -> None:
        """Open it.

        Args:
            root: The work tree.
            run_id: Names its file.
            folders: From the work tree to the log.

        Raises:
            OSError: There is none of that name, or it is no plain file.
        """
        with open_folder(root, folders) as folder:
            self._descriptor = open_regular(f"{run_id}{SUFFIX}", folder)
        self.skipped_lines = 0
        """Torn lines (a crash in mid-write) and those of another schema version, so far."""
        self._begin()

    def _begin(self) -> None:
        self._offset, self._rest, self._too_long = 0, b"", False

    @property
    def state(self) -> os.stat_result:
        """What the file system says of its file."""
        return os.fstat(self._descriptor)

    def read(self) -> Iterator[LoggedEvent]:
        """Yield the events since the last call; an incomplete line waits, foreign lines are skipped."""
        if self.state.st_size < self._offset:
            self._begin()  # somebody emptied it
        while chunk := os.pread(self._descriptor, _CHUNK_BYTES if self._offset else HEAD_BYTES, self._offset):
            self._offset += len(chunk)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                yield from self._take(line)
            if len(self._rest) > _LONGEST_LINE_BYTES:
                self._rest, self._too_long = b"", True

    def __iter__(self) -> Iterator[LoggedEvent]:
        with self:
            yield from self.read()
            yield from self._take(self._rest)

    def _take(self, line: bytes) -> Iterator[LoggedEvent]:
        record = None if self._too_long else parse_record(line)  # the end of a line that was too long is none
        self.skipped_lines += record is None and (self._too_long or bool(line.strip()))
        self._too_long = False
        if record is not None:
            yield record

    def read_end(
        self, kinds: frozenset[str], *, until: str, most: int = _END_EVENTS, within: int = END_BYTES
    ) -> tuple[LoggedEvent, ...]:
        """Return the last event called `until` and the later events of these kinds, oldest first.

        It takes a few milliseconds for any length: only these events are parsed.

        Args:
            kinds: Names of event types.
            until: Name of the first one.
            most: Number of events of these kinds.
            within: Bytes at the log's end that are searched.
        """
        found: list[LoggedEvent] = []
        for line in self._read_backwards(within):
            match = _EVENT.match(line)
            kind = match[1].decode() if match else ""
            if kind == until or (kind in kinds and len(found) < most):
                found += [record] if (record := parse_record(line)) else []
            if kind == until:
                break
        return tuple(reversed(found))

    def _read_backwards(self, most_bytes: int) -> Iterator[bytes]:
        """Yield the last lines in reverse; the log's first line only if so much of it is read."""
        offset = self.state.st_size
        start = max(0, offset - most_bytes)
        rest = b""
        while offset > start:
            before, offset = offset, max(start, offset - HEAD_BYTES)
            rest, *lines = (os.pread(self._descriptor, before - offset, offset) + rest).split(b"\n")
            yield from reversed(lines)
        if not start:
            yield rest

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __exit__(self, *_: object) -> None:
        self.close()


def open_events(path: Path) -> LogTail | None:
    """Open a log for one pass over its events; None if there is no such file."""
    try:
        return LogTail(path.parent, path.stem, ())
    except OSError:
        return None


def read_logs(paths: Iterable[Path]) -> tuple[Iterator[LoggedEvent], list[LogTail]]:
    """Return the events of these logs, one log after the other, and those that are there, which count skipped lines."""
    logs = [log for path in paths if (log := open_events(path))]
    return chain.from_iterable(logs), logs


def list_own_logs(root: Path) -> Iterator[str]:
    """Yield the runs that a person started, the last written one first.

    Runs with an empty log come at the end: it may be a job in its first moment.
    """
    silent: list[str] = []
    for run_id in reversed(list_runs(root)):
        first = _read_first(root, run_id)
        if first is None:
            silent.append(run_id)
        elif not (isinstance(first.event, RunStarted) and first.event.branch.startswith(JOB_BRANCHES)):
            yield run_id
    yield from silent


def _read_first(root: Path, run_id: str) -> LoggedEvent | None:
    """Return a log's first event; None if it has none yet or cannot be read."""
    try:
        with LogTail(root, run_id) as log:
            return next(log.read(), None)
    except OSError:
        return None


class RunLogs(AbstractContextManager["RunLogs"]):
    """A run's log with those of its jobs. Mutable: knows how far each was read.

    Args:
        log: The run's own, not read yet.
    """

    def __init__(self, root: Path, log: LogTail) -> None:
        self._root = root
        self._log = log
        self._prefix = ""
        self._since = 0.0
        self._passed: set[str] = set()
        self._jobs: list[tuple[str, LogTail]] = []

    def read(self) -> Iterator[tuple[str, LoggedEvent]]:
        """Yield the new events of all logs in order, each with its job's phase; empty for the run itself."""
        records = self._log.read()
        first = tuple(islice(records, 1))  # names the run; the rest is never held at once
        for record in first:
            event = record.event
            if isinstance(event, RunStarted) and not event.branch.startswith(JOB_BRANCHES):
                self._prefix, self._since = name_jobs(event.branch), record.at
        if self._prefix:
            self._look_for_jobs()
        jobs = (zip(repeat(phase_id), log.read(), strict=False) for phase_id, log in self._jobs)
        return merge(zip(repeat(""), chain(first, records), strict=False), *jobs, key=lambda entry: entry[1].at)

    def _look_for_jobs(self) -> None:
        for run_id in list_runs(self._root):
            start = None if run_id in self._passed else _read_first(self._root, run_id)
            if start is None or not isinstance(start.event, RunStarted):
                continue
            self._passed.add(run_id)
            if start.at >= self._since and start.event.branch.startswith(self._prefix):
                phase_id = unquote(start.event.branch.removeprefix(self._prefix))
                self._jobs.append((phase_id, LogTail(self._root, run_id)))

    def close(self) -> None:
        """Close all logs."""
        for log in (self._log, *(log for _, log in self._jobs)):
            log.close()

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One run's log."""

    run_id: str
    """The name of its file."""
    path: Path
    size_bytes: int
    written: float
    """Modification time; seconds since the epoch."""
    started: RunStarted | None
    """None if its beginning is lost."""
    began: float | None
    ended: RunEnded | None
    """None during the run, and if it was killed."""


def list_logs(repo_root: Path) -> tuple[LogEntry, ...]:
    """Return the logs below ``.relay/sessions``, newest first; links and other non-files are skipped."""
    return _sort(entry for run_id in list_runs(repo_root) if (entry := _look(repo_root, run_id)))


def _sort(entries: Iterable[LogEntry]) -> tuple[LogEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.began or entry.written, entry.run_id), reverse=True))


def find_logs(entries: Sequence[LogEntry], wanted: str) -> tuple[LogEntry, ...]:
    """Return the logs of a run by its id, the beginning of its id or its log's path, or all of a plan by its path.

    Args:
        entries: As `list_logs` returns them.
        wanted: Empty for the newest; one that was killed before it said anything is passed over.
    """
    if not wanted:
        own = [entry for entry in entries if entry.started and not _is_job(entry)]
        return _with_jobs(entries, (own or list(entries))[:1])
    name = Path(wanted).name.removesuffix(SUFFIX)
    exact = [entry for entry in entries if entry.run_id == name]
    if exact:
        return _with_jobs(entries, exact)
    plan = os.path.normpath(wanted)
    of_plan = [entry for entry in entries if entry.started and os.path.normpath(entry.started.plan_path) == plan]
    if of_plan:
        return tuple(_keep_latest_plan(of_plan))
    begun = [entry for entry in entries if entry.run_id.startswith(wanted)]
    return _with_jobs(entries, begun) if len(begun) == 1 else ()


def _is_job(entry: LogEntry) -> bool:
    return entry.started is not None and entry.started.branch.startswith(JOB_BRANCHES)


def _with_jobs(entries: Sequence[LogEntry], own: Sequence[LogEntry]) -> tuple[LogEntry, ...]:
    """Return runs with the jobs that each started: in its time, on job branches of its branch."""
    found = list(own)
    for run in own:
        if run.started is None or run.began is None or _is_job(run):
            continue
        prefix = name_jobs(run.started.branch)
        later = [e.began for e in entries if not _is_job(e) and e.began is not None and e.began > run.began]
        until = min(later, default=float("inf"))
        jobs = (e for e in entries if e.started and e.began and e.started.branch.startswith(prefix))
        found += [entry for entry in jobs if entry.began is not None and run.began <= entry.began < until]
    return _sort(found)


def _keep_latest_plan(entries: Sequence[LogEntry]) -> Iterator[LogEntry]:
    """Yield the runs of the plan that the file holds now, newest first; earlier runs may be of another plan."""
    commit = ""
    for entry in entries:
        own = entry.started.plan_commit if entry.started else ""
        if commit and own and own != commit:
            return
        commit = commit or own
        yield entry


def _look(root: Path, run_id: str) -> LogEntry | None:
    """Read the beginning and the end of a log; None if it is gone."""
    try:
        with LogTail(root, run_id) as log:
            state, first = log.state, next(log.read(), None)
            ends = log.read_end(frozenset(), until="RunEnded", within=HEAD_BYTES)
    except OSError:
        return None
    started = first.event if first and isinstance(first.event, RunStarted) else None
    return LogEntry(
        run_id=run_id,
        path=root / STATE_DIR / FOLDER / f"{run_id}{SUFFIX}",
        size_bytes=state.st_size,
        written=state.st_mtime,
        started=started,
        began=first.at if first and started else None,
        ended=next((end.event for end in ends if isinstance(end.event, RunEnded)), None),
    )
