"""What a command knows when it asks for a run."""

from collections.abc import Mapping

from relay.config import Settings
from relay.git.repository import Repo
from relay.plan.files import find_ledger_path
from relay.plan.model import Phase
from relay.setup.context import PlanFiles
from relay.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a command knows when it asks for a run."""

    command: str
    """``plan``, ``converge``, ``review`` or ``run``."""
    repo: Repo
    settings: Settings
    plan_path: str
    """Relative to the repository's root."""
    allow_dirty: bool
    environ: Mapping[str, str]
    phases: tuple[Phase, ...] = ()
    """Those that are going to be worked on, as far as is known; each may name its runner."""

    @property
    def runners(self) -> tuple[str, ...]:
        """Who runs them and who reviews, the first one first, each once; without phases who the settings say."""
        wishes = [phase.runner for phase in self.phases] or [""]
        if self.command == "run" and self.settings.review != "off" and self.settings.review_runner:
            wishes.append(self.settings.review_runner)
        return tuple(dict.fromkeys(map(self.settings.runner_for, wishes)))

    @property
    def files(self) -> PlanFiles:
        """The plan and its ledger."""
        return PlanFiles(repo=self.repo, plan_path=self.plan_path, ledger_path=find_ledger_path(self.plan_path))
