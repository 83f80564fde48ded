"""Opens a sandbox, proves it by behaviour, and runs commands in it.

A version number or an installed program proves nothing: user namespaces can be switched off, a container can mask
/proc. So relay tries acts that must fail and acts that must work.
"""

import contextlib
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from relay.base.errors import SandboxError
from relay.base.tree import make_temporary_name
from relay.base.values import dataclass
from relay.sandbox import inside, supervisor
from relay.sandbox.bwrap import Bwrap, find_bwrap, open_bwrap
from relay.sandbox.command import CommandResult, make_not_started, run_started, wrap_limits
from relay.sandbox.openings import Inquiries
from relay.sandbox.places import scan_repository
from relay.sandbox.policy import Level, Limits, Mechanism, Policy, WritableCopy
from relay.sandbox.private_folder import NOBODY, PrivateDir, end_survivors
from relay.sandbox.process import ATTEMPTS, Launch, Started, spawn
from relay.sandbox.toolchains import build_env, list_usable

_GAPS = {
    Mechanism.CONTAINER: "this container alone protects what is outside of it: commands may read and change all that "
    "is in it, the plan and credentials too",
    Mechanism.OFF: "commands run without protection, as the user asked",
}
NO_ENV: Mapping[str, str] = MappingProxyType({})


