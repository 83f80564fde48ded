"""What relay's loop adds to a model's calls: time, CPU, memory and prompt, against a bare script with the SDK.

    python benchmarks/overhead.py [--quick] [--git] [--latency-ms N] [--out DIR]

The rehearsal server plays the same calls of one kind to both, and answers after 50 ms, sooner than any model: what is
done while one is asked costs nobody time. Both are started as processes, in turn, so that a busy machine slows both
alike. Two lengths of the same session separate what a call costs
from what a start costs. Read the differences and ratios; absolute times are those of the machine. Writes
``overhead.md`` and ``.json``.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from processes import Cost, make_environ, make_repository, run_process

from relay.git.repository import open_repo
from relay.prompts.texts import render_system
from relay.sandbox.policy import Level, Limits, Mechanism, Policy
from relay.sandbox.run import open_sandbox
from relay.session.usage import Spent, estimate_tokens
from relay.session.values import ToolSpec
from relay.store.attempts import AttemptStart, OpenAttempt, open_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.tools.toolbox import PLANNER_SPECS, RUNNER_SPECS
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

HERE = Path(__file__).resolve().parent
PHASE_CALLS = 2
MODEL = "claude-opus-5-5"
PLAN = "# Work\n\n## Phase 1 — Calls\nVerify: `test -d .`\n- [ ] Make the calls — src/\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    rounds: int
    kinds: tuple[str, ...]
    """Of calls."""
    setups: tuple[str, ...]
    short: int
    """Calls of the short session."""
    long: int
    files: int
    """Tracked files of the repository."""
    many_files: int
    """Of the large repository, for snapshots only."""
    latency_ms: float = 0.0
    """Until the server answers."""

    @property
    def lengths(self) -> set[int]:
        """The calls of each session that is played."""
        return {self.short, self.long}

    @property
    def between(self) -> int:
        """How many more calls the long one has; for a smoke test, of one length, 1."""
        return self.long - self.short or 1


FULL = Size(
    rounds=5,
    kinds=("read", "write", "bash"),
    setups=("bare", "relay", "relay --sandbox off"),
    short=2,
    long=42,
    files=200,
    many_files=5_000,
    latency_ms=50.0,
)
QUICK = Size(rounds=1, kinds=("write",), setups=("bare", "relay"), short=2, long=2, files=20, many_files=60)
"""One session of each: their differences are none."""


def make_call(kind: str, n: int) -> dict[str, Any]:
    """Return a call of a kind; no two are the same, or relay would see a session that goes in circles."""
    match kind:
        case "read":
            return {"name": "read", "input": {"path": f"src/{n % 20}.txt"}}
        case "write":
            return {"name": "write", "input": {"path": f"src/new{n % 20}.txt", "content": f"{n}\n" * 100}}
        case _:
            return {"name": "bash", "input": {"command": f"echo {n}"}}


def make_script(kind: str, calls: int, latency_ms: float) -> str:
    """Return a session of `calls` calls, then the tick and the last word."""
    turns = [{"tools": [make_call(kind, n)], "delay_s": latency_ms / 1000} for n in range(calls)]
    tick = {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "called"}}]}
    return json.dumps({"sessions": [{"turns": [*turns, tick, {"text": "Commit: Make the calls"}]}]})


def make_files(files: int) -> dict[str, str]:
    """Return what a repository of so many files holds."""
    return {"PLAN.md": PLAN} | {f"src/{n}.txt": f"line {n}\n" * 50 for n in range(files)}


# Processes


def run_session(setup: str, kind: str, calls: int, size: Size, *, path: str = os.environ["PATH"]) -> Cost:
    """Play one session to one of the setups."""
    script = parse_script(make_script(kind, calls, size.latency_ms))
    with make_repository(make_files(size.files)) as root, serve(script) as server:
        argv = [sys.executable, str(HERE / "bare_agent.py"), server.base_url]
        if setup != "bare":
            argv = [sys.executable, "-P", "-m", "relay", "run", *setup.split()[1:]]
        cost, status, output = run_process(argv, root, make_environ(server.base_url, PATH=path))
        if status or server.errors or server.unplayed:
            raise RuntimeError(f"{setup} {kind}: exit {status}\n{output}\n{server.errors}{server.unplayed}")
    return cost


def measure_calls(size: Size) -> list[dict[str, Any]]:
    """Return for each kind and setup what a call and what a start takes: medians over rounds of differences."""
    taken: dict[tuple[str, str, int], list[Cost]] = {}
    for number in range(size.rounds):
        for kind in size.kinds:
            for setup in size.setups:
                for calls in sorted(size.lengths):
                    taken.setdefault((kind, setup, calls), []).append(run_session(setup, kind, calls, size))
        print(f"round {number + 1} of {size.rounds}", flush=True)
    return [summarise(size, kind, setup, taken) for kind in size.kinds for setup in size.setups]


def summarise(size: Size, kind: str, setup: str, taken: dict[tuple[str, str, int], list[Cost]]) -> dict[str, Any]:
    """Return one row: per call from the difference of the two lengths, per start from what the short one has left."""
    pairs = list(zip(taken[kind, setup, size.short], taken[kind, setup, size.long], strict=True))

    def find(measure: Callable[[Cost], float]) -> tuple[float, float]:
        per_call = [(measure(long) - measure(short)) / size.between for short, long in pairs]
        start = [measure(short) - size.short * call for (short, _), call in zip(pairs, per_call, strict=True)]
        return statistics.median(per_call), statistics.median(start)

    (wall, start_wall), (cpu, start_cpu) = find(lambda c: c.wall_ms), find(lambda c: c.cpu_ms)
    rss = statistics.median(long.rss_mb for _, long in pairs)
    return {
        "kind": kind,
        "setup": setup,
        "wall_ms": wall,
        "cpu_ms": cpu,
        "start_wall_ms": start_wall,
        "start_cpu_ms": start_cpu,
        "rss_mb": rss,
    }


def count_git(size: Size) -> dict[str, float]:
    """Return how many git processes relay starts for one call of each kind, and for a phase with two calls."""
    with tempfile.TemporaryDirectory() as folder:
        log, real = Path(folder) / "log", shutil.which("git")
        shim = Path(folder) / "git"
        shim.write_text(f'#!/bin/sh\necho x >> "{log}"\nexec "{real}" "$@"\n', encoding="utf-8")
        shim.chmod(0o755)

        def count(kind: str, calls: int) -> int:
            log.write_text("", encoding="utf-8")
            run_session("relay --sandbox off", kind, calls, size, path=f"{folder}:{os.environ['PATH']}")
            return len(log.read_text(encoding="utf-8").split())

        calls = {(kind, length): count(kind, length) for kind in size.kinds for length in size.lengths}
        per_call = {kind: (calls[kind, size.long] - calls[kind, size.short]) / size.between for kind in size.kinds}
        return {**per_call, "phase": calls.get(("write", PHASE_CALLS)) or count("write", PHASE_CALLS)}


# Parts


def measure_parts(size: Size) -> dict[str, float]:
    """Return what the parts of a call take, in milliseconds: medians of many rounds."""
    rounds = 3 * size.rounds
    version = "from relay.__main__ import main; main()"
    starts = {"python -c 'pass'": ("pass",), "relay --version": (version, "--version")}
    if size.rounds > 1:  # a bare session has imported it anyway
        starts["python -c 'import anthropic'"] = ("import anthropic",)
    parts = {name: time_all(partial(run_python, *words), size.rounds) for name, words in starts.items()}
    for files in (size.files, size.many_files):
        with make_repository(make_files(files)) as root:
            parts |= measure_snapshots(root, files, rounds)
    with make_repository(make_files(size.files)) as root:
        parts |= measure_commands(root, rounds)
    return parts


def run_python(code: str, *args: str) -> None:
    """Run Python code in a fresh process."""
    subprocess.run((sys.executable, "-c", code, *args), check=True, stdin=subprocess.DEVNULL, capture_output=True)


def measure_snapshots(root: Path, files: int, rounds: int) -> dict[str, float]:
    """Time what is stored after a tool that changed one file."""
    repo = open_repo(root)
    state: list[OpenAttempt] = [open_attempt(repo, AttemptStart(session_id="bench", phase_id="1", plan_path="PLAN.md"))]

    def save() -> None:
        (root / "src" / "0.txt").write_text(f"{time.perf_counter_ns()}\n", encoding="utf-8")
        state[0] = save_wip(repo, state[0], WipRecord(spend=Spent()))

    return {f"snapshot, {files:,} files": time_all(save, rounds)}


def measure_commands(root: Path, rounds: int) -> dict[str, float]:
    """Time a command with and without the sandbox."""
    policy = Policy(root=root, env=dict(os.environ), git_dirs=(root / ".git",))
    argv, limits = ("bash", "-c", "true"), Limits(timeout_s=30)
    parts = {"bash -c true, plain subprocess": time_all(lambda: subprocess.run(argv, check=True), rounds)}
    for mechanism in (Mechanism.OFF, Mechanism.BWRAP):
        with open_sandbox(policy, Level.WORKSPACE_WRITE, mechanism=mechanism) as sandbox:
            name = f"bash -c true, {mechanism if mechanism.confines else 'no sandbox'}"
            parts[name] = time_all(lambda: sandbox.run(argv, limits=limits), rounds)
    return parts


def time_all(step: Callable[[], object], rounds: int) -> float:
    """Return the median duration of a step in milliseconds."""
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        step()
        taken.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(taken)


# The prompt


def measure_prompt(system: str, tools: tuple[ToolSpec, ...]) -> int:
    """Estimate the fixed part of every prompt, at 4 bytes a token; the tools as compact JSON."""
    rendered = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in tools]
    return estimate_tokens(system) + estimate_tokens(json.dumps(rendered, separators=(",", ":"), ensure_ascii=False))


# The report


def render_report(size: Size, rows: list[dict[str, Any]], git: dict[str, float], parts: dict[str, float]) -> str:
    """Return the report as Markdown."""
    lines = []
    for row in rows:
        bare = next(other for other in rows if (other["kind"], other["setup"]) == (row["kind"], "bare"))
        lines.append(
            f"| {row['kind']} | {row['setup']} | {row['wall_ms']:.1f} | {row['wall_ms'] - bare['wall_ms']:+.1f} "
            f"| {row['cpu_ms']:.1f} | {row['cpu_ms'] - bare['cpu_ms']:+.1f} "
            f"| {row['start_wall_ms']:.0f} | {row['start_cpu_ms']:.0f} | {row['rss_mb']:.0f} |"
        )
    table = "\n".join(lines)
    counted = ", ".join(f"{kind} {git[kind]:.1f}" for kind in size.kinds)
    timed = "\n".join(f"| {name} | {ms:.1f} |" for name, ms in parts.items())
    runner = measure_prompt(render_system("runner", ""), RUNNER_SPECS)
    planner = measure_prompt(render_system("planner", "", line_tokens=100_000), PLANNER_SPECS)
    return f"""# What relay's loop adds

