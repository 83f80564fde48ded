"""What relay's reset costs and saves, against three other ways to live with a context that fills.

    python benchmarks/context.py [--quick] [--out DIR]

The same scripted job of ten phases is played by the rehearsal server under each strategy; everything else (the loop,
HTTP, git, gates) is real. Prices and cache rules are the provider's. All figures but the wall time are
deterministic. Writes ``context.md``, ``context.json`` and ``context.svg``.

A rehearsal shows economics, never quality: the script answers the same whatever is in the context.
"""

import argparse
import itertools
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from processes import git, make_repository

from relay.base.interrupts import Interrupts
from relay.config import load_settings
from relay.git.repository import open_repo
from relay.run.loop import run
from relay.run.selection import Selection
from relay.session.events import Event, Noticed, ResponseReceived, SessionStarted
from relay.session.prices import cost_usd, find_price
from relay.session.usage import Usage
from relay.session.values import SessionKind
from relay.setup.context import RunRequest
from relay.setup.open import open_run
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

STRATEGIES = ("reset", "none", "compact", "edit")
COLOURS = {"reset": "#0b7a75", "none": "#b23a48", "compact": "#7a5195", "edit": "#d98e04"}
RESULTS = Path(__file__).resolve().parent / "results"
PRICE_DAY = date(2026, 11, 20)
"""Prices of this day are used, so that the figures do not change with the calendar."""
CHEAP_READS, USUAL_READS = "claude-opus-5-5", "claude-opus-5"
"""Cache reads at 0.05 and at 0.1 of the price of input."""
REQUEST_S = 20
"""Simulated seconds from one request to the next; entries of the cache live for 300."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How large the scripted work is."""

    phases: int
    reads: int
    """Files that a phase reads."""
    heavy: int
    """The phase that does not fit below the reset line."""
    heavy_reads: int
    parts: int
    """Files that a phase writes."""
    file_bytes: int
    reset_at: str


FULL = Job(phases=10, reads=4, heavy=6, heavy_reads=20, parts=3, file_bytes=18_000, reset_at="100k")
QUICK = Job(phases=2, reads=1, heavy=1, heavy_reads=3, parts=1, file_bytes=8_000, reset_at="9k")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One strategy's run."""

    strategy: str
    usages: tuple[Usage, ...]
    """Of each request, in order."""
    fills: tuple[int, ...]
    """Tokens in the context after each response."""
    line_tokens: int
    sessions: int
    notes: tuple[str, ...]
    """What relay said of compacting and clearing."""
    tree: str
    """Of the last commit: the same for all, or the strategies did not do the same job."""
    commits: int
    wall_s: float

    @property
    def total(self) -> Usage:
        """All requests together."""
        return sum(self.usages, start=Usage())

    def cost_usd(self, model: str) -> float:
        """Return what the run would have cost with the prices of a model."""
        price = find_price(model)
        if price is None:
            raise LookupError(model)
        return sum(cost_usd(usage, price) for usage in self.usages)

    def describe(self) -> dict[str, Any]:
        """Return the figures that do not depend on the machine, by name."""
        total = self.total
        return {
            "strategy": self.strategy,
            "requests": len(self.usages),
            "sessions": self.sessions,
            "input_tokens": total.input_tokens,
            "cache_write_tokens": total.cache_write_tokens,
            "cache_read_tokens": total.cache_read_tokens,
            "output_tokens": total.output_tokens,
            "hit_ratio": round(total.cache_read_tokens / total.prompt_tokens, 4),
            "cost_usd": round(self.cost_usd(CHEAP_READS), 4),
            "cost_usd_at_usual_reads": round(self.cost_usd(USUAL_READS), 4),
            "peak_fill_tokens": max(self.fills),
            "mean_fill_tokens": round(sum(self.fills) / len(self.fills)),
            "requests_above_line": sum(fill > self.line_tokens for fill in self.fills),
            "commits": self.commits,
            "notes": list(self.notes),
            "fill_tokens": list(self.fills),
        }


# The job


