"""The command line for bubblewrap, and its seccomp filter.

bubblewrap is a system program, not a Python package: no maintained binding gives this profile, so relay builds the
argv.

The filter is classic BPF, assembled here so that no native library is needed. It kills a process that enters the kernel
through a foreign architecture (32-bit or x32 calls would slip past a filter by number), answers EPERM to calls that a
build never needs, and allows the rest. The numbers are those of the kernel's `unistd_64.h` and `asm-generic/unistd.h`
(Linux 6.17); they are kernel ABI and never change.
"""

import functools
import os
import platform
import re
import shutil
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relay.base.errors import SandboxError
from relay.base.hints import Command
from relay.base.values import dataclass
from relay.sandbox.inside import LEAST_ABI, find_abi
from relay.sandbox.places import Found, find_real, scan_repository
from relay.sandbox.policy import Level, Opening, Policy, WritableCopy
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.process import Launch
from relay.sandbox.toolchains import build_env
from relay.sandbox.view import (
    INSIDE_NAME,
    Mount,
    MountView,
    lay_over,
    look_around,
    move_root,
    plan_view,
    render_view,
    takes_size,
)

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_GREATER_EQUAL = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K

_ALLOW = 0x7FFF0000
_KILL = 0x80000000  # SECCOMP_RET_KILL_PROCESS
_DENY = 0x00050000 | 1  # SECCOMP_RET_ERRNO | EPERM
_MISSING = 0x00050000 | 38  # SECCOMP_RET_ERRNO | ENOSYS: libc falls back to the older call

_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data
_X32 = 0x40000000
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# name: (x86_64, aarch64); None where the architecture has no such call.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    # Keyrings belong to the user, not to a namespace: keys of the host would be in reach.
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    # A ring opens files and sockets without a system call that a filter could see.
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    # Opens a file by its number, past every mount that hides it.
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

# A read-only mount refuses these too: two layers hold that a read-only command changes nothing.
_METADATA: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None),
    "chown": (92, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, None),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
}

# (x86_64, aarch64) number, which argument holds the file mode.
_MODE_ARGUMENTS: tuple[tuple[int | None, int | None, int], ...] = (
    (90, None, 1),  # chmod
    (91, 52, 1),  # fchmod
    (268, 53, 2),  # fchmodat
    (452, 452, 2),  # fchmodat2
    (85, None, 1),  # creat
    (2, None, 2),  # open
    (257, 56, 3),  # openat
    (133, None, 1),  # mknod
    (259, 33, 2),  # mknodat
)
_SET_ID_BITS = 0o6000

