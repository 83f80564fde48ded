"""Hostile acts, each really tried: nothing outside what the level allows changes or leaks.

The acts are in `acts.py`. Without protection the same acts get through: see the controls.
"""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from relay.sandbox.policy import Level
from tests.effort import NIGHTLY
from tests.sandbox.acts import ALONE, PRELUDE, PYTHON_ACTS, SHELL_ACTS, name_null, share_memory

SECRETS = (b"THROUGH", b"ssh-secret", b"aws-secret", b"netrc-secret", b"env-secret", b"sk-secret", b"system-secret")
LEVELS = (Level.WORKSPACE_WRITE, Level.READ_ONLY)


def fingerprint(*tops: Path) -> dict[str, tuple[int, int, bytes]]:
    """Type and mode, time and content of everything below."""
    seen = {}
    for top in tops:
        for path in [top, *top.rglob("*")]:
            stat = path.lstat()
            body = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            xattrs = [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")]
            seen[str(path)] = (stat.st_mode, stat.st_mtime_ns if body else 0, body + str(xattrs).encode())
    return seen


def kept(place: Any, level: Level) -> dict[str, tuple[int, int, bytes]]:
    """What the level promises to keep."""
    root = place.root
    inside = [root / name for name in (".git", "PLAN.md", ".relay", "AGENTS.md", "docs", "vendor")]
    return fingerprint(place.outside, place.home, *([root] if level is Level.READ_ONLY else inside))


class Host:
    """Servers and names that the acts aim at."""

    def __init__(self, place: Any, stack: ExitStack) -> None:
        self.tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.udp.bind(("127.0.0.1", 0))
        self.udp.settimeout(0)
        abstract = f"relay-test-{os.getpid()}-{place.root.parent.name}"
        for address in (str(place.outside / "socket"), f"\0{abstract}"):
            unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            unix.bind(address)
            unix.listen()
        aside = subprocess.Popen(("/bin/sleep", "60"), env={"SERVER_API_KEY": "sk-secret"})
        stack.enter_context(aside)
        stack.callback(aside.kill)
        self.env = {
            "G": ".git",
            "OUT": str(place.outside),
            "USER_HOME": str(place.home),
            "RELAY_PID": str(os.getpid()),
            "TCP": str(self.tcp.getsockname()[1]),
            "UDP": str(self.udp.getsockname()[1]),
            "ABSTRACT": abstract,
            "SHARED": str(share_memory(stack)),
            "DEV_NULL": name_null(),
        }

    def got_datagram(self) -> bool:
        try:
            return bool(self.udp.recv(10))
        except BlockingIOError:
            return False


def find_leaks(output: bytes) -> list[bytes]:
    return [secret for secret in SECRETS if secret in output]


def find_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [path for path in before | after if before.get(path) != after.get(path)]


@pytest.fixture
def host(place: Any) -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(place, stack)


TOGETHER = tuple(act for act in SHELL_ACTS if act != ALONE)
ONE_BY_ONE = """
import json, subprocess, sys
for act, script in json.loads(sys.argv[1]).items():
    print('@@@', act, flush=True); subprocess.run(('bash', '-c', script), stderr=2)
"""


def try_acts(place: Any, box: Any, host: Host, program: str, acts: dict[str, str]) -> dict[str, bytes]:
    """Try acts one after the other in one command; return what each printed that leaks. Nothing must have changed."""
    level = box.sandbox.level
    before = kept(place, level)
    output = box.python(program, json.dumps(acts), extra_env=host.env).output
    assert find_changes(before, kept(place, level)) == []
    assert not host.got_datagram()
    said = dict(zip(acts, output.split(b"@@@ ")[1:], strict=True))
    return {act: words for act, words in said.items() if find_leaks(words)}


@pytest.mark.parametrize("acts", [(act,) for act in SHELL_ACTS] if NIGHTLY else [TOGETHER, (ALONE,)])
def test_shell_acts_are_held(place: Any, host: Host, writer: Any, acts: tuple[str, ...]) -> None:
    """Shell commands that may write the repository get nothing beyond it."""
    assert try_acts(place, writer, host, ONE_BY_ONE, {act: SHELL_ACTS[act] for act in acts}) == {}


def test_reader_holds_every_shell_act(place: Any, host: Host) -> None:
    """Read-only changes nothing; only a private file is left."""
    with place.open(Level.READ_ONLY) as box:
        assert try_acts(place, box, host, ONE_BY_ONE, {act: SHELL_ACTS[act] for act in TOGETHER}) == {}


@pytest.mark.parametrize("level", LEVELS)
def test_system_calls_are_held(place: Any, host: Host, level: Level) -> None:
    """A program that makes system calls itself gets nothing that the level forbids."""
    with place.open(level) as box:
        assert try_acts(place, box, host, PRELUDE, PYTHON_ACTS) == {}


CONTROLS = (
    "create a file outside",
    "chmod outside",
    "plant a hook",
    "delete a branch",
    "tick a box with sed",
    "replace nested rules by their directory",
    "read an ssh key",
    "read .env",
    "signal relay",
    "connect by the shell",
)
NETWORK = ("connect to a TCP server", "connect to a Unix socket", "connect to an abstract Unix socket")


def test_control_without_protection(place: Any, host: Host, bare: Any) -> None:
    """The same acts get through when nothing confines them, so the tests above can see something."""
    held, before = [], kept(place, Level.WORKSPACE_WRITE)
    for act in CONTROLS:
        output = bare.run("bash", "-c", SHELL_ACTS[act], extra_env=host.env).output
        after = kept(place, Level.WORKSPACE_WRITE)
        if not (find_changes(before, after) or find_leaks(output)):
            held.append(act)
        before = after
    assert held == []
    acts = {name: PYTHON_ACTS[name] for name in (*NETWORK, "send a datagram", "use the host's shared memory")}
    output = bare.python(PRELUDE, json.dumps(acts), extra_env=host.env).output
    assert output.count(b"THROUGH") == len(acts) - 1, output
    assert host.got_datagram()


def test_wanted_acts_work(place: Any, writer: Any) -> None:
    """Editing, creating and chmod in the repository are what a session is for."""
    assert writer.sh("echo 'VALUE = 2' > src/app.py && chmod 755 src/app.py && echo new > top.txt").exit_code == 0
    assert (place.root / "src/app.py").read_text() == "VALUE = 2\n"
    assert (place.root / "src/app.py").stat().st_mode & 0o777 == 0o755
    assert (place.root / "top.txt").read_text() == "new\n"


LAYERS = (
    "cat /proc/self/status; cut -d' ' -f6 /proc/self/stat; "
    "touch $TMPDIR/own && chmod 711 $TMPDIR/own && touch -d 2001-01-01 $TMPDIR/own"
)
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


def read_status(text: str) -> dict[str, int]:
    rows = (line.split(":\t") for line in text.splitlines() if ":\t" in line)
    wanted = (*CAPABILITIES, "NoNewPrivs", "Seccomp", "Seccomp_filters")
    return {name: int(value, 16) for name, value in rows if name in wanted}


@pytest.mark.parametrize(
    ("level", "for_agent", "changes_times"),
    [(Level.WORKSPACE_WRITE, False, True), (Level.READ_ONLY, False, False), (Level.READ_ONLY, True, True)],
)
def test_each_layer_is_there_though_another_one_hides_its_loss(
    place: Any, level: Level, *, for_agent: bool, changes_times: bool
) -> None:
    """No capability, as root too; a filter of system calls; a session that is not the terminal's."""
    with place.open(level, for_agent=for_agent) as box:
        result = box.sh(LAYERS)
    mine = read_status(Path("/proc/self/status").read_text()).get("Seccomp_filters")  # a container has one, too
    assert read_status(result.output.decode()) == {
        **dict.fromkeys(CAPABILITIES, 0),
        "NoNewPrivs": 1,
        "Seccomp": 2,
        **({} if mine is None else {"Seccomp_filters": mine + 1}),  # since Linux 5.9
    }
    assert b"\n1\n" in result.output  # the session's leader is the first process of the sandbox; 0 is somebody outside
    assert (result.exit_code == 0) == changes_times


def test_foreign_architecture_is_killed(reader: Any) -> None:
    """A call through the x32 door, which a filter by number would miss, ends the process."""
    result = reader.python("import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39); print('THROUGH')")
    if os.uname().machine == "x86_64":
        assert result.exit_code == 128 + 31  # SIGSYS


def test_planted_link_makes_no_mount_point_on_the_host(place: Any) -> None:
    """CVE-2026-87766: a link in the way of a protected path must not become a file outside."""
    (place.root / "link").symlink_to(f"/oldroot{place.outside}")
    (place.root / "docs" / "rules").symlink_to(place.outside / "rules")
    protected = (place.root / "link" / "planted", place.root / "docs" / "rules", place.root / "absent" / "x")
    before = fingerprint(place.root, place.outside)
    with place.open(Level.WORKSPACE_WRITE, protected=protected, unreadable=protected) as box:
        assert box.sh("true").exit_code == 0
    assert fingerprint(place.root, place.outside) == before


@pytest.mark.parametrize("level", [Level.WORKSPACE_WRITE, Level.READ_ONLY])
def test_links_in_a_circle_stop_nothing(place: Any, writer: Any, level: Level) -> None:
    """A link to itself in the place of a protected file, a rules file, a secret or the plan leads nowhere."""
    script = "for name in missing.toml src/CLAUDE.md src/.env; do ln -s $(basename $name) $name; done"
    assert writer.sh(script).exit_code == 0
    assert writer.sh("true").exit_code == 0
    circles = (place.root / "src" / ".env",)
    with place.open(level, unreadable=circles) as box:
        assert box.sh("cat src/app.py").output == b"VALUE = 1\n"


def test_what_is_hidden_within_what_is_hidden_stops_nothing(place: Any) -> None:
    docs = place.root / "docs"
    with place.open(Level.WORKSPACE_WRITE, unreadable=(docs / "AGENTS.md", docs)) as box:
        assert box.sh("ls docs; cat src/app.py").output == b"VALUE = 1\n"


def test_planted_link_does_not_show_what_is_hidden(place: Any) -> None:
    """A protected name that is a link to a credential stays as unreadable as the credential."""
    key = place.home / ".ssh" / "id_ed25519"
    (place.root / "PLAN.md").unlink()
    (place.root / "PLAN.md").symlink_to(key)
    (place.root / "CLAUDE.md").symlink_to(key)
    (place.root / "src" / ".git").symlink_to(key.parent)
    with place.open(Level.WORKSPACE_WRITE) as box:
        assert find_leaks(box.sh(f"cat PLAN.md CLAUDE.md src/.git/* {key}").output) == []
        assert "PLAN.md is a symbolic link" in box.sandbox.gaps[-1]
