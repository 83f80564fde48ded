"""Opens a sandbox and runs commands in it."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Self

from relay.base.errors import SandboxError
from relay.base.values import dataclass
from relay.sandbox.bwrap import find_bwrap, open_bwrap
from relay.sandbox.confined_run import NO_ENV, Standby, never, run_confined
from relay.sandbox.confinement import Confinement, Unconfined, find_proof, has_proof, save_proof
from relay.sandbox.policy import Lent, Level, Limits, Mechanism, Policy, StandIn
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.probe import ACTS, find_way, holds, is_container, prove, require_container
from relay.sandbox.process import CommandResult, make_not_started
from relay.sandbox.sockets import Inquiries


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Runs commands at one level. Close it, or use it in a `with` statement: it owns a private directory.

    Its temporary directory lives from command to command, and nothing else that a command leaves behind does.
    """

    policy: Policy
    level: Level
    """The level that was asked for; with `Mechanism.OFF` nothing enforces it."""
    confinement: Confinement
    private: PrivateDir
    inquiries: Inquiries = field(default_factory=Inquiries)
    """What commands ask the doors of the policy for."""
    hear: Callable[[bytes], None] = lambda _: None
    """Given the last bytes of what a command has printed, ten times a second while it runs, on the caller's thread."""
    prepare: Callable[[], object] = lambda: None
    """Called when the namespaces of a command are made; the command begins when this has returned."""
    standby: Standby = field(default_factory=Standby)
    """The next command's, where `make_ready` was called."""

    @property
    def mechanism(self) -> Mechanism:
        """What enforces the level."""
        return self.confinement.mechanism

    @property
    def tmp(self) -> Path:
        """The private temporary directory as commands see it (their TMPDIR)."""
        return self.confinement.tmp

    @property
    def guarded(self) -> tuple[str, ...]:
        """Paths of the directories that no command changes, though they are in the repository."""
        return self.confinement.guarded

    @property
    def gaps(self) -> tuple[str, ...]:
        """A sentence for the user on each protection that this machine cannot give."""
        return self.confinement.gaps

    def run(  # noqa: PLR0913  # one process needs all of these, and most have defaults
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        cwd: Path | None = None,
        should_stop: Callable[[], bool] = never,
        spool: Path | None = None,
        extra_env: Mapping[str, str] = NO_ENV,
        streams: tuple[int, int, int] | None = None,
    ) -> CommandResult:
        """Run a command until it and everything it started are gone.

        Args:
            argv: The command; no shell reads it unless it names one.
            limits: Time, sizes, processes.
            cwd: Directory in the repository; None for its top.
            should_stop: Polled ten times a second; True kills the command.
            spool: File that gets the whole output, up to `limits.spool_bytes`.
            extra_env: Variables on top of the allow-list; only relay's own code gives them.
            streams: Descriptors for the command's input, output and errors, which stay the caller's; None: no input,
                and what is printed is the result's. A terminal becomes the command's own.

        Raises:
            SandboxError: The sandbox itself could not be set up. What the command does is never an exception.
        """
        root = self.policy.root
        cwd = (root if cwd is None else root / cwd).resolve()
        if not cwd.is_dir() or not cwd.is_relative_to(root):
            return make_not_started(f"{cwd} is not a directory of the repository")
        result = run_confined(
            self.confinement,
            argv,
            cwd=cwd,
            limits=limits,
            should_stop=should_stop,
            spool=spool,
            extra_env=extra_env,
            streams=streams,
            standby=self.standby,
            prepare=self.prepare,
            hear=self.hear,
        )
        return replace(result, notes=(*result.notes, *self.inquiries.take_refusals()))

    def expect_command(self, *, limits: Limits) -> None:
        """Have `make_ready` make a sandbox for a command at the top of the repository with these limits."""
        self.standby.expect(limits=limits, cwd=self.policy.root)

    def make_ready(self) -> None:
        """Make the sandbox of the command that is expected, if one is, while there is time.

        On the thread that goes on to run it, or the kernel ends it with the one that has made it.
        """
        self.standby.begin(self.confinement)

    def renew(self) -> Self:
        """Return the same sandbox with an empty private directory of its own; the caller closes it."""
        private = PrivateDir()
        return replace(self, confinement=self.confinement.renew(private), private=private, standby=Standby())

    def show(self, stage: StandIn) -> Self | None:
        """Return this sandbox with something else in the place of the repository; None where it cannot be."""
        confinement = self.confinement.show(stage)
        return None if confinement is None else replace(self, confinement=confinement, standby=Standby())

    def reveal(self, place: Path) -> Self:
        """Return this sandbox with a file of the repository shown that is hidden for its name only."""
        return replace(self, confinement=self.confinement.reveal(place), standby=Standby())

    def lend(self, lent: Lent) -> Self:
        """Return this sandbox with a copy to write in a directory's place; the same where that cannot be."""
        confinement = self.confinement.lend(lent)
        return self if confinement is None else replace(self, confinement=confinement, standby=Standby())

    def close(self) -> None:
        """End what waits for a command, and remove the private directory."""
        self.standby.close()
        self.private.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_sandbox(
    policy: Policy, level: Level, *, mechanism: Mechanism = Mechanism.BWRAP, inquiries: Inquiries | None = None
) -> Sandbox:
    """Open a sandbox: of bubblewrap, one that proves itself, now or by a proof that was kept.

    Args:
        policy: The repository and its rules.
        level: What commands may write. `Level.OFF` needs `Mechanism.OFF` as well.
        mechanism: Another one than bubblewrap where the user has typed it.
        inquiries: Where the doors of the policy note what they are asked for; None where they note nothing.

    Raises:
        SandboxError: It does not hold the level here; the message says what was tried and what happened.
    """
    if mechanism is Mechanism.CONTAINER:
        require_container(policy.env)
    if not mechanism.confines:
        private = PrivateDir()
        open_one = Unconfined(policy=policy, private=private, mechanism=mechanism)
        return Sandbox(policy=policy, level=level, confinement=open_one, private=private)
    if level is Level.OFF:
        raise SandboxError("commands run without protection only when you say so", hint="--sandbox off says it")
    private = PrivateDir()
    confinement = open_bwrap(policy, level, private)
    if confinement is None or not _prove_once(confinement, policy, level, private):
        private.close()
        raise _explain(policy, level)
    noted = inquiries or Inquiries()
    return Sandbox(policy=policy, level=level, confinement=confinement, private=private, inquiries=noted)


