"""What a command sees of the machine, read off what it is really given: mounts, variables, ways out."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from relay.base.values import dataclass
from relay.sandbox.bwrap import Bwrap
from relay.sandbox.places import is_below, is_socket
from relay.sandbox.policy import describe_opened
from relay.sandbox.run import Sandbox
from relay.sandbox.toolchains import NEVER
from relay.sandbox.view import DEV_NULL, Mount, Op

_SHELLS_OWN = frozenset({"_", "OLDPWD", "PWD", "SHLVL"})
"""Every shell sets them anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What commands of one sandbox have. Places are absolute and sorted."""

    mechanism: str
    level: str
    writable: tuple[str, ...] = ()
    """With all that is below, but for `protected` and `masked`."""
    lost: tuple[str, ...] = ()
    """Writable in a layer of memory that goes with the command: tools' caches."""
    tmp: str = ""
    """The private temporary directory, as commands see it."""
    home: str = ""
    """An empty home directory, new for every command; may be the private directory's where nothing can be mounted."""
    protected: tuple[str, ...] = ()
    """Below a writable place, and only read."""
    hidden: tuple[str, ...] = ()
    """Directories that are empty, but for what `shown` and `writable` name below them."""
    shown: tuple[str, ...] = ()
    """Below a hidden one, and only read: toolchains."""
    masked: tuple[str, ...] = ()
    """Files and directories of credentials, that cannot be read."""
    sockets: tuple[str, ...] = ()
    """Unix sockets of the host that cannot be reached."""
    passed: tuple[str, ...] = ()
    """Variables that come from relay's own environment, or have a value made for the sandbox."""
    dropped: tuple[str, ...] = ()
    """Variables of relay's environment that commands do not get, and can be let through by the setting `env`."""
    refused: tuple[str, ...] = ()
    """Those that no setting lets through: they run code, redirect git or are keys."""
    opened: tuple[str, ...] = ()
    """Sentences on what leads out; empty: nothing does."""
    gaps: tuple[str, ...] = ()
    """Sentences on what this machine cannot protect, or list."""


def take_inventory(sandbox: Sandbox) -> Inventory:
    """Return what a command that began now would have.

    Raises:
        SandboxError: It could not begin.
    """
    confinement, policy = sandbox.confinement, sandbox.policy
    launch = confinement.build_launch((os.devnull,), cwd=policy.root, extra_env={})
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
    if not isinstance(confinement, Bwrap):
        return replace(found, gaps=(*found.gaps, f"{sandbox.mechanism} has no mounts that could be listed"))
    return _list_places(found, confinement, policy.root)


def _list_places(found: Inventory, confinement: Bwrap, root: Path) -> Inventory:
    view = confinement.view
    emptied = {mount.dest for mount in view.fixed if mount.op is Op.EMPTY}
    own = {view.tmp, *(place for place in (Path("/dev"), Path("/proc"), view.own))}
    last = {mount.dest: mount for mount in confinement.list_mounts() if mount.op is not Op.FREEZE}
    mine = {place: mount for place, mount in last.items() if not is_below(place, own)}
    closed = {place for place, mount in mine.items() if mount.source == DEV_NULL}
    masked = {place for place, mount in mine.items() if mount.op is Op.EMPTY} - emptied
    writable = [place for place, mount in mine.items() if mount.op is Op.WRITE and mount.source == place]
    read = {place for place, mount in mine.items() if mount.op is Op.READ and not _is_made(mount, confinement)} - closed
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


def _is_made(mount: Mount, confinement: Bwrap) -> bool:
    """Say whether a mount shows what relay made for commands: a configuration without name servers, an identity."""
    return mount.source is not None and mount.source.is_relative_to(confinement.private.path)


def _write(places: Iterable[Path]) -> tuple[str, ...]:
    return tuple(sorted(map(str, places)))