def never() -> bool:
    """Return False: no stop was requested."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Runs commands at one level, one at a time. Close it, or use `with`: it owns a private directory.

    Its temporary directory lives from command to command. Nothing else that a command leaves behind does.
    """

    policy: Policy
    level: Level
    """The level that was asked for; without `bwrap` nothing enforces it."""
    mechanism: Mechanism = Mechanism.BWRAP
    bwrap: Bwrap | None
    """None where relay confines nothing: in a container that the user trusts, and with `--sandbox off`."""
    private: PrivateDir
    inquiries: Inquiries = field(default_factory=Inquiries)
    """The hosts that commands ask the policy's openings for."""
    hear: Callable[[bytes], None] = lambda _: None
    """Called ten times a second while a command runs, with the end of its output, on the caller's thread."""

    @property
    def tmp(self) -> Path:
        """The private temporary directory as commands see it (their TMPDIR)."""
        return self.bwrap.view.tmp if self.bwrap else self.private.tmp

    @property
    def inside(self) -> Path:
        """`inside.py` as commands see it."""
        return self.bwrap.inside if self.bwrap else Path(inside.__file__)

    @property
    def shares_user(self) -> bool:
        """Whether the kernel counts the user's other processes against a command's limit."""
        return self.bwrap is None or self.bwrap.shares_user

    def show(self, text: str) -> str:
        """Return a text with each path of the work tree, and of git's directory, as commands see it."""
        return self.bwrap.show(text) if self.bwrap else text

    @property
    def gaps(self) -> tuple[str, ...]:
        """A sentence for the user on each protection that this machine cannot give."""
        return self.bwrap.gaps if self.bwrap else (_GAPS[self.mechanism],)

    def build_launch(self, command: Sequence[str], *, cwd: Path, extra_env: Mapping[str, str] = NO_ENV) -> Launch:
        """Return the launch for a command whose first word is an absolute path, as the file system is now.

        The caller starts the launch once, or closes its descriptors.

        Raises:
            SandboxError: The sandbox cannot be set up as things are now.
        """
        if self.bwrap is not None:
            return self.bwrap.build_launch(tuple(command), cwd=cwd, extra_env=extra_env)
        policy = self.policy
        home = Path(policy.env.get("HOME") or self.tmp)
        env = build_env(policy, home=home, tmp=self.tmp, stores=list_usable(home, policy.env))
        argv = (sys.executable, "-I", "-S", supervisor.__file__, str(cwd), "--", *command)
        return Launch(argv=argv, env={**env, **extra_env})

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
        """Run a command until it and all its descendants are gone.

        Args:
            argv: The command; no shell reads it unless it names one.
            limits: Time, sizes, processes.
            cwd: Directory in the repository; None for its top.
            should_stop: Polled ten times a second; True kills the command.
            spool: File for the whole output, up to `limits.spool_bytes`.
            extra_env: Variables on top of the allow-list; only relay's own code gives them.
            streams: Descriptors for the command's input, output and errors, which stay the caller's. None: the command
                has no input, and the result holds its output. A terminal becomes the command's controlling terminal.

        Raises:
            SandboxError: The sandbox could not be set up. The command itself never causes an exception.
        """
        root = self.policy.root
        cwd = (root if cwd is None else root / cwd).resolve()
        if not cwd.is_dir() or not cwd.is_relative_to(root):
            return make_not_started(f"{cwd} is not a directory of the repository")
        if not argv:
            return make_not_started("there is no command")
        words = ""
        for _ in range(ATTEMPTS):
            try:
                started = self._spawn(argv, streams or (), limits=limits, cwd=cwd, extra_env=extra_env)
            except (OSError, ValueError) as error:  # too long, a NUL byte, not encodable: the command line's fault
                return make_not_started(f"cannot run this: {error}")
            result, last = run_started(started, limits=limits, should_stop=should_stop, spool=spool, hear=self.hear)
            if started.process.returncode < 0:  # killed: of bwrap's two processes the other one may stay
                end_survivors(self.private.tmp)
            if result:
                return replace(result, notes=(*result.notes, *self.inquiries.take_refusals()))
            words = next(iter(last.decode(errors="replace").strip().splitlines()[-1:]), "no message")
        raise SandboxError(f"the sandbox could not be set up: {words}", hint="relay doctor tries each part of it")

    def _spawn(
        self,
        argv: Sequence[str],
        streams: tuple[int, ...],
        *,
        limits: Limits,
        cwd: Path,
        extra_env: Mapping[str, str],
    ) -> Started:
        """Start a command that waits to be let go; `inside.py` gives it copies of `streams` as its own."""
        passed, first = tuple(map(os.dup, streams)), list[str]()
        if passed:
            words = f"streams={','.join(map(str, passed))}", *(["terminal"] if os.isatty(passed[0]) else [])
            first = [sys.executable, "-I", "-S", str(self.inside), *words, "--"]
        waiting = wrap_limits((*first, *argv), limits, shared_user=self.shares_user)
        try:
            launch = self.build_launch(waiting, cwd=cwd, extra_env=extra_env)
        except OSError as error:  # no file descriptors or no memory left, say; the command is not at fault
            raise SandboxError(
                f"the sandbox could not be laid out: {error}", hint="relay doctor tries each part of it"
            ) from error
        return spawn(replace(launch, pass_fds=(*launch.pass_fds, *passed)), stderr=subprocess.STDOUT)

    def start_anew(self, user: tuple[str, str] = NOBODY) -> Self:
        """Return the same sandbox with an empty private directory, where git knows `user`; the caller closes it."""
        private = PrivateDir(user)
        bwrap = self.bwrap and self.bwrap.start_anew(private)
        return replace(self, bwrap=bwrap, private=private)

    def look_again(self) -> Self:
        """Return this sandbox with the repository's files to hide and to protect as they are now.

        Raises:
            SandboxError: More paths need protection than a sandbox can hold.
        """
        return replace(self, bwrap=self.bwrap and replace(self.bwrap, found=scan_repository(self.policy.root)))

    def reveal(self, place: Path) -> Self:
        """Return this sandbox with a file of the repository shown that is hidden only for its name."""
        if self.bwrap is None:
            return self
        secrets = tuple(secret for secret in self.bwrap.found.secrets if secret != place)
        return replace(self, bwrap=replace(self.bwrap, found=replace(self.bwrap.found, secrets=secrets)))

    def put_copy(self, copy: WritableCopy) -> Self:
        """Return this sandbox with a writable copy in the place of a file or directory; the same without bubblewrap."""
        bwrap = self.bwrap and replace(self.bwrap, copies=(*self.bwrap.copies, copy))
        return replace(self, bwrap=bwrap)

    def close(self) -> None:
        """Remove the private directory."""
        self.private.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_sandbox(
    policy: Policy, level: Level, *, mechanism: Mechanism = Mechanism.BWRAP, inquiries: Inquiries | None = None
) -> Sandbox:
    """Open a sandbox. One of bubblewrap proves itself.

    Args:
        policy: The repository and its rules.
        level: What commands may write.
        mechanism: Another mechanism than bubblewrap, if the user has typed it.
        inquiries: Where the policy's openings note the hosts that they are asked for; None if they note nothing.

    Raises:
        SandboxError: It does not hold the level here; the message says what was tried and what happened.
    """
    require_mechanism(policy, level, mechanism)
    if not mechanism.confines:
        return Sandbox(policy=policy, level=level, mechanism=mechanism, bwrap=None, private=PrivateDir())
    root = policy.root
    kind = (level, policy.network, root.stat().st_dev, os.access(root, os.W_OK), policy.seen_at is not None)
    if kind not in _PROVEN:
        acts = prove(policy, level)
        if not holds(acts):
            raise _explain(policy, level, acts)
        _PROVEN.add(kind)
    return replace(_open_unproven(policy, level), inquiries=inquiries or Inquiries())


