"""Describes what commands of a sandbox see of the machine, and what is kept from them.

`take_inventory` reads mounts, variables and ways out off a real launch, for `relay doctor --sandbox`.
`find_restrictions` answers why a failed command did not find something that is on this machine.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from pathlib import Path

from relay.base.secrecy import is_secret_name
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.sandbox.bwrap import Bwrap
from relay.sandbox.places import find_home_directory, find_real, is_below, is_socket, is_there
from relay.sandbox.policy import describe_opened
from relay.sandbox.run import Sandbox
from relay.sandbox.toolchains import FIXED, NEVER, build_env
from relay.sandbox.view import DEV_NULL, Op

_SHELLS_OWN = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
"""Variables that every shell sets anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The files, variables and ways out of a sandbox's commands. Paths are absolute and sorted."""

    mechanism: str
    level: str
    writable: tuple[str, ...] = ()
    """Writable with all that is below, except `protected` and `masked`."""
    lost: tuple[str, ...] = ()
    """Writable in a layer of memory that ends with the command: tools' caches."""
    tmp: str = ""
    """The private temporary directory, as commands see it."""
    home: str = ""
    """An empty home directory, new for every command; the user's own without a sandbox."""
    protected: tuple[str, ...] = ()
    """Read-only below a writable directory."""
    hidden: tuple[str, ...] = ()
    """Directories that are empty except for `shown` and `writable` paths below them."""
    shown: tuple[str, ...] = ()
    """Read-only below a hidden directory: toolchains."""
    masked: tuple[str, ...] = ()
    """Files and directories of credentials, which cannot be read."""
    sockets: tuple[str, ...] = ()
    """Unix sockets of the host that cannot be reached."""
    passed: tuple[str, ...] = ()
    """Variables that commands get, from relay's own environment or made for the sandbox."""
    dropped: tuple[str, ...] = ()
    """Variables of relay's environment that commands do not get, and that the setting `env` lets through."""
    refused: tuple[str, ...] = ()
    """Variables that no setting lets through: they run code, redirect git or are keys."""
    opened: tuple[str, ...] = ()
    """Sentences about ways out of the sandbox."""
    gaps: tuple[str, ...] = ()
    """Sentences about what this machine cannot protect, or list."""


def take_inventory(sandbox: Sandbox) -> Inventory:
    """Return the inventory of a command that begins now.

    Raises:
        SandboxError: No command can begin.
    """
    policy = sandbox.policy
    launch = sandbox.build_launch((os.devnull,), cwd=policy.root)
    launch.close()
    absent = [name for name in policy.env if name not in launch.env and name not in _SHELLS_OWN]
    found = Inventory(
        mechanism=sandbox.mechanism,
        level=sandbox.level,
        tmp=str(sandbox.tmp),
        home=launch.env["HOME"],
        passed=tuple(sorted(launch.env)),
        dropped=tuple(sorted(name for name in absent if not NEVER.fullmatch(name))),
        refused=tuple(sorted(name for name in absent if NEVER.fullmatch(name))),
        opened=describe_opened(policy),
        gaps=sandbox.gaps,
    )
    if sandbox.bwrap is None:
        return replace(found, gaps=(*found.gaps, f"{sandbox.mechanism} has no mounts that could be listed"))
    return _list_places(found, sandbox.bwrap, policy.root, sandbox.private.path)


def _list_places(found: Inventory, bwrap: Bwrap, root: Path, private: Path) -> Inventory:
    view = bwrap.view
    emptied = {mount.dest for mount in view.fixed if mount.op is Op.EMPTY}
    own = {view.tmp, *(place for place in (Path("/dev"), Path("/proc"), view.own))}
    last = {mount.dest: mount for mount in bwrap.list_mounts() if mount.op is not Op.FREEZE}
    mine = {place: mount for place, mount in last.items() if not is_below(place, own)}
    closed = {place for place, mount in mine.items() if mount.source == DEV_NULL}
    masked = {place for place, mount in mine.items() if mount.op is Op.EMPTY} - emptied
    writable = [place for place, mount in mine.items() if mount.op is Op.WRITE and mount.source == place]
    # Without relay's own files for commands: a configuration without name servers, an identity for git.
    read = {p for p, mount in mine.items() if mount.op is Op.READ and not is_below(mount.source or p, (private,))}
    read -= closed
    protected = {place for place in read if is_below(place, (*writable, root))}
    outer = {place for place in protected if not is_below(place, protected - {place})}
    return replace(
        found,
        writable=_write(place for place in writable if not is_below(place, set(writable) - {place})),
        lost=_write(place for place, mount in mine.items() if mount.op is Op.WRITE and mount.source != place),
        protected=_write(outer),
        hidden=_write(emptied & mine.keys()),
        shown=_write(read - protected),
        masked=_write(masked | {place for place in closed if not is_socket(str(place))}),
        sockets=_write(place for place in closed if is_socket(str(place))),
    )


