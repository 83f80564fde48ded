"""Judge a gate against its baseline. Pure.

What was red before a phase is not the phase's fault, a new red is. But three things are never excused: a command of
the phase itself (it is red before because the work is not done yet), a command that proved nothing then and proves
nothing now (missing, no tests, timed out), and a gate in which nothing shows that the phase works: nothing at all
passes, or the tests are what is excused and nothing else has gone from red to green.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from relay.base.words import list_some, shorten
from relay.gate.model import CommandCheck, GateResult, Outcome, Verdict

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


def compare_gate(
    baseline: GateResult | None, now: GateResult, *, own: Collection[str] | None = None, unchecked: bool = False
) -> Verdict:
    """Say whether the phase may be ticked.

    Args:
        baseline: The same commands before the phase; None when they did not run: then every red counts.
        own: Commands that stand in the phase itself and so must pass; None when all do. Others come from the document
            and may stay red in the same way as in the baseline.
        unchecked: The user typed that a phase may be ticked for which nothing shows that it works.
    """
    before = {check.command: check for check in baseline.commands} if baseline else {}
    red = [check for check in now.commands if check.status is not Outcome.PASSED]
    excused = [
        check
        for check in red
        if own is not None and check.command not in own and _is_same_red(before.get(check.command), check)
    ]
    blocking = [check for check in red if check not in excused]
    unproven = "" if blocking else _find_unproven(baseline, now, excused)
    green = not blocking and (unchecked or not unproven)
    return Verdict(
        green=green,
        for_model="" if green else _tell_model(before, blocking, excused, unproven),
        for_user=_tell_user(now, blocking, excused, unproven),
        excused=tuple(map(_describe_excused, excused)),
        is_unproven=bool(unproven),
    )


def has_turned_green(baseline: GateResult | None, now: GateResult) -> bool:
    """Say whether a command passes that did not before; without a baseline each may be one."""
    return bool(now.green - baseline.green if baseline else now.green)


def _find_unproven(baseline: GateResult | None, now: GateResult, excused: Sequence[CommandCheck]) -> str:
    """Say why nothing shows that the phase works; empty where something does, or nothing is red.

    A linter that was green before and is green now says nothing about tests that are red.
    """
    passed = [check for check in now.commands if check.status is Outcome.PASSED]
    if not excused or any(check.ran_tests for check in passed):
        return ""
    if not passed:
        return "No verify command passes"
    if has_turned_green(baseline, now) or not any(check.ran_tests for check in excused):
        return ""
    return "No verify command that runs tests passes, and none went from red to green"


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
    before: dict[str, CommandCheck],
    blocking: Sequence[CommandCheck],
    excused: Sequence[CommandCheck],
    unproven: str,
) -> str:
    parts = [_describe(before.get(check.command), check) for check in blocking]
    if excused:
        listed = ", ".join(f"`{_short(check)}`" for check in excused)
        parts.append(
            f"{unproven}: {listed} was red before the work and still is, so nothing shows that it works."
            if unproven
            else f"Red before this phase and not yours to repair: {listed}."
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
    now: GateResult, blocking: Sequence[CommandCheck], excused: Sequence[CommandCheck], unproven: str
) -> str:
    if not now.commands:
        return "No verify command: nothing was checked."
    lines = [f"`{_short(check)}` {_say(check)}." for check in blocking]
    lines += [f"{_describe_excused(check)}." for check in excused]
    if unproven:
        lines.append(f"{unproven}, so nothing shows that the phase works: repair one, or give it its own.")
    passed = sum(check.status is Outcome.PASSED for check in now.commands)
    return "\n".join([f"{passed} of {len(now.commands)} verify commands passed.", *lines])


def _describe_excused(check: CommandCheck) -> str:
    return f"`{_short(check)}` was red before the work and still is ({_say(check)})"


def _say(check: CommandCheck) -> str:
    if check.status is Outcome.FAILED:
        pipe = " (a reader in a pipe closed too early)" if check.exit_code == _SIGPIPE else ""
        return f"failed with exit {check.exit_code}{pipe}"
    if check.status is Outcome.TIMED_OUT:
        return f"{WORDS[check.status]}, {check.duration_s:.0f} s"
    return WORDS[check.status]


def _short(check: CommandCheck) -> str:
    return shorten(" ".join(check.command.split()), _SHOWN_COMMAND_CHARS)
