"""Proves a confinement by behaviour: what must fail is really tried, and what must work too.

A version number or an installed program proves nothing: user namespaces can be switched off, a container can mask
/proc, a best-effort library can answer OK and enforce nothing.
"""

import functools
import json
import os
import socket
import sys
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
