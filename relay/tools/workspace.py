"""What every tool of a session works on."""

from collections.abc import Callable
from pathlib import Path

from relay.base.secrecy import NOTHING_NAMED, Hidden
from relay.base.values import dataclass
from relay.sandbox.policy import PROTECTED_NAMES, Limits
from relay.sandbox.run import Sandbox

ALWAYS_PROTECTED = ("**/.git", ".relay", "relay.toml", *(f"**/{name}" for name in PROTECTED_NAMES))
"""Never written by a tool, whatever the caller adds: git's data, relay's own, what steers coding agents."""

OUTPUT_CAP_TOKENS = 10_000
"""A tool result longer than this is cut in the middle and spilled, as Codex does."""


class RefusedError(Exception):
    """A tool does not do what was asked; the message tells the model why and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A repository as a session's tools may use it."""

    root: Path
    """The work tree; absolute and resolved (no symbolic link in it)."""
    sandbox: Sandbox
    """Runs every command, already at the level of the session: read-only for a planner."""
    protected: tuple[str, ...]
    """What tools do not write, beyond `ALWAYS_PROTECTED`: paths relative to the root, each with all that is below it;
    with a leading ``**/`` at any depth. Compared without regard to case and Unicode form."""
    outputs_dir: Path
    """Where long outputs are kept in full; below the root so that the model can read them."""
    should_stop: Callable[[], bool]
    """Polled while a command runs; true kills it."""
    limits: Limits
    """For `bash`; `timeout_s` is the longest that a call may ask for."""
    spills: bool = True
    """Whether what is cut out of a long output is kept in `outputs_dir`."""
    configuration: tuple[str, ...] = ()
    """Files of the work tree that git's configuration includes, present or not; protected too."""
    hidden: Hidden = NOTHING_NAMED
    """What file tools neither show nor replace; the same that the sandbox masks for commands."""

    def render_handle(self, path: Path) -> str:
        """Return what the model passes to `read` to see a file of `outputs_dir`."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)
