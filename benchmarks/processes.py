"""What the benchmarks share: a repository to work in, and a process that is accounted for with its children."""

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
"""Source: linux/prctl.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one process took, its children included."""

    begin_s: float
    """By `time.perf_counter`."""
    end_s: float
    cpu_ms: float
    rss_mb: float
    """Of the largest process."""

    @property
    def wall_ms(self) -> float:
        """From its start to its end."""
        return (self.end_s - self.begin_s) * 1e3


def git(root: Path, *args: str) -> str:
    """Run git as the user would and return what it says."""
    return subprocess.run(("git", *args), cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def make_repository(files: Mapping[str, str]) -> Iterator[Path]:
    """Make a repository of one commit in a temporary directory.

    Args:
        files: Path to text.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            os.utime(target, (1e9, 1e9))  # a repository at rest: git reads a file again that is as young as its index
        git(root, "init", "-q", "-b", "main")
        git(root, "config", "user.name", "Benchmark")
        git(root, "config", "user.email", "benchmark@example.invalid")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", "start")
        yield root


def make_environ(base_url: str, **more: str) -> dict[str, str]:
    """Return this process's environment without settings of relay's own, for a client of a rehearsal server.

    Python may write bytecode: an installed relay has its own, and compiling it anew in each process is not measured.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RELAY_") and name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**kept, "ANTHROPIC_API_KEY": "rehearsal", "ANTHROPIC_BASE_URL": base_url, **more}


def run_process(argv: list[str], root: Path, environ: dict[str, str]) -> tuple[Cost, int, str]:
    """Run a process to its end; return its cost, its exit code and the end of what it said."""
    _adopt_orphans()
    with tempfile.TemporaryFile() as output:
        begin = time.perf_counter()
        child = subprocess.Popen(argv, cwd=root, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        _, status, usage = os.wait4(child.pid, 0)
        end = time.perf_counter()
        child.returncode = os.waitstatus_to_exitcode(status)
        cpu_s = usage.ru_utime + usage.ru_stime + sum(_reap_orphans())
        output.seek(0)
        text = output.read().decode("utf-8", "replace")[-2_000:]
    return Cost(begin_s=begin, end_s=end, cpu_ms=cpu_s * 1e3, rss_mb=usage.ru_maxrss / 1024), child.returncode, text


def _adopt_orphans() -> None:
    """Become the parent of what a child leaves behind: a sandbox ends before the command in it has been reaped."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap_orphans() -> Iterator[float]:
    """Wait for every orphan, and yield the CPU seconds of each with its children."""
    while True:
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return
        yield usage.ru_utime + usage.ru_stime
