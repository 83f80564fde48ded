"""Hostile acts, each really tried: nothing outside what the level allows changes or leaks.

An act prints THROUGH (or a secret) when it got what it wanted inside, and whatever it changed on the host is seen by a
fingerprint of everything that must stay. The same acts without protection get through: see the controls.
"""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from relay.sandbox.policy import Level
from tests.effort import NIGHTLY

SECRETS = (b"THROUGH", b"ssh-secret", b"aws-secret", b"netrc-secret", b"env-secret", b"sk-secret", b"system-secret")

SHELL_ACTS = {
    "create a file outside": "echo x > $OUT/new",
    "append to a file outside": "echo x >> $OUT/file",
    "delete a file outside": "rm -f $OUT/file",
    "rename a file outside": "mv $OUT/file $OUT/gone",
    "chmod outside": "chmod 777 $OUT/file",
    "set times outside": "touch -d 2001-01-01 $OUT/file",
    "write through a planted symbolic link": "ln -s $OUT/file link && echo x > link",
    "write through a hard link": "ln $OUT/file hard && echo x > hard",
    "write in the home directory": "echo x > $USER_HOME/.bashrc",
    "plant a hook": "echo x > .git/hooks/pre-commit",
    "plant a hook by replacing the directory": "mv .git/hooks .git/h; mkdir .git/hooks; echo x > .git/hooks/pre-commit",
    "rewrite the git config": "git config core.fsmonitor /bin/evil",
    "move .git aside": "mv .git moved && mkdir .git",
    "delete .git": "rm -rf .git",
    "commit": "git commit --allow-empty -m x",
    "reset hard": "git reset --hard HEAD",
    "delete a branch": "git update-ref -d refs/heads/main",
    "stash": "echo x >> src/app.py; git stash",
    "tick a box with sed": "sed -i 's/\\[ \\]/[x]/' PLAN.md",
    "append to the plan": "echo '- [x] done' >> PLAN.md",
    "delete the plan": "rm -f PLAN.md",
    "put another plan in its place": "echo x > other; mv -f other PLAN.md",
    "chmod the plan": "chmod 777 PLAN.md",
    "write the journal": "echo x >> .relay/journal",
    "move the journal": "mv .relay r",
    "rewrite the rules": "echo x > AGENTS.md",
    "rewrite nested rules": "echo x > docs/AGENTS.md",
    "replace nested rules by their directory": "mv docs old; mkdir docs; echo x > docs/AGENTS.md",
    "plant a nested hook": "echo x > vendor/lib/.git/hooks/pre-commit",
    "replace a nested repository": "mv vendor v; mkdir -p vendor/lib/.git/hooks; echo x > vendor/lib/.git/config",
    "read an ssh key": "cat $USER_HOME/.ssh/id_ed25519",
    "read cloud credentials": "cat $USER_HOME/.aws/credentials; tar cf - $USER_HOME",
    "read .netrc": "cat $USER_HOME/.netrc",
    "read .env": "cat .env; cp .env e; cat e; tar cf - . 2>/dev/null | tr -d '\\0'",
    "read the key in the environment": "env; cat /proc/*/environ | tr '\\0' '\\n'",
    "read shadow": "head -c 5 /etc/shadow 2>/dev/null | grep -q . && test $(id -u) = 0 && echo THROUGH",
    "signal relay": "kill -0 $RELAY_PID && echo THROUGH",
    "kill everything": "kill -9 -1; true",
    "remount writable": "mount -o remount,rw / && echo THROUGH",
    "unmount the protection": "umount .git && echo THROUGH",
    "a user namespace of its own": "unshare -U -r true && echo THROUGH",
    "set core_pattern": "(: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo THROUGH",
    "open sysrq": "(: >> /proc/sysrq-trigger) 2>/dev/null && echo THROUGH",
    "make a device": "mknod $TMPDIR/disk b 254 0 && echo THROUGH",
    "open the disk": "for d in /dev/vd* /dev/sd* /dev/nvme* /dev/mem; do head -c1 $d && echo THROUGH; done 2>/dev/null",
    "set-id bit in the repository": "chmod u+s src/app.py && echo THROUGH",
    "take the terminal": "(echo x > /dev/tty) 2>/dev/null && echo THROUGH",
    "leave by the init process's root": "cat /proc/1/root$OUT/file && echo x > /proc/1/root$OUT/new",
    "write where bwrap keeps the old root": "echo x > /oldroot$OUT/new; echo x > /newroot$OUT/new",
}

