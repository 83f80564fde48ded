"""Keeps how a run ended where the next look finds it, while the run happens."""

import time
from dataclasses import replace

from relay.base.errors import ErrorKind, ExitCode, RelayError
from relay.git.repository import Repo
from relay.session.events import Event, GateFinished, RunEnded, RunStarted
from relay.setup.context import RunRequest
from relay.setup.policy import find_all_secrets
from relay.store.last_run import LastGate, LastRun, read_last_run, save_last_gate, save_last_run


class RunNotes:
    """Writes the notes of `relay.store.last_run`. Mutable: holds what it has written of this run.

    Args:
        secret_values: Never written.
    """

    def __init__(self, repo: Repo, secret_values: tuple[str, ...]) -> None:
        self._repo = repo
        self._secret_values = secret_values
        self._run: LastRun | None = None

    def observe(self, event: Event) -> None:
        """Take one event."""
        match event:
            case RunStarted():
                self._run = LastRun(
                    began=time.time(), command=event.command, plan_path=event.plan_path, branch=event.branch
                )
                self._save()
            case GateFinished():
                self._take_gate(event)
            case RunEnded() if self._run is not None:
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

    def _take_gate(self, event: GateFinished) -> None:
        gate = make_last_gate(event, at=time.time())
        save_last_gate(self._repo, gate, self._secret_values)
        if self._run is not None:
            is_failure = not event.passed and not event.expected
            self._run = replace(self._run, gate=gate if is_failure else None)

    def _save(self) -> None:
        if self._run is not None:
            save_last_run(self._repo, self._run, self._secret_values)


def make_last_gate(event: GateFinished, *, at: float) -> LastGate:
    """Return what is kept of a gate."""
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
    """Keep what a run ended with that could not go on, or not begin; another relay's own notes are not written over."""
    last = read_last_run(request.repo)
    started = last is not None and last.ended is None and last.began >= began
    if not started and error.kind is ErrorKind.REPOSITORY:
        return  # the lock is another's, or there is nothing to write to
    if last is None or not started:
        last = LastRun(began=began, command=request.kind, plan_path=request.plan_path, branch=request.repo.branch or "")
    ended = replace(last, ended=time.time(), exit_code=int(ExitCode.USER), reason=str(error), next_command=hint)
    save_last_run(request.repo, ended, find_all_secrets(request))
