"""Judge a gate against its baseline. Pure.

What was red before a phase is not the phase's fault, a new red is. But three things are never excused: a command of
the phase itself (it is red before because the work is not done yet), a command that proved nothing then and proves
nothing now (missing, no tests, timed out), and a gate in which nothing at all passes: then nothing shows that the
phase works.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from relay.gate.model import CommandCheck, GateResult, Outcome, Verdict
from relay.words import list_some, shorten

_SHOWN_FAILURES = 20
_SHOWN_COMMAND_CHARS = 200

WORDS: Mapping[str, str] = {
    Outcome.PASSED: "passed",
    Outcome.MISSING: "did not run: a program is missing or not executable",
    Outcome.NO_TESTS: "ran no tests",
    Outcome.SWALLOWED: "throws its exit code away, so it proves nothing",
    Outcome.TIMED_OUT: "was killed at its time limit",
    Outcome.INTERRUPTED: "was interrupted",
}
"""What became of a command, by its outcome; one that failed has its exit code besides."""
_SIGPIPE = 141


def compare_gate(baseline: GateResult | None, now: GateResult, *, own: Collection[str] | None = None) -> Verdict:
    """Say whether the phase may be ticked.

    Args:
        baseline: The same commands before the phase; None when they did not run: then every red counts.
        own: Commands that stand in the phase itself and so must pass; None when all do. Others come from the document
            and may stay red in the same way as in the baseline.
    """
    before = {check.command: check for check in baseline.commands} if baseline else {}
    red = [check for check in now.commands if check.status is not Outcome.PASSED]
    excused = [
        check
        for check in red
        if own is not None and check.command not in own and _is_same_red(before.get(check.command), check)
    ]
    blocking = [check for check in red if check not in excused]
    unproven = bool(excused) and not blocking and len(excused) == len(now.commands)
    green = not blocking and not unproven
    return Verdict(
        green=green,
        for_model="" if green else _tell_model(before, blocking, excused),
        for_user=_tell_user(now, blocking, excused, unproven=unproven),
    )


def _is_same_red(before: CommandCheck | None, now: CommandCheck) -> bool:
    """Say whether a command fails as it did: same exit code and no failure that was not there."""
    if before is None or before.status is not Outcome.FAILED or now.status is not Outcome.FAILED:
        return False
    if before.exit_code != now.exit_code or bool(before.failures) != bool(now.failures):
        return False
    return not _find_new(before, now)


def _find_new(before: CommandCheck | None, now: CommandCheck) -> list[str]:
    return sorted((Counter(now.failures) - Counter(before.failures if before else ())).elements())


def _tell_model(
    before: dict[str, CommandCheck], blocking: Sequence[CommandCheck], excused: Sequence[CommandCheck]
) -> str:
    parts = [_describe(before.get(check.command), check) for check in blocking]
    if excused:
        listed = ", ".join(f"`{_short(check)}`" for check in excused)
        parts.append(
            f"Red before this phase and not yours to repair: {listed}."
            if blocking
            else f"Nothing passes: {listed} was red before this phase and still is, so nothing shows that it works."
        )
    return "\n\n".join(parts)


def _describe(before: CommandCheck | None, check: CommandCheck) -> str:
    lines = [f"`{check.command}` {_say(check)}."]
    new = _find_new(before, check)
    if before is not None and before.failures and new:
        lines.append(f"New since the phase began: {list_some(new, _SHOWN_FAILURES)}.")
    if check.handle:
        lines.append(f"Full output: {check.handle} (use read). Its end:")
    causes = [f"Only the user can change this: {'; '.join(check.causes)}."] if check.causes else []
    return "\n".join([*lines, check.output_tail or "(no output)", *causes])


def _tell_user(
    now: GateResult, blocking: Sequence[CommandCheck], excused: Sequence[CommandCheck], *, unproven: bool
) -> str:
    if not now.commands:
        return "No verify command: nothing was checked."
    lines = [f"`{_short(check)}` {_say(check)}" for check in blocking]
    lines += [f"`{_short(check)}` was red before this phase and still is ({_say(check)})" for check in excused]
    if unproven:
        lines.append("No verify command passes, so nothing shows that the phase works: repair one, or give it its own.")
    passed = sum(check.status is Outcome.PASSED for check in now.commands)
    return "\n".join([f"{passed} of {len(now.commands)} verify commands passed.", *lines])


def _say(check: CommandCheck) -> str:
    if check.status is Outcome.FAILED:
        pipe = " (a reader in a pipe closed too early)" if check.exit_code == _SIGPIPE else ""
        return f"failed with exit {check.exit_code}{pipe}"
    if check.status is Outcome.TIMED_OUT:
        return f"{WORDS[check.status]}, {check.duration_s:.0f} s"
    return WORDS[check.status]


def _short(check: CommandCheck) -> str:
    return shorten(" ".join(check.command.split()), _SHOWN_COMMAND_CHARS)
