"""The file system that a command sees, as an ordered list of mounts.

Later mounts cover earlier ones. Two rules keep bwrap from creating a mount point on the host (it would do so through
a planted symbolic link: CVE-2026-87766). Below an emptied directory bwrap makes mount points in that fresh tmpfs.
Everywhere else the destination must exist and be its own real path, which is checked right before each command.

A layer covers each tool's cache: commands read the cache, and their writes stay in memory until the command ends.
bubblewrap mounts such layers itself from 0.11 on. For an older version a first bubblewrap makes a namespace with memory
for them, mount(8) lays them out there in one start, and the bubblewrap that confines the command runs in that
namespace. If the kernel or the administrator does not allow this, there are no layers.
"""

import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from relay.base.errors import SandboxError
from relay.base.program import run_program
from relay.base.values import dataclass
from relay.sandbox import inside
from relay.sandbox.places import (
    SHARED_HIDDEN,
    Found,
    find_credentials,
    find_emptied,
    find_home_directory,
    find_named_sockets,
    find_real,
    find_toolchains,
    find_unix_sockets,
    is_below,
    is_dir,
    is_searchable,
    is_socket,
    is_there,
)
from relay.sandbox.policy import Level, Policy, WritableCopy
from relay.sandbox.private_folder import PrivateDir, ensure_device_nodes
from relay.sandbox.toolchains import find_stores, list_usable

LAYER_BYTES = 1024 * 1024 * 1024
"""Most bytes that one command may write over all caches together. Layers that bubblewrap mounts itself have the
kernel's bound, half of the memory."""
PROGRAMS = ("/usr/bin/mount", "/bin/mount", "/run/current-system/sw/bin/mount")
_OUTER = ("--unshare-user", "--cap-add", "ALL", "--die-with-parent", "--dev-bind", "/", "/")
_PARTS = ("new", "work", "whole")
_TRIAL_S = 10
_ODD = frozenset(",:\\\"'#\n")
"""Characters with a meaning for mount(8) or the kernel in a table of mounts or the options of a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Caches with a layer over each."""

    caches: tuple[Path, ...]
    """Directories on the host, resolved."""
    place: Path
    """An empty directory of relay's own, in which the layers are mounted, in the command's namespace only."""
    own: bool
    """Whether the bubblewrap that confines a command mounts the layers itself, each over its cache."""

    def get_source(self, cache: Path) -> Path:
        """Return the mount point of a cache with its layer; the cache itself if bubblewrap mounts the layer over it."""
        return cache if self.own else self.place / str(self.caches.index(cache)) / "whole"

    def wrap(self, bwrap: Path, argv: Sequence[str], sources: Collection[Path | None]) -> tuple[str, ...]:
        """Return a command line that mounts the layers which are among the sources of all mounts, and becomes `argv`.

        A directory of the repository may be gone, and no mount has its layer then.
        """
        used = [cache for cache in self.caches if self.get_source(cache) in sources]
        if self.own or not used:
            return tuple(argv)
        mount = next((place for place in PROGRAMS if os.access(place, os.X_OK)), PROGRAMS[0])
        tops = [self.get_source(cache).parent for cache in used]
        table = "".join(  # in the form of fstab(5)
            f"relay {top}/whole overlay lowerdir={cache},upperdir={top}/new,workdir={top}/work,userxattr 0 0\n"
            for cache, top in zip(map(_escape, used), map(_escape, tops), strict=True)
        )
        folders = (part for top in tops for name in _PARTS for part in ("--dir", f"{top}/{name}"))
        memory = (*(("--size", str(LAYER_BYTES)) if takes_size(bwrap) else ()), "--tmpfs", str(self.place), *folders)
        place = shlex.quote(str(self.place / "fstab"))
        script = f'printf %s "$1" > {place} && shift && {mount} -n -i -a -T {place} && exec "$@"'
        return (str(bwrap), *_OUTER, *memory, "--", "/bin/sh", "-c", script, "relay", table, *argv)


def _escape(place: Path) -> str:
    return str(place).replace(" ", "\\040").replace("\t", "\\011")


def takes_size(bwrap: Path) -> bool:
    """Return whether this bwrap can bound a tmpfs (0.7 and newer)."""
    return b"--size" in _read_help(bwrap)


@functools.cache
def _read_help(bwrap: Path) -> bytes:
    try:
        return subprocess.run((str(bwrap), "--help"), capture_output=True, check=False).stdout
    except OSError:
        return b""