def _write(places: Iterable[Path]) -> tuple[str, ...]:
    return tuple(sorted(map(str, places)))


_ENVIRONMENTS = (".venv/bin", "venv/bin", "node_modules/.bin", "vendor/bin")
_ASSIGNED = re.compile(rb"^(?:export )?([A-Za-z_][A-Za-z0-9_]{2,})=", re.MULTILINE)
_MAX_FILE_BYTES = 64 * 1024
_LISTENING = "0A"
"""State of a socket in /proc/net/tcp. Source: include/net/tcp_states.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """The files, programs, variables and hosts that commands cannot use. Every answer is looked up on request."""

    root: Path
    home: Path | None
    network: bool
    """Whether commands reach any host."""
    dropped: frozenset[str]
    """Variables of relay's environment that commands do not get."""
    refused: frozenset[str]
    """The `dropped` variables that no setting lets through."""
    is_covered: Callable[[Path], bool] = field(hash=False)
    """Whether commands cannot see an existing path of this machine."""
    path: str
    """The search path for programs."""

    def find_hidden(self, place: str) -> str:
        """Return a path or its real path if commands cannot see it; empty if they can."""
        path = Path(self.root, place.replace("~", str(self.home or "~"), 1) if place.startswith("~/") else place)
        path = Path(os.path.normpath(path))
        if not is_there(path):
            return ""
        return next((str(one) for one in (path, find_real(path)) if self.is_covered(one)), "")

    def is_socket(self, place: str) -> bool:
        """Return whether a path is a Unix socket of this machine."""
        return place.startswith("/") and is_socket(place)

    def is_masked(self, path: str) -> bool:
        """Return whether a path is an existing file of the repository that is masked as a secret."""
        real = os.path.normpath(Path(self.root, path))
        inside = Path(real).is_relative_to(self.root) and is_secret_name(os.path.basename(real))  # noqa: PTH119
        return inside and Path(real).is_file()

    def find_listener(self, port: int) -> bool:
        """Return whether a service of this machine listens on a TCP port."""
        wanted = f":{port:04X}"
        for table in ("tcp", "tcp6"):
            try:
                lines = Path("/proc/net", table).read_text().splitlines()[1:]
            except OSError:
                continue
            if any(f[1].endswith(wanted) and f[3] == _LISTENING for f in map(str.split, lines)):
                return True
        return False

    def find_program(self, name: str) -> str:
        """Return the path of a program that commands do not find, relative inside the repository; empty if none."""
        for place in _ENVIRONMENTS:
            if os.access(self.root / place / name, os.X_OK):
                return f"{place}/{name}"
        return shutil.which(name, path=self.path) or ""

    def find_masked_names(self) -> frozenset[str]:
        """Return the names of the variables in the repository's ``.env``, without their secret values."""
        try:
            data = read_start(self.root / ".env", _MAX_FILE_BYTES) or b""
        except OSError:
            return frozenset()
        return frozenset(name.decode() for name in _ASSIGNED.findall(data))


def find_restrictions(sandbox: Sandbox) -> Restrictions | None:
    """Return the restrictions of a sandbox; None without bubblewrap."""
    if sandbox.bwrap is None:
        return None
    policy = sandbox.policy
    given = build_env(policy, home=policy.root, tmp=sandbox.tmp)
    dropped = frozenset(policy.env) - given.keys() - FIXED.keys()
    mounts = [mount for mount in sandbox.bwrap.list_mounts() if mount.op is not Op.FREEZE]

    def is_covered(place: Path) -> bool:
        covering = [mount for mount in mounts if place.is_relative_to(mount.dest)]
        if covering and covering[-1].dest == sandbox.tmp:  # a directory of relay's own stands there
            return not is_there(sandbox.private.tmp / place.relative_to(sandbox.tmp))
        return bool(covering) and (covering[-1].op is Op.EMPTY or covering[-1].source == DEV_NULL)

    return Restrictions(
        root=policy.shown_root,
        home=find_home_directory(policy.env),
        network=policy.reaches_hosts,
        dropped=dropped,
        refused=frozenset(name for name in dropped if NEVER.fullmatch(name)),
        is_covered=is_covered,
        path=policy.env.get("PATH", ""),
    )
