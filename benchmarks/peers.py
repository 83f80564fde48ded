"""What one job costs with relay and with its peers: the same turns, the same work, tokens and money.

    python benchmarks/peers.py [--place DIR] [--rounds N] [--out DIR] [AGENT …]

A rehearsal server plays the model: three phases of 13 turns, of which 12 call one tool. Everybody gets the same calls
of their shell: a file is looked at, another written, a check is run, the code changed, the check run again. The 12th
call ends the phase: under relay it is ``tick``, a peer ticks the box and commits by ``git``. A peer is given the text
of the phase, as its user would paste it, in a fresh session; relay gives what it always gives.

relay has three rows. In *same turns* it shows the session no file in advance (``RELAY_ARM=ablate=preload``), and the
model says a last word behind its tick. In *files shown* the model leaves out the look at the file that the phase names,
which stands in the first message. In *as it is* it leaves out the last word too: the tick names the commit.

Then the same job is timed ``--rounds`` times, in turn: relay in one process and in one for each phase, *same turns*,
and ``pi -p`` for each phase. Run that part on a quiet machine, or under ``chrt -f 50``.

Packages are installed into DIR. Writes ``peers.md``. relay writes a second that a command took behind its exit code, so
a busy machine adds a few tokens.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agents import PHASES, PROMPTS, make_client_environ, run_metered
from processes import Cost, git, make_environ, make_repository, run_process

from relay.runners.agents.profiles import PROFILES, make_home
from relay.session.prices import PRICES_SEEN, Price, cost_usd, find_price
from relay.session.usage import Usage
from rigs.agents.real import AGENTS, Agent, install
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

HERE = Path(__file__).resolve().parent
RELAY = Agent("relay", (), "bash", "")
MODELS = ("claude-opus-5-5", "claude-opus-5")
"""Whose prices the table has: of the first a read from the cache costs a twentieth of input, of the second a tenth."""
REFERENCE = "pi"
NEWEST = {"pi": ("pi-acp@0.0.34", "@earendil-works/pi-coding-agent@1.6.0")}
"""Of agents that are measured in a newer version than the one that relay drives."""
SAME, SHOWN, AS_IT_IS = "relay, same turns", "relay, files shown", "relay, as it is"
TIMED = ("relay, one process", "relay, a process a phase", "relay, its import of the SDK alone")
DESCRIBED = frozenset({"claude", "opencode"})
"""Agents whose shell requires a description beside the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one client used."""

    usages: tuple[Usage, ...]
    """Of each request."""

    @property
    def usage(self) -> Usage:
        """The sum."""
        return sum(self.usages, Usage())

    @property
    def hit(self) -> float:
        """The share of the prompts that was read from the cache."""
        return self.usage.cache_read_tokens / self.usage.prompt_tokens

    @property
    def first(self) -> int:
        """Tokens of the first prompt; a request for a title is not cached."""
        return next(usage.prompt_tokens for usage in self.usages if usage.cache_write_tokens)


def make_source(n: int) -> str:
    """Return a module of about 60 lines."""
    functions = "\n\n".join(
        f"def part{n}_{k}(rows, limit={k}):\n"
        f'    """Return the rows of part {n} that pass check {k}."""\n'
        f"    return [row for row in rows if row and len(row) > limit]\n"
        for k in range(12)
    )
    return f'"""Part {n} of the shop."""\n\n\n{functions}'


def make_phase(n: int) -> str:
    """Return a phase of the plan."""
    return (
        f"## Phase {n} — Totals of part {n}\n"
        f"Verify: `python3 tests/check{n}.py`\n"
        f"- [ ] Add a total over the rows that pass, and a check of it — src/part{n}.py, tests/check{n}.py\n"
    )


def make_files() -> dict[str, str]:
    """Return the repository's files."""
    plan = "# Totals for the shop\nEach part of the shop gets a total.\n\n" + "\n".join(
        map(make_phase, range(1, PHASES + 1))
    )
    rules = "# Rules\n- Plain functions, no classes.\n- A docstring for each.\n- Checks print ok.\n"
    sources = {f"src/part{n}.py": make_source(n) for n in range(1, PHASES + 1)}
    return {"PLAN.md": plan, "AGENTS.md": rules, "README.md": "# Shop\n", **sources}


