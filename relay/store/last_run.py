"""How the last run of a work tree ended, and what its last gate said: notes in the git directory.

They answer a person who comes back (`relay status --why`, `relay gate --last`); no run depends on them. They outlive
`.relay/`, and no clone has them.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.notes import read_note, write_note
from relay.git.repository import Repo

_RUN, _GATE = "last-run", "last-gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGate:
    """The gate that ran last."""

    at: float
    """Seconds since the epoch, when it had run."""
    phase_id: str
    passed: bool
    baseline: bool = False
    expected: str = ""
    """As `relay.session.events.GateFinished` has it."""
    summary: str = ""
    checks: tuple[Mapping[str, Any], ...] = ()
    """As the event has it."""

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        """Return the commands that were not green."""
        return tuple(check for check in self.checks if check.get("status") != "passed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The run, or the planning, that was last."""

    began: float
    command: str
    """``run`` or ``plan``."""
    plan_path: str
    branch: str
    ended: float | None = None
    """None where nothing was said of its end: it is at work, was killed, or the power went."""
    exit_code: int | None = None
    reason: str = ""
    next_command: str = ""
    waits_for: str = ""
    """The phase that waits for a yes, of ``run --approve``."""
    gate: LastGate | None = None
    """The last one of the run that was red and should not have been; None when there was none."""


def save_last_run(repo: Repo, run: LastRun, secret_values: tuple[str, ...] = ()) -> None:
    """Keep it; what cannot be written is lost, and stops nothing."""
    gate = _pack(run.gate) if run.gate else None
    body = {name: getattr(run, name) for name in LastRun.__slots__ if name != "gate"} | {"gate": gate}
    _save(repo, _RUN, body, secret_values)


def save_last_gate(repo: Repo, gate: LastGate, secret_values: tuple[str, ...] = ()) -> None:
    """Keep it, in the same way."""
    _save(repo, _GATE, _pack(gate), secret_values)


def _pack(gate: LastGate) -> dict[str, Any]:
    return {name: getattr(gate, name) for name in LastGate.__slots__}


def _save(repo: Repo, name: str, body: Mapping[str, Any], secret_values: tuple[str, ...]) -> None:
    import json

    from relay.base.redaction import redact

    text = redact(json.dumps(body, default=list), environ_values=secret_values)
    with contextlib.suppress(OSError, RepoError):
        write_note(repo, name, text, synced=False)


def read_last_run(repo: Repo) -> LastRun | None:
    """Return the last run; None when there was none, or nothing that relay wrote can be read."""
    body = _load(repo, _RUN)
    try:
        gate = body.pop("gate", None)
        return LastRun(**body, gate=_unpack(gate) if gate else None) if body else None
    except (ValueError, TypeError, AttributeError):
        return None


def read_last_gate(repo: Repo) -> LastGate | None:
    """Return the last gate, in the same way."""
    body = _load(repo, _GATE)
    try:
        return _unpack(body) if body else None
    except (ValueError, TypeError, AttributeError):
        return None


def _load(repo: Repo, name: str) -> dict[str, Any]:
    try:
        text = read_note(repo, name)
    except OSError:
        return {}
    if not text:
        return {}
    import json

    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _unpack(body: Mapping[str, Any]) -> LastGate:
    return LastGate(**{**body, "checks": tuple(dict(check) for check in body.get("checks", ()))})
