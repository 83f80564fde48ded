"""The machine of a fleet's worker: its clones, and what it needs for any phase."""

import fcntl
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from relay.base.interrupts import Interrupts
from relay.base.values import dataclass
from relay.fleet.queue import AwayError, Queue
from relay.fleet.takes import BusyError, Ticket
from relay.git.clones import CloneSource, ensure_work_tree
from relay.git.remote import Remote
from relay.git.repository import Repo
from relay.session.events import Noticed, Observe, TransferShown

AnswerT = TypeVar("AnswerT")
HEARING_S = 0.5
"""How often a worker that waits for something looks whether it is there, or whether it is to stop."""
AS_REMOTE = "relay fleet: as the remote is"
"""The reflog's reason where relay moved a clone's branch to the remote's tip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """A worker's machine: what it needs for any phase."""

    queue: Queue
    place: Path
    """The folder of its clones."""
    environ: Mapping[str, str]
    """The environment of its runs."""
    observe: Observe
    interrupts: Interrupts
    push_s: float = 60.0
    """How often what a phase has so far is pushed; its sessions' ends are pushed at once."""
    look_s: float = 20.0
    """How often it looks whether a remote that is away is back."""
    compare_s: float = 60.0
    """How often an idle worker compares plans with the queue."""

    def say(self, text: str, *, warning: bool = False) -> None:
        """Tell the person who looks at the worker."""
        self.observe(Noticed(text=text, warning=warning))

    def ask(self, question: Callable[[], AnswerT]) -> AnswerT:
        """Ask the queue until it answers.

        Raises:
            BusyError: The worker is asked to stop while the database is away.
        """
        while True:
            try:
                return question()
            except AwayError:
                if self.interrupts.wait(HEARING_S):
                    words = "stopped while the database was away; what there is is in the clone"
                    raise BusyError(words) from None

    def ensure_clone(self, ticket: Ticket) -> Repo:
        """Return a work tree on a ticket's branch; finish a clone that a killed worker began."""
        digest = hashlib.sha256(f"{ticket.remote}\0{ticket.branch}".encode()).hexdigest()[:16]
        source = CloneSource(remote=ticket.remote, ref=f"refs/heads/{ticket.branch}", reason=AS_REMOTE)
        self.place.mkdir(parents=True, exist_ok=True)
        with (self.place / f"{digest}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another worker of this place may be making it
            return ensure_work_tree(self.place / digest, source, ticket.branch, self.environ, self.say)

    def get_remote(self, repo: Repo, ticket: Ticket) -> Remote:
        """Return the remote of a ticket's plan."""
        return Remote(
            repo=repo,
            name=ticket.remote,
            environ=self.environ,
            tell=self.say,
            show=lambda text: self.observe(TransferShown(line=text)),
        )
