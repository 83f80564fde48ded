"""Landlock and seccomp through the supervisor: the planner's fallback where bwrap cannot make namespaces.

Landlock only adds rights, so "the repository without .git" cannot be said; this mechanism holds `Level.READ_ONLY` and
nothing else. It has no network namespace either: every `socket()` is denied, local servers included.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from relay.sandbox.bwrap import write_memfd
from relay.sandbox.confinement import Mountless, describe_closed, supervise
from relay.sandbox.environment import build_env, find_toolchain_env
from relay.sandbox.openings import inside
from relay.sandbox.places import (
    find_credentials,
    find_emptied,
    find_home_directory,
    find_real,
    find_toolchains,
    is_below,
)
from relay.sandbox.policy import Level, Mechanism, Policy
from relay.sandbox.private_folder import DEVICE_NAMES, PrivateDir
from relay.sandbox.scan import scan_repository
from relay.sandbox.seccomp import Filter, assemble
from relay.sandbox.start import Launch
from relay.sandbox.toolchains import list_usable
from relay.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Landlock(Mountless):
    """Reads what is granted, writes the private directory only."""

    closed: frozenset[Path]
    """Places whose content stays out of reach, in the repository and elsewhere."""
    granted: tuple[str, ...]
    """Rules that do not depend on the repository's content."""

    mechanism = Mechanism.LANDLOCK

    @property
    def gaps(self) -> tuple[str, ...]:
        """What Landlock does not govern."""
        return (
            "Landlock cannot hide the names of files, only their content",
            "before Linux 6.12 commands can send signals to other processes of the user",
            *describe_closed(self.policy),
        )

    def renew(self, private: PrivateDir) -> "Landlock":
        """Return the same with another private directory."""
        granted = _grant(self.policy, find_home_directory(self.policy.env), private, self.closed)
        return replace(self, private=private, granted=granted)

    def reveal(self, _place: Path) -> "Landlock":
        """Return the same: no gate runs where nothing can be written."""
        return self

    def build_launch(self, command: tuple[str, ...], *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Grant what exists now and return the launch."""
        policy = self.policy
        stores = list_usable(find_home_directory(policy.env), policy.env, writable=())
        env = build_env(policy, home=self.private.make_home(), tmp=self.tmp, stores=stores)
        env = {**find_toolchain_env(find_home_directory(policy.env)), **env, **extra_env}
        inside = [f"r {place}" for place in _grant_around(policy.root, self.closed)]
        rules = b"".join(os.fsencode(rule) + b"\0" for rule in (*self.granted, *inside))
        program = assemble(Filter(metadata=True, sockets=not policy.network, unix_sockets=True, others=True))
        return supervise(command, cwd=cwd, env=env, rules=write_memfd(rules), seccomp=write_memfd(program))


def _grant_around(place: Path, closed: frozenset[Path]) -> Iterator[Path]:
    """Yield the largest places at or below `place` that contain nothing closed."""
    if place in closed:
        return
    if not any(place in other.parents for other in closed):
        yield place
        return
    try:
        inner = sorted(place.iterdir())
    except OSError:
        return
    for below in inner:
        if not below.is_symlink():
            yield from _grant_around(below, closed)


def open_landlock(policy: Policy, level: Level, private: PrivateDir) -> Landlock | None:
    """Return the confinement, or None for a level that it cannot hold.

    Raises:
        SandboxError: The repository cannot be protected (see `scan_repository`).
    """
    if level is not Level.READ_ONLY or sys.platform != "linux":
        return None
    home = find_home_directory(policy.env)
    secrets = (
        *find_credentials(home),
        *scan_repository(policy, level).secrets,
        *map(find_real, policy.unreadable),
    )
    closed = frozenset(secrets)
    return Landlock(policy=policy, private=private, closed=closed, granted=_grant(policy, home, private, closed))


def _grant(policy: Policy, home: Path | None, private: PrivateDir, closed: frozenset[Path]) -> tuple[str, ...]:
    hidden = {*find_emptied(home, policy.apart), Path("/dev"), private.path}
    prefixes = (sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent))
    shown = [place.resolve() for place in (*policy.readable, *find_toolchains(home, policy.env, prefixes))]
    shown = [place for place in shown if not any(other.is_relative_to(place) for other in hidden)]
    readable = [
        *_grant_around(Path("/"), closed | hidden),
        *(
            inner
            for place in (*policy.git_dirs, *shown)
            if not is_below(place, closed)
            for inner in _grant_around(place, closed)
        ),
    ]
    return (
        *(f"r {place}" for place in (*readable, inside.__file__)),
        *(f"w {place}" for place in (private.tmp, private.make_home())),
        *(f"d /dev/{name}" for name in DEVICE_NAMES),
        *(["n /"] if policy.network else []),
    )