`python benchmarks/overhead.py` — {size.rounds} rounds, sessions of {size.short} and {size.long} calls, {size.files:,}
tracked files, a rehearsal server that answers after {size.latency_ms:.0f} ms. Written by the benchmark. A model takes
seconds to answer; everything here is milliseconds beside that.

| call | setup | wall ms/call | over bare | CPU ms/call | over bare | start wall ms | start CPU ms | peak RSS MB |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{table}

*Per call*: median over rounds of (long - short session) / {size.between}, request and answer included.
*Start*: what is left, from the start of the process to its end; for relay that is plan, lock, sandbox, baseline gate,
final gate, hooks and the commit. *Bare* is `bare_agent.py`: the SDK, one loop, `open()` and `subprocess.run`; it keeps
nothing, checks nothing and confines nothing. RSS is that of the largest process; the SDK alone takes most of it.

git processes that relay starts for one call: {counted}; for a whole run of one phase with {PHASE_CALLS} calls of
`write` and the tick: {git["phase"]:.0f}. Counted by a `git` on PATH that notes each start (`--git` counts only).

| part | median ms |
| --- | --- |
{timed}

**Prompt.** Tools and role, paid for in every request: {runner:,} tokens for a runner, {planner:,} for a planner, at 4
bytes a token; the limit of 1,000 is a test (`tests/test_overhead.py`).
"""


def main() -> None:
    """Measure everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round, for a smoke test")
    parser.add_argument("--git", action="store_true", help="only count git processes, and print the numbers")
    parser.add_argument("--latency-ms", type=float, help="until the server answers")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="directory for the results")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    size = size if options.latency_ms is None else replace(size, latency_ms=options.latency_ms)
    if options.git:
        print(json.dumps(count_git(size)))
        return
    rows, git, parts = measure_calls(size), count_git(size), measure_parts(size)
    report = render_report(size, rows, git, parts)
    print(report)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "overhead.md").write_text(report, encoding="utf-8")
    found = {"size": asdict(size), "calls": rows, "git_processes": git, "parts_ms": parts}
    (options.out / "overhead.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
