"""The command line for bubblewrap.

bubblewrap is a system program, not a Python package: no maintained binding gives this profile, and the argv is ours.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.values import dataclass
from relay.sandbox.environment import build_env
from relay.sandbox.layers import takes_size
from relay.sandbox.links import render_links
from relay.sandbox.openings.inside import LEAST_ABI, find_abi
from relay.sandbox.places import find_real
from relay.sandbox.policy import Door, Lent, Level, Mechanism, Policy, StandIn
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.scan import Found, scan_repository
from relay.sandbox.seccomp import Filter, assemble
from relay.sandbox.start import Launch
from relay.sandbox.view import INSIDE_NAME, Mount, MountView, Op, lay_over, look_around, plan_view, render_view

PLACES = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
"""Never searched on PATH: another user might be able to write to an entry, and Ubuntu's AppArmor profile grants user
namespaces to the system's bwrap only."""

MOST_LENT = 10 * 1024 * 1024
"""Bytes of a protected file that gates and hooks have a copy of."""

CLOSED_UNIX = (
    "this kernel (before Linux 6.12, or without Landlock) cannot keep abstract sockets of the host apart: commands "
    "with its network make no Unix sockets"
)

_CGROUPS_1 = Path("/sys/fs/cgroup/memory")
"""Is there where cgroups are of version 1. Seen from a namespace of its own such a tree begins at ``/..``, and Java 17
ends with a NullPointerException when it asks for its memory, gradle with it. What is in it is only read anyway."""

BASE = (
    # When relay is killed bwrap is too, and the kernel ends the process namespace with its init.
    "--die-with-parent",
    # Without the user's terminal nothing can be typed into it.
    "--new-session",
    # --unshare-all only tries to make a user namespace; this fails where none can be made.
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    *(() if _CGROUPS_1.is_dir() else ("--unshare-cgroup-try",)),
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
)
"""Fixed and first. As uid 0 bwrap keeps all capabilities unless told, and with them a read-only bind is unmounted."""


def find_bwrap(places: Sequence[str] = PLACES) -> Path | None:
    """Return the system's bwrap, or None."""
    return next((Path(place) for place in places if os.access(place, os.X_OK)), None)


