"""What commands may read, write and reach, as values; and what is open, in words for the user."""

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
"""Names that steer a coding agent wherever they stand; files or directories."""


class Level(StrEnum):
    """How much of the file system a command may write."""

    READ_ONLY = "read-only"
    """Nothing but a private temporary directory."""
    WORKSPACE_WRITE = "workspace-write"
    """The repository without its protected paths, a private temporary directory, `Policy.writable`."""
    OFF = "off"
    """Everything the user may. Only ever chosen by the user."""


class Mechanism(StrEnum):
    """What enforces the level; written into the commit trailer."""

    BWRAP = "bwrap"
    CONTAINER = "container"
    """Nothing of relay's: the container that relay runs in is the wall. Only ever chosen by the user."""
    OFF = "off"
    """Nothing. Only ever chosen by the user."""

    @property
    def confines(self) -> bool:
        """Whether relay itself holds commands to the level."""
        return self is Mechanism.BWRAP


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A socket of relay's own that commands reach, whatever else is closed."""

    name: str
    """Of the socket below the sandbox's own directory; a plain file name."""
    socket: Path
    """On the host, in a directory that only relay writes."""
    port: int | None = None
    """Of the sandbox's loopback, from where connections are carried to it; None: commands speak to the socket."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables that tell programs of it."""
    hosts: bool = False
    """Whether hosts elsewhere are reached through it."""
    opens: str = ""
    """A sentence for the user on what it leads to; empty for what is relay's own affair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The repository and what commands in it may touch. Paths are absolute; what does not exist is ignored."""

    root: Path
    """Top of the work tree, resolved."""
    env: Mapping[str, str] = field(hash=False)
    """relay's own environment. Commands get allow-listed names of it only, see `environment`."""
    git_dirs: tuple[Path, ...] = ()
    """The git directory and the common directory; visible and never writable."""
    protected: tuple[Path, ...] = ()
    """Visible, never writable: the plan, the ledger, settings, telemetry."""
    protected_names: tuple[str, ...] = PROTECTED_NAMES
    """File names protected wherever they stand in the repository when the sandbox is opened."""
    writable: tuple[Path, ...] = ()
    """Directories outside the repository that `WORKSPACE_WRITE` may write: configured caches."""
    readable: tuple[Path, ...] = ()
    """Directories below a hidden one (home directories, /tmp, /run) that stay visible: toolchains."""
    unreadable: tuple[Path, ...] = ()
    """Files and directories hidden in addition to the built-in credentials list, inside the repository or not."""
    apart: tuple[Path, ...] = ()
    """Directories that commands see as empty but for what else is shown there, as they see home directories: the
    repository's other work trees. None lies in this one."""
    pass_env: tuple[str, ...] = ()
    """More names of `env` that commands get. Names that can inject code are never passed."""
    writable_links: bool = False
    """True lets commands write files that have another name outside of the repository, see `relay.sandbox.links`."""
    network: bool = False
    """True keeps the host's network; Unix sockets of the host stay closed either way."""
    doors: tuple[Door, ...] = ()
    """What relay holds open; commands have a network of their own besides, unless `network`."""
    for_agent: bool = False
    """Whether a whole agent runs in it, not the commands of a session."""
    sockets: tuple[Path, ...] = ()
    """Unix sockets of the host that the user opened, resolved; what does not exist yet may come later."""

    @property
    def reaches_hosts(self) -> bool:
        """Whether any host is in reach: else tools are told that they are offline."""
        return self.network or any(door.hosts for door in self.doors)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """What commands see in the place of the repository."""

    place: Path
    """A directory that only relay and these commands write."""
    shown: tuple[str, ...]
    """Paths of the repository that are shown there all the same; `place` has a mount point for each."""
    covered: tuple[tuple[str, Path], ...] = ()
    """Directories right below what is shown, each with an empty one that commands see and write there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """A copy that commands may write in the place of a directory or file which is not theirs to write."""

    dest: Path
    """The directory or file, resolved."""
    place: Path
    """The copy; only relay and these commands write it."""
    shown: tuple[str, ...]
    """Names of directories in `dest` that are shown as they are, read-only; `place` has a mount point for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one command. Sizes are per process or per file as the kernel counts them."""

    timeout_s: float
    """Wall time until the whole process tree is killed."""
    keep_bytes: int = MIB
    """Output kept in memory: the first and the last half of it."""
    spool_bytes: int = 64 * MIB
    """Most that is written to the spool file; later output is counted and dropped."""
    file_bytes: int = 4096 * MIB
    """Largest file a process may write (RLIMIT_FSIZE)."""
    processes: int = 2048
    """Processes and threads that may exist at once."""
    memory_bytes: int | None = None
    """Memory that the whole process tree may hold at once, see `relay.sandbox.memory`; None for no limit."""


_POWERS = {
    "docker.sock": "whoever reaches it is root on this machine",
    "podman.sock": "whoever reaches it can do on this machine what you can",
    "containerd.sock": "whoever reaches it is root on this machine",
}
_AGENTS = ("agent", "ssh")


def describe_opened(policy: Policy) -> tuple[str, ...]:
    """Return a sentence for each thing that leads out of the sandbox because the user said so."""
    sockets = tuple(_describe_socket(place) for place in policy.sockets)
    if policy.network:
        whole = "commands reach this machine's whole network, the services on its loopback included (network)"
        return (whole, *sockets)
    return (*(door.opens for door in policy.doors if door.opens), *sockets)


def _describe_socket(place: Path) -> str:
    power = _POWERS.get(place.name, "")
    if not power and any(word in place.name for word in _AGENTS):
        power = "whoever reaches it can sign and log in with your keys"
    return f"commands reach the socket {place}{': ' if power else ''}{power} (sockets)"
