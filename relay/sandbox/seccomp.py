"""A seccomp program as bytes: classic BPF assembled here, so that no native library is needed.

The program kills a process that enters the kernel through a foreign architecture (32-bit or x32 calls would
slip past a filter by number), answers EPERM to what a build never needs, and lets the rest through. Numbers are
those of the kernel's `unistd_64.h` and `asm-generic/unistd.h` (Linux 6.17); they are kernel ABI and never change.
"""

import functools
import platform
import struct

from relay.base.errors import SandboxError
from relay.base.hints import Command
from relay.base.values import dataclass

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
    """What a program denies beyond its fixed list."""

    metadata: bool = False
    """Also chmod, chown, utime, xattr."""
    unix_sockets: bool = False
    """Also `socket(AF_UNIX)`. Needed when the network namespace is shared, because abstract sockets of the host
    (X11, D-Bus) live in it; `socketpair` still works."""


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _answer(number: int, action: int) -> bytes:
    return _instruction(_IF_EQUAL, number, 0, 1) + _instruction(_RETURN, action)


def _answer_argument(number: int, argument: int, test: int, value: int) -> bytes:
    """Deny `number` when its argument passes the test; the low half is all the kernel reads of these arguments."""
    return (
        _instruction(_IF_EQUAL, number, 0, 4)
        + _instruction(_LOAD, _ARGUMENTS_AT + 8 * argument)
        + _instruction(test, value, 0, 1)
        + _instruction(_RETURN, _DENY)
        + _instruction(_LOAD, _NUMBER_AT)
    )


def _socket_rules(number: int, wanted: Filter) -> bytes:
    # AF_VSOCK reaches the hypervisor whatever the network namespace is; AF_ALG is kernel code that builds do not need.
    families = [_AF_ALG, _AF_VSOCK] + [_AF_UNIX] * wanted.unix_sockets
    return b"".join(_answer_argument(number, 0, _IF_EQUAL, family) for family in families)


def _argument_rules(which: int) -> bytes:
    # In a user namespace of its own a command has every capability, and with them most of the kernel's attack surface.
    rules = _answer_argument(_CLONE[which], 0, _IF_ANY_BIT, _CLONE_NEWUSER)
    rules += _answer_argument(_UNSHARE[which], 0, _IF_ANY_BIT, _CLONE_NEWUSER)
    # Both put characters into the input of a terminal, where the user's shell would run them.
    rules += _answer_argument(_IOCTL[which], 1, _IF_EQUAL, _TIOCSTI)
    rules += _answer_argument(_IOCTL[which], 1, _IF_EQUAL, _TIOCLINUX)
    # A set-user-id file made in here would keep its power outside.
    for *numbers, argument in _MODE_ARGUMENTS:
        number = numbers[which]
        if number is not None:
            rules += _answer_argument(number, argument, _IF_ANY_BIT, _SET_ID_BITS)
    # Their arguments lie in memory, where a filter cannot look.
    return rules + _answer(_CLONE3[which], _MISSING) + _answer(_OPENAT2[which], _MISSING)


@functools.cache
def assemble(wanted: Filter, *, machine: str | None = None) -> bytes:
    """Return the program as an array of `struct sock_filter`.

    Args:
        wanted: What to deny beyond the fixed list.
        machine: `x86_64` or `aarch64`; None for this one.

    Raises:
        SandboxError: There is no table for the architecture.
    """
    machine = machine or platform.machine()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine)
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
    program += _socket_rules(_SOCKET[which], wanted) + _argument_rules(which)
    return program + _instruction(_RETURN, _ALLOW)
