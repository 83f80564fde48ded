"""Logs of runs that work on one phase each, side by side, beside that of the run that started them."""

from collections.abc import Iterator
from heapq import merge
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Self
from urllib.parse import unquote

from relay.git.names import JOB_BRANCHES, name_jobs
from relay.insight.telemetry.log_tail import LogTail, list_runs
from relay.session.events import Event, RunStarted
from relay.session.records import LoggedEvent


def list_own_logs(root: Path) -> Iterator[str]:
    """Yield the runs that a person started, the one that was written to last first.

    At the end come those whose logs say nothing yet: such a one may be of a phase's own run, in its first moment.
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
    """Return a log's first event; None where it has none yet, or cannot be read."""
    try:
        with LogTail(root, run_id) as log:
            return next(log.read(), None)
    except OSError:
        return None


class RunLogs:
    """A run's log, with those of the runs that it started for single phases. Mutable: knows how far each was read.

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
        """Yield what is new in any of them, in order, each with the phase whose own run says it, or with none."""
        records = self._log.read()
        first = tuple(islice(records, 1))  # says what began; the others are never all held at once
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
        """Close all of them."""
        for log in (self._log, *(log for _, log in self._jobs)):
            log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
