"""Eight phases in three waves: `relay run --jobs 3` against one after the other, and what both leave.

    python benchmarks/jobs.py [--delay SECONDS] [--jobs N] [--out DIR]

A rehearsal server plays the model and takes ``--delay`` for each answer, as a model does; everything else is real:
HTTP, work trees, sandboxes, gates, merges and commits. In each phase a file is written, a command run, a claim recorded
and the item ticked. What the plan allows is how long its longest way takes when each phase takes what it takes serially
(`relay.plan.waves`). Writes ``jobs.md``.
"""

import argparse
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import git, make_environ, make_repository, run_process

from relay.plan.parse import parse_plan
from relay.plan.waves import find_waves
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

HERE = Path(__file__).resolve().parent
AFTER = {1: "none", 2: "none", 3: "none", 4: "1", 5: "2", 6: "3", 7: "4, 5", 8: "6"}
LEDGER = "PLAN.ledger.yaml"
_CLAIM = re.compile(r"claim: ([^,}\n]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One job, and what it left."""

    wall_s: float
    tree: tuple[str, ...]
    """What git lists of the last commit, the ledger aside: its entries say when they were made and by which session."""
    claims: tuple[str, ...]
    """Of the ledger, sorted."""
    ticks: int
    spent: dict[str, Any]
    """As `relay status` says."""
    answers: int
    output_tokens: int
    """As the server counted them."""
    merges: int


def make_plan() -> str:
    """Return the plan."""
    return "# A job of eight parts\n\n" + "\n".join(
        f"## Phase {n} — Part {n}\nAfter: {after}\nVerify: `test -s out/{n}.txt`\n- [ ] Write part {n} — out/{n}.txt\n"
        for n, after in AFTER.items()
    )


def make_script(delay_s: float) -> str:
    """Return a session for each phase."""
    sessions = (
        {"when": {"first_message_contains": f"Write part {n} — "}, "turns": make_turns(n, delay_s)} for n in AFTER
    )
    return json.dumps({"sessions": list(sessions)})


def make_turns(phase: int, delay_s: float) -> list[dict[str, Any]]:
    """Return what the model does in a phase."""
    calls = (
        ("write", {"path": f"out/{phase}.txt", "content": f"part {phase}\n" * 50}),
        ("bash", {"command": f"wc -l out/{phase}.txt"}),
        ("record", {"claim": f"part {phase} has 50 lines", "because": "wc says so", "sources": [f"out/{phase}.txt"]}),
        ("tick", {"item": f"{phase}.1", "evidence": "the file has its lines"}),
    )
    turns: list[dict[str, Any]] = [{"tools": [{"name": name, "input": given}]} for name, given in calls]
    return [{**turn, "delay_s": delay_s} for turn in (*turns, {"text": f"Commit: Write part {phase}"})]


def run_job(delay_s: float, *words: str) -> Run:
    """Play the job once."""
    files = {"PLAN.md": make_plan(), "AGENTS.md": "# Rules\nKeep it short.\n"}
    relay = [sys.executable, "-P", "-m", "relay"]
    with make_repository(files) as folder, serve(parse_script(make_script(delay_s))) as server:
        environ = make_environ(server.base_url)
        root = folder / "project"  # work trees come beside the repository
        git(folder, "clone", "-q", ".", str(root))
        git(root, "config", "user.name", "Benchmark")
        git(root, "config", "user.email", "benchmark@example.invalid")
        cost, status, output = run_process([*relay, "run", *words], root, environ)
        if status or server.errors or server.unplayed:
            raise RuntimeError(f"exit {status}\n{output}\n{server.errors}{server.unplayed}")
        said = subprocess.run(
            [*relay, "status", "--json"], cwd=root, env=environ, capture_output=True, text=True, check=True
        ).stdout
        ledger = (root / LEDGER).read_text()
        return Run(
            wall_s=cost.wall_ms / 1e3,
            tree=tuple(line for line in git(root, "ls-tree", "-r", "HEAD").splitlines() if not line.endswith(LEDGER)),
            claims=tuple(sorted(_CLAIM.findall(ledger))),
            ticks=(root / "PLAN.md").read_text().count("[x]"),
            spent=json.loads(said)["spent"],
            answers=sum(1 for request in server.requests if request.usage),
            output_tokens=sum(dict(request.usage or {}).get("output_tokens") or 0 for request in server.requests),
            merges=int(git(root, "rev-list", "--count", "--merges", "HEAD")),
        )


def render_report(serial: Run, beside: Run, jobs: int, delay_s: float) -> str:
    """Return the report as Markdown."""
    waves = find_waves(parse_plan(make_plan()), {}, jobs=jobs)
    allowed, reached = waves.serial / waves.parallel, serial.wall_s / beside.wall_s
    rows = [("one after the other", serial), (f"`--jobs {jobs}`", beside)]
    table = "\n".join(
        f"| {name} | {run.wall_s:.0f} | {run.ticks} | {len(run.claims)} | {run.merges} | {run.answers} "
        f"| {run.output_tokens:,} | {run.spent['output_tokens']:,} | {run.spent['usd']:.2f} |"
        for name, run in rows
    )
    counted = [(run.answers, run.output_tokens) for _, run in rows]
    same = [
        ("files and ticks of the last commit", serial.tree == beside.tree),
        ("claims in the ledger", serial.claims == beside.claims),
        ("answers, and tokens written", counted[0] == counted[1]),
        (
            "tokens as the server and as `status` count",
            all(r.output_tokens == r.spent["output_tokens"] for _, r in rows),
        ),
    ]
    shown = "\n".join(f"- {what}: {'equal' if is_same else '**different**'}" for what, is_same in same)
    drawn = " | ".join(" ".join(wave) for wave in waves.waves)
    return f"""# Eight phases in three waves

`python benchmarks/jobs.py --delay {delay_s:g} --jobs {jobs}`: a rehearsal server that takes {delay_s:g} s for each
answer plays the model, everything else is real. Written by the benchmark.

| | s | ticks | claims | merges | answers | tokens written | by `status` | USD |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{table}

Side by side it is **{reached:.2f} times** as fast; the plan's waves ({drawn}) allow {allowed:.2f}:
{reached / allowed:.0%} of that. What is lost is starting each run, and the checks of merges, one at a time.

{shown}
"""


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay", type=float, default=12.0)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    beside = run_job(options.delay, "--jobs", str(options.jobs))
    print(f"--jobs {options.jobs}: {beside.wall_s:.0f} s")
    serial = run_job(options.delay)
    report = render_report(serial, beside, options.jobs, options.delay)
    (options.out / "jobs.md").write_text(report, encoding="utf-8")
    print(report)


if __name__ == "__main__":
    main()
