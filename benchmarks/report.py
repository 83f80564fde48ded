"""How long figures of a long log take, and how much memory.

`python benchmarks/report.py > benchmarks/results/report.md`. The log is made of sessions of 100 turns with ten events
each, as a run writes them; it is read by `relay report --json`.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from relay.session.events import (
    Event,
    RequestStarted,
    ResponseReceived,
    RunStarted,
    SessionEnded,
    SessionStarted,
    TextShown,
    ToolFinished,
    ToolStarted,
)
from relay.session.records import Recorder, render_record
from relay.session.usage import Usage
from relay.session.values import SessionEnd, Shown

SIZES = (10_000, 100_000, 1_000_000)
TURNS = 100


def make_events() -> Iterator[Event]:
    """Yield events of a run without end."""
    yield RunStarted(
        run_id="bench", command="run", model="claude-opus-5-5", plan_path="PLAN.md", branch="main", sandbox="bwrap",
        cap_usd=None, spent_usd=0.0, rehearsed=True,
    )  # fmt: skip
    number = 0
    while True:
        number += 1
        yield from make_session(f"s{number}", str(number % 50))


def make_session(session: str, phase: str) -> Iterator[Event]:
    """Yield a session: each turn says something and calls two tools."""
    yield SessionStarted(session_id=session, phase_id=phase, title="Phase", number=1, reason="next")
    for turn in range(1, TURNS + 1):
        prompt = 5_000 + 800 * turn
        yield RequestStarted(turn=turn)
        yield TextShown(text="I look at the next file and change it. " * 5)
        yield ResponseReceived(
            turn=turn, model="claude-opus-5-5", cost_usd=0.01, fill_tokens=prompt + 200, soft_tokens=80_000,
            hard_tokens=90_000, window_tokens=200_000, stop_reason="tool_use", duration_s=2.0,
            usage=Usage(input_tokens=600, cache_read_tokens=prompt - 600, output_tokens=200),
        )  # fmt: skip
        for call in range(2):
            name, path = ("read", f"src/file{turn % 40}.py") if call else ("bash", "make test")
            yield ToolStarted(call_id=f"{session}-{turn}-{call}", name=name, summary=path)
            yield ToolFinished(
                call_id=f"{session}-{turn}-{call}", name=name, is_error=False, result_sha256="ab" * 32, duration_s=0.1,
                changed_paths=(), result_bytes=1_200, call_sha256=f"{name} {path}",
                shown=Shown(path=path, first_line=1, last_line=90) if call else None,
            )  # fmt: skip
        yield TextShown(text="done", thinking=True)
        yield RequestStarted(turn=turn)
        yield TextShown(text="")
    yield SessionEnded(
        session_id=session, phase_id=phase, end=SessionEnd.FINISHED, result="done", detail="", usage=Usage(),
        cost_usd=1.0,
    )  # fmt: skip


def write_log(root: Path, lines: int) -> Path:
    """Write a log of so many lines."""
    path = root / ".relay" / "sessions" / "bench.jsonl"
    path.parent.mkdir(parents=True)
    recorder, events = Recorder(time.time), make_events()
    with path.open("w", encoding="utf-8") as stream:
        for _ in range(lines):
            stream.write(render_record(recorder.record(next(events))) + "\n")
    return path


def measure(lines: int) -> str:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "init", "-q", folder], check=True)
        size = write_log(Path(folder), lines).stat().st_size
        code = (
            f"import os, sys; os.chdir({folder!r}); sys.stdout = open(os.devnull, 'w'); "
            "sys.argv = ['relay', 'report', '--json']; from relay.__main__ import main; main()"
        )
        child = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])
        _, status, used = os.wait4(child, 0)
    took = used.ru_utime + used.ru_stime
    if status:
        raise SystemExit(f"relay report failed with {status}")
    return f"| {lines:,} | {size / 1e6:,.0f} MB | {took:.1f} s | {used.ru_maxrss / 1024:.0f} MB |"


def main() -> None:
    """Measure and print the page."""
    print("# Figures of a long log\n")
    print("`python benchmarks/report.py`: processor time and peak memory of a whole `relay report --json`.\n")
    print("| events | log | processor time | peak memory |\n|---|---|---|---|")
    for lines in SIZES:
        print(measure(lines))
    cores = os.cpu_count()
    print(f"\nPython {sys.version.split()[0]}, {cores} cores; sessions of {TURNS} turns, ten events each.")
    print("Of all sessions, 10,000 turns are kept as points (`relay/insight/figures.py`).")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