def open_layers(bwrap: Path, caches: Sequence[Path], place: Path) -> Layers:
    """Return layers over the caches that can have one; none if this machine makes no layers.

    Args:
        bwrap: The program.
        caches: Directories that exist, resolved.
        place: A new name in a directory of relay's own.
    """
    fitting = tuple(cache for cache in caches if not _ODD.intersection(str(cache)))
    own = b"--tmp-overlay" in _read_help(bwrap)
    if not fitting or _ODD.intersection(str(place)) or not _works(bwrap):
        return Layers(caches=(), place=place, own=own)
    if not own:
        place.mkdir(mode=0o700, exist_ok=True)
    return Layers(caches=fitting, place=place, own=own)


@functools.cache
def _works(bwrap: Path) -> bool:
    """Return whether a layer can be mounted and written here, and a sandbox made in its namespace."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="relay-layers-") as folder:
        cache, place = Path(folder, "cache"), Path(folder, "place")
        (cache / "inner").mkdir(parents=True)
        place.mkdir()
        own, caches = b"--tmp-overlay" in _read_help(bwrap), (cache.resolve(),)
        layers = Layers(caches=caches, place=place.resolve(), own=own)
        inner = ("--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--bind", "/", "/", "--dev", "/dev")
        layer = Mount(op=Op.LAYER, source=caches[0], dest=caches[0]).render() if own else ()
        touch = ("/bin/touch", str(layers.get_source(caches[0]) / "inner" / "file"))
        try:
            argv = layers.wrap(bwrap, (str(bwrap), *inner, *layer, "--", *touch), {layers.get_source(caches[0])})
            done = run_program(argv, env=os.environ, cwd=None, limit_s=_TRIAL_S, most_bytes=0)
        except OSError:
            return False
        return done.code == 0 and not list((cache / "inner").iterdir())


TMPFS_BYTES = 1024 * 1024 * 1024
"""Most bytes in each directory that lives in memory; the kernel's default is half of the memory."""
INSIDE_NAME = "inside.py"
_GIT_FILE = "gitfile"
DEV_NULL = Path(os.devnull)
TMP, VAR_TMP = Path("/tmp"), Path("/var/tmp")  # noqa: S108  # emptied in the sandbox; relay's own files use tempfile
PROC, RUN, NSSWITCH = Path("/proc"), Path("/run"), Path("/etc/nsswitch.conf")


class Op(StrEnum):
    """A bwrap mount operation."""

    READ = "--ro-bind"
    WRITE = "--bind"
    EMPTY = "--tmpfs"
    FREEZE = "--remount-ro"
    DEVICE = "--dev-bind"
    LAYER = "--tmp-overlay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One operation; `source` is None for operations that need none."""

    op: Op
    dest: Path
    source: Path | None = None

    def render(self, *, sized: bool = False) -> tuple[str, ...]:
        """Return the arguments for bwrap; `sized` bounds the memory that an emptied directory may take."""
        if self.op is Op.LAYER and self.source:
            return ("--overlay-src", str(self.source), self.op, str(self.dest))  # bubblewrap 0.11 and newer
        size = ("--size", str(TMPFS_BYTES)) if sized and self.op is Op.EMPTY else ()
        return (*size, self.op, *([str(self.source)] if self.source else []), str(self.dest))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """The hidden paths of this machine, and those shown below them: looked up once for each sandbox."""

    home: Path | None
    hidden: tuple[Path, ...]
    shown: tuple[Mount, ...]
    """Toolchains and the user's own additions."""
    stores: tuple[Path, ...]
    """The caches among `shown`, which tools write."""
    secrets: tuple[Path, ...]
    """Credentials of this machine, resolved; masked if they are visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MountView:
    """The mounts of a sandbox, and its home and temporary directory."""

    fixed: tuple[Mount, ...]
    """Mounts for the life of the sandbox; they do not depend on the repository's content."""
    frozen: tuple[Mount, ...]
    """Remounts that make emptied directories read-only after every mount point in them is made."""
    around: HostView
    home: Path
    tmp: Path
    own: Path
    """Directory of relay's own, which commands cannot write: `inside.py` and the sockets of openings."""
    git_file: Path
    """The file in the place of the tree's ``.git``, where commands see the tree at another path."""
    gaps: tuple[str, ...]
    """A sentence about each path that this machine cannot protect."""
    layers: Layers
    """Layers over the caches that tools write."""
    stores: Mapping[str, str]
    """The user's caches that tools may use, by the variable that names each."""

    @property
    def git(self) -> Path:
        """Where commands see git's directory, where they see the tree at another path."""
        return self.own / "git"


