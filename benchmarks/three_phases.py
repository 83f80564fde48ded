"""A whole job of three phases as its user has it: seconds a phase, to the first request, behind the last answer.

    python benchmarks/three_phases.py [--rounds N] [--gate-s S …] [--before DIR] [--quick] [--out DIR]

A rehearsal server without latency plays the model: in each phase a file is read, one written, a command run, the item
ticked. Everything else is real: HTTP, the sandbox, gates, hooks and commits. ``--before`` takes the checkout of an
older state, which is run in turn with this one by the same interpreter, so that a busy machine slows both alike; run
it under ``chrt -f 50`` (as root) to keep other work off the processor. A first run of each is not counted: it compiles.
``--gate-s`` makes each gate last that long, the baseline's too: the SDK is imported meanwhile.
Writes ``three_phases.md`` and ``.json``.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from processes import Cost, git, make_environ, make_repository, run_process

from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

HERE = Path(__file__).resolve().parent
PHASES = 3
COLUMNS = (
    ("s a phase", "phase_s", 2),
    ("to the first request, s", "first_request_s", 2),
    ("last request to exit, s", "exit_s", 2),
    ("CPU s", "cpu_s", 2),
    ("peak RSS MB", "rss_mb", 0),
    ("input tokens", "input_tokens", 0),
    ("output tokens", "output_tokens", 0),
)
"""Title, name and digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One job from the start of its process to the end."""

    phase_s: float
    """The whole, divided by the phases."""
    first_request_s: float
    """Until the first question to the model has arrived."""
    exit_s: float
    """From the arrival of the last question, which is answered at once, to the end: the last phase's checks and its
    commit are in it."""
    cpu_s: float
    """User and system, children included."""
    rss_mb: float
    """Of the largest process."""
    input_tokens: int
    """As the server counted them, read from the cache or not."""
    output_tokens: int


def make_files(gate_s: float) -> dict[str, str]:
    """Return the plan and what its phases read."""
    wait = f"sleep {gate_s:g} && " if gate_s else ""
    phases = "\n".join(
        f"## Phase {n} — Part {n}\nVerify: `{wait}test -s out/{n}.txt`\n- [ ] Write part {n} — out/{n}.txt\n"
        for n in range(1, PHASES + 1)
    )
    sources = {f"src/{n}.txt": f"line {n}\n" * 50 for n in range(200)}
    return {"PLAN.md": f"# A job of three parts\n\n{phases}", "AGENTS.md": "# Rules\nKeep it short.\n", **sources}


def make_script() -> str:
    """Return a session for each phase."""
    return json.dumps({"sessions": [{"turns": list(make_turns(phase))} for phase in range(1, PHASES + 1)]})


def make_turns(phase: int) -> list[dict[str, Any]]:
    """Return what the model does in a phase."""
    calls = (
        ("read", {"path": f"src/{phase}.txt"}),
        ("write", {"path": f"out/{phase}.txt", "content": f"part {phase}\n" * 50}),
        ("bash", {"command": f"wc -l out/{phase}.txt"}),
        ("tick", {"item": f"{phase}.1", "evidence": "the file has its lines"}),
    )
    turns = [{"tools": [{"name": name, "input": given}]} for name, given in calls]
    return [*turns, {"text": f"Commit: Write part {phase}"}]


def run_job(environ: dict[str, str], gate_s: float) -> Run:
    """Play the job once."""
    asked: list[float] = []

    def note_question() -> float:  # the server looks at the clock once for each question to the model
        asked.append(time.perf_counter())
        return asked[-1]

    with make_repository(make_files(gate_s)) as root, serve(parse_script(make_script()), clock=note_question) as server:
        argv = [sys.executable, "-P", "-m", "relay", "run"]
        cost, status, output = run_process(argv, root, make_environ(server.base_url, **environ))
        commits = int(git(root, "rev-list", "--count", "HEAD"))
        if status or server.errors or server.unplayed or commits != PHASES + 1:
            raise RuntimeError(f"exit {status}, {commits} commits\n{output}\n{server.errors}{server.unplayed}")
        usages = [dict(request.usage or {}) for request in server.requests]
    return summarise(cost, asked, usages)


def summarise(cost: Cost, asked: list[float], usages: list[dict[str, Any]]) -> Run:
    """Return the figures of one job."""
    kinds = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Run(
        phase_s=cost.wall_ms / 1e3 / PHASES,
        first_request_s=asked[0] - cost.begin_s,
        exit_s=cost.end_s - asked[-1],
        cpu_s=cost.cpu_ms / 1e3,
        rss_mb=cost.rss_mb,
        input_tokens=sum(usage.get(kind) or 0 for usage in usages for kind in kinds),
        output_tokens=sum(usage.get("output_tokens") or 0 for usage in usages),
    )


def render_report(states: dict[str, list[Run]], rounds: int) -> str:
    """Return the report as Markdown: minimum and median of each figure."""
    lines = [f"| state | {' | '.join(title for title, _, _ in COLUMNS)} |", "| --- |" + " --- |" * len(COLUMNS)]
    for state, runs in states.items():
        cells = []
        for _, name, digits in COLUMNS:
            values = [getattr(run, name) for run in runs]
            cells.append(f"{min(values):,.{digits}f} / {statistics.median(values):,.{digits}f}")
        lines.append(f"| {state} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return f"""# A job of three phases

`python benchmarks/three_phases.py` — {rounds} rounds, minimum / median; a rehearsal server without latency plays the
model, everything else is real (HTTP, sandbox, gates, hooks, commits). Written by the benchmark.

{table}

*Last request to exit* holds the last answer, the last phase's gate, its commit and the end of the process.
*Before* is the state that ``--before`` named.
"""


def main() -> None:
    """Measure both states in turn and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--gate-s", type=float, nargs="+", default=[0.0], help="seconds that each gate waits")
    parser.add_argument("--quick", action="store_true", help="one round, for a smoke test")
    parser.add_argument("--before", type=Path, help="checkout of an older state")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="directory for the results")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    environs = {"before": {"PYTHONPATH": str(options.before.resolve())}} if options.before else {}
    environs["now"] = {"PYTHONPATH": str(HERE.parent)}
    for environ in () if options.quick else environs.values():
        run_job(environ, 0)  # writes the bytecode that an installed relay has
    states: dict[str, list[Run]] = {}
    for gate_s, _ in itertools.product(options.gate_s, range(rounds)):
        for name, environ in environs.items():
            title = f"{name}, gates of {gate_s:g} s" if gate_s else name
            states.setdefault(title, []).append(run_job(environ, gate_s))
    report = render_report(states, rounds)
    print(report)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "three_phases.md").write_text(report, encoding="utf-8")
    found = {name: [asdict(run) for run in runs] for name, runs in states.items()}
    (options.out / "three_phases.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
