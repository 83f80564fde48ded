"""How long relay's short commands take to start, in a repository of a few files.

    chrt -f 50 python benchmarks/startup.py [--rounds N]

Prints the best of N runs (25 unless told otherwise) of each command in milliseconds, whole processes, interpreter and
git included, and as a multiple of `import click, rich`, the libraries of every command: absolute times are those of the
machine. The commands take turns, so that a busy machine slows all alike. ``chrt`` keeps other work off the processor;
it needs root. The aim: `--help` at most 2.5 times, `status` at most 4 times.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from processes import make_repository

ROOT = Path(__file__).resolve().parent.parent
PLAN = """\
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt

## Phase 2 — World
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
"""
LIBRARIES = "import click, rich"
COMMANDS = (
    ("python -c pass", ("-c", "pass")),
    (LIBRARIES, ("-c", LIBRARIES)),
    ("relay status", ("-m", "relay", "status")),
    ("relay check", ("-m", "relay", "check")),
    ("relay --help", ("-m", "relay", "--help")),
)
"""Label and arguments of the interpreter."""


def time_once(args: tuple[str, ...], root: Path, env: dict[str, str]) -> float:
    """Return how long one run took, in milliseconds."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *args], cwd=root, env=env, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1000


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    with make_repository({"PLAN.md": PLAN}) as root:
        env = {"PATH": os.environ["PATH"], "HOME": str(root.parent), "PYTHONPATH": str(ROOT)}
        best = dict.fromkeys((label for label, _ in COMMANDS), float("inf"))
        for _ in range(rounds):
            for label, args in COMMANDS:
                best[label] = min(best[label], time_once(args, root, env))
    for label, taken_ms in best.items():
        print(f"{label:<20}{taken_ms:7.0f} ms {taken_ms / best[LIBRARIES]:6.2f} x")


if __name__ == "__main__":
    main()
