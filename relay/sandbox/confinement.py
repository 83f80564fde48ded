"""What the mechanisms have in common, and the one that confines nothing."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from relay.sandbox import launcher
from relay.sandbox.environment import build_env
from relay.sandbox.openings import inside
from relay.sandbox.policy import Lent, Level, Mechanism, Policy, StandIn
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.start import Launch
from relay.sandbox.toolchains import list_usable
from relay.values import dataclass


def describe_closed(policy: Policy) -> tuple[str, ...]:
    """Return the sentence of a mechanism that opens all or nothing, where the user opened something."""
    if policy.network or not (policy.doors or policy.sockets):
        return ()
    return ("only bubblewrap can open single hosts, ports and sockets: here commands reach none of them",)


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
    def tmp(self) -> Path:
        """The private temporary directory as commands see it."""

    @property
    def counts_user(self) -> bool:
        """The kernel counts the user's other processes against a command's limit."""

    @property
    def inside(self) -> Path:
        """`openings/inside.py` as commands see it."""

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


def supervise(
    command: tuple[str, ...], *, cwd: Path, env: Mapping[str, str], rules: int | None = None, seccomp: int | None = None
) -> Launch:
    """Return a launch through the supervisor, for mechanisms without a process namespace."""
    fds = tuple(fd for fd in (rules, seccomp) if fd is not None)
    descriptors = ["-" if fd is None else str(fd) for fd in (rules, seccomp)]
    argv = (sys.executable, "-I", "-S", launcher.__file__, *descriptors, str(cwd), "--", *command)
    return Launch(argv=argv, env=env, pass_fds=fds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mountless:
    """What the mechanisms share that mount nothing: a path leads where it leads."""

    policy: Policy
    private: PrivateDir

    counts_user = True
    guarded = ()
    inside = Path(inside.__file__)

    @property
    def tmp(self) -> Path:
        """The private directory on the host."""
        return self.private.tmp

    def show(self, _stage: StandIn) -> None:
        """Return None: it cannot be."""

    def lend(self, _lent: Lent) -> None:
        """Return None: it cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconfined(Mountless):
    """`Level.OFF`: allow-listed environment, limits and the end of the whole tree; everything else is open."""

    mechanism = Mechanism.OFF
    gaps = ("commands run without protection, as the user asked",)

    def renew(self, private: PrivateDir) -> "Unconfined":
        """Return the same with another private directory."""
        return replace(self, private=private)

    def reveal(self, _place: Path) -> "Unconfined":
        """Return the same: nothing is hidden."""
        return self

    def build_launch(self, command: tuple[str, ...], *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Return the launch; commands have the user's own home."""
        home = Path(self.policy.env["HOME"]) if "HOME" in self.policy.env else self.private.make_home()
        env = build_env(self.policy, home=home, tmp=self.tmp, stores=list_usable(home, self.policy.env))
        return supervise(command, cwd=cwd, env={**env, **extra_env})


def open_unconfined(policy: Policy, _level: Level, private: PrivateDir) -> Unconfined:
    """Return the confinement that holds nothing."""
    return Unconfined(policy=policy, private=private)
