"""The parts as pure values: environment, output, seccomp program, mounts."""

import os
import socket
import struct
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import SandboxError
from relay.sandbox.bwrap import MOST_COPIED_BYTES, Filter, assemble, copy_files
from relay.sandbox.command import END_BYTES, Capture
from relay.sandbox.places import (
    find_emptied,
    find_home_directory,
    find_named_sockets,
    find_unix_sockets,
    is_searchable,
)
from relay.sandbox.policy import Policy
from relay.sandbox.private_folder import PrivateDir, remove_left_overs, remove_tree
from relay.sandbox.run import find_install_command, find_way
from relay.sandbox.toolchains import NEVER, build_env
from relay.sandbox.view import Mount, Op, is_shown, list_covers


@given(
    chunks=st.lists(st.binary(max_size=40)),
    keep=st.integers(min_value=0, max_value=60),
    cap=st.integers(min_value=0, max_value=60),
)
def test_capture_keeps_head_and_tail(chunks: list[bytes], keep: int, cap: int) -> None:
    """However a stream is cut into chunks, its head and tail and their sum are kept."""
    capture = Capture(keep_bytes=keep, spool=None, spool_bytes=cap)
    for chunk in chunks:
        capture.add(chunk)
    whole = b"".join(chunks)
    assert capture.total_bytes == len(whole)
    if len(whole) <= keep:
        assert capture.render() == whole
    else:
        tail = keep - keep // 2
        assert capture.render().startswith(whole[: keep // 2])
        assert capture.render().endswith(whole[len(whole) - tail :])
        assert f"[relay: {len(whole) - keep} bytes of output cut here]".encode() in capture.render()


@pytest.mark.parametrize("keep", [0, 5_000])
def test_capture_of_an_endless_stream_stays_small(keep: int) -> None:
    """A server in the background writes all night, and a command may print as fast as it can; the end is there."""
    capture = Capture(keep_bytes=keep, spool=None, spool_bytes=0)
    tracemalloc.start()
    try:
        for _ in range(20):
            capture.add(b"y" * 100_000)
        capture.add(b"the end")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert capture.get_end() == b"the end".rjust(END_BYTES, b"y")


def test_the_copy_on_disk_begins_where_memory_does_not_hold_all_and_ends_at_its_cap(tmp_path: Path) -> None:
    """Half of what is kept is the end; a link in the way of the copy is not followed, and said."""
    spool, aim = tmp_path / "spool", tmp_path / "aim"
    capture = Capture(keep_bytes=4_000, spool=spool, spool_bytes=5_000)
    capture.add(b"x" * 2_000)
    assert not spool.exists()
    for chunk in (b"y", b"z" * 9_000):
        capture.add(chunk)
    capture.close()
    assert spool.read_bytes() == b"x" * 2_000 + b"y" + b"z" * 2_999
    assert spool.stat().st_mode & 0o777 == 0o600
    aim.write_text("kept")
    (tmp_path / "link").symlink_to(aim)
    linked = Capture(keep_bytes=4, spool=tmp_path / "link", spool_bytes=99)
    linked.add(b"hi there")
    assert "not kept" in linked.notes[0]
    assert aim.read_text() == "kept"


HOSTILE = (
    "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV",
    "ENV", "PERL5OPT", "PERL5LIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GIT_DIR", "GIT_CONFIG_COUNT", "GIT_SSH_COMMAND",
    "SSH_AUTH_SOCK", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "BASH_FUNC_ls%%", "SHELLOPTS", "PS4",
)  # fmt: skip


def test_name_that_injects_is_never_passed() -> None:
    """Neither by default nor when the user lists it."""
    given_env = dict.fromkeys(HOSTILE, "hostile")
    for listed in ((), HOSTILE):
        policy = Policy(root=Path("/r"), env=given_env, pass_env=listed)
        env = build_env(policy, home=Path("/h"), tmp=Path("/t"))
        assert [name for name, value in env.items() if value == "hostile"] == []
    assert [name for name in HOSTILE if not NEVER.fullmatch(name)] == []


def test_environment_is_an_allow_list() -> None:
    """Locale, time zone, toolchain places and listed names come through; the rest does not."""
    given_env = {
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "TZ": "UTC",
        "JAVA_HOME": "/opt/java",
        "GOPATH": "relative/go",
        "DATABASE_TOKEN": "t",
        "MINE": "m",
        "TERM": "xterm",
        "PATH": "/usr/bin:.::bin:/bin:",
        "HOME": "/home/me",
    }
    env = build_env(Policy(root=Path("/r"), env=given_env, pass_env=("MINE",)), home=Path("/h"), tmp=Path("/t"))
    kept = {"LANG": "de_DE.UTF-8", "LC_ALL": "C", "TZ": "UTC", "JAVA_HOME": "/opt/java", "MINE": "m"}
    own = {"HOME": "/h", "TMPDIR": "/t", "TERM": "dumb", "CI": "1", "PATH": "/usr/bin:/bin", "PAGER": "cat"}
    assert env.items() >= (kept | own).items()
    assert not {"DATABASE_TOKEN", "GOPATH"} & env.keys()
    assert (env["UV_OFFLINE"], env["npm_config_offline"], env["CARGO_NET_OFFLINE"]) == ("1", "true", "true")
    online = build_env(Policy(root=Path("/r"), env=given_env, network=True), home=Path("/h"), tmp=Path("/t"))
    assert not {"UV_OFFLINE", "npm_config_offline", "CARGO_NET_OFFLINE"} & online.keys()


def run_filter(program: bytes, *, arch: int, number: int, arguments: tuple[int, ...] = ()) -> int:
    """Interpret a program as the kernel does and return its answer."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator = 0
    at = 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x06:
            return int(value)
        else:
            held = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            at += if_true if held else if_false


ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
X86, ARM = 0xC000003E, 0xC00000B7


def test_filter_answers() -> None:
    """Each call gets the answer that is promised."""
    for machine, arch, number, arguments, answer in [
        ("x86_64", X86, 0, (), ALLOW),  # read
        ("x86_64", X86, 101, (), EPERM),  # ptrace
        ("x86_64", X86, 0x40000000, (), KILL),  # x32 read
        ("x86_64", 0x40000003, 1, (), KILL),  # 32-bit exit
        ("x86_64", X86, 56, (0x11,), ALLOW),  # fork by clone
        ("x86_64", X86, 56, (0x10000011,), EPERM),  # clone with a new user namespace
        ("x86_64", X86, 435, (), ENOSYS),  # clone3
        ("x86_64", X86, 90, (0, 0o755), ALLOW),  # chmod
        ("x86_64", X86, 90, (0, 0o4755), EPERM),
        ("x86_64", X86, 257, (0, 0, 0, 0o2644), EPERM),  # openat that creates a set-gid file
        ("x86_64", X86, 41, (2,), ALLOW),  # AF_INET
        ("x86_64", X86, 41, (1,), ALLOW),  # AF_UNIX
        ("x86_64", X86, 41, (40,), EPERM),  # AF_VSOCK
        ("x86_64", X86, 16, (0, 0x5412), EPERM),  # TIOCSTI
        ("x86_64", X86, 16, (0, 0xFFFFFFFF00005412), EPERM),  # the kernel reads the low half
        ("aarch64", ARM, 117, (), EPERM),  # ptrace
        ("aarch64", ARM, 101, (), ALLOW),  # nanosleep, ptrace's number on x86_64
        ("aarch64", ARM, 52, (0, 0o6755), EPERM),  # fchmod
        ("aarch64", ARM, 198, (40,), EPERM),
        ("aarch64", X86, 0, (), KILL),
    ]:
        program = assemble(Filter(), machine=machine)
        row = (machine, arch, number, arguments)
        assert run_filter(program, arch=arch, number=number, arguments=arguments) == answer, row


def test_filter_options_close_more() -> None:
    """Metadata and Unix sockets are closed on request only."""
    cases = ((Filter(metadata=True), 280, ()), (Filter(unix_sockets=True), 41, (1,)))
    for wanted, number, arguments in cases:
        for chosen, answer in ((wanted, EPERM), (Filter(), ALLOW)):
            program = assemble(chosen, machine="x86_64")
            assert run_filter(program, arch=X86, number=number, arguments=arguments) == answer


def test_filter_needs_a_known_machine() -> None:
    with pytest.raises(SandboxError, match="riscv64"):
        assemble(Filter(), machine="riscv64")


def test_visibility_follows_the_last_covering_mount() -> None:
    """A place is reached at its own name unless the last mount above it empties or replaces it."""
    home, repo = Path("/home"), Path("/home/me/repo")
    mounts = [Mount(op=Op.EMPTY, dest=home), Mount(op=Op.WRITE, source=repo, dest=repo), Mount(op=Op.FREEZE, dest=home)]
    mounts.append(Mount(op=Op.WRITE, source=Path("/elsewhere"), dest=Path("/tmp")))
    shown = [place for place in map(Path, VISITED) if is_shown(place, list_covers(mounts))]
    assert list(map(str, shown)) == ["/etc/shadow", "/home/me/repo/.env", "/homework"]


VISITED = ("/etc/shadow", "/home/me/.ssh", "/home/me/repo/.env", "/homework", "/tmp/x")


def test_system_directory_is_never_emptied_as_a_home(tmp_path: Path) -> None:
    """Containers set HOME=/ and service users live in /var or /usr."""
    assert find_home_directory({"HOME": "/"}) is None
    assert find_home_directory({"HOME": "/usr"}) is None
    assert find_home_directory({"HOME": "relative"}) is None
    assert find_home_directory({}) is None
    assert find_home_directory({"HOME": str(tmp_path)}) == tmp_path.resolve()
    assert Path("/") not in find_emptied(None, ())


def test_unix_sockets_are_read_from_the_kernel_table(tmp_path: Path) -> None:
    """Abstract, unbound and vanished sockets are not listed; a name with a space is."""
    (tmp_path / "a b").touch()
    rows = (f"{tmp_path}/a b", f"{tmp_path}/gone", "@abstract", "")
    lines = [f"0000: 00000002 00000000 00010000 0001 01 {number} {name}" for number, name in enumerate(rows)]
    (tmp_path / "unix").write_text("\n".join(["Num RefCount Protocol Flags Type St Inode Path", *lines]))
    assert find_unix_sockets(tmp_path / "unix") == (tmp_path / "a b",)


def test_a_protected_file_is_copied_up_to_a_size(tmp_path: Path) -> None:
    """Of one that is larger gates and hooks have no copy, and none of a link or a directory."""
    fits, larger, link = (tmp_path / name for name in ("fits", "larger", "link"))
    for file, size in ((fits, MOST_COPIED_BYTES), (larger, MOST_COPIED_BYTES + 1)):
        file.touch()
        os.truncate(file, size)
    link.symlink_to(fits)

    copies = copy_files((fits, larger, link, tmp_path, fits), tmp_path / "copies")

    assert [(one.dest, one.place.stat().st_size) for one in copies] == [(fits, MOST_COPIED_BYTES)]


def test_left_overs_of_a_killed_relay_are_removed(tmp_path: Path) -> None:
    """An unlocked directory goes; a locked one, a foreign name, a link and one that has no lock yet stay."""
    kept = tmp_path / "kept"
    for path in (tmp_path / "relay-sandbox-old", kept):
        (path / "tmp").mkdir(parents=True)
        (path / "lock").touch()
    (tmp_path / "relay-sandbox-link").symlink_to(kept)
    (tmp_path / "relay-sandbox-other").mkdir()
    used = PrivateDir()
    in_use = tmp_path / "relay-sandbox-used"
    used.path.rename(in_use)
    remove_left_overs(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"kept", "relay-sandbox-link", "relay-sandbox-other", "relay-sandbox-used"}
    used.close()
    remove_left_overs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == left - {"relay-sandbox-used"}


def test_a_directory_of_any_modes_is_removed(tmp_path: Path) -> None:
    """Nothing behind a link goes with it."""
    top = tmp_path / "left"
    here = top
    here.mkdir()
    (top / "closed/inner").mkdir(parents=True)
    (top / "closed/inner/file").touch()
    (top / "-rf").touch()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    (top / "closed/link").symlink_to(tmp_path / "precious")
    (top / "closed/inner").chmod(0)
    (top / "closed").chmod(0)
    remove_tree(top)

    assert {path.name for path in tmp_path.iterdir()} == {"precious"}
    assert (tmp_path / "precious/file").exists()
    remove_tree(tmp_path / "nowhere")


def test_sockets_are_found_where_variables_name_them_and_where_they_are_mounted(tmp_path: Path) -> None:
    for name in ("a", "b", "c d"):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / name))
    (tmp_path / "file").touch()
    env = {
        "X": f"unix://{tmp_path}/a",
        "BUS": f"unix:path={tmp_path}/b,guid=1",
        "F": str(tmp_path / "file"),
        "N": "a/b",
    }
    table = tmp_path / "mountinfo"
    table.write_text(
        f"36 35 98:0 / {tmp_path}/c\\040d rw - ext4 /dev/x rw\n36 35 98:0 / {tmp_path}/file rw - ext4 x rw\n"
    )
    assert find_named_sockets(env, table) == (tmp_path / "a", tmp_path / "b", tmp_path / "c d")
    assert find_named_sockets({}, tmp_path / "nowhere") == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reaches into a directory that is closed to it by mode")
def test_a_directory_closed_by_mode_is_closed_to_root_without_capabilities(tmp_path: Path) -> None:
    """Root without capabilities cannot mount below another user's private directory, so nothing there is masked."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    os.chown(closed, 12345, 12345)

    assert not is_searchable(closed / "agent")
    closed.chmod(0o711)
    assert is_searchable(closed / "agent") == is_searchable(closed)


def test_a_long_way_to_temporary_files_leaves_room_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ("x" * 100)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    private = PrivateDir()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(private.tmp / "a-socket-of-a-name-that-is-usual"))
    finally:
        private.close()


def test_what_is_in_the_way_of_a_sandbox_says_what_helps(tmp_path: Path) -> None:
    """Not the installation of what is installed, and no switch that takes the protection away."""
    proc, top = tmp_path / "proc", tmp_path / "top"
    (proc / "kernel").mkdir(parents=True)
    top.mkdir()

    def ask(*, has_bwrap: bool = True, root: Path = tmp_path) -> str:
        return find_way(root, has_bwrap=has_bwrap, proc=proc, top=top)

    assert "relay doctor shows each part" in ask()
    assert ask(has_bwrap=False) == (find_install_command() or "install bubblewrap; relay has no other mechanism here")
    userns = proc / "kernel/apparmor_restrict_unprivileged_userns"
    userns.symlink_to("/proc/self/mem")  # a file that cannot be read from its start, as one that only root may read
    assert "relay doctor shows each part" in ask()
    userns.unlink()
    userns.write_text("1\n")
    assert ask().endswith("sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
    (top / ".dockerenv").touch()
    assert "--security-opt seccomp=unconfined" in ask()
    closed, around = tmp_path / "closed", Path(tempfile.gettempdir())
    closed.mkdir(mode=0o500)
    assert ask(root=closed).startswith(f"{closed} cannot be written by you")
    assert ask(root=around).startswith("temporary files are in the repository here")
    assert ask(root=tmp_path / "nowhere").startswith(f"{tmp_path}/nowhere cannot be written by you")
