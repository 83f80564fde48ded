"""How much memory a process tree holds, and how relay hides its own. Elsewhere than on Linux nothing is known.

Neither of the kernel's limits per process will do. RLIMIT_AS counts what is only reserved, which for Node, Java, Go
and sanitizers is many times what they use. RLIMIT_DATA counts shadow memory and thread stacks that were never touched.
Both allow as much again to each child. A cgroup would count correctly, but only the administrator may allow one. So
relay adds up the memory that the tree really holds, as `Limits.processes` does for processes.
"""

import contextlib
import os
import re
import resource
import sys
from collections.abc import Iterable
from pathlib import Path

from relay.sandbox.policy import MIB

_PR_SET_DUMPABLE = 4


def prepare_process() -> None:
    """Close relay's memory and environment to other processes of the same user, and leave no core dump.

    Call it once at start, before a key is read. Without it a command outside a process namespace can read
    `/proc/PID/environ` (measured: readable, then `Permission denied`).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MEMINFO = Path("/proc/meminfo")
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_FIELD = re.compile(r"^(MemTotal|MemAvailable):\s+(\d+) kB", re.MULTILINE)
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_PSS_SHMEM = re.compile(rb"^Pss_Shmem:\s+(\d+) kB", re.MULTILINE)


def find_most_bytes() -> int | None:
    """Return three quarters of the memory of this machine, or of the container that relay runs in; None if unknown.

    What is left is for relay, the user's editor and the page cache.
    """
    found = [size for size in (_read_machine().get("MemTotal"), *map(_read_limit, _CONTAINER_LIMITS)) if size]
    return min(found) * 3 // 4 if found else None


def is_worth_a_look(limit_bytes: int) -> bool:
    """Say whether so much is in use on this machine that a tree could hold `limit_bytes`: one cheap read."""
    machine = _read_machine()
    return machine.get("MemTotal", 0) - machine.get("MemAvailable", 0) >= limit_bytes


def holds_more(pids: Iterable[int], limit_bytes: int, *, files_bytes: int = 0) -> bool:
    """Say whether processes together hold more than `limit_bytes` of memory.

    Resident sizes count shared pages once for each process, so they only rule out; then each page is counted once.

    Args:
        pids: The processes.
        limit_bytes: What they may hold.
        files_bytes: What their files in memory hold, mapped or not.
    """
    pids = tuple(map(_find_thread, pids))
    if sum(map(_read_resident, pids)) + files_bytes <= limit_bytes:
        return False
    shares = [_read_share(pid) for pid in pids]
    mapped = sum(shared for _, shared in shares)
    return sum(share for share, _ in shares) + max(0, files_bytes - mapped) > limit_bytes


def read_files_bytes(pid: int, places: Iterable[Path]) -> int:
    """Return how many bytes a sandbox keeps in its directories that live in memory; 0 if the process is gone.

    Until the sandbox has mounted its own directory, the process still sees the machine's directory of that name. Its
    files belong to others: they are not counted.
    """
    total = 0
    for place in places if pid else ():
        with contextlib.suppress(OSError):
            seen = Path(f"/proc/{pid}/root{place}")
            if _find_device(seen) == _find_device(place):
                continue
            found = os.statvfs(seen)
            total += (found.f_blocks - found.f_bfree) * found.f_frsize
    return total


def _find_device(place: Path) -> int | None:
    try:
        return place.stat().st_dev
    except OSError:
        return None


def render_limit(limit_bytes: int) -> str:
    """Say what was crossed, for the model."""
    return f"killed: the command held more than {limit_bytes // MIB:,} MiB of memory at once"


def _read_machine() -> dict[str, int]:
    try:
        return {name: int(kib) * 1024 for name, kib in _FIELD.findall(_MEMINFO.read_text())}
    except OSError:
        return {}


def _read_limit(path: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):  # `max`: none
        return int(Path(path).read_text())
    return None


def _find_thread(pid: int) -> int:
    """Return a thread that knows the process's memory: the first has lost it when it ended before the others."""
    if _read_resident(pid):
        return pid
    with contextlib.suppress(OSError):
        threads = (int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
        return next((thread for thread in threads if _read_resident(thread)), pid)
    return pid


def _read_resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0


def _read_share(pid: int) -> tuple[int, int]:
    """Return a process's proportional size, and how much of it is mapped from memory that files may hold.

    Its resident size and 0 where the kernel does not tell.
    """
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_bytes()
        if found := _PSS.search(text):
            shared = _PSS_SHMEM.search(text)
            return int(found[1]) * 1024, int(shared[1]) * 1024 if shared else 0
    return _read_resident(pid), 0
