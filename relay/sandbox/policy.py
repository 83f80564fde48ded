"""The rules for commands as values: files, network, limits; and words for the user about what is open."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from relay.base.values import dataclass

MIB = 1024 * 1024

PROTECTED_NAMES = (
    "AGENTS.md",
    "AGENTS.override.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "GEMINI.md",
    ".mcp.json",
    ".claude",
    ".codex",
    ".gemini",
    ".cursor",
    ".agents",
)
"""Files and directories that steer a coding agent in any directory; protected wherever they stand when the sandbox is
opened."""


class Level(StrEnum):
    """How much of the file system a command may write."""

    READ_ONLY = "read-only"
    """Nothing but a private temporary directory."""
    WORKSPACE_WRITE = "workspace-write"
    """The repository without its protected paths, a private temporary directory, `Policy.writable`."""


class Mechanism(StrEnum):
    """Enforces the level; written into the commit trailer."""

    BWRAP = "bwrap"
    CONTAINER = "container"
    """relay confines nothing: the container that it runs in is the wall. Only the user chooses it."""
    OFF = "off"
    """Nothing is confined. Only the user chooses it."""

    @property
    def confines(self) -> bool:
        """Whether relay itself holds commands to the level."""
        return self is Mechanism.BWRAP


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A socket of relay's own that commands reach, whatever else is closed."""

    name: str
    """The socket's file name in relay's directory inside the sandbox."""
    socket: Path
    """The socket on the host, in a directory that only relay writes."""
    port: int | None = None
    """Port of the sandbox's loopback that is forwarded to the socket; None: commands connect to the socket itself."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables by which programs find it."""
    hosts: bool = False
    """Whether it leads to other hosts."""
    description: str = ""
    """A sentence for the user about what commands reach; empty if it leads to relay only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The repository, and the rules for commands in it. Paths are absolute; missing ones are ignored."""

    root: Path
    """Top of the work tree, resolved."""
    seen_at: Path | None = None
    """Where commands see the work tree: at the path of the user's own. None: at its own path."""
    lent: tuple[Path, ...] = ()
    """Directories of the user's own work tree that commands see in this one, each with a layer over it."""
    env: Mapping[str, str] = field(hash=False)
    """relay's own environment. Commands get allow-listed names only, see `toolchains.build_env`."""
    git_dirs: tuple[Path, ...] = ()
    """The git directory and the common directory; visible and never writable."""
    protected: tuple[Path, ...] = ()
    """Visible, never writable: the plan, the ledger, settings, telemetry."""
    writable: tuple[Path, ...] = ()
    """Directories outside the repository that `WORKSPACE_WRITE` may write: configured caches."""
    readable: tuple[Path, ...] = ()
    """Directories that stay visible below a hidden one (home directories, /tmp, /run): toolchains."""
    unreadable: tuple[Path, ...] = ()
    """Hidden files and directories besides the built-in list of credentials, in the repository or elsewhere."""
    apart: tuple[Path, ...] = ()
    """Directories that commands see empty, as home directories, except for paths that are shown in them: the
    repository's other work trees. None of them lies in this one."""
    pass_env: tuple[str, ...] = ()
    """Further names of `env` that commands get. Names that can inject code are never passed."""
    network: bool = False
    """True keeps the host's network; Unix sockets of the host stay closed either way."""
    openings: tuple[Opening, ...] = ()
    """Sockets that relay serves. Unless `network` is True, commands otherwise have only a loopback of their own."""
    for_agent: bool = False
    """Whether a whole agent runs in the sandbox, and not the commands of a session."""
    sockets: tuple[Path, ...] = ()
    """Unix sockets of the host that the user opened, resolved; a missing one may appear later."""

    @property
    def shown_root(self) -> Path:
        """Top of the work tree as commands see it."""
        return self.seen_at or self.root

    @property
    def reaches_hosts(self) -> bool:
        """Whether commands reach any host; otherwise tools are told that they are offline."""
        return self.network or any(opening.hosts for opening in self.openings)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritableCopy:
    """A copy that commands may write, in the place of a protected directory or file."""

    dest: Path
    """The directory or file, resolved."""
    place: Path
    """The copy; only relay and these commands write it."""
    shown: tuple[str, ...] = ()
    """Directories in `dest` that commands see as they are, read-only; `place` has a mount point for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one command. Sizes are per process or per file as the kernel counts them."""

    timeout_s: float
    """Wall time until the whole process tree is killed."""
    keep_bytes: int = MIB
    """Output kept in memory: the first and the last half of it."""
    spool_bytes: int = 64 * MIB
    """Largest spool file; later output is counted and dropped."""
    file_bytes: int = 4096 * MIB
    """Largest file a process may write (RLIMIT_FSIZE)."""
    processes: int = 2048
    """Processes and threads that may exist at once."""


_POWERS = {
    "docker.sock": ": whoever reaches it is root on this machine",
    "podman.sock": ": whoever reaches it can do on this machine what you can",
    "containerd.sock": ": whoever reaches it is root on this machine",
}
_AGENTS = ("agent", "ssh")


def describe_opened(policy: Policy) -> tuple[str, ...]:
    """Return a sentence for each way out of the sandbox that the user opened."""
    said = [opening.description for opening in policy.openings if opening.description]
    if policy.network:
        said = ["commands reach this machine's whole network, the services on its loopback included (network)"]
    for place in policy.sockets:
        is_agent = any(word in place.name for word in _AGENTS)
        power = _POWERS.get(place.name, ": whoever reaches it can sign and log in with your keys" if is_agent else "")
        said.append(f"commands reach the socket {place}{power} (network.sockets)")
    return tuple(said)
