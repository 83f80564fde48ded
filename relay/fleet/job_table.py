"""Who is at work on which phase, who has stopped, and what waits: all that the parent of several runs remembers."""

from collections.abc import Mapping
from dataclasses import field

from relay.base.values import dataclass
from relay.fleet.accounts import JobAccount
from relay.fleet.runs import JobEnd, JobRun


@dataclass(slots=True, kw_only=True)
class Working:
    """A child and what it is for. Mutable: it is heard."""

    child: JobRun
    account: JobAccount
    has_all: bool
    """Whether all that was left of the cap was set aside for it."""

    @property
    def merges(self) -> str:
        """The commit that it lands; empty where it works on the phase."""
        return self.account.merges


@dataclass(slots=True, kw_only=True)
class JobTable:
    """Who is at work and who is not. Mutable: the parent's memory of one run."""

    working: dict[str, Working] = field(default_factory=dict)
    stopped: dict[str, JobEnd] = field(default_factory=dict)
    """Phases that no child goes on with in this run, and how the last one ended."""
    retried: set[str] = field(default_factory=set)
    """Phases whose run did not come to work once, or was killed, and those whose landing git did not prepare."""
    hungry: dict[str, JobEnd] = field(default_factory=dict)
    """Phases that came to the end of their share: they go on once what others leave is enough for the next request."""
    pending: Mapping[str, str] = field(default_factory=dict)
    """Phases that are done on their own branch, have not landed and are not at work, and the commits that they are."""
    foreign: frozenset[str] = frozenset()
    """Phases that a run of somebody else's is at work on, in a job's work tree."""
    said: set[str] = field(default_factory=set)
    is_warm: bool = False
    """Whether a session has been answered: its prefix is in the cache."""
    is_stale: bool = True
    """Whether something has happened since git was asked."""
    told_of: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What was said of each phase last: its state, and the detail."""
    told: int = 0
    """How urgently the children were asked to stop."""

    @property
    def busy(self) -> int:
        """How many places are taken. A landing takes none: where its gates are green, nothing is asked of a model."""
        return sum(not working.merges or working.child.has_asked for working in self.working.values())
