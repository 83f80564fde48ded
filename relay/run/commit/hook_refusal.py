"""What a commit hook's refusal means: the session's to repair, or a person's, and then with which setting."""

import re

from relay.gate.causes import NO_NETWORK
from relay.gate.model import CommandCheck, GateResult, Outcome
from relay.regexes import regex
from relay.run.commit.candidate import Refused
from relay.run.commit.gates import render_gate
from relay.session.events import GateFinished
from relay.store.commit import CommitOutcome
from relay.words import shorten

_SKIP = 'hooks = "skip" in your own settings (RELAY_HOOKS=skip) commits without your hooks'
_LINE_CHARS = 160
_TELLING = regex(r"fail|error|✖|✗|refuse|must|not allowed", re.IGNORECASE)
"""Managers of hooks go on after the one that refused: its line is not the last."""
_MISSING = regex(r"not found|No such file or directory|Permission denied|cannot execute")
_ENDED = regex(r"exited with (\d+)\Z")

_CAUSES = (
    (
        NO_NETWORK,
        "it wants the network, which hooks do not have here",
        "run it once yourself, which fills its cache (git hook run {hook}); ",
    ),
    (
        regex(r"read-only file system|EROFS|attempt to write a readonly database", re.IGNORECASE),
        "it writes where it may only read",
        "writable_dirs in your own settings lets it write there; ",
    ),
    (
        regex(r"^fatal: cannot (?:run|exec) ", re.MULTILINE),  # git, of the hook itself
        "it cannot be started: what its first line names is missing here, hidden, or ends in a carriage return",
        "relay gate --hooks tries it; readable_dirs in your own settings shows it a directory; ",
    ),
    (
        regex(
            r"exited with 12[67]$|^\S*python\S*: No module named|^`pre-commit` not found|^Executable `[^`]+` not found"
            r"|^Can't find lefthook in PATH",
            re.MULTILINE,
        ),
        "a program of it is missing here, or hidden from it",
        "readable_dirs in your own settings shows it a directory, relay sandbox --show lists what is visible; ",
    ),
    (
        regex(r"exited with (?:137|143)$|No space left on device", re.MULTILINE),
        "it was killed, or the disk is full",
        "run this again; ",
    ),
    (
        regex(r"\Athe \S+ hook timed out"),
        "it takes longer than gate_timeout_s",
        "gate_timeout_s gives it more; ",
    ),
)
"""No session can repair these: asked to, it would spend its attempts on a machine that it cannot change."""
_MESSAGE = "commit_subject gives relay's own subjects another form; "


def explain_hook(hook: str, output: str) -> Refused:
    """Return what is told to whom when a hook refused.

    Args:
        output: Its words, behind a line of relay's that says how it ended.
    """
    if found := _find_cause(hook, output):
        cause, line, ways = found
        words = f"the {hook} hook refused, and no session can repair that: {cause}: {line}"
        return Refused(for_user=words, ways=ways)
    lines = output.strip().splitlines() or [""]
    telling = next(filter(_TELLING.search, lines[1:]), lines[-1]).strip()
    ways = _SKIP if hook == "pre-commit" else _MESSAGE + _SKIP
    return Refused(for_user=f"a commit hook refused: {shorten(telling, _LINE_CHARS)}", for_model=output, ways=ways)


def find_hook_causes(hook: str, output: str) -> tuple[str, ...]:
    """Return, of a hook that no session can repair, why and what the user can do about it."""
    found = _find_cause(hook, output)
    return (f"{found[0]}: {found[2]}",) if found else ()


def _find_cause(hook: str, output: str) -> tuple[str, str, str] | None:
    """Return the cause, the line that tells it, and what helps; None where a session may repair it."""
    for pattern, cause, ways in _CAUSES:
        if found := pattern.search(output):
            start = output.rfind("\n", 0, found.start()) + 1
            ended, *said = output[start:].splitlines()
            line = next(filter(_MISSING.search, said), ended) if start == 0 else ended
            return cause, shorten(line.strip(), _LINE_CHARS), ways.format(hook=hook) + _SKIP
    return None


def render_hook_gate(phase_id: str, refused: CommitOutcome) -> GateFinished:
    """Return a hook's refusal as a red gate: its words are on the screen, in the log and in what is kept of a run."""
    check = render_hook(refused.hook, refused.output, duration_s=refused.hook_s)
    return render_gate(phase_id, GateResult(commands=(check,)), passed=False, summary=f"the {check.command} refused")


def render_hook(hook: str, output: str, *, duration_s: float, causes: tuple[str, ...] = ()) -> CommandCheck:
    """Return what became of a hook as what became of a verify command.

    Args:
        output: As for `explain_hook`.
    """
    ended, _, said = output.partition("\n")
    code = _ENDED.search(ended)
    exit_code = int(code[1]) if code else None
    return CommandCheck(
        command=f"{hook} hook",
        exit_code=exit_code,
        status=Outcome.TIMED_OUT if code is None else Outcome.FAILED if exit_code else Outcome.PASSED,
        duration_s=duration_s,
        output_tail=said,
        causes=causes,
    )