def list_commands(n: int) -> list[str]:
    """Return what the model runs in a phase, up to the tick."""
    total = f'\n\ndef total{n}(rows):\n    """Return the number of cells."""\n    return sum(map(len, rows))\n'
    check = (
        f'"""Checks of part {n}."""\n\nimport sys\n\nsys.path.insert(0, "src")\n'
        f"from part{n} import part{n}_1, total{n}\n\n"
        f"assert total{n}([[1, 2], [3]]) == 3\nassert part{n}_1([[1, 2], [3]]) == [[1, 2]]\nprint('ok')\n"
    )
    return [
        f"cat src/part{n}.py",
        "git log --oneline | head -5; ls src tests 2>/dev/null | head -50",
        f"grep -rn 'part{n}_1' src | head -20",
        f"mkdir -p tests && cat > tests/check{n}.py <<'EOF'\n{check}EOF",
        f"python3 tests/check{n}.py 2>&1 | tail -3",
        f"cat >> src/part{n}.py <<'EOF'{total}EOF",
        f"tail -8 src/part{n}.py",
        f"python3 tests/check{n}.py",
        f"printf '\\n## Part {n}\\n`total{n}` adds up the cells.\\n' >> README.md",
        "git diff --stat; git status --short",
        f"python3 -m compileall -q src && python3 tests/check{n}.py",
    ]


def make_turns(agent: Agent, n: int, row: str) -> Iterator[dict[str, Any]]:
    """Yield the model's turns in a phase."""

    def bash(command: str) -> dict[str, Any]:
        given = {agent.command: [command] if agent.command == "commands" else command}
        more = {"description": "Work on it"} if agent.name in DESCRIBED else {}
        return {"name": agent.bash, "input": {**given, **more}}

    commands = list_commands(n)[row in {SHOWN, AS_IT_IS} :]
    done = f"Add the total of part {n}"
    box = f"sed -i 's/^- \\[ \\] \\(.*part{n}.py\\)/- [x] \\1/' PLAN.md"
    end: dict[str, Any] = {"name": "tick", "input": {"item": f"{n}.1", "evidence": f"python3 tests/check{n}.py: ok"}}
    if agent is not RELAY:
        end = bash(f"{box} && git add -A && git commit -qm '{done}'")
    if row == AS_IT_IS:
        end["input"]["commit"] = done
    for tool in (*map(bash, commands), end):
        yield {"tools": [tool]}
    if row != AS_IT_IS:
        yield {"text": f"Commit: {done}"}


def make_script(agent: Agent, row: str) -> str:
    """Return a session for each phase, and an answer for titles."""
    title = {"name": "title", "aside": True, "when": {"first_message_contains": "itle"}, "turns": [{"text": "x"}]}
    sessions = [
        {"when": {"tools_include": [agent.bash]}, "turns": list(make_turns(agent, n, row))}
        for n in range(1, PHASES + 1)
    ]
    # What a model thinks costs all alike, and is left out.
    models = [{"id": model, "binds_thinking": False} for model in MODELS]
    return json.dumps({"models": models, "sessions": [*([title] if agent.makes_titles else []), *sessions]})