PYTHON_ACTS = {
    "set an extended attribute outside": "os.setxattr(os.environ['OUT'] + '/file', 'user.x', b'1')",
    "connect to a TCP server": "connect(socket.AF_INET, ('127.0.0.1', int(os.environ['TCP'])))",
    "send a datagram": """
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b'leak', ('127.0.0.1', int(os.environ['UDP'])))
""",
    "look a name up": "socket.getaddrinfo('example.com', 443); print('THROUGH')",
    "connect to a Unix socket": "connect(socket.AF_UNIX, os.environ['OUT'] + '/socket')",
    "connect to an abstract Unix socket": "connect(socket.AF_UNIX, chr(0) + os.environ['ABSTRACT'])",
    "open a vsock": "socket.socket(40, socket.SOCK_STREAM); print('THROUGH')",
    "trace": "call(101, 117, 0)",
    "read another process's memory": "call(310, 270, int(os.environ['RELAY_PID']), 0, 0, 0, 0, 0)",
    "set up io_uring": "call(425, 425, 1, ctypes.create_string_buffer(256))",
    "load a BPF program": "call(321, 280, 0, ctypes.create_string_buffer(256), 256)",
    "use the kernel keyring": "call(250, 219, 0, -3, 1)",
    "userfaultfd": "call(323, 282, 1)",
    "new mount API": "call(430, 430, b'tmpfs', 0)",
    "open by handle": "call(304, 265, 0, 0, 0)",
    "unshare users": "call(272, 97, 0x10000000)",
    "chmod a device of the host": """
host = tuple(map(int, os.environ['DEV_NULL'].split()))
for name in ['/dev/null', *('/proc/self/fd/%d' % fd for fd in range(20))]:
    try:
        seen = os.stat(name)
        if (seen.st_dev, seen.st_ino) == host: os.chmod(name, 0o666); print('THROUGH', name)
    except OSError: pass
""",
    "write every writable kernel file": """
for top, dirs, files in os.walk('/proc'):
    dirs[:] = [d for d in dirs if not d.isdigit() and d not in ('self', 'thread-self')]
    for name in files:
        try: os.close(os.open(os.path.join(top, name), os.O_WRONLY))
        except OSError: continue
        print('THROUGH', top, name)
for top, dirs, files in os.walk('/sys/fs'):
    for name in files:
        try: os.close(os.open(os.path.join(top, name), os.O_WRONLY))
        except OSError: continue
        print('THROUGH', top, name)
""",
}

PRELUDE = """
import ctypes, json, os, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as peer:
        peer.settimeout(2); peer.connect(address); print('THROUGH')
def call(x86, arm, *args):
    '''A filtered call fails with EPERM or ENOSYS; any other failure means that it reached the kernel.'''
    number = x86 if platform.machine() == 'x86_64' else arm
    if libc.syscall(number, *args) >= 0 or ctypes.get_errno() not in (1, 38): print('THROUGH', ctypes.get_errno())
for name, act in json.loads(sys.argv[1]).items():
    print('@@@', name)
    try: exec(act)
    except OSError as error: print(error)
"""

LEVELS = (Level.WORKSPACE_WRITE, Level.READ_ONLY)


def fingerprint(*tops: Path) -> dict[str, tuple[int, int, bytes]]:
    """Type and mode, time and content of everything below."""
    seen = {}
    for top in tops:
        for path in [top, *top.rglob("*")]:
            stat = path.lstat()
            body = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            seen[str(path)] = (stat.st_mode, stat.st_mtime_ns if body else 0, body + str(list_xattr(path)).encode())
    return seen


def list_xattr(path: Path) -> list[str]:
    return [name for name in os.listxattr(path, follow_symlinks=False) if name.startswith("user.")]


def kept(place: Any, level: Level) -> dict[str, tuple[int, int, bytes]]:
    """What the level promises to keep."""
    root = place.root
    inside = [root / name for name in (".git", "PLAN.md", ".relay", "AGENTS.md", "docs", "vendor")]
    return fingerprint(place.outside, place.home, *([root] if level is Level.READ_ONLY else inside))


@contextmanager
def run_aside(env: dict[str, str]) -> Iterator[None]:
    """A process of the same user with a secret in its environment."""
    with subprocess.Popen(("/bin/sleep", "60"), env=env) as process:
        yield
        process.kill()