def require_mechanism(policy: Policy, level: Level, mechanism: Mechanism) -> None:
    """Refuse a mechanism that is not here at all; whether one works only an opened sandbox proves.

    Raises:
        SandboxError: It is not.
    """
    if mechanism is Mechanism.CONTAINER:
        require_container(policy.env)
    if mechanism.confines and find_bwrap() is None:
        raise _explain(policy, level, ())


def _open_unproven(policy: Policy, level: Level) -> Sandbox:
    private = PrivateDir()
    return Sandbox(policy=policy, level=level, bwrap=open_bwrap(policy, level, private), private=private)


_PROVEN: set[tuple[object, ...]] = set()
"""The kinds of sandbox that have proven themselves in this process."""


def _explain(policy: Policy, level: Level, acts: "tuple[ProbeAct, ...]") -> SandboxError:
    failed = [
        f"{Mechanism.BWRAP}: {act.act}: expected to be {act.expected}, was {act.happened}"
        for act in acts
        if not act.holds
    ]
    has_bwrap = find_bwrap() is not None
    if not has_bwrap:
        failed.insert(0, "bubblewrap (bwrap) is not installed")
    way = find_way(policy.root, has_bwrap=has_bwrap)
    if not os.access(policy.root, os.W_OK) and level is Level.WORKSPACE_WRITE:
        return SandboxError("sessions write in the repository, and you cannot", hint=way)
    other = (
        "--sandbox container: commands run in this container without a sandbox of their own (relay help mac)"
        if is_container(policy.env)
        else "--sandbox off: commands run without protection"
    )
    words = f"no sandbox on this machine holds {level}: {'; '.join(failed) or 'there is no mechanism for it'}"
    return SandboxError(words, hint=f"{way}; or {other}")


_INSTALLERS = {
    "apt-get": "sudo apt-get install -y bubblewrap",
    "dnf": "sudo dnf install -y bubblewrap",
    "yum": "sudo yum install -y bubblewrap",
    "apk": "sudo apk add bubblewrap",
    "pacman": "sudo pacman -S --noconfirm bubblewrap",
    "zypper": "sudo zypper install -y bubblewrap",
    "xbps-install": "sudo xbps-install -y bubblewrap",
    "emerge": "sudo emerge sys-apps/bubblewrap",
}
_MARKS = (".dockerenv", "run/.containerenv", "run/systemd/container")
_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")
"""Variables that podman and nspawn, and Kubernetes set. Source: https://systemd.io/CONTAINER_INTERFACE/."""
_CLOSED = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
)
"""Kernel settings that close namespaces: Ubuntu since 23.10, Debian before 11, RHEL 7 and hardened systems."""


def find_install_command() -> str | None:
    """Return the command of this machine's package manager that installs bubblewrap; None if none is known."""
    return next((command for program, command in _INSTALLERS.items() if shutil.which(program)), None)