def render_argv(
    bwrap: Path, mounts: tuple[Mount, ...], *, network: bool, cwd: Path, fds: tuple[int, int]
) -> tuple[str, ...]:
    """Return bwrap's argv up to and including `--`.

    Args:
        bwrap: The program.
        mounts: The view, in order.
        network: Keep the host's network.
        cwd: Where the command starts.
        fds: The seccomp program and the status pipe.
    """
    seccomp_fd, status_fd = fds
    sized = takes_size(bwrap)
    return (
        str(bwrap),
        *BASE,
        *(["--share-net"] if network else []),
        *(part for mount in mounts for part in mount.render(sized=sized)),
        "--chdir",
        str(cwd),
        "--seccomp",
        str(seccomp_fd),
        "--json-status-fd",
        str(status_fd),
        "--",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bwrap:
    """A namespace of its own for each command: file system view, processes, network, users."""

    policy: Policy
    level: Level
    private: PrivateDir
    program: Path
    view: MountView
    found: Found
    stage: StandIn | None = None
    """What commands see in the place of the repository; None for itself."""
    lent: tuple[Lent, ...] = ()

    mechanism = Mechanism.BWRAP

    @property
    def tmp(self) -> Path:
        """The private directory where it is mounted."""
        return self.view.tmp

    @property
    def counts_user(self) -> bool:
        """Since Linux 5.14 the limit counts per user namespace."""
        return _kernel() < (5, 14)

    @property
    def inside(self) -> Path:
        """The program is mounted beside relay's doors."""
        return self.view.own / INSIDE_NAME

    @property
    def guarded(self) -> tuple[str, ...]:
        """What is filled with hard links: it is only read, or has a layer."""
        return tuple(tree.relative_to(self.policy.root).as_posix() for tree in self.found.links.trees)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What the view cannot hold here, and what it holds against expectation."""
        closed = (CLOSED_UNIX,) if self.policy.network and not knows_abstract() else ()
        layered = self.view.layers.caches
        return (*self.view.gaps, *closed, *render_links(self.found.links, self.policy.root, layered))

    def renew(self, private: PrivateDir) -> "Bwrap":
        """Return the same with another private directory, and in it copies of the protected files to write.

        Formatters and the hooks of most repositories open each file for writing, also what they find well formed.
        """
        around = self.view.around if self.view.around.is_there() else look_around(self.policy)
        view = plan_view(self.policy, self.level, private, self.program, self.found.links.trees, around)
        lent = lend_files((*self.policy.protected, *self.found.protected), private.path / "copies")
        return replace(self, private=private, view=view, lent=lent)

    def show(self, stage: StandIn) -> "Bwrap":
        """Return the same on another stage."""
        return replace(self, stage=stage)

    def reveal(self, place: Path) -> "Bwrap":
        """Return the same with a file shown that is hidden for its name only."""
        secrets = tuple(secret for secret in self.found.secrets if secret != place)
        return replace(self, found=replace(self.found, secrets=secrets))

    def lend(self, lent: Lent) -> "Bwrap":
        """Return the same with a copy to write."""
        return replace(self, lent=(*self.lent, lent))

    def list_mounts(self) -> tuple[Mount, ...]:
        """Return what a command that began now would see, each path checked.

        Raises:
            SandboxError: The git directory cannot be protected.
        """
        mounts = render_view(self.view, self.policy, self.level, self.found, self.stage)
        return functools.reduce(lay_over, self.lent, mounts)

    def build_launch(self, command: tuple[str, ...], *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Check every path again and return the launch.

        Raises:
            SandboxError: The git directory cannot be protected.
        """
        policy = self.policy
        command = (*render_first(policy, self.view.own), *command)
        # Each mount takes a sixth of a millisecond: what no word of the command names is not there.
        unused = None if str(self.inside) in command else self.inside
        mounts = tuple(mount for mount in self.list_mounts() if mount.dest != unused)
        closes_unix = policy.network and not knows_abstract()
        # An agent locks files of its own home by their times; the repository is a read-only mount, where nobody can.
        metadata = self.level is Level.READ_ONLY and not policy.for_agent
        program = assemble(Filter(metadata=metadata, unix_sockets=closes_unix))
        seccomp_fd = write_memfd(program)
        status_fd, status_write_fd = os.pipe()
        fds = (seccomp_fd, status_write_fd)
        argv = render_argv(self.program, mounts, network=policy.network, cwd=cwd, fds=fds)
        env = build_env(policy, home=self.view.home, tmp=self.view.tmp, stores=self.view.stores)
        last = {mount.dest: mount.op for mount in mounts}
        layers = self.view.layers.keep({mount.source for mount in mounts})
        env |= {**dict(pair for door in find_open(policy) for pair in door.env), **extra_env}
        return Launch(
            argv=layers.wrap(self.program, (*argv, *command)),
            env=env,
            alike=(mounts, _identify_sources(mounts), command, cwd, env),
            points=tuple(last),
            pass_fds=fds,
            status_fd=status_fd,
            in_memory=(*(place for place, op in last.items() if op is Op.EMPTY), *layers.used[:1]),
        )


def _identify_sources(mounts: tuple[Mount, ...]) -> tuple[tuple[int, int] | None, ...]:
    """Return which file or directory each mount shows; None where one is gone."""

    def identify(place: Path) -> tuple[int, int] | None:
        try:
            found = place.stat()
        except OSError:
            return None
        return (found.st_dev, found.st_ino)

    return tuple(identify(m.source) for m in mounts if m.source)


def lend_files(places: Sequence[Path], folder: Path) -> tuple[Lent, ...]:
    """Copy those of the places that are files into a new directory, to be written in their place."""
    files = [p for p in dict.fromkeys(places) if find_real(p) == p and p.is_file() and p.stat().st_size <= MOST_LENT]
    folder.mkdir(mode=0o700)
    copies = [(place, folder / str(number)) for number, place in enumerate(files)]
    for place, copy in copies:
        shutil.copy(place, copy)
    return tuple(Lent(dest=place, place=copy, shown=()) for place, copy in copies)


@functools.cache
def knows_abstract() -> bool:
    """Say whether this kernel can keep abstract sockets of the host apart in a network that is shared with it."""
    return find_abi() >= LEAST_ABI


def find_open(policy: Policy) -> tuple[Door, ...]:
    """Return the doors that stand open: none has a port of its own in a network that is the host's."""
    return tuple(door for door in policy.doors if door.port is None or not policy.network)


def render_first(policy: Policy, own: Path) -> tuple[str, ...]:
    """Return what runs before the command and becomes it, see `inside.py`; empty where nothing has to be done."""
    words = [f"{door.port}={own / door.name}" for door in find_open(policy) if door.port]
    words += ["abstract"] if policy.network and knows_abstract() else []
    return (sys.executable, "-I", "-S", str(own / INSIDE_NAME), *words, "--") if words else ()


def open_bwrap(policy: Policy, level: Level, private: PrivateDir) -> Bwrap | None:
    """Return the confinement, or None when bwrap is not installed.

    Raises:
        SandboxError: The repository cannot be protected (see `scan_repository`).
    """
    program = find_bwrap()
    if program is None:
        return None
    found = scan_repository(policy, level)
    view = plan_view(policy, level, private, program, found.links.trees, look_around(policy))
    return Bwrap(policy=policy, level=level, private=private, program=program, view=view, found=found)


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def find_advice(program: Path) -> str | None:
    """Return what `relay doctor` says about an old bwrap, or None.

    relay never lets bwrap make a mount point below something that a command could have planted, so it does not
    depend on the fix (CVE-2026-87766, fixed in 0.12.0); other programs on the machine may.
    """
    said = subprocess.run((str(program), "--version"), capture_output=True, text=True, check=False).stdout
    version = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    if not version or version >= (0, 12):
        return None
    return f"{said.strip()}: 0.12 or newer has the fix for CVE-2026-87766, which relay's own use does not need"


def write_memfd(data: bytes) -> int:
    """Return a descriptor of an anonymous file with this content, at its start."""
    fd = os.memfd_create("relay")
    os.write(fd, data)
    # The reader shares the position, which is behind what was written.
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