def make_text(name: str, size: int) -> str:
    """Return lines of text, about `size` bytes, another for each name and always the same."""
    line = f"{name}: a line that has to be read, because what it says is used in one of the next steps\n"
    return "".join(f"{n:05d} {line}" for n in range(size // (len(line) + 6)))


def make_files(job: Job) -> Iterator[tuple[str, str]]:
    """Yield the files of the repository: what the phases read, and the plan."""
    yield "guide.txt", make_text("guide", job.file_bytes // 2)
    phases = []
    for phase in range(1, job.phases + 1):
        for n in range(job.heavy_reads if phase == job.heavy else job.reads):
            yield f"source/{phase}/{n}.txt", make_text(f"source {phase}/{n}", job.file_bytes)
        yield f"source/{phase}/log.txt", make_text(f"log {phase}", job.file_bytes // 3)
        items = "\n".join(f"- [ ] Write part {part} — out/{phase}/{part}.txt" for part in range(1, job.parts + 1))
        phases.append(f"## Phase {phase} — Part {phase}\nVerify: `test -s out/{phase}/{job.parts}.txt`\n{items}\n")
    yield "PLAN.md", "# A job of equal parts\n\n" + "\n".join(phases)
    yield "AGENTS.md", "# Rules\n" + make_text("rule", 4_000)


def call(name: str, **given: Any) -> dict[str, Any]:
    """Return a scripted tool call."""
    return {"name": name, "input": given}


def make_turns(job: Job, phase: int) -> tuple[list[Any], list[Any]]:
    """Return a phase's turns: reading, then working."""
    count = job.heavy_reads if phase == job.heavy else job.reads
    reading = [
        {"text": f"I read source {n}.", "tools": [call("read", path=f"source/{phase}/{n}.txt")]} for n in range(count)
    ]
    working: list[Any] = []
    for part in range(1, job.parts + 1):
        content = make_text(f"out {phase}/{part}", job.file_bytes // 9)
        working += [
            {"tools": [call("write", path=f"out/{phase}/{part}.txt", content=content)]},
            {"text": "I run the check.", "tools": [call("bash", command=f"cat source/{phase}/log.txt")]},
            {"tools": [call("tick", item=f"{phase}.{part}", evidence="the check printed its log")]},
        ]
    return reading, [*working, {"text": f"Commit: Write part {phase}"}]


ORIENTATION = [
    {"text": "I look around first.", "tools": [call("list", path="source")]},
    {"tools": [call("read", path="guide.txt")]},
]
"""What only a fresh session has to do."""
HAND_OFF = {"tools": [call("hand_off", next_step="write the parts", learned=["the sources are read"], dead_ends=[])]}


def make_script(job: Job, *, fresh: bool) -> str:
    """Return the job as a rehearsal script.

    Args:
        job: How large it is.
        fresh: Whether every phase begins in a fresh session, which looks around first; the heavy phase then hands over
            when it has read everything, and its second session reads a third of it again.
    """
    sessions: list[dict[str, Any]] = []
    for phase in range(1, job.phases + 1):
        reading, working = make_turns(job, phase)
        start = ORIENTATION if fresh or phase == 1 else []
        if fresh and phase == job.heavy:
            sessions.append({"turns": [*start, *reading, HAND_OFF]})
            reading = reading[::3]
        sessions.append({"then": "next", "turns": [*start, *reading, *working]})
    sessions.append({
        "aside": True,
        "when": {"last_message_contains": "about to be replaced by a summary"},
        "turns": [{"text": make_text("summary", 4_000)}],
    })  # fmt: skip
    return json.dumps({"model": CHEAP_READS, "sessions": sessions})


# The run


def run_job(job: Job, strategy: str) -> Result:
    """Play the job under a strategy."""
    events: list[Event] = []
    times = itertools.count(0, REQUEST_S)
    script = parse_script(make_script(job, fresh=strategy == "reset"))
    with (
        make_repository(dict(make_files(job))) as root,
        serve(script, clock=lambda: next(times), keeps_bodies=False) as server,
    ):
        begin = time.perf_counter()
        tree, commits = run_relay(root, server.base_url, events, strategy, job.reset_at)
        wall_s = time.perf_counter() - begin
        if server.errors:
            raise RuntimeError(f"{strategy}: {server.errors}")
    responses = [event for event in events if isinstance(event, ResponseReceived)]
    return Result(
        strategy=strategy,
        usages=tuple(event.usage or Usage() for event in responses),
        fills=tuple(event.fill_tokens or 0 for event in responses),
        line_tokens=int(job.reset_at.removesuffix("k")) * 1_000,
        sessions=sum(isinstance(event, SessionStarted) for event in events) if strategy == "reset" else 1,
        notes=tuple(event.text for event in events if isinstance(event, Noticed) and "→" in event.text),
        tree=tree,
        commits=commits,
        wall_s=wall_s,
    )


def run_relay(root: Path, base_url: str, events: list[Event], strategy: str, reset_at: str) -> tuple[str, int]:
    """Run the plan; return the tree of the last commit and the number of commits.

    The job's own commands are run without a sandbox: they are harmless, and the figures are then the same everywhere.
    """
    settings = load_settings(
        flags={"reset_at": reset_at, "sandbox": "off", "max_cost_usd": "none"},
        environ={"RELAY_ARM": strategy},
        plan_settings={},
        repo_root=root,
        user_dir=None,
    )
    environ = {"ANTHROPIC_API_KEY": "rehearsal", "ANTHROPIC_BASE_URL": base_url, "PATH": os.environ["PATH"]}
    request = RunRequest(
        kind=SessionKind.RUN,
        repo=open_repo(root),
        settings=settings,
        plan_path="PLAN.md",
        environ=environ,
    )
    interrupts = Interrupts()
    with open_run(request, events.append, interrupts) as ctx:
        ended = run(ctx, Selection())
    interrupts.close()
    if ended.exit_code:
        raise RuntimeError(f"{strategy}: {ended.reason}")
    head = git(root, "rev-parse", "HEAD^{tree}", "HEAD").split()
    return head[0], int(git(root, "rev-list", "--count", "HEAD"))


# The report


COLUMNS = (
    ("strategy", "strategy", "{}"),
    ("requests", "requests", "{:,}"),
    ("sessions", "sessions", "{:,}"),
    ("input", "input_tokens", "{:,}"),
    ("cache write", "cache_write_tokens", "{:,}"),
    ("cache read", "cache_read_tokens", "{:,}"),
    ("output", "output_tokens", "{:,}"),
    ("read from cache", "hit_ratio", "{:.1%}"),
    ("cost, reads at 0.05", "cost_usd", "{:.2f} USD"),
    ("cost, reads at 0.1", "cost_usd_at_usual_reads", "{:.2f} USD"),
    ("peak fill", "peak_fill_tokens", "{:,}"),
    ("mean fill", "mean_fill_tokens", "{:,}"),
    ("requests above the line", "requests_above_line", "{:,}"),
)


def render_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(title for title, _, _ in COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(form.format(row[key]) for _, key, form in COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def render_report(job: Job, results: Sequence[Result]) -> str:
    """Return the report as Markdown."""
    rows = [result.describe() for result in results]
    walls = ", ".join(f"{result.strategy} {result.wall_s:.1f} s" for result in results)
    return f"""# Context strategies: what each costs

`python benchmarks/context.py` — {job.phases} phases, reset line {job.reset_at}, model `{CHEAP_READS}`, prices of
{PRICE_DAY}. Written by the benchmark; every figure in the table is deterministic.

{render_table(rows)}

![Context fill over the requests of each run](context.svg)

Tokens are those of the whole run, each class billed at its own price. *Reads at 0.1* bills the same tokens at the
prices of `{USUAL_READS}`, where a cache read costs a tenth of input instead of a twentieth. *Fill* is prompt and answer
of a request; *above the line* counts requests whose context was fuller than the reset line. All four runs end in the
same tree, with one commit for each phase. Wall time on the machine that wrote this: {walls}.

**The job.** Each phase reads {job.reads} files of {job.file_bytes:,} bytes (phase {job.heavy}: {job.heavy_reads}),
writes {job.parts}, runs a check after each, ticks. A fresh session looks around first ({len(ORIENTATION)} requests, one
file) and in phase {job.heavy} hands over and reads a third of its files again; a session that goes on does neither. No
strategy is charged for reading again what it has cleared or summarised away; that favours `compact` and `edit`.

**What this shows and what it does not.** The model is a script: it answers the same whatever is in its context. So this
is the *economics* of each strategy on one job: tokens, money, fill, cache. It says nothing about the *quality* of the
work, which is what a reset is for, and nothing about jobs of another shape: with cheap cache reads and small phases one
long session can be cheaper.

**Measure quality on your own model.** The same switch runs real work. From one commit, with one plan:

```sh
for s in reset none compact edit; do
  git worktree add -b try-$s ../try-$s && (cd ../try-$s && RELAY_ARM=$s relay run --max-cost 10)
done
```

Then compare the branches by what you care about: phases done, `relay status --json` (sessions, spend), red gates in
`.relay/sessions/*.jsonl` (`GateFinished` with `passed: false`), and a review of the four diffs without knowing which is
which. One run of each is an anecdote; three or more say something. `RELAY_ARM=none+ablate=rules+ablate=ledger` takes
single features of relay away in the same manner, and every run writes both settings into its log.
"""


def render_plot(results: Sequence[Result], *, width: int = 880, height: int = 420) -> str:
    """Return fill over requests as an SVG."""
    left, right, top, bottom = 70, 20, 40, 50
    most = max(max(result.fills) for result in results) * 1.05
    last = max(len(result.fills) for result in results)

    def place(n: float, fill: float) -> str:
        x = left + (width - left - right) * n / last
        y = height - bottom - (height - top - bottom) * fill / most
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        "<style>text { font: 12px sans-serif }</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    step = find_step(most)
    for tokens in range(0, int(most), step):
        y = place(0, tokens).split(",")[1]
        parts += [
            f'<line x1="{left}" y1="{y}" x2="{width - right}" y2="{y}" stroke="#e3e3e3"/>',
            f'<text x="{left - 8}" y="{y}" dy="4" text-anchor="end" fill="#444444">{tokens // 1000}k</text>',
        ]
    x, y = place(0, results[0].line_tokens).split(",")
    parts += [
        f'<line x1="{x}" y1="{y}" x2="{width - right}" y2="{y}" stroke="#444444" stroke-dasharray="6 4"/>',
        f'<text x="{width - right}" y="{float(y) - 6:.1f}" text-anchor="end" fill="#444444">reset line</text>',
        f'<text x="{width / 2:.0f}" y="{height - 14}" text-anchor="middle" fill="#444444">request</text>',
        f'<text x="{left}" y="22" fill="#444444">tokens in context after each response</text>',
    ]
    for number, result in enumerate(results):
        points = " ".join(place(n, fill) for n, fill in enumerate(result.fills, 1))
        x_label = width - right - 90 * (len(results) - number)
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[result.strategy]}" stroke-width="2"/>',
            f'<text x="{x_label}" y="22" fill="{COLOURS[result.strategy]}" font-weight="bold">{result.strategy}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def find_step(most: float) -> int:
    """Return a round distance between the lines of the scale."""
    return next(step for step in (2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000) if most / step <= 10)  # noqa: PLR2004  # lines


def main() -> None:
    """Run the four strategies and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small job, for a smoke test")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for the results")
    options = parser.parse_args()
    job = QUICK if options.quick else FULL
    results = []
    for strategy in STRATEGIES:
        results.append(run_job(job, strategy))
        print(f"{strategy:8} {results[-1].wall_s:6.1f} s  {len(results[-1].usages)} requests", flush=True)
    if len({result.tree for result in results}) != 1:
        raise RuntimeError("the strategies did not end in the same tree")
    rows = [result.describe() for result in results]
    print(render_table(rows))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "context.md").write_text(render_report(job, results), encoding="utf-8")
    (options.out / "context.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (options.out / "context.svg").write_text(render_plot(results), encoding="utf-8")


if __name__ == "__main__":
    main()
