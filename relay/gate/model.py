"""The values of a gate.

A phase is done when its verify commands pass, not when the model says so. A command passes when it exits 0 *and* that
exit code means something: a test runner that found nothing to run, or a shell line that throws the code away, proves
nothing and is not green.
"""

import hashlib
import json
from dataclasses import field
from enum import StrEnum

from relay.base.values import dataclass

_KILLED = frozenset({128 + 9, 128 + 15})
"""POSIX shells: by SIGKILL, as where memory runs out, or SIGTERM."""
_FULL = "No space left on device"


class Outcome(StrEnum):
    """What became of one verify command. Only PASSED is green."""

    PASSED = "passed"
    FAILED = "failed"
    """It exited with something else than 0."""
    MISSING = "missing"
    """The program, or one it starts, is not there or not executable (127, 126)."""
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
    """None when relay killed it or never started it."""
    status: Outcome
    duration_s: float
    output_tail: str
    """The last lines, printable; empty when it said nothing."""
    failures: tuple[str, ...] = ()
    """Names of failed tests and texts of findings that were recognised, sorted, repeats kept."""
    handle: str = ""
    """What the model passes to `read` for the full output; empty when `output_tail` is all of it."""
    output_sha256: str = ""
    """Of what it printed, as far as relay kept it, in UTF-8; empty for one that was never started."""
    causes: tuple[str, ...] = ()
    """A sentence on each thing that the sandbox kept from it and that its output names, with the setting for it."""
    hindrance: str = ""
    """The first of these that says by itself why it is red, whatever the work is; empty when none does."""
    ran_tests: bool = False
    """Whether it runs tests: by what it printed, or by its name where it printed nothing of that."""

    @property
    def was_cut_off(self) -> bool:
        """Whether a signal ended it, or a full disk: that says nothing about what it checked."""
        return self.exit_code in _KILLED or (self.status is Outcome.FAILED and _FULL in self.output_tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """All commands of a gate, in order."""

    commands: tuple[CommandCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether every command passed; true when there is none."""
        return all(check.status is Outcome.PASSED for check in self.commands)

    @property
    def green(self) -> frozenset[str]:
        """The commands that passed."""
        return frozenset(check.command for check in self.commands if check.status is Outcome.PASSED)

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
    """What a gate means for a phase."""

    green: bool
    for_model: str
    """What to repair, with the last output of what failed; empty when green."""
    for_user: str
    """One line per command that is not green, or that all are."""
    excused: tuple[str, ...] = ()
    """A sentence on each command that was red before the phase, still is, and is not blamed on it."""
    is_unproven: bool = False
    """Nothing shows that the phase works: it is green only where the user typed that it may be ticked so."""


def render_baseline(result: GateResult) -> str:
    """Return a gate as a leg's trailer carries it, on one line: command, status and exit code of each."""
    return json.dumps([[check.command, check.status, check.exit_code] for check in result.commands])


def parse_baseline(text: str) -> GateResult | None:
    """Undo `render_baseline`; None when the value is missing or not relay's."""
    try:
        rows = json.loads(text)
        checks = tuple(
            CommandCheck(command=str(command), status=Outcome(status), exit_code=code, duration_s=0.0, output_tail="")
            for command, status, code in rows
        )
    except (ValueError, TypeError):
        return None
    return GateResult(commands=checks)


@dataclass(slots=True)
class GateMemory:
    """The commands that passed last. Mutable: one for a run, and each commit or proposal replaces what it holds."""

    commit: str = ""
    """The commit that they passed for; empty before the first, and for a proposal."""
    proposal: tuple[str, tuple[str, ...]] | None = None
    """The work tree and the files of a commit that waits for its review; None for a commit."""
    ignored: frozenset[str] = frozenset()
    """What git ignores that they could see beside it."""
    checks: dict[str, CommandCheck] = field(default_factory=dict)
    """By command; each is green."""
    knows_hooks: bool = False
    """Whether the commit hooks were run in this run, and none refused."""

    def remember(self, commit: str, ignored: frozenset[str], result: GateResult) -> None:
        """Take a gate whose commit was made on exactly what it saw."""
        self.commit, self.ignored, self.proposal = commit, ignored, None
        self._take(result)

    def propose(self, tree: str, paths: tuple[str, ...], ignored: frozenset[str], result: GateResult) -> None:
        """Take a gate whose commit is going to be made on exactly what it saw, after a review."""
        self.commit, self.ignored, self.proposal = "", ignored, (tree, paths)
        self._take(result)

    def _take(self, result: GateResult) -> None:
        self.checks = {check.command: check for check in result.commands if check.status is Outcome.PASSED}
