"""List and find the logs of a repository, and follow a run's log with those of its jobs."""

import os
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from relay.base.values import dataclass
from relay.base.walk import open_folder, open_regular
from relay.git.names import JOB_BRANCHES, name_jobs
from relay.insight.telemetry.log import FOLDER, SUFFIX, LogTail, list_runs, parse_line
from relay.plan.text import STATE_DIR
from relay.session.events import Event, RunEnded, RunStarted
from relay.session.records import LoggedEvent, Scope


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


class RunLogs:
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
            self._begin(record, record.event)
        if self._prefix:
            self._look_for_jobs()
        jobs = (zip(repeat(phase_id), log.read(), strict=False) for phase_id, log in self._jobs)
        return merge(zip(repeat(""), chain(first, records), strict=False), *jobs, key=lambda entry: entry[1].at)

    def _begin(self, record: LoggedEvent, event: Event) -> None:
        if isinstance(event, RunStarted) and not event.branch.startswith(JOB_BRANCHES):
            self._prefix, self._since = name_jobs(event.branch), record.at

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


HEAD_BYTES = 64 * 1024
"""Bytes read at a log's beginning, for the run's name, and at its end, for its result."""


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
    folder = repo_root / STATE_DIR / FOLDER
    try:
        with open_folder(repo_root, (STATE_DIR, FOLDER)) as descriptor:
            names = [file.name for file in os.scandir(descriptor) if file.name.endswith(SUFFIX)]
            found = [entry for name in names if (entry := _look(folder / name, name, descriptor))]
    except OSError:
        return ()
    return _sort(found)


def _sort(entries: Iterable[LogEntry]) -> tuple[LogEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.began or entry.written, entry.run_id), reverse=True))


def find_logs(entries: Sequence[LogEntry], wanted: str) -> tuple[LogEntry, ...]:
    """Return the logs of a run by its id, the beginning of its id or its log's path, or all of a plan by its path.

    Args:
        entries: As `list_logs` returns them.
        wanted: Empty for the newest.
    """
    if not wanted:
        own = [entry for entry in entries if not _is_job(entry)]
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


def _look(path: Path, name: str, folder: int) -> LogEntry | None:
    """Read the beginning and the end of a log; None if it is no regular file."""
    try:
        descriptor = open_regular(name, folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        state = os.fstat(descriptor)
        head = stream.read(HEAD_BYTES)
        stream.seek(max(0, state.st_size - HEAD_BYTES))
        tail = stream.read(HEAD_BYTES)
    begun = next((record for record in _iter_records(head.splitlines(), "RunStarted")), None)
    over = next((record for record in _iter_records(reversed(tail.splitlines()), "RunEnded")), None)
    return LogEntry(
        run_id=name.removesuffix(SUFFIX),
        path=path,
        size_bytes=state.st_size,
        written=state.st_mtime,
        started=begun.event if begun and isinstance(begun.event, RunStarted) else None,
        began=begun.at if begun else None,
        ended=over.event if over and isinstance(over.event, RunEnded) else None,
    )


def _iter_records(lines: Iterable[bytes], kind: str) -> Iterable[LoggedEvent]:
    mark = f'"event":"{kind}"'.encode()
    for line in lines:
        if mark in line and (record := parse_line(line, Scope())):
            yield record