def is_container(environ: Mapping[str, str], *, top: Path = Path("/")) -> bool:
    """Return whether this machine declares itself a container: docker, podman, nspawn or a pod of Kubernetes.

    Args:
        environ: relay's own environment.
        top: Where containers leave their marks.
    """
    return any((top / mark).exists() for mark in _MARKS) or any(environ.get(name) for name in _VARIABLES)


def require_container(environ: Mapping[str, str], *, top: Path = Path("/")) -> None:
    """Refuse a machine that is no container; see `is_container`.

    Raises:
        SandboxError: It is none.
    """
    if not is_container(environ, top=top):
        raise SandboxError(
            "commands run in the container alone only inside of one, and nothing says that this machine is a container",
            hint="leave out --sandbox container: relay's own sandbox is bubblewrap",
        )


def find_way(root: Path, *, has_bwrap: bool, proc: Path = Path("/proc/sys"), top: Path = Path("/")) -> str:
    """Return advice for a machine on which commands cannot be confined, from what is found on it.

    Args:
        root: The repository.
        has_bwrap: Whether bubblewrap is installed.
        proc: Where the kernel's settings are.
        top: Where containers leave their marks.
    """
    if not os.access(root, os.W_OK) or not root.stat().st_mode & 0o222:  # root's commands have no rights of root's
        return f"{root} cannot be written by you: give yourself write access, or work in a copy that you may write"
    if Path(tempfile.gettempdir()).resolve().is_relative_to(root.resolve()):
        return "temporary files are in the repository here, where commands write: unset TMPDIR, or name another place"
    if not has_bwrap:
        return find_install_command() or "install bubblewrap; relay has no other mechanism here"
    if is_container({}, top=top):
        return (
            "bubblewrap is installed, and this container lets it make no namespaces: start the container with "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        )
    for name, closed, way in _CLOSED:
        with contextlib.suppress(OSError):  # absent, or only root may read it
            if (proc / name).read_text().strip() == closed:
                return f"bubblewrap is installed, and the kernel lets it make no namespaces: sudo sysctl -w {way}"
    return "bubblewrap is installed, and does not hold here; relay doctor shows each part"


_LIMITS = Limits(timeout_s=20)
_AIMS = ("outside", "system", "git", "repository")
"""Acts that make a file, which relay looks for and removes on the host."""

ACTS = """
import json, os, socket, sys
case = json.loads(sys.argv[1])
def make(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as peer:
        peer.settimeout(2)
        peer.connect(address)
def seccomp():
    with open('/proc/self/status') as status:
        if 'Seccomp:\\t2' not in status.read():
            raise OSError('no seccomp filter is loaded')
acts = {
    'outside': lambda: make(case['outside']),
    'system': lambda: make(case['system']),
    'git': lambda: make(case['git']),
    'mode': lambda: os.chmod(case['mode'], case['mode_bits']),
    'tcp': lambda: connect(socket.AF_INET, ('127.0.0.1', case['tcp'])),
    'unix': lambda: connect(socket.AF_UNIX, case['unix']),
    'abstract': lambda: connect(socket.AF_UNIX, case['abstract']),
    'signal': lambda: os.kill(case['signal'], 0),
    'key': lambda: os.environ[case['key']],
    'seccomp': seccomp,
    'repository': lambda: make(case['repository']),
    'private': lambda: make(os.environ['TMPDIR'] + '/' + case['name']),
}
said = {}
for name in acts:
    if case.get(name, True) is None:
        continue
    try:
        acts[name]()
        said[name] = None
    except Exception as error:
        said[name] = str(error)
print(json.dumps(said))
"""
"""The program that runs inside; it prints one JSON object: act to null if it worked, else to the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAct:
    """One act that was tried inside the sandbox, as `relay doctor` shows it."""

    level: Level
    act: str
    """The act in words."""
    expected: str
    """``refused`` or ``allowed``."""
    happened: str
    """``allowed``, or ``refused: `` and the error's words."""
    holds: bool


def probe(policy: Policy) -> tuple[ProbeAct, ...]:
    """Try bubblewrap at both levels; empty if it is not installed.

    Raises:
        SandboxError: The repository cannot be protected at all.
    """
    return tuple(act for level in (Level.WORKSPACE_WRITE, Level.READ_ONLY) for act in prove(policy, level))


