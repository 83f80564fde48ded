"""What the sandbox adds to one command, against a plain subprocess in the same run.

    python benchmarks/sandbox_overhead.py [ROUNDS]

Each round runs every variant once, so that a busy machine slows all of them alike; read the ratios and differences,
not the absolute times. The command is `/bin/true`: the smallest there is, so the overhead is at its most visible.
"""

import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from relay.base.errors import SandboxError
from relay.sandbox.policy import Level, Limits, Mechanism, Policy
from relay.sandbox.run import Sandbox, open_sandbox

COMMAND = ("/bin/true",)
LIMITS = Limits(timeout_s=30)


def run_plain() -> None:
    """Run the command as a program without relay would: no limits, no process control."""
    subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def measure(variants: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return milliseconds per variant and round."""
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            begin = time.perf_counter()
            run()
            taken[name].append((time.perf_counter() - begin) * 1000)
    return taken


def open_variants(policy: Policy) -> dict[str, Sandbox]:
    """Open what this machine has."""
    opened = {"off": open_sandbox(policy, Level.WORKSPACE_WRITE, mechanism=Mechanism.OFF)}
    for level in (Level.WORKSPACE_WRITE, Level.READ_ONLY):
        try:
            sandbox = open_sandbox(policy, level)
        except SandboxError as error:
            print(f"{level}: {error.message}")
        else:
            opened[f"{sandbox.mechanism} {level}"] = sandbox
    return opened


def main(rounds: int) -> None:
    """Print one line per variant."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        subprocess.run(("git", "init", "-q", str(root)), check=True)
        opened = open_variants(Policy(root=root, env=dict(os.environ), git_dirs=(root / ".git",)))
        variants: dict[str, Callable[[], object]] = {"plain": run_plain}
        variants |= {name: functools.partial(box.run, COMMAND, limits=LIMITS) for name, box in opened.items()}
        taken = measure(variants, rounds)
        for box in opened.values():
            box.close()
    plain = statistics.median(taken["plain"])
    heads = ("min ms", "p50 ms", "p95 ms", "over ms")
    print(f"{'variant':28}", *(f"{head:>8}" for head in heads), f"{'ratio':>6}   ({rounds} rounds)")
    for name, times in taken.items():
        middle, high = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        print(f"{name:28} {min(times):8.2f} {middle:8.2f} {high:8.2f} {middle - plain:8.2f} {middle / plain:6.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