def run_job(agent: Agent, path: str, row: str) -> Job:
    """Play the job once."""
    script = parse_script(make_script(agent, row))
    with make_repository(make_files()) as root, serve(script) as server, tempfile.TemporaryDirectory() as place:
        if agent is RELAY:
            argv = [sys.executable, "-P", "-m", "relay", "run"]
            environ = make_environ(
                server.base_url,
                XDG_CONFIG_HOME=place,
                PYTHONPATH=str(HERE.parent),
                RELAY_ARM="ablate=preload" if row == SAME else "",
            )
        else:
            argv = [sys.executable, str(HERE / "agents.py"), "--bare", str(AGENTS.index(agent))]
            asked = "Do this phase of the plan in PLAN.md, tick its box and commit."
            prompts = [f"{asked}\n\n{make_phase(n)}" for n in range(1, PHASES + 1)]
            environ = make_client_environ(agent, server.base_url, path, Path(place))
            environ |= {PROMPTS: json.dumps(prompts), "PYTHONPATH": str(HERE.parent)}
        _, status, output = run_metered(argv, root, environ)
        commits, plan = int(git(root, "rev-list", "--count", "HEAD")), git(root, "show", "HEAD:PLAN.md")
        if status or server.errors or server.unplayed or commits != PHASES + 1 or plan.count("- [x]") != PHASES:
            faults = f"{server.errors}{server.unplayed}"
            raise RuntimeError(f"{agent.name}: exit {status}, {commits} commits\n{output}\n{faults}\n{plan}")
        used = [read_usage(dict(request.usage)) for request in server.requests if request.usage]
    return Job(usages=tuple(used))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The job once by the clock."""

    phase_s: float
    """Of all processes together, by phase."""
    first_s: float
    """From the start of the first process to its first request."""
    cpu_s: float
    rss_mb: float
    """Of the largest process."""


def list_processes(client: str) -> list[list[str]]:
    """Return the command lines of a timed job."""
    run = [sys.executable, "-P", "-m", "relay", "run"]
    numbers = range(1, PHASES + 1)
    match client:
        case "relay, one process":
            return [run]
        case "relay, a process a phase":
            return [[*run, "--phase", str(n)] for n in numbers]
        case "relay, its import of the SDK alone":
            return [[sys.executable, "-P", "-c", "import relay.runners.messages.client"] for _ in numbers]
        case _:
            asked = "Do this phase of the plan in PLAN.md, tick its box and commit."
            return [[REFERENCE, "-p", f"{asked}\n\n{make_phase(n)}"] for n in numbers]


def time_job(client: str, path: str) -> Timing:
    """Play the job once with as many turns for each client, and look at the clock."""
    agent = next(agent for agent in AGENTS if agent.name == REFERENCE) if client == REFERENCE else RELAY
    asked: list[float] = []

    def note_question() -> float:  # the server looks at the clock once for each question to the model
        asked.append(time.perf_counter())
        return asked[-1]

    script = parse_script(make_script(agent, SAME))
    with (
        make_repository(make_files()) as root,
        serve(script, clock=note_question) as server,
        tempfile.TemporaryDirectory() as place,
    ):
        if agent is RELAY:
            environ = make_environ(server.base_url, XDG_CONFIG_HOME=place, PYTHONPATH=str(HERE.parent))
            environ |= {"RELAY_ARM": "ablate=preload"}
        else:
            profile = PROFILES[REFERENCE]
            setup = next(setup for setup in profile.setups if setup.family == "anthropic")
            words = {
                "base": server.base_url,
                "model": MODELS[0],
                "window": "1000000",
                "output": "128000",
                "home": place,
            }
            make_home(replace(profile, files={}), setup, Path(place), words)
            environ = make_environ(server.base_url, HOME=place, **profile.env)
        environ["PATH"] = path.removesuffix(os.environ["PATH"]) + os.defpath  # no version manager is timed
        costs = list[Cost]()
        for argv in list_processes(client):
            cost, status, output = run_process(argv, root, environ)
            if status or server.errors:
                raise RuntimeError(f"{client}: exit {status}\n{output}\n{server.errors}")
            costs.append(cost)
        if asked and server.unplayed:
            raise RuntimeError(f"{client}: {server.unplayed}")
    return Timing(
        phase_s=sum(cost.wall_ms for cost in costs) / 1e3 / PHASES,
        first_s=(asked[0] if asked else costs[0].end_s) - costs[0].begin_s,
        cpu_s=sum(cost.cpu_ms for cost in costs) / 1e3,
        rss_mb=max(cost.rss_mb for cost in costs),
    )


def render_times(rounds: Mapping[str, list[Timing]]) -> str:
    """Return the table of the timed jobs as Markdown, by client."""
    heads = ("client", "s a phase", f"× {REFERENCE}", "to the first request, s", "CPU s", "peak memory MB")
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    own = statistics.median(timing.phase_s for timing in rounds[REFERENCE])
    for client, timings in rounds.items():
        phase, first, cpu, rss = (
            statistics.median(getattr(timing, name) for timing in timings)
            for name in ("phase_s", "first_s", "cpu_s", "rss_mb")
        )
        lines.append(f"| {client} | {phase:.2f} | {phase / own:.2f} | {first:.2f} | {cpu:.2f} | {rss:.0f} |")
    return "\n".join(lines)


def read_usage(found: Mapping[str, Any]) -> Usage:
    """Return the usage of an answer."""
    written = found.get("cache_creation") or {}
    hour = int(written.get("ephemeral_1h_input_tokens") or 0)
    return Usage(
        input_tokens=int(found.get("input_tokens") or 0),
        cache_read_tokens=int(found.get("cache_read_input_tokens") or 0),
        cache_write_5m_tokens=int(found.get("cache_creation_input_tokens") or 0) - hour,
        cache_write_1h_tokens=hour,
        output_tokens=int(found.get("output_tokens") or 0),
    )


def render_report(jobs: Mapping[str, Job], rounds: Mapping[str, list[Timing]]) -> str:
    """Return the report as Markdown."""
    today = datetime.now(UTC).date()
    prices = [price for model in MODELS if (price := find_price(model))]
    heads = ["client", "requests", "first prompt", "uncached", "written", "read", "hit", "output"]
    heads += [f"{model}, USD | × {REFERENCE}" for model in MODELS]
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) + len(MODELS) - 1)]
    reference = [_cost(jobs[REFERENCE], price) for price in prices]
    for name, job in jobs.items():
        usage, cells = job.usage, list[str]()
        for price, other in zip(prices, reference, strict=True):
            cells += [f"{_cost(job, price):.4f}", f"{_cost(job, price) / other:.2f}"]
        counts = (job.first, usage.input_tokens, usage.cache_write_tokens, usage.cache_read_tokens)
        words = [name, str(len(job.usages)), *(f"{count:,}" for count in counts)]
        lines.append(f"| {' | '.join([*words, f'{job.hit:.1%}', f'{usage.output_tokens:,}', *cells])} |")
    versions = ", ".join(f"{name} is {packages[-1].rpartition('@')[2]}" for name, packages in NEWEST.items())
    table, commit = "\n".join(lines), git(HERE, "rev-parse", "--short", "HEAD")
    rows = (
        ("files that the phase names in the first message", SAME, SHOWN),
        ("the commit in the last tick", SHOWN, AS_IT_IS),
    )
    saved = "\n".join(_compare(what, jobs[without], jobs[row], prices[0]) for what, without, row in rows)
    return f"""# The same job with relay and with its peers