@functools.lru_cache(maxsize=32)
def prove(policy: Policy, level: Level) -> tuple[ProbeAct, ...]:
    """Try bubblewrap at one level, once per process; empty if it is not installed."""
    if find_bwrap() is None:
        return ()
    with _open_unproven(policy, level) as sandbox:
        return _try_acts(sandbox)


def holds(acts: tuple[ProbeAct, ...]) -> bool:
    """Return whether the acts prove the sandbox."""
    return bool(acts) and all(act.holds for act in acts)


def _try_acts(sandbox: Sandbox) -> tuple[ProbeAct, ...]:
    level = sandbox.level
    with _make_case(sandbox.policy) as case:
        try:
            shown = case | {"repository": sandbox.show(case["repository"])}
            output = sandbox.run((sys.executable, "-I", "-S", "-c", ACTS, json.dumps(shown)), limits=_LIMITS).output
        except SandboxError as error:
            return (_judge(level, "run a command", wanted=True, said=str(error)),)
        try:
            said = json.loads(output)
        except ValueError:
            words = output.decode(errors="replace").strip() or "no answer"
            return (_judge(level, "run a command", wanted=True, said=words),)
        # Writes that worked in a directory of the sandbox's own, which the host never saw.
        unreal = [aim for aim in _AIMS if said.get(aim, "") is None and not Path(case[aim]).exists()]
        said |= dict.fromkeys(unreal, "it stayed inside the sandbox")
    acts = {  # in words, and whether each must work
        "outside": ("write a file in another temporary directory", False),
        "system": ("write a file beside the repository", False),
        "git": ("write a file in the git directory", False),
        "mode": ("change the mode of a file in the git directory", False),
        "tcp": ("connect to a TCP server of this machine", sandbox.policy.network),
        "unix": ("connect to a Unix socket outside", False),
        "abstract": ("connect to an abstract Unix socket outside", False),
        "signal": ("signal relay", False),
        "key": ("read a secret variable of relay", False),
        "seccomp": ("have a system call filter loaded", True),
        "repository": ("write a file in the repository", level is Level.WORKSPACE_WRITE),
        "private": ("write a file in the private temporary directory", True),
    }
    return tuple(_judge(level, acts[name][0], wanted=acts[name][1], said=said[name]) for name in said)


def _judge(level: Level, act: str, *, wanted: bool, said: str | None) -> ProbeAct:
    return ProbeAct(
        level=level,
        act=act,
        expected="allowed" if wanted else "refused",
        happened="allowed" if said is None else f"refused: {said}",
        holds=wanted == (said is None),
    )


@contextmanager
def _make_case(policy: Policy) -> Iterator[dict[str, Any]]:
    """Set up the targets of the acts: real servers, a real directory, names that exist nowhere else."""
    name = make_temporary_name()  # a run that is killed here leaves it in the repository
    git_dir = next((place for place in policy.git_dirs if (place / "config").is_file()), None)
    with ExitStack() as stack:
        outside = stack.enter_context(closing(PrivateDir())).path  # relay removes it later if it is killed here
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for address in (str(outside / "socket"), f"\0{name}"):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            unix.bind(address)
            unix.listen()
        case = {
            "name": name,
            "outside": str(outside / name),
            "system": str(policy.root.parent / name),
            "git": str(git_dir / name) if git_dir else None,
            "mode": str(git_dir / "config") if git_dir else None,
            "mode_bits": (git_dir / "config").stat().st_mode & 0o7777 if git_dir else 0,
            "tcp": tcp.getsockname()[1],
            "unix": str(outside / "socket"),
            "abstract": f"\0{name}",
            "signal": os.getpid(),
            "key": "ANTHROPIC_API_KEY",
            "repository": str(policy.root / name),
        }
        try:
            yield case
        finally:
            for aim in _AIMS:
                if case[aim] is not None and Path(str(case[aim])).exists():
                    Path(str(case[aim])).unlink()