KERNEL_FILES = (
    Mount(op=Op.READ, source=PROC / "sys", dest=PROC / "sys"),
    Mount(op=Op.FREEZE, dest=PROC),
)
"""Close the files of /proc that act on the host. bwrap covers four directories, but checks write access only of the
directory. The kernel lets uid 0 write files like core_pattern without any capability, and everybody those in
/proc/pressure."""


def look_around(policy: Policy) -> HostView:
    """Find the hidden and shown paths of this machine."""
    home = find_home_directory(policy.env)
    hidden = find_emptied(home, policy.apart)
    shown = _find_shown(policy, home, hidden)
    open_ = {mount.dest for mount in shown}
    stores = [place for _, place in find_stores(home, policy.env) if place in open_]
    return HostView(
        home=home,
        hidden=hidden,
        shown=tuple(shown),
        stores=tuple(place for place in stores if find_real(place) == place),
        secrets=(*find_credentials(home), *map(find_real, policy.unreadable), *find_named_sockets(policy.env)),
    )


def plan_view(  # what a view is made for
    policy: Policy, level: Level, private: PrivateDir, program: Path, around: HostView
) -> MountView:
    """Lay out the mounts that do not depend on the repository's content."""
    home, hidden, stores = around.home, around.hidden, around.stores
    temp = TMP.resolve()
    inner_home = home if home and not home.is_relative_to(policy.root) else temp / "relay-home"
    # Commands could write the parents of mount points below the private directory: use a fresh tmpfs then.
    inner = (policy.root, inner_home, *(mount.dest for mount in around.shown), *policy.sockets)
    shared = any(place.is_relative_to(temp) for place in inner)
    own = (RUN if RUN in hidden else inner_home) / "relay"
    tmp = temp / "relay" if shared else temp
    devices, gaps = _make_devices(private)
    lent = (place for place in policy.lent if find_real(place) == place and is_dir(place))
    caches = (*stores, *(lent if level is Level.WORKSPACE_WRITE else ()))
    layers = open_layers(program, caches, private.path / "layers")
    if policy.seen_at is not None:
        inside_git = policy.git_dirs[0].relative_to(policy.git_dirs[-1])
        (private.path / _GIT_FILE).write_text(f"gitdir: {own}/git/{inside_git}\n")
    writable = [place.resolve() for place in policy.writable if is_dir(place) and level is Level.WORKSPACE_WRITE]
    return MountView(
        fixed=(
            Mount(op=Op.EMPTY, dest=Path("/dev/shm")),  # noqa: S108  # bwrap's own has no bound
            *(Mount(op=Op.EMPTY, dest=place) for place in dict.fromkeys((*hidden, inner_home))),
            *(mount for mount in around.shown if mount.dest not in layers.caches),
            Mount(op=Op.WRITE, source=private.tmp, dest=tmp),
            Mount(op=Op.READ, source=private.gitconfig, dest=inner_home / ".gitconfig"),
            Mount(op=Op.READ, source=Path(inside.__file__), dest=own / INSIDE_NAME),
            *(Mount(op=Op.READ, source=opening.socket, dest=own / opening.name) for opening in policy.openings),
            *KERNEL_FILES,
            *devices,
            *_close_lookups(policy, private),
            Mount(op=Op.FREEZE, dest=Path("/dev")),  # it lives in memory too; devices still work
            *(_lay(layers, place) for place in layers.caches if place in stores),
            *(Mount(op=Op.WRITE, source=place, dest=place) for place in writable),
        ),
        frozen=tuple(
            Mount(op=Op.FREEZE, dest=place)
            for place in hidden
            if place not in {inner_home, temp, VAR_TMP.resolve()} and not is_below(place, (policy.root, *writable))
        ),
        around=around,
        home=inner_home,
        tmp=tmp,
        own=own,
        git_file=private.path / _GIT_FILE,
        gaps=(
            *gaps,
            *(
                f"{place} is a symbolic link: its target is protected, the link itself can be replaced by a command"
                for place in policy.protected
                if place.is_symlink()
            ),
        ),
        layers=layers,
        stores=list_usable(home, policy.env, writable=(*layers.caches, *writable)),
    )


def _find_shown(policy: Policy, home: Path | None, hidden: tuple[Path, ...]) -> list[Mount]:
    """Return toolchains and the user's own additions that would be hidden otherwise."""
    prefixes = (sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent))
    places = [*policy.readable, *find_toolchains(home, policy.env, prefixes)]
    if policy.network:
        places.append(Path("/etc/resolv.conf").resolve())
    above = {*hidden, policy.root, *([home] if home else [])}
    mounts: list[Mount] = []
    # Each with the directory above it resolved, so that the name still works if it is a link itself.
    for place in sorted({place.parent.resolve() / place.name for place in places}):
        wanted = is_below(place, hidden) and not any(other.is_relative_to(place) for other in above)
        if wanted and is_there(place) and not is_below(place, [mount.dest for mount in mounts]):
            mounts.append(Mount(op=Op.READ, source=place.resolve(), dest=place))
    return mounts