`python benchmarks/peers.py` — {today}, at {commit}. Three phases of 13 turns on a rehearsed model: the same calls of
the shell, a plan, a check and a commit for each phase. Tokens as the rehearsal server counts and caches them, at the
prices of {PRICES_SEEN}; {versions}. Written by the benchmark; a busy machine
adds a few tokens, for relay says a second that a command took.

{table}

*{SAME}* is `RELAY_ARM=ablate=preload`, with a last word of the model behind its tick.
In *{SHOWN}* the model leaves out the look at the file that the phase names,
which stands in the first message, and in *{AS_IT_IS}* the last word too: the tick names the commit.
The work is the same, three phases of it:

| what relay does | turns saved | prompt tokens saved | first prompt | saved at {MODELS[0]} |
| --- | ---: | ---: | ---: | ---: |
{saved}

## By the clock

Medians of {len(rounds[REFERENCE])}, in turn, the server without latency, as many turns for each. {REFERENCE} is
`pi -p` with the phase's text.

{render_times(rounds)}

A peer is given the phase's text and commits by `git` where relay is told by `tick`; it has no gate, no sandbox and no
checkpoints, and its user starts each phase. The model is a script, so this says nothing about the quality of the work.
"""


def _compare(what: str, without: Job, job: Job, price: Price) -> str:
    turns, tokens = len(without.usages) - len(job.usages), without.usage.prompt_tokens - job.usage.prompt_tokens
    saved = 1 - _cost(job, price) / _cost(without, price)
    return f"| {what} | {turns} | {tokens:,} | {job.first - without.first:+,} | {saved:.1%} |"


def _cost(job: Job, price: Price) -> float:
    return sum(cost_usd(usage, price) for usage in job.usages)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", type=Path, help="directory for the agents' packages")
    parser.add_argument("--rounds", type=int, default=5, help="timed jobs of each client")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="directory for the results")
    parser.add_argument("names", nargs="*", default=["pi", "claude", "opencode", "goose", "copilot"])
    options = parser.parse_args()
    asked = {REFERENCE, *options.names}
    agents = [agent for agent in AGENTS if agent.name in asked and agent.api == "Messages"]
    newest = [replace(agent, packages=NEWEST.get(agent.name, agent.packages)) for agent in agents]
    path = install((options.place or Path(tempfile.mkdtemp(prefix="relay-agents-"))).resolve(), newest)
    jobs = {row: run_job(RELAY, path, row) for row in (AS_IT_IS, SHOWN, SAME)}
    for agent in sorted(agents, key=lambda agent: agent.name != REFERENCE):
        jobs[agent.name] = run_job(agent, path, agent.name)
        print(agent.name, jobs[agent.name].usage, flush=True)
    rounds: dict[str, list[Timing]] = {client: [] for client in (*TIMED, REFERENCE)}
    for _ in range(options.rounds + 1):  # the first one compiles, and is not counted
        for client, timings in rounds.items():
            timings.append(time_job(client, path))
    report = render_report(jobs, {client: timings[1:] for client, timings in rounds.items()})
    print(report)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "peers.md").write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
