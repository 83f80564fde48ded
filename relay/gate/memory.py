"""What has passed just now on the same files, so that it need not run again. Held in memory only."""

from dataclasses import dataclass, field

from relay.gate.model import CommandCheck, GateResult, Outcome


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
