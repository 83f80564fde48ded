"""What relay keeps for the branch under refs/relay/, as far as it decides where a plan stands."""

from typing import TYPE_CHECKING

from relay.base.values import dataclass

if TYPE_CHECKING:
    from relay.git.message import CommitText
    from relay.store.history import RelayCommit
    from relay.store.legs import OpenLeg


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What relay keeps for the branch, and what a killed run left to be done."""

    leg: "OpenLeg | None" = None
    """The open leg of the plan that is asked about, or of whichever plan when its commit is on the branch."""
    foreign: "OpenLeg | None" = None
    """The open leg of another plan, whose commit is not on the branch."""
    leg_commit: "RelayCommit | None" = None
    """The commit of `leg`, when it is on the branch: only what follows a commit is missing."""
    move: "CommitText | None" = None
    """A revert of this plan's, or what others have made, that the files do not follow yet; they are at its parent."""
    unfinished: "CommitText | RelayCommit | None" = None
    """The commit from which a run updates the plan's file before it reads the file."""