class Host:
    """Servers and names that the acts aim at."""

    def __init__(self, place: Any, stack: ExitStack) -> None:
        self.tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.udp.bind(("127.0.0.1", 0))
        self.udp.settimeout(0)
        unix = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        unix.bind(str(place.outside / "socket"))
        unix.listen()
        abstract = f"relay-test-{os.getpid()}-{place.root.parent.name}"
        hidden = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        hidden.bind("\0" + abstract)
        hidden.listen()
        stack.enter_context(run_aside({"SERVER_API_KEY": "sk-secret"}))
        null = Path("/dev/null").stat()
        self.env = {
            "OUT": str(place.outside),
            "USER_HOME": str(place.home),
            "RELAY_PID": str(os.getpid()),
            "TCP": str(self.tcp.getsockname()[1]),
            "UDP": str(self.udp.getsockname()[1]),
            "ABSTRACT": abstract,
            "DEV_NULL": f"{null.st_dev} {null.st_ino}",
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


ALONE = "kill everything"
"""Ends what is beside it. Without a process namespace it would be tried on the machine that runs the tests."""
TOGETHER = tuple(act for act in SHELL_ACTS if act != ALONE)
ONE_BY_ONE = """
import json, subprocess, sys
for act, script in json.loads(sys.argv[1]).items():
    print('@@@', act, flush=True); subprocess.run(('/bin/sh', '-c', script), stderr=2)
"""


def try_acts(place: Any, box: Any, host: Host, acts: tuple[str, ...]) -> dict[str, bytes]:
    """Try acts one after the other in one command; return what each printed that leaks. Nothing must have changed."""
    level = box.sandbox.level
    before = kept(place, level)
    scripts = {act: SHELL_ACTS[act] for act in acts}
    output = box.python(ONE_BY_ONE, json.dumps(scripts), extra_env=host.env).output
    assert find_changes(before, kept(place, level)) == []
    said = dict(zip(acts, output.split(b"@@@ ")[1:], strict=True))
    return {act: words for act, words in said.items() if find_leaks(words)}


@pytest.mark.parametrize("acts", [(act,) for act in SHELL_ACTS] if NIGHTLY else [TOGETHER, (ALONE,)])
def test_shell_acts_are_held(place: Any, host: Host, writer: Any, acts: tuple[str, ...]) -> None:
    """Shell commands that may write the repository get nothing beyond it."""
    assert try_acts(place, writer, host, acts) == {}


def test_reader_holds_every_shell_act(place: Any, host: Host) -> None:
    """Read-only changes nothing; only a private file is left."""
    with place.open(Level.READ_ONLY) as box:
        assert try_acts(place, box, host, TOGETHER) == {}


@pytest.mark.parametrize("level", LEVELS)
def test_system_calls_are_held(place: Any, host: Host, level: Level) -> None:
    """A program that makes system calls itself gets nothing that the level forbids."""
    with place.open(level) as box:
        before = kept(place, level)
        output = box.python(PRELUDE, json.dumps(PYTHON_ACTS), extra_env=host.env).output
        assert find_changes(before, kept(place, level)) == []
    assert output.count(b"@@@ ") == len(PYTHON_ACTS), output
    assert find_leaks(output) == [], output
    assert not host.got_datagram()


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
)


@pytest.mark.parametrize("act", CONTROLS)
def test_control_without_protection(place: Any, host: Host, bare: Any, act: str) -> None:
    """The same act gets through when nothing confines it, so the tests above can see something."""
    before = kept(place, Level.WORKSPACE_WRITE)
    output = bare.sh(SHELL_ACTS[act], extra_env=host.env).output
    assert find_changes(before, kept(place, Level.WORKSPACE_WRITE)) or find_leaks(output)


def test_control_of_the_network(host: Host, bare: Any) -> None:
    """Without protection the servers of this test do answer."""
    names = ("connect to a TCP server", "connect to a Unix socket", "connect to an abstract Unix socket")
    acts = {name: PYTHON_ACTS[name] for name in (*names, "send a datagram")}
    output = bare.python(PRELUDE, json.dumps(acts), extra_env=host.env).output
    assert output.count(b"THROUGH") == len(names), output
    assert host.got_datagram()


@pytest.mark.parametrize(
    ("script", "path"),
    [
        ("echo 'VALUE = 2' > src/app.py", "src/app.py"),
        ("echo new > top.txt", "top.txt"),
        ("chmod 755 src/app.py", "src/app.py"),
    ],
)
def test_wanted_act_works(place: Any, writer: Any, script: str, path: str) -> None:
    """Editing, creating and chmod in the repository are what a session is for."""
    target = place.root / path
    before = (target.read_text(), target.stat().st_mode) if target.exists() else None
    assert writer.sh(script).exit_code == 0
    assert (target.read_text(), target.stat().st_mode) != before


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