def _close_lookups(policy: Policy, private: PrivateDir) -> list[Mount]:
    """Without a network, have host names looked up in files only: the answer is "no such host", not "try again".

    Package managers try again for minutes. Programs that read /etc/resolv.conf themselves are not reached.
    """
    place = find_real(NSSWITCH)
    if policy.network or not place.is_file() or is_below(place, map(Path, SHARED_HIDDEN)):
        return []
    text = re.sub(r"(?m)^[ \t]*hosts[ \t]*:.*$", "hosts: files", place.read_text(errors="replace"))
    copy = private.path / NSSWITCH.name
    copy.write_text(text if "hosts: files" in text else f"{text}\nhosts: files\n")
    return [Mount(op=Op.READ, source=copy, dest=place)]


def _make_devices(private: PrivateDir) -> tuple[list[Mount], tuple[str, ...]]:
    if os.geteuid() != 0:
        return [], ()
    nodes = private.path / "dev"
    if not ensure_device_nodes(nodes):
        return [], ("commands of uid 0 can change the mode of /dev/null and its neighbours on the host",)
    return [Mount(op=Op.DEVICE, source=node, dest=Path("/dev", node.name)) for node in sorted(nodes.iterdir())], ()


def render_view(view: MountView, policy: Policy, level: Level, found: Found) -> tuple[Mount, ...]:
    """Add the mounts that depend on the repository's content, each path checked now.

    Args:
        view: The other mounts.
        policy: The repository and its rules.
        level: What commands may write.
        found: Paths of the repository that need protection.

    Raises:
        SandboxError: The git directory cannot be protected.
    """
    root = policy.root
    write = level is Level.WORKSPACE_WRITE
    how = Op.WRITE if write else Op.READ
    gone = {place for place in policy.apart if not is_dir(place)}  # somebody has removed a work tree
    mounts = [*(mount for mount in view.fixed if mount.dest not in gone), *_find_opened(view, policy)]
    mounts.append(Mount(op=how, source=root, dest=root))
    if (root / ".git").is_symlink():  # relay cannot protect a link from a command that may write the directory
        raise SandboxError(
            f"{root / '.git'} is a symbolic link; relay can protect a directory or a `gitdir:` file there",
            hint=f"git -C {root} init --separate-git-dir with the link's target turns it into a `gitdir:` file",
        )
    # Only paths in the repository: a link to ~/.ssh in the place of a protected file must not show the hidden ~/.ssh.
    inside = [place for place in map(_resolve, policy.protected) if place.startswith(f"{root}/")]
    guarded = _real((root / ".git", *policy.git_dirs, *map(Path, inside), *found.protected))
    closed = (*found.secrets, *found.sockets, *_list_closed(view, policy, list_covers(mounts)))
    visible = _real(place for place in closed if place not in policy.sockets)
    if write:
        tops = (root, *(place.resolve() for place in policy.writable if is_dir(place)))
        mounts += [mount for top in tops for mount in _pin(top, (*guarded, *visible))]
    mounts += [Mount(op=Op.READ, source=place, dest=place) for place in guarded]
    for place in visible:
        if place.is_dir():
            mounts += [Mount(op=Op.EMPTY, dest=place), Mount(op=Op.FREEZE, dest=place)]
        else:
            mounts.append(Mount(op=Op.READ, source=DEV_NULL, dest=place))
    return (*mounts, *(mount for mount in view.frozen if mount.dest not in gone))


def move_root(mounts: tuple[Mount, ...], view: MountView, policy: Policy) -> tuple[Mount, ...]:
    """Mount what is in the work tree at the path of the user's own, and git's directory beside relay's sockets.

    No directory can be mounted over the ``.git`` of a linked work tree, which is a file: a file of relay's own covers
    it, and names the git directory there. Nobody replaces that file, so the mount stays.
    """
    root, seen = policy.root, policy.seen_at
    if seen is None:
        return mounts
    common = policy.git_dirs[-1]
    moved: list[Mount] = []
    for mount in mounts:
        if mount.dest == root / ".git" or (mount.dest == seen and mount.op is Op.FREEZE):
            continue
        if mount.dest.is_relative_to(root):
            moved.append(replace(mount, dest=seen / mount.dest.relative_to(root)))
        elif mount.dest.is_relative_to(common):
            moved.append(replace(mount, dest=view.git / mount.dest.relative_to(common)))
        else:
            moved.append(mount)
        if mount.dest == root:
            moved += [
                Mount(op=Op.READ, source=common, dest=view.git),
                Mount(op=Op.READ, source=view.git_file, dest=seen / ".git"),
            ]
    for place in policy.lent:
        point = root / place.relative_to(seen)
        if is_dir(place) and find_real(point) == point and is_dir(point):
            is_layered = place in view.layers.caches
            moved.append(_lay(view.layers, place) if is_layered else Mount(op=Op.READ, source=place, dest=place))
    return tuple(moved)