_CLONE, _CLONE3, _UNSHARE = (56, 220), (435, 435), (272, 97)
_OPENAT2, _SOCKET, _IOCTL = (437, 437), (41, 198), (16, 29)
_CLONE_NEWUSER = 0x10000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _AF_ALG, _AF_VSOCK = 1, 38, 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The calls that a seccomp program denies beyond its fixed list."""

    metadata: bool = False
    """Deny chmod, chown, utime, xattr."""
    unix_sockets: bool = False
    """Deny `socket(AF_UNIX)`. Needed in the host's network namespace, which holds the host's abstract sockets (X11,
    D-Bus); `socketpair` still works."""


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _answer(number: int, action: int) -> bytes:
    return _instruction(_IF_EQUAL, number, 0, 1) + _instruction(_RETURN, action)


def _answer_argument(number: int, argument: int, test: int, value: int) -> bytes:
    """Deny `number` if its argument passes the test; the kernel reads only the low half of these arguments."""
    return (
        _instruction(_IF_EQUAL, number, 0, 4)
        + _instruction(_LOAD, _ARGUMENTS_AT + 8 * argument)
        + _instruction(test, value, 0, 1)
        + _instruction(_RETURN, _DENY)
        + _instruction(_LOAD, _NUMBER_AT)
    )


def _argument_rules(which: int) -> bytes:
    # In a user namespace of its own a command has every capability, and with them most of the kernel's attack surface.
    rules = _answer_argument(_CLONE[which], 0, _IF_ANY_BIT, _CLONE_NEWUSER)
    rules += _answer_argument(_UNSHARE[which], 0, _IF_ANY_BIT, _CLONE_NEWUSER)
    # Both put characters into the input of a terminal, where the user's shell would run them.
    rules += _answer_argument(_IOCTL[which], 1, _IF_EQUAL, _TIOCSTI)
    rules += _answer_argument(_IOCTL[which], 1, _IF_EQUAL, _TIOCLINUX)
    # A set-user-id file that a command makes would keep its power outside.
    for *numbers, argument in _MODE_ARGUMENTS:
        number = numbers[which]
        if number is not None:
            rules += _answer_argument(number, argument, _IF_ANY_BIT, _SET_ID_BITS)
    # The arguments of these calls lie in memory, where a filter cannot look.
    return rules + _answer(_CLONE3[which], _MISSING) + _answer(_OPENAT2[which], _MISSING)


@functools.cache
def assemble(wanted: Filter, *, machine: str | None = None) -> bytes:
    """Return the program as an array of `struct sock_filter`.

    Args:
        wanted: The calls to deny beyond the fixed list.
        machine: `x86_64` or `aarch64`; None for this one.

    Raises:
        SandboxError: There is no table for the architecture.
    """
    machine = machine or platform.machine()
    if machine not in _ARCH:
        raise SandboxError(
            f"no seccomp table for {machine}; relay has one for x86_64 and aarch64",
            hint=(Command(words=("run", "--sandbox", "off")), " runs commands without protection"),
        )
    which = list(_ARCH).index(machine)
    program = _instruction(_LOAD, _ARCH_AT)
    program += _instruction(_IF_EQUAL, _ARCH[machine], 1, 0) + _instruction(_RETURN, _KILL)
    program += _instruction(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        program += _instruction(_IF_GREATER_EQUAL, _X32, 0, 1) + _instruction(_RETURN, _KILL)
    calls = _CALLS | (_METADATA if wanted.metadata else {})
    for numbers in calls.values():
        number = numbers[which]
        if number is not None:
            program += _answer(number, _DENY)
    # AF_VSOCK reaches the hypervisor whatever the network namespace is; AF_ALG is kernel code that builds do not need.
    for family in (_AF_ALG, _AF_VSOCK, *([_AF_UNIX] * wanted.unix_sockets)):
        program += _answer_argument(_SOCKET[which], 0, _IF_EQUAL, family)
    program += _argument_rules(which)
    return program + _instruction(_RETURN, _ALLOW)


PLACES = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
"""Never searched on PATH: another user might be able to write to an entry, and Ubuntu's AppArmor profile grants user
namespaces to the system's bwrap only."""

MOST_COPIED_BYTES = 10 * 1024 * 1024
"""Largest protected file, in bytes, of which gates and hooks get a copy."""

CLOSED_UNIX = (
    "this kernel (before Linux 6.12, or without Landlock) cannot keep abstract sockets of the host apart: commands "
    "with its network make no Unix sockets"
)

_CGROUPS_1 = Path("/sys/fs/cgroup/memory")
"""Exists on machines with cgroups of version 1. Seen from a namespace of its own such a tree begins at ``/..``, and
Java 17, and gradle with it, fails with a NullPointerException when it asks for its memory. Commands only read it."""

BASE = (
    # If relay is killed so is bwrap, and the kernel ends the process namespace with its init.
    "--die-with-parent",
    # Without the user's terminal nothing can be typed into it.
    "--new-session",
    # --unshare-all only tries to make a user namespace; this option fails if none can be made.
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    *(() if _CGROUPS_1.is_dir() else ("--unshare-cgroup-try",)),
    "--cap-drop",
    "ALL",
    "--ro-bind",
    "/",
    "/",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
)
"""The fixed first arguments. As uid 0 bwrap keeps all capabilities unless told otherwise, and with them a command
unmounts a read-only bind."""


