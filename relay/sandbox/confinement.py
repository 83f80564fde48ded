"""The interface of a confinement, the confinement that does nothing, and the record of those that proved themselves.

A confinement that has proved itself since the machine started does not try every act again. The proof is an empty file
below the user's cache directory, where no command of a session can write. Its name is a digest of all that the proof
depends on: the acts, the machine's start, its namespaces, the user, the file system, and every word and filter of the
launch, except the names of the repository, of its git directories and of the private directory.
"""

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from relay.base.tree import find_boot_id
from relay.base.values import dataclass
from relay.sandbox import inside, supervisor
from relay.sandbox.places import is_socket
from relay.sandbox.policy import Lent, Mechanism, Policy, StandIn
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.process import Launch
from relay.sandbox.toolchains import build_env, list_usable

_GAPS = {
    Mechanism.CONTAINER: "this container alone protects what is outside of it: commands may read and change all that "
    "is in it, the plan and credentials too",
    Mechanism.OFF: "commands run without protection, as the user asked",
}


class Confinement(Protocol):
    """Turns a command into a launch that is confined.

    Contract:
        `build_launch` looks at the file system as it is now: what existed when the sandbox was opened may be gone.
        The descriptors of the launch belong to the caller, who starts it once or closes them.
    """

    @property
    def mechanism(self) -> Mechanism:
        """What enforces it."""

    @property
    def private(self) -> PrivateDir:
        """The private directory, which no other sandbox has."""

    @property
    def tmp(self) -> Path:
        """The private temporary directory as commands see it: of all sandboxes of bubblewrap the same name."""

    @property
    def counts_user(self) -> bool:
        """The kernel counts the user's other processes against a command's limit."""

    @property
    def inside(self) -> Path:
        """`inside.py` as commands see it."""

    @property
    def guarded(self) -> tuple[str, ...]:
        """As of `Sandbox`."""

    @property
    def gaps(self) -> tuple[str, ...]:
        """A sentence on each protection that it cannot give on this machine; empty when it gives all."""

    def renew(self, private: PrivateDir) -> "Confinement":
        """Return the same with another private directory."""

    def show(self, stage: StandIn) -> "Confinement | None":
        """Return the same with something else in the place of the repository; None where it cannot be."""

    def reveal(self, place: Path) -> "Confinement":
        """Return the same with a file shown that is hidden for its name only."""

    def lend(self, lent: Lent) -> "Confinement | None":
        """Return the same with a copy in the place of a directory outside of the work tree; None where it cannot be."""

    def build_launch(self, command: tuple[str, ...], *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Return the launch for a command whose first word is an absolute path.

        Raises:
            SandboxError: The confinement cannot be set up as things are now.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconfined:
    """Allow-listed environment, limits and the end of the whole process tree; everything else is open."""

    policy: Policy
    private: PrivateDir
    mechanism: Mechanism
    """`Mechanism.CONTAINER` or `Mechanism.OFF`."""

    counts_user = True
    guarded = ()
    inside = Path(inside.__file__)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What the user chose."""
        return (_GAPS[self.mechanism],)

    @property
    def tmp(self) -> Path:
        """The private directory on the host."""
        return self.private.tmp

    def renew(self, private: PrivateDir) -> "Unconfined":
        """Return the same with another private directory."""
        return replace(self, private=private)

    def show(self, _stage: StandIn) -> None:
        """Return None: a path leads where it leads."""

    def lend(self, _lent: Lent) -> None:
        """Return None: a path leads where it leads."""

    def reveal(self, _place: Path) -> "Unconfined":
        """Return the same: nothing is hidden."""
        return self

    def build_launch(self, command: tuple[str, ...], *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Return the launch through the supervisor; commands have the user's own home."""
        home = Path(self.policy.env["HOME"]) if "HOME" in self.policy.env else self.private.make_home()
        env = build_env(self.policy, home=home, tmp=self.tmp, stores=list_usable(home, self.policy.env))
        argv = (sys.executable, "-I", "-S", supervisor.__file__, str(cwd), "--", *command)
        return Launch(argv=argv, env={**env, **extra_env})


_NAMESPACES = ("user", "mnt", "pid", "net")
"""A container has the boot id of its host, and other rights."""
_MOST_BYTES = 1024 * 1024
"""Of a filter or a rule set that is handed over in a file without a name."""


def find_proof(confinement: Confinement, policy: Policy, private: PrivateDir, *, acts: str) -> Path | None:
    """Return where the proof of a confinement is, if it has one; None where none can be kept.

    Args:
        confinement: What has to be proven.
        policy: What it holds.
        private: Its private directory, whose name is new each time.
        acts: What is tried: a proof by other acts is another one.

    Raises:
        SandboxError: The confinement cannot be set up at all.
    """
    folder, boot_id = _find_folder(policy), find_boot_id()
    if folder is None or not boot_id:
        return None
    devices = [place.stat().st_dev for place in (policy.root, *policy.git_dirs) if place.exists()]
    words = repr((acts, os.geteuid(), devices, *_describe(confinement, policy)))
    doors = [(door.socket, f"<{door.name}>") for door in policy.doors]
    git_dirs = [(place, f"<git {number}>") for number, place in enumerate(policy.git_dirs)]
    for place, name in (*doors, (private.path, "<private>"), (policy.root, "<repository>"), *git_dirs):
        words = words.replace(os.fspath(place), name)
    return folder / f"{boot_id}-{hashlib.sha256(words.encode(errors='surrogateescape')).hexdigest()}"


def find_trial(policy: Policy, name: str, programs: Sequence[str]) -> Path | None:
    """Return where it is kept that a trial went well on this machine as it is; None where nothing can be kept.

    Args:
        policy: Whose commands may not write there.
        name: Of what was tried.
        programs: What it was tried with, as they are on the disk.
    """
    folder, boot_id = _find_folder(policy), find_boot_id()
    if folder is None or not boot_id:
        return None
    words = repr((name, os.geteuid(), *_describe_programs(programs), *_describe_namespaces()))
    return folder / f"{boot_id}-{hashlib.sha256(words.encode(errors='surrogateescape')).hexdigest()}"


def has_proof(file: Path | None) -> bool:
    """Return whether a proof was kept; one counts only where nobody but this user could have put it."""
    if file is None:
        return False
    try:
        found = [os.lstat(place) for place in (file, file.parent)]
    except OSError:
        return False
    own = all(one.st_uid == os.geteuid() and not one.st_mode & 0o022 for one in found)
    return own and stat.S_ISREG(found[0].st_mode)


def save_proof(file: Path | None) -> None:
    """Keep a proof and drop those of earlier starts of the machine; where that fails the next run proves again."""
    if file is None:
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.parent.chmod(0o700)
        for other in file.parent.iterdir():
            if not other.name.startswith(find_boot_id()):
                other.unlink()
        file.touch(mode=0o600)


def _describe(confinement: Confinement, policy: Policy) -> Iterator[object]:
    """Yield what a launch consists of: words, programs as they are on the disk, filters, names of variables."""
    launch = confinement.build_launch((os.devnull,), cwd=policy.root, extra_env={})
    try:
        numbers = {str(fd): "<fd>" for fd in launch.pass_fds}
        words = _drop_sockets(launch.argv)
        yield [numbers.get(word, word) for word in words]
        yield from _describe_programs(words)
        yield from (os.pread(fd, _MOST_BYTES, 0) for fd in launch.pass_fds if stat.S_ISREG(os.fstat(fd).st_mode))
        yield sorted(launch.env)
        yield Path(inside.__file__).stat().st_mtime_ns
        yield from _describe_namespaces()
    finally:
        launch.close()


def _describe_programs(words: Sequence[str]) -> Iterator[object]:
    for word in words:
        if word.startswith("/") and os.access(word, os.X_OK) and os.path.isfile(word):  # noqa: PTH113
            found = Path(word).stat()
            yield word, found.st_ino, found.st_size, found.st_mtime_ns


def _describe_namespaces() -> Iterator[object]:
    yield [os.fspath(Path("/proc/self/ns", name).readlink()) for name in _NAMESPACES]


def _drop_sockets(words: tuple[str, ...]) -> list[str]:
    """Leave out which sockets of the host are masked: they come and go, and are masked like any file."""
    masks = (at for at, word in enumerate(words[:-1]) if word == os.devnull and is_socket(words[at + 1]))
    left_out = {place for at in masks for place in (at - 1, at, at + 1)}
    return [word for at, word in enumerate(words) if at not in left_out]


def _find_folder(policy: Policy) -> Path | None:
    """Return where proofs are kept; None where there is no such place, or commands may write it."""
    home, cache = policy.env.get("HOME", ""), policy.env.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path(home, ".cache")
    if not base.is_absolute():
        return None
    folder = Path(os.path.realpath(base / "relay" / "proofs"))
    written = (policy.root, *(place.resolve() for place in policy.writable))
    return None if any(folder.is_relative_to(place) for place in written) else folder