def _lay(layers: Layers, cache: Path) -> Mount:
    return Mount(op=Op.LAYER if layers.own else Op.WRITE, source=layers.get_source(cache), dest=cache)


def _list_closed(view: MountView, policy: Policy, covers: list[tuple[str, bool]]) -> Iterator[Path]:
    """Yield the credentials and Unix sockets of this machine that commands would see."""
    for place in view.around.secrets:
        if is_shown(place, covers) or is_below(place, policy.git_dirs):
            yield place
    for place in map(Path, filter(None, map(_resolve, find_unix_sockets()))):
        # With the host's network the list holds sockets that sessions bound themselves.
        own = policy.network and place.is_relative_to(policy.root)
        if not own and is_shown(place, covers) and is_searchable(place):
            yield place


def _find_opened(view: MountView, policy: Policy) -> list[Mount]:
    """Mount the sockets that the user opened into emptied directories; elsewhere it is enough not to mask them."""
    covers = list_covers(view.fixed)
    there = (place for place in policy.sockets if is_socket(str(place)) and is_searchable(place))
    return [Mount(op=Op.READ, source=place, dest=place) for place in there if not is_shown(place, covers)]


def lay_over(mounts: tuple[Mount, ...], copied: WritableCopy) -> tuple[Mount, ...]:
    """Mount a copy over its original, if that is shown; a copy of a directory holds no masked files."""
    inside, shown = f"{copied.dest}/", [copied.dest / name for name in copied.shown]
    # Compared as text: this runs for every copy before every command.
    kept = [m for m in mounts if not str(m.dest).startswith(inside) or is_below(m.dest, shown)]
    at = max((number for number, mount in enumerate(kept, 1) if f"{mount.dest}/" == inside), default=0)
    if not at:
        return mounts
    copy = Mount(op=Op.WRITE, source=copied.place, dest=copied.dest)
    return (*kept[:at], copy, *(Mount(op=Op.READ, source=place, dest=place) for place in shown), *kept[at:])


def _resolve(place: Path) -> str:
    """Return the real path, as the kernel finds it; empty for what is not there, or leads nowhere.

    The library's walk in Python took a third of relay's time before each command.
    """
    try:
        fd = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115  # text
    finally:
        os.close(fd)


def _real(places: Iterable[Path]) -> list[Path]:
    """Return the existing paths that are their own real paths, once each, without those below another one.

    bwrap cannot make a mount point in a directory that is emptied and frozen.
    """
    found = {str(place) for place in places if _resolve(place) == str(place)}
    above = tuple(f"{name}/" for name in found)
    return [Path(name) for name in sorted(found) if not name.startswith(above)]


def _pin(root: Path, places: Sequence[Path]) -> list[Mount]:
    """Make each directory between the root and a covered path a mount, so that it cannot be renamed away.

    Without it `mv docs old; mkdir docs` would put a new docs/AGENTS.md where the protected one was.
    """
    names, top = {str(place) for place in places}, f"{root}/"
    inside = [name for name in names if name.startswith(top)]
    between = {name[:at] for name in inside for at in range(len(top), len(name)) if name[at] == "/"}
    return [Mount(op=Op.WRITE, source=place, dest=place) for place in map(Path, sorted(between - names))]


def list_covers(mounts: Sequence[Mount]) -> list[tuple[str, bool]]:
    """Return the mount points, the last first, and whether the paths below each are the host's paths of that name."""
    covers = [mount for mount in mounts if mount.op is not Op.FREEZE]
    return [(f"{mount.dest}/", mount.op is not Op.EMPTY and mount.source == mount.dest) for mount in reversed(covers)]


def is_shown(place: Path, covers: list[tuple[str, bool]]) -> bool:
    """Return whether commands reach a host path at its own name below these covers."""
    name = f"{place}/"  # compared as text: this runs for every secret before every command
    return next((shown for cover, shown in covers if name.startswith(cover)), True)
