"""What has passed just now, so that the next phase's baseline need not run it again. Held in memory only."""

from dataclasses import dataclass, field

from relay.gate.model import CommandCheck, GateResult, Outcome


@dataclass(slots=True)
class GateMemory:
    """The commands that passed for the last commit. Mutable: one for a run, and each commit replaces what it holds."""

    commit: str = ""
    """The commit that they passed for; empty before the first."""
    ignored: frozenset[str] = frozenset()
    """What git ignores that they could see beside it."""
    checks: dict[str, CommandCheck] = field(default_factory=dict)
    """By command; each is green."""

    def remember(self, commit: str, ignored: frozenset[str], result: GateResult) -> None:
        """Take a gate whose commit was made on exactly what it saw."""
        self.commit, self.ignored = commit, ignored
        self.checks = {check.command: check for check in result.commands if check.status is Outcome.PASSED}
