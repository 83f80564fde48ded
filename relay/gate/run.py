"""Runs the commands of a gate in the sandbox, and judges each by its exit code and its output."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from relay.base.redaction import hide_values
from relay.base.values import dataclass
from relay.base.walk import open_ignored
from relay.gate.absence import find_missing_program
from relay.gate.causes import Failure, find_causes, find_hindrance
from relay.gate.checker_output import find_failures, ran_no_tests, ran_tests
from relay.gate.model import CommandCheck, GateResult, Outcome
from relay.gate.shell_line import may_run_nothing, names_tests, swallows_exit
from relay.sandbox.output import keep_output, render_output
from relay.sandbox.policy import Limits
from relay.sandbox.process import CommandResult
from relay.sandbox.run import Sandbox
from relay.sandbox.veil import lift_veil

TAIL_CHARS = 4_000
"""About a thousand tokens for each command that failed."""

_MISSING = frozenset({126, 127})
"""POSIX shells: found but not executable, not found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    sandbox: Sandbox
    limits: Limits
    should_stop: Callable[[], bool]
    outputs_dir: Path
    handed: tuple[str, ...]


def run_gate(
    commands: Sequence[str],
    *,
    sandbox: Sandbox,
    limits: Limits,
    should_stop: Callable[[], bool],
    outputs_dir: Path,
    handed: Sequence[str] = (),
) -> GateResult:
    """Run every command, also after one that fails: a repair needs to know all that is red.

    Each runs as ``bash -o pipefail -c <command>`` at the root, so that ``pytest | tail`` fails when pytest does.

    Args:
        sandbox: At the level the commands need; tests usually write. Its scratch directory should be new: what a
            session left there is in no commit.
        should_stop: Polled; true ends the running command and skips the rest.
        outputs_dir: Where the full output of commands that say much is kept.
        handed: Values that are taken out of what the commands print, see `relay.base.redaction.find_handed_values`.

    Raises:
        SandboxError: The sandbox could not be set up.
    """
    gate = _Gate(sandbox=sandbox, limits=limits, should_stop=should_stop, outputs_dir=outputs_dir, handed=tuple(handed))
    return GateResult(commands=tuple(_run_command(gate, command) for command in commands))


def _ensure_folder(root: Path, folder: Path) -> bool:
    """Make the directory; say whether outputs can be kept there. A link the repository ships is not written through."""
    try:
        with open_ignored(root, folder.relative_to(root).parts):
            return True
    except (OSError, ValueError):
        return False


def _run_command(gate: _Gate, command: str) -> CommandCheck:
    if gate.should_stop():
        return CommandCheck(command=command, exit_code=None, status=Outcome.INTERRUPTED, duration_s=0.0, output_tail="")
    spool = _reserve(gate)
    result = gate.sandbox.run(
        ["bash", "-o", "pipefail", "-c", command], limits=gate.limits, should_stop=gate.should_stop, spool=spool
    )
    output = hide_values(render_output(result.output).strip("\n"), gate.handed)
    cut = result.total_bytes > gate.limits.keep_bytes
    whole = len(output) <= TAIL_CHARS and not cut
    if spool is not None and whole:
        spool.unlink(missing_ok=True)
    elif spool is not None and not _keep_output(spool, b"" if cut else result.output, gate.handed):
        spool = None
    check = CommandCheck(
        command=command,
        exit_code=result.exit_code,
        status=_judge(command, result, output),
        duration_s=result.duration_s,
        output_tail=_cut_tail("\n".join((output, *(f"[{note}]" for note in result.notes)))),
        output_sha256=hashlib.sha256(output.encode("utf-8", "replace")).hexdigest(),
        failures=() if result.exit_code == 0 else find_failures(output),
        handle="" if spool is None or whole else spool.relative_to(gate.sandbox.policy.root).as_posix(),
        ran_tests=ran_tests(output) or names_tests(command),
    )
    return check if check.status is Outcome.PASSED else _add_causes(gate, check, output)


def _keep_output(spool: Path, output: bytes, handed: tuple[str, ...]) -> bool:
    """Keep the full output without the values that were handed out; say whether it is kept.

    Args:
        output: Where it was whole in memory.
    """
    if spool.exists() and not handed:
        return True
    data = spool.read_bytes() if spool.exists() else output
    text = hide_values(data.decode("utf-8", "surrogateescape"), handed)
    return bool(data) and keep_output(spool, text.encode("utf-8", "surrogateescape"))


def _add_causes(gate: _Gate, check: CommandCheck, output: str) -> CommandCheck:
    """Say what the sandbox kept from a command that is not green."""
    failure = Failure(
        command=check.command,
        status=check.status,
        output=output,
        missing=find_missing_program(check),
        timeout_s=gate.limits.timeout_s,
    )
    veil = lift_veil(gate.sandbox)
    return replace(check, causes=find_causes(failure, veil), hindrance=find_hindrance(failure, veil))


def _reserve(gate: _Gate) -> Path | None:
    """Return where a command's output can be kept; None where there is no place. The user may delete the directory."""
    folder = gate.outputs_dir
    return folder / f"gate-{token_hex(4)}.txt" if _ensure_folder(gate.sandbox.policy.root, folder) else None


def _judge(command: str, result: CommandResult, output: str) -> Outcome:
    if result.interrupted:
        return Outcome.INTERRUPTED
    if result.timed_out:
        return Outcome.TIMED_OUT
    if result.exit_code in _MISSING:
        return Outcome.MISSING
    if ran_no_tests(output) or (may_run_nothing(command) and not output.strip()):
        return Outcome.NO_TESTS
    if result.exit_code != 0:
        return Outcome.FAILED
    return Outcome.SWALLOWED if swallows_exit(command) else Outcome.PASSED


def _cut_tail(output: str) -> str:
    """Keep the last lines; of a single endless line its end."""
    if len(output) <= TAIL_CHARS:
        return output
    tail = output[-TAIL_CHARS:]
    return f"…\n{tail.partition(chr(10))[2] or tail}"
