"""Proves a confinement by behaviour: tries what must fail and what must work, and says what helps if it does not hold.

A version number or an installed program proves nothing: user namespaces can be switched off, a container can mask
/proc, and a best-effort library can answer OK and enforce nothing.
"""

import functools
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from relay.base.errors import SandboxError
from relay.base.replacement import make_temporary_name
from relay.base.values import dataclass
from relay.sandbox.bwrap import open_bwrap
from relay.sandbox.confined_run import run_confined
from relay.sandbox.confinement import Confinement
from relay.sandbox.policy import Level, Limits, Policy
from relay.sandbox.private_folder import PrivateDir

_INSTALLERS = {
    "apt-get": "sudo apt-get install -y bubblewrap",
    "dnf": "sudo dnf install -y bubblewrap",
    "yum": "sudo yum install -y bubblewrap",
    "apk": "sudo apk add bubblewrap",
    "pacman": "sudo pacman -S --noconfirm bubblewrap",
    "zypper": "sudo zypper install -y bubblewrap",
    "xbps-install": "sudo xbps-install -y bubblewrap",
    "emerge": "sudo emerge sys-apps/bubblewrap",
    "brew": "brew install bubblewrap",
}


_MARKS = (".dockerenv", "run/.containerenv", "run/systemd/container")
_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")
"""Of podman and nspawn; of Kubernetes. Source: https://systemd.io/CONTAINER_INTERFACE/."""


def find_install_command() -> str | None:
    """Return the command for the package manager found; None when none is known or there is nothing to install."""
    if sys.platform != "linux":
        return None
    return next((command for program, command in _INSTALLERS.items() if shutil.which(program)), None)


def is_container(environ: Mapping[str, str], *, top: Path = Path("/")) -> bool:
    """Whether this machine says of itself that it is a container: docker, podman, nspawn or a pod of Kubernetes.

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
    """Return what to do where commands could not be confined; what is found on the machine says which it is.

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
        if _read(proc / name) == closed:
            return f"bubblewrap is installed, and the kernel lets it make no namespaces: sudo sysctl -w {way}"
    return "bubblewrap is installed, and does not hold here; relay doctor shows each part"


_CLOSED = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
)
"""Of Ubuntu since 23.10, of Debian before 11, of RHEL 7 and hardened systems."""


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


_LIMITS = Limits(timeout_s=20)

_AIMS = ("outside", "system", "git", "repository")
"""Acts that make a file; it is looked for and removed on the host."""

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
"""The program that runs inside; it prints one JSON object: act to null when it worked, else to the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAct:
    """One act that was tried inside the sandbox, as `relay doctor` shows it."""

    level: Level
    act: str
    """What was tried."""
    expected: str
    """``refused`` or ``allowed``."""
    happened: str
    """``allowed``, or ``refused: `` and the error's words."""
    holds: bool


def probe(policy: Policy) -> tuple[ProbeAct, ...]:
    """Try bubblewrap at both levels; empty where it is not installed.

    Raises:
        SandboxError: The repository cannot be protected at all.
    """
    return tuple(act for level in (Level.WORKSPACE_WRITE, Level.READ_ONLY) for act in prove(policy, level))


@functools.lru_cache(maxsize=32)
def prove(policy: Policy, level: Level) -> tuple[ProbeAct, ...]:
    """Try bubblewrap at one level; once per process. Empty where it is not installed."""
    private = PrivateDir()
    try:
        confinement = open_bwrap(policy, level, private)
        return () if confinement is None else _try_acts(confinement, policy, level)
    finally:
        private.close()


def holds(acts: tuple[ProbeAct, ...]) -> bool:
    """Say whether the acts prove the confinement."""
    return bool(acts) and all(act.holds for act in acts)


def _try_acts(confinement: Confinement, policy: Policy, level: Level) -> tuple[ProbeAct, ...]:
    with _make_case(policy) as case:
        argv = (sys.executable, "-I", "-S", "-c", ACTS, json.dumps(case))
        try:
            output = run_confined(confinement, argv, cwd=policy.root, limits=_LIMITS).output
        except SandboxError as error:
            return (_judge(level, "run a command", wanted=True, said=str(error)),)
        try:
            said = json.loads(output)
        except ValueError:
            words = output.decode(errors="replace").strip() or "no answer"
            return (_judge(level, "run a command", wanted=True, said=words),)
        said |= _find_unreal(case, said)
    acts = _describe(level, network=policy.network)
    return tuple(_judge(level, acts[name][0], wanted=acts[name][1], said=said[name]) for name in said)


def _find_unreal(case: Mapping[str, Any], said: Mapping[str, str | None]) -> dict[str, str]:
    """Writes that worked but only in a directory of the sandbox's own: the host never saw them."""
    aims = [name for name in _AIMS if said.get(name, "") is None]
    return {name: "it stayed inside the sandbox" for name in aims if not Path(case[name]).exists()}


def _describe(level: Level, *, network: bool) -> dict[str, tuple[str, bool]]:
    """Words for each act and whether it must work."""
    return {
        "outside": ("write a file in another temporary directory", False),
        "system": ("write a file beside the repository", False),
        "git": ("write a file in the git directory", False),
        "mode": ("change the mode of a file in the git directory", False),
        "tcp": ("connect to a TCP server of this machine", network),
        "unix": ("connect to a Unix socket outside", False),
        "abstract": ("connect to an abstract Unix socket outside", False),
        "signal": ("signal relay", False),
        "key": ("read a secret variable of relay", False),
        "seccomp": ("have a system call filter loaded", True),
        "repository": ("write a file in the repository", level is Level.WORKSPACE_WRITE),
        "private": ("write a file in the private temporary directory", True),
    }


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
    """Set up what the acts aim at: real servers, a real directory; names that exist nowhere else."""
    name = make_temporary_name()  # a run that is killed here leaves it in the repository
    git_dir = next((place for place in policy.git_dirs if (place / "config").is_file()), None)
    with ExitStack() as stack:
        outside = stack.enter_context(closing(PrivateDir())).path  # a run that is killed here leaves nothing for good
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        unix.bind(str(outside / "socket"))
        unix.listen()
        if sys.platform == "linux":
            abstract = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            abstract.bind(f"\0{name}")
            abstract.listen()
        case = {
            "name": name,
            "outside": str(outside / name),
            "system": str(policy.root.parent / name),
            "git": str(git_dir / name) if git_dir else None,
            "mode": str(git_dir / "config") if git_dir else None,
            "mode_bits": (git_dir / "config").stat().st_mode & 0o7777 if git_dir else 0,
            "tcp": tcp.getsockname()[1],
            "unix": str(outside / "socket"),
            "abstract": f"\0{name}" if sys.platform == "linux" else None,
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