def find_bwrap(places: Sequence[str] = PLACES) -> Path | None:
    """Return the system's bwrap, or None."""
    return next((Path(place) for place in places if os.access(place, os.X_OK)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bwrap:
    """Gives each command namespaces of its own: file system view, processes, network, users."""

    policy: Policy
    level: Level
    program: Path
    view: MountView
    found: Found
    copies: tuple[WritableCopy, ...] = ()

    @property
    def shares_user(self) -> bool:
        """Since Linux 5.14 the limit on processes counts per user namespace."""
        return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2]) < (5, 14)

    @property
    def inside(self) -> Path:
        """`inside.py` is mounted beside the sockets of relay's openings."""
        return self.view.own / INSIDE_NAME

    @property
    def gaps(self) -> tuple[str, ...]:
        """Sentences about protections that the view lacks here, and about unexpected ones that it has."""
        closed = (CLOSED_UNIX,) if self.policy.network and not knows_abstract() else ()
        return (*self.view.gaps, *closed)

    def start_anew(self, private: PrivateDir) -> "Bwrap":
        """Return the same sandbox with another private directory, and in it writable copies of the protected files.

        Formatters and the hooks of most repositories open each file for writing, even a well-formed one.
        """
        view = plan_view(self.policy, self.level, private, self.program, self.view.around)
        copies = copy_files((*self.policy.protected, *self.found.protected), private.path / "copies")
        return replace(self, view=view, copies=copies)

    def list_mounts(self) -> tuple[Mount, ...]:
        """Return the mounts of a command that begins now, each path checked.

        Raises:
            SandboxError: The git directory cannot be protected.
        """
        mounts = render_view(self.view, self.policy, self.level, self.found)
        return move_root(functools.reduce(lay_over, self.copies, mounts), self.view, self.policy)

    def show(self, text: str) -> str:
        """Return a text with each path of the work tree, and of git's directory, as commands see it."""
        policy = self.policy
        if policy.seen_at is None:
            return text
        return text.replace(str(policy.git_dirs[-1]), str(self.view.git)).replace(str(policy.root), str(policy.seen_at))

    def build_launch(self, command: tuple[str, ...], *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Check every path again and return the launch.

        Raises:
            SandboxError: The git directory cannot be protected.
        """
        policy = self.policy
        command = (*render_first(policy, self.view.own), *command)
        # Each mount takes a sixth of a millisecond: `inside.py` is not mounted for a command that does not name it.
        unused = None if str(self.inside) in command else self.inside
        mounts = tuple(mount for mount in self.list_mounts() if mount.dest != unused)
        closes_unix = policy.network and not knows_abstract()
        # An agent sets the times of files in its own home as locks; the repository is a read-only mount for it.
        metadata = self.level is Level.READ_ONLY and not policy.for_agent
        seccomp_fd = write_memfd(assemble(Filter(metadata=metadata, unix_sockets=closes_unix)))
        status_fd, status_write_fd = os.pipe()
        sized = takes_size(self.program)
        argv = (
            *(str(self.program), *BASE, *(["--share-net"] if policy.network else [])),
            *(part for mount in mounts for part in mount.render(sized=sized)),
            *("--chdir", self.show(str(cwd)), "--seccomp", str(seccomp_fd)),
            *("--json-status-fd", str(status_write_fd), "--", *command),
        )
        env = build_env(policy, home=self.view.home, tmp=self.view.tmp, stores=self.view.stores)
        env |= {**dict(pair for opening in find_open(policy) for pair in opening.env), **extra_env}
        return Launch(
            argv=self.view.layers.wrap(self.program, argv, {mount.source for mount in mounts}),
            env=env,
            pass_fds=(seccomp_fd, status_write_fd),
            status_fd=status_fd,
        )


def copy_files(places: Sequence[Path], folder: Path) -> tuple[WritableCopy, ...]:
    """Copy the files among these paths, links excepted, into a new directory."""
    files = (place for place in dict.fromkeys(places) if find_real(place) == place and place.is_file())
    fitting = [place for place in files if place.stat().st_size <= MOST_COPIED_BYTES]
    folder.mkdir(mode=0o700)
    copies = [(place, folder / str(number)) for number, place in enumerate(fitting)]
    return tuple(WritableCopy(dest=place, place=Path(shutil.copy(place, copy))) for place, copy in copies)


@functools.cache
def knows_abstract() -> bool:
    """Return whether this kernel can close the host's abstract sockets to a command in the host's network."""
    return find_abi() >= LEAST_ABI


def find_open(policy: Policy) -> tuple[Opening, ...]:
    """Return the openings in force: in the host's network no port is forwarded."""
    return tuple(opening for opening in policy.openings if opening.port is None or not policy.network)


def render_first(policy: Policy, own: Path) -> tuple[str, ...]:
    """Return the command line that opens ports and then becomes the command, see `inside.py`; empty without need."""
    words = [f"{opening.port}={own / opening.name}" for opening in find_open(policy) if opening.port]
    words += ["abstract"] if policy.network and knows_abstract() else []
    return (sys.executable, "-I", "-S", str(own / INSIDE_NAME), *words, "--") if words else ()


def open_bwrap(policy: Policy, level: Level, private: PrivateDir) -> Bwrap:
    """Return the sandbox's namespaces; bubblewrap is installed.

    Raises:
        SandboxError: The repository cannot be protected (see `scan_repository`).
    """
    program = find_bwrap() or Path(PLACES[0])
    view = plan_view(policy, level, private, program, look_around(policy))
    return Bwrap(policy=policy, level=level, program=program, view=view, found=scan_repository(policy.root))


def write_memfd(data: bytes) -> int:
    """Return a descriptor of an anonymous file with this content, positioned at its start."""
    fd = os.memfd_create("relay")
    os.write(fd, data)
    # The reader shares the position, which is at the end now.
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
