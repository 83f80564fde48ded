"""A layer over a tool's cache: commands read the cache, and what they write is in memory and gone with the command.

bubblewrap mounts such layers itself from 0.11 on. For an older one a first bubblewrap makes a namespace with the memory
for them, mount(8) lays them out in it, all in one start, and in that namespace the bubblewrap that confines the command
runs as ever. Where the kernel or the administrator does not allow it there are none.
"""

import functools
import os
import shlex
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.values import dataclass
from relay.sandbox.proofs import has_proof, save_proof

LAYER_BYTES = 1024 * 1024 * 1024
"""Most that one command may write over all caches together. Where bubblewrap mounts the layers itself they have the
kernel's bound, half of the memory. Either way what is written counts as the command's memory."""
PROGRAMS = ("/usr/bin/mount", "/bin/mount", "/run/current-system/sw/bin/mount")
_OUTER = ("--unshare-user", "--cap-add", "ALL", "--die-with-parent", "--dev-bind", "/", "/")
_PARTS = ("new", "work", "whole")
_TRIAL_S = 10
_ODD = frozenset(",:\\\"'#\n")
"""What mount(8) or the kernel reads as something else in a table of mounts or the options of a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Caches with a layer over each."""

    caches: tuple[Path, ...]
    """Directories on the host, resolved."""
    place: Path
    """An empty directory of relay's own; the layers are mounted in it, in the command's namespace only."""
    used: tuple[Path, ...]
    """Those of `caches` that have one now: a directory of the repository may not be there any more."""
    own: bool
    """Whether the bubblewrap that confines a command mounts them itself, each over the cache at its own name."""

    def get_source(self, cache: Path) -> Path:
        """Return where a cache with its layer is mounted; the cache itself where that is done in its place."""
        return cache if self.own else self.place / str(self.caches.index(cache)) / "whole"

    def wrap(self, bwrap: Path, argv: Sequence[str]) -> tuple[str, ...]:
        """Return a command line that mounts the layers and becomes `argv`."""
        if self.own or not self.used:
            return tuple(argv)
        mount = next((place for place in PROGRAMS if os.access(place, os.X_OK)), PROGRAMS[0])
        size = ("--size", str(LAYER_BYTES)) if takes_size(bwrap) else ()
        folders = (part for top in self._tops for name in _PARTS for part in ("--dir", f"{top}/{name}"))
        script = f'{mount} -n -i -a -T {shlex.quote(str(self._table))} && exec "$@"'
        memory = (*size, "--tmpfs", str(self.place), *folders)
        return (str(bwrap), *_OUTER, *memory, "--", "/bin/sh", "-c", script, "relay", *argv)

    @property
    def _tops(self) -> tuple[Path, ...]:
        return tuple(self.get_source(cache).parent for cache in self.used)

    @property
    def _table(self) -> Path:
        numbers = (self.caches.index(cache) for cache in self.caches if cache not in self.used)
        return self.place.with_suffix("".join(f".{number}" for number in numbers) + ".fstab")

    def write_table(self) -> None:
        """Write what mount(8) lays out, in the form of fstab(5)."""
        lines = (
            f"relay {top}/whole overlay lowerdir={cache},upperdir={top}/new,workdir={top}/work,userxattr 0 0\n"
            for cache, top in zip(map(_escape, self.used), map(_escape, self._tops), strict=True)
        )
        self._table.write_text("".join(lines))

    def keep(self, sources: Collection[Path | None]) -> "Layers":
        """Return the same with those layers only that are mounted somewhere: these are the sources of mounts."""
        kept = replace(self, used=tuple(cache for cache in self.caches if self.get_source(cache) in sources))
        if kept.used != self.used and not self.own:
            kept.write_table()
        return kept


def _escape(place: Path) -> str:
    return str(place).replace(" ", "\\040").replace("\t", "\\011")


def takes_size(bwrap: Path) -> bool:
    """Say whether this bwrap can bound a tmpfs (0.7 and newer)."""
    return b"--size" in _read_help(bwrap)


def render_layer(cache: Path, dest: Path) -> tuple[str, ...]:
    """Return the words by which bubblewrap (0.11 and newer) mounts a cache with a layer of its own."""
    return ("--overlay-src", str(cache), "--tmp-overlay", str(dest))


@functools.cache
def _read_help(bwrap: Path) -> bytes:
    try:
        return subprocess.run((str(bwrap), "--help"), capture_output=True, check=False).stdout
    except OSError:
        return b""


def open_layers(bwrap: Path, caches: Sequence[Path], place: Path, *, trial: Path | None = None) -> Layers:
    """Return layers over those of the caches that can have one; none where this machine makes none.

    Args:
        bwrap: The program.
        caches: Directories that exist, resolved.
        place: A new name in a directory of relay's own.
        trial: Where it is kept that layers can be made here; None tries each time.
    """
    fitting = tuple(cache for cache in caches if not _ODD.intersection(str(cache)))
    own = b"--tmp-overlay" in _read_help(bwrap)
    layers = Layers(caches=fitting, place=place, used=fitting, own=own)
    if not fitting or _ODD.intersection(str(place)) or not _try_once(bwrap, trial):
        return Layers(caches=(), place=place, used=(), own=own)
    if not own:
        place.mkdir(mode=0o700, exist_ok=True)
        layers.write_table()
    return layers


def _try_once(bwrap: Path, trial: Path | None) -> bool:
    if has_proof(trial):
        return True
    works = _works(bwrap)
    if works:
        save_proof(trial)
    return works


@functools.cache
def _works(bwrap: Path) -> bool:
    """Say whether a layer can be mounted here, written, and a sandbox be made in its namespace."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="relay-layers-") as folder:
        cache, place = Path(folder, "cache"), Path(folder, "place")
        (cache / "inner").mkdir(parents=True)
        place.mkdir()
        own, caches = b"--tmp-overlay" in _read_help(bwrap), (cache.resolve(),)
        layers = Layers(caches=caches, place=place.resolve(), used=caches, own=own)
        inner = ("--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--bind", "/", "/", "--dev", "/dev")
        layer = render_layer(caches[0], caches[0]) if own else ()
        touch = ("/bin/touch", str(layers.get_source(caches[0]) / "inner" / "file"))
        if not own:
            layers.write_table()
        try:
            argv = layers.wrap(bwrap, (str(bwrap), *inner, *layer, "--", *touch))
            done = subprocess.run(argv, capture_output=True, timeout=_TRIAL_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and not list((cache / "inner").iterdir())
