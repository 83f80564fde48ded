"""The values of a gate, and the verdict on it against its baseline. Pure.

A phase is done when its verify commands pass, not when the model says so. A command passes when it exits 0 *and* that
exit code means something: a test runner that found nothing to run, or a shell line that discards the code, proves
nothing and is not green.

A command that was red before a phase is not the phase's fault; a new red is. Three things are never excused: a command
of the phase itself (it is red before because the work is not done yet); a command that proved nothing then and proves
nothing now (missing, no tests, timed out); and a gate in which nothing shows that the phase works. The last means that
nothing passes, or that the excused commands are the tests and no other command turned from red to green.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import PurePosixPath

from msgspec import convert

from relay.base.values import dataclass
from relay.base.words import count, list_some, shorten
from relay.session.events import LeftFile

_KILLED = frozenset({128 + 9, 128 + 15})
"""Exit codes of POSIX shells for SIGKILL, as where memory runs out, and SIGTERM."""
_FULL = "No space left on device"


class Outcome(StrEnum):
    """The result of one verify command. Only PASSED is green."""

    PASSED = "passed"
    FAILED = "failed"
    """The exit code is not 0."""
    MISSING = "missing"
    """The program, or one it starts, is missing or not executable (127, 126)."""
    NO_TESTS = "no tests"
    """A test runner found or ran nothing."""
    SWALLOWED = "exit code thrown away"
    """It exited 0, but its last part (``|| true``) always does."""
    TIMED_OUT = "timed out"
    INTERRUPTED = "interrupted"
    """Killed, or never started, because the run is being stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCheck:
    """One verify command that ran."""

    command: str
    exit_code: int | None
    """None if relay killed it or never started it."""
    status: Outcome
    duration_s: float
    output_tail: str
    """The last lines, printable; empty if it printed nothing."""
    failures: tuple[str, ...] = ()
    """Names of failed tests and texts of findings that were recognised, sorted, repeats kept."""
    handle: str = ""
    """What the model passes to `read` for the full output; empty if `output_tail` is all of it."""
    output_sha256: str = ""
    """Digest of its output, as far as relay kept it, in UTF-8; empty for a command that was never started."""
    causes: tuple[str, ...] = ()
    """One sentence per file, service or program that the sandbox hides and its output names, with the setting that
    opens it."""
    hindrance: str = ""
    """The first of these that alone explains why it is red, whatever the work is; empty without one."""
    ran_tests: bool = False
    """Whether it runs tests: by its output, or by its name if the output does not say so."""

    @property
    def passed(self) -> bool:
        return self.status is Outcome.PASSED

    @property
    def failed(self) -> bool:
        """Whether it ran to its end and says that the work is wrong."""
        return self.status is Outcome.FAILED and not self.was_cut_off

    @property
    def was_cut_off(self) -> bool:
        """Whether a signal ended it, or a full disk: that says nothing about the checked work."""
        return self.exit_code in _KILLED or (self.status is Outcome.FAILED and _FULL in self.output_tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """All commands of a gate, in order."""

    commands: tuple[CommandCheck, ...]
    evidence: tuple[LeftFile, ...] = ()
    """The files that these commands left, as far as they ran now."""

    @property
    def passed(self) -> bool:
        """Whether every command passed; true without any."""
        return all(check.passed for check in self.commands)

    @property
    def green(self) -> frozenset[str]:
        return frozenset(check.command for check in self.commands if check.passed)

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the UTF-8 JSON text ``[["<command>",<exit code or null>],…]`` without white space.

        It stands in the commit's trailer; anyone who runs the same commands can compute it.
        """
        pairs = [[check.command, check.exit_code] for check in self.commands]
        text = json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The meaning of a gate for a phase."""

    green: bool
    for_model: str
    """What to repair, with the last output of the failed commands; empty if green."""
    for_user: str
    """One line per command that is not green, or one line if all are."""
    excused: tuple[str, ...] = ()
    """One sentence per command that was red before the phase, still is, and is not blamed on it."""
    is_unproven: bool = False
    """Nothing shows that the phase works: it is green only if the user typed that it may be ticked so."""


def render_baseline(result: GateResult) -> str:
    """Return a gate as one line for an attempt's trailer: command, status and exit code of each."""
    return json.dumps([[check.command, check.status, check.exit_code] for check in result.commands])


def parse_baseline(text: str) -> GateResult | None:
    """Undo `render_baseline`; None if the value is missing or not relay's."""
    try:
        rows = convert(json.loads(text), tuple[tuple[str, Outcome, int | None], ...])
    except (ValueError, RecursionError):
        return None
    checks = (
        CommandCheck(command=command, status=status, exit_code=code, duration_s=0.0, output_tail="")
        for command, status, code in rows
    )
    return GateResult(commands=tuple(checks))


@dataclass(slots=True)
class GateMemory:
    """The commands that passed. Mutable: one for a run."""

    passed: dict[str, dict[str, CommandCheck]] = field(default_factory=dict)
    """By what stands for the files that they saw, and by command."""
    knows_hooks: bool = False
    """Whether the commit hooks ran in this run, and none refused."""
    red_on: dict[str, object] = field(default_factory=dict)
    """What stands for the files for which a command was red last, by command."""
    flaky: dict[str, list[CommandCheck]] = field(default_factory=dict)
    """By phase: the red results of commands that were green on the same files at another time."""

    def remember(self, content: str, result: GateResult) -> None:
        """Store the commands of a gate that passed on these files."""
        green = {check.command: check for check in result.commands if check.status is Outcome.PASSED}
        self.passed.setdefault(content, {}).update(green)

    def forget(self) -> None:
        """Forget what commands did: what they may see beside a commit's files has changed."""
        self.passed.clear()
        self.red_on.clear()

    def recall(self, content: str, commands: Collection[str]) -> dict[str, CommandCheck]:
        """Return the results of the commands that have passed on these files."""
        found = self.passed.get(content, {})
        return {command: found[command] for command in commands if command in found}


MOST_FLAKY = 3
"""So often a command may be red and green on the same files before its phase stops."""


def find_flaky(found: Sequence[CommandCheck], *, least: int = 1) -> tuple[str, ...]:
    """Return a sentence for each command that was red and green on the same files, at least so many times."""
    red = defaultdict[str, list[CommandCheck]](list)
    for check in found:
        red[check.command].append(check)
    said = []
    for command, checks in red.items():
        names = list_some(sorted({name for check in checks for name in check.failures}), _SHOWN_FAILURES)
        times = f"red and green on the same files, {count(len(checks), 'time')}{f' ({names})' if names else ''}"
        said += [f"`{shorten(command, _SHOWN_COMMAND_CHARS)}` is flaky: {times}"] if len(checks) >= least else []
    return tuple(said)


def find_unexplained(
    baseline: GateResult | None, now: GateResult, changed: Collection[str], *, known_red: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the commands that failed although nothing explains it: they may be flaky.

    Such a command was green before the phase, and its output names nothing that changed; or it was red on the same
    files before, and the session that was asked to repair it changed nothing.

    Args:
        changed: The paths of the commit.
        known_red: Commands that were red on these very files.
    """
    names = {
        name for path in map(PurePosixPath, changed) for name in (path.name, path.stem) if len(name) >= _LEAST_NAME
    }
    before = baseline.green if baseline else frozenset[str]()
    return tuple(
        check.command
        for check in now.commands
        if check.failed
        and (
            check.command in known_red
            or (check.command in before and not any(name in check.output_tail for name in names))
        )
    )


_LEAST_NAME = 3
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
"""Words for each outcome but FAILED, whose words name the exit code."""
_SIGPIPE = 141


def compare_gate(
    baseline: GateResult | None, now: GateResult, *, own: Collection[str] | None = None, unchecked: bool = False
) -> Verdict:
    """Return whether the phase may be ticked, with the reasons.

    Args:
        baseline: The same commands before the phase; None if they did not run: then every red counts.
        own: Commands of the phase itself, which must pass; None if all must. Others come from the document and may stay
            red in the same way as in the baseline.
        unchecked: The user typed that a phase may be ticked although nothing shows that it works.
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
    """Return whether a command passes that did not before; without a baseline each may be one."""
    return bool(now.green - baseline.green if baseline else now.green)


def _find_unproven(baseline: GateResult | None, now: GateResult, excused: Sequence[CommandCheck]) -> str:
    """Return why nothing shows that the phase works; empty if something does, or nothing is red.

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
    """Return whether a command fails as before: same exit code and no new failure."""
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
