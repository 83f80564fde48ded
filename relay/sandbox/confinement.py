"""The interface of what confines commands, and the confinement that holds nothing."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from relay.base.values import dataclass
from relay.sandbox import supervisor
from relay.sandbox.environment import build_env
from relay.sandbox.openings import inside
from relay.sandbox.policy import Lent, Mechanism, Policy, StandIn
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.start import Launch
from relay.sandbox.toolchains import list_usable

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