def _prove_once(confinement: Confinement, policy: Policy, level: Level, private: PrivateDir) -> bool:
    proof = find_proof(confinement, policy, private, acts=ACTS)
    if has_proof(proof):
        return True
    proven = holds(prove(policy, level))
    if proven:
        save_proof(proof)
    return proven


def _other_way(policy: Policy) -> str:
    if is_container(policy.env):
        return "--sandbox container: commands run in this container without a sandbox of their own"
    return "--sandbox off: commands run without protection"


def _explain(policy: Policy, level: Level) -> SandboxError:
    failed = [
        f"{Mechanism.BWRAP}: {act.act}: expected to be {act.expected}, was {act.happened}"
        for act in prove(policy, level)
        if not act.holds
    ]
    if find_bwrap() is None and sys.platform == "linux":
        failed.insert(0, "bubblewrap (bwrap) is not installed")
    way = find_way(policy.root, has_bwrap=find_bwrap() is not None)
    if not os.access(policy.root, os.W_OK) and level is Level.WORKSPACE_WRITE:
        return SandboxError("sessions write in the repository, and you cannot", hint=way)
    return SandboxError(
        f"no sandbox on this machine holds {level}: {'; '.join(failed) or 'there is no mechanism for it'}",
        hint=f"{way}; or {_other_way(policy)}",
    )
