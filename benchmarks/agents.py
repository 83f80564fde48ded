"""What relay adds to an agent: a job of three phases bare and under relay, the start of a session, and each request.

    python benchmarks/agents.py [--place DIR] [--rounds N] [--out DIR] [AGENT …]

A rehearsal server without latency plays the model: in each phase a command writes a file, one more call is made, a
text ends it. Bare, the agent does that in three sessions of its own process each, by the same protocol, without a
sandbox and with the server as its endpoint; nothing is checked and nothing committed. Under relay the second call is
``tick``.
Packages are installed into DIR. Read the differences; absolute times are those of the machine. Writes ``agents.md``.
"""

import argparse
import itertools
import json
import os
import queue
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from processes import git, make_environ, make_repository

from relay.base.jsonrpc import Answered, Question, Wire
from relay.runners.agents.acp import INITIALIZE, has_mode
from relay.runners.agents.gateway import HeldRequest, Route, serve_agent
from relay.runners.agents.profiles import PROFILES, Profile, fill, get_installed, make_home
from relay.runners.messages.api import open_wire
from relay.sandbox.openings import listen
from relay.sandbox.supervisor import find_descendants
from relay.session.prices import cost_usd, find_price
from relay.session.usage import Usage
from rigs.agents.real import AGENTS, LIMITS, Agent, install
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

HERE = Path(__file__).resolve().parent
MODEL = "claude-opus-5-5"
WINDOW = "400000"
"""Of a model that relay does not know."""
PHASES = 3
REQUESTS = 60
PROMPT_CHARS = 120_000
"""About 30,000 tokens."""
PORT = 47_114
MARK = "relay-session benchmark"
PROMPTS = "BENCHMARK_PROMPTS"
"""Variable with the prompts of a bare job as a JSON list; `peers.py` sets it."""
CLASSES = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One job."""

    wall_s: float
    first_s: float
    """Until the first request has arrived."""
    gap_ms: float
    """Between two requests of a session: the agent's own time, its command, and what relay does there."""
    cpu_s: float
    rss_mb: float
    """Of all processes together, at most."""
    requests: int
    tokens: tuple[int, ...]
    """By `CLASSES`."""


@dataclass(slots=True)
class Meter:
    """What a process and all below it take, looked at ten times a second. Mutable: it looks.

    The kernel's own account leaves out whoever is killed, as the agents are.
    """

    cpu_s: dict[int, float]
    """By process, as seen last."""
    peak_mb: float = 0.0
    end_s: float = 0.0

    def look(self, pids: list[int]) -> None:
        """Look at these processes."""
        total = 0.0
        for pid in pids:
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.cpu_s[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1024**2
        self.peak_mb = max(self.peak_mb, total)


def run_metered(argv: list[str], root: Path, environ: dict[str, str]) -> tuple[Meter, int, str]:
    """Run a process to its end; return what it took, its exit code and the end of what it said."""
    meter = Meter(cpu_s={})
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(argv, cwd=root, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        while child.poll() is None:
            meter.look([child.pid, *find_descendants(child.pid)])
            time.sleep(0.1)
        meter.end_s = time.perf_counter()
        output.seek(0)
        return meter, child.returncode, output.read().decode("utf-8", "replace")[-2_000:]


def make_plan() -> dict[str, str]:
    """Return the files of the job's repository."""
    phases = "\n".join(
        f"## Phase {n} — Part {n}\nVerify: `test -s part{n}.txt`\n- [ ] Write part {n} — part{n}.txt\n"
        for n in range(1, PHASES + 1)
    )
    return {"PLAN.md": f"# A job of three parts\n\n{phases}", "AGENTS.md": "# Rules\nKeep it short.\n"}


def make_script(agent: Agent, *, ticks: bool) -> str:
    """Return a session for each phase, and an answer for titles."""
    title = {"name": "title", "aside": True, "when": {"first_message_contains": "itle"}, "turns": [{"text": "x"}]}
    sessions: list[Any] = [title] if agent.makes_titles else []
    for n in range(1, PHASES + 1):

        def bash(command: str) -> dict[str, Any]:
            given = {"commands": [command]} if agent.command == "commands" else {agent.command: command}
            return {"name": agent.bash, "input": {**given, "description": "x"}}

        tick = {"name": f"{agent.own}tick", "input": {"item": f"{n}.1", "evidence": "written"}}
        second = tick if ticks else bash("true")
        turns = [{"tools": [bash(f"echo {n} > part{n}.txt")]}, {"tools": [second]}, {"text": f"Commit: part {n}"}]
        sessions.append({"when": {"tools_include": [agent.bash]}, "turns": turns})
    model = {"model": {"id": agent.model, "window": int(WINDOW)}} if agent.model else {}
    return json.dumps({**model, "sessions": sessions})


def make_client_environ(agent: Agent, base_url: str, path: str, place: Path) -> dict[str, str]:
    """Return the environment of a job: key and address of the API that the agent speaks, and what its model can do."""
    if agent.model:
        (place / "relay").mkdir()
        (place / "relay/config.toml").write_text(f'model = "{agent.model}"\n[models."{agent.model}"]\n{LIMITS}')
    base, root = ("GOOGLE_GEMINI", "") if agent.family == "GEMINI" else (agent.family, "/v1")
    environ = make_environ(base_url, PATH=path, XDG_CONFIG_HOME=str(place), BENCHMARK_BASE=base_url)
    if agent.family != "ANTHROPIC":
        del environ["ANTHROPIC_API_KEY"], environ["ANTHROPIC_BASE_URL"]
        environ |= {f"{agent.family}_API_KEY": "rehearsal", f"{base}_BASE_URL": base_url + root}
    return environ


def run_job(agent: Agent, path: str, *, under_relay: bool) -> Run:
    """Play the job once."""
    asked: list[float] = []

    def note_question() -> float:  # the server looks at the clock once for each question to the model
        asked.append(time.perf_counter())
        return asked[-1]

    script = parse_script(make_script(agent, ticks=under_relay))
    with (
        make_repository(make_plan()) as root,
        serve(script, clock=note_question) as server,
        tempfile.TemporaryDirectory() as place,
    ):
        argv = [sys.executable, "-P", "-m", "relay", "run", "--runner", agent.name]
        argv = argv if under_relay else [sys.executable, __file__, "--bare", str(AGENTS.index(agent))]
        environ = make_client_environ(agent, server.base_url, path, Path(place))
        begin = time.perf_counter()
        meter, status, output = run_metered(argv, root, environ)
        commits = int(git(root, "rev-list", "--count", "HEAD"))
        if status or server.errors or not asked or commits != (PHASES + 1 if under_relay else 1):
            faults = f"{server.errors}{server.unplayed}"
            raise RuntimeError(f"{agent.name}, {under_relay=}: exit {status}, {commits} commits\n{output}\n{faults}")
        used = [request.usage for request in server.requests if request.usage]
    return Run(
        wall_s=meter.end_s - begin,
        first_s=asked[0] - begin,
        gap_ms=statistics.median(later - earlier for earlier, later in itertools.pairwise(asked)) * 1e3,
        cpu_s=sum(meter.cpu_s.values()),
        rss_mb=meter.peak_mb,
        requests=len(used),
        tokens=tuple(sum(int(usage.get(name) or 0) for usage in used) for name in CLASSES),
    )


def leave_tools_out(profile: Profile) -> Profile:
    """Return how an agent is started without relay's tools, which there are none of."""
    words = list(profile.arguments)
    for word in profile.arguments:
        if "{server}" in word:
            del words[words.index(word) - 1 : words.index(word) + 1]
    own = ("{server}", "{tools}")
    files = {name: text for name, text in profile.files.items() if not any(word in text for word in own)}
    return replace(profile, arguments=tuple(words), files=files)


def work_bare(agent: Agent, root: Path, prompts: list[str]) -> None:
    """Hold a session for each prompt, each in a process of its own, with nothing between the agent and its endpoint."""
    known = PROFILES[agent.name]
    profile, way = leave_tools_out(known), next(way for way in known.setups if way.family == agent.family.lower())
    installed = get_installed(profile, os.environ)
    for prompt in prompts:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            home = Path(place, "home")
            words = {"base": os.environ["BENCHMARK_BASE"], "model": agent.model or MODEL, "home": str(home)}
            words |= {"window": WINDOW, "output": "128000"}
            make_home(profile, way, home, words)
            env = {key: fill(text, words) for key, text in {**profile.env, **way.env}.items()}
            arguments = (*profile.arguments, *way.arguments)
            environ = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}  # all is at home
            process = subprocess.Popen(
                [str(installed.program), *(fill(word, words) for word in arguments)],
                cwd=root, env={**environ, **env, "HOME": str(home), "PATH": installed.path},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            talk(process, root, profile, prompt)


def talk(process: "subprocess.Popen[bytes]", root: Path, profile: Profile, prompt: str) -> None:
    """Have the agent do one phase, and end it."""
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    assert process.stdin
    assert process.stdout
    wire = Wire(process.stdout, partial(os.write, process.stdin.fileno()), inbox.put)

    def ask(method: str, params: dict[str, Any]) -> Any:
        number = wire.ask(method, params)
        while True:
            found = inbox.get(timeout=120)
            if isinstance(found, Question):
                wire.answer(found, None)
            if isinstance(found, Answered) and found.id == number:
                if found.error:
                    raise RuntimeError(f"{profile.name} answers {method} with: {found.error}")
                return found.result

    ask("initialize", INITIALIZE)
    opened = ask("session/new", {"cwd": str(root), "mcpServers": [], **profile.options})
    session = str(opened["sessionId"])
    if profile.mode and has_mode(opened, profile.mode):
        ask("session/set_mode", {"sessionId": session, "modeId": profile.mode})
    ask("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": prompt}]})
    os.killpg(process.pid, signal.SIGKILL)  # what it has started is in its group
    process.wait()


def find_processes(word: str) -> Iterator[int]:
    """Yield the processes that have a word of their own among their arguments."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (place / "cmdline").read_bytes().split(b"\0"):
                yield int(place.name)


@contextmanager
def open_way(base_url: str) -> Iterator[int]:
    """Open a gateway that holds nothing for longer than it takes, and the shim that a sandbox has; yield its port."""
    from relay.sandbox import inside

    told: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def release() -> None:
        while True:
            found = told.get()
            if isinstance(found, HeldRequest):
                found.release.set_result(None)

    threading.Thread(target=release, daemon=True).start()
    environ = {"ANTHROPIC_API_KEY": "rehearsal", "ANTHROPIC_BASE_URL": base_url}
    with tempfile.TemporaryDirectory() as place, closing(open_wire(environ, 60.0)) as wire:
        door = Path(place, "door")
        route = Route(wire=wire, mark=MARK.encode(), secrets=(), tell=told.put)
        with listen(door, partial(serve_agent, route)):
            shim = subprocess.Popen(
                [sys.executable, "-I", "-S", str(inside.__file__), f"{PORT}={door}", "--", "sleep", "600"]
            )
            try:
                while socket.socket().connect_ex(("127.0.0.1", PORT)):
                    time.sleep(0.02)
                yield PORT
            finally:
                for pid in find_processes(f"{PORT}={door}"):  # it stands aside of what it has started
                    os.kill(pid, signal.SIGKILL)
                shim.kill()
                shim.wait()


def measure_requests() -> tuple[float, float]:
    """Return the milliseconds of a request to the server, and by way of shim and gateway: medians, in turn."""
    import httpx2

    message = f"{MARK} {'word ' * (PROMPT_CHARS // 5)}"
    body = {
        "model": MODEL, "max_tokens": 100, "stream": True,
        "tools": [{"name": "bash", "description": "x", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": message}],
    }  # fmt: skip
    headers = {"x-api-key": "rehearsal", "anthropic-version": "2023-06-01"}
    with (
        serve(parse_script("sessions: [{repeat: true, turns: [{text: Done.}]}]")) as server,
        open_way(server.base_url) as port,
    ):
        spans: dict[str, list[float]] = {server.base_url: [], f"http://127.0.0.1:{port}": []}
        with httpx2.Client(timeout=60.0, headers=headers) as client:
            for _ in range(REQUESTS + 1):
                for base, found in spans.items():
                    begin = time.perf_counter()
                    client.post(f"{base}/v1/messages", json=body).raise_for_status()
                    found.append((time.perf_counter() - begin) * 1e3)
        direct, through = (statistics.median(found[1:]) for found in spans.values())
    return direct, through


def render_report(rows: dict[tuple[str, str], list[Run]], spans: tuple[float, float], rounds: int) -> str:
    """Return the report as Markdown."""
    price = find_price(MODEL)
    titles = (
        "wall, s",
        "to the first request, s",
        "between two requests, ms",
        "CPU, s",
        "peak memory, MB",
        "requests",
        *CLASSES,
        "cost, USD",
    )
    lines = [f"| agent | | {' | '.join(titles)} |", "| --- | --- |" + " ---: |" * len(titles)]
    for (name, how), runs in rows.items():
        middle = [
            statistics.median(getattr(run, field) for run in runs)
            for field in ("wall_s", "first_s", "gap_ms", "cpu_s", "rss_mb")
        ]
        fresh, read, written, output = runs[-1].tokens
        usage = Usage(input_tokens=fresh, cache_read_tokens=read, cache_write_5m_tokens=written, output_tokens=output)
        cost = f"{cost_usd(usage, price):.4f}" if price and name.endswith("(Messages)") else "unknown"
        counts = [f"{count:,}" for count in runs[-1].tokens]
        cells = [*(f"{value:.2f}" for value in middle[:4]), f"{middle[4]:.0f}", str(runs[-1].requests), *counts, cost]
        lines.append(f"| {name} | {how} | {' | '.join(cells)} |")
    table, (direct, through) = "\n".join(lines), spans
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    busy = ": others worked on this machine" if load > processors else ""
    return f"""# Agents, bare and under relay

`python benchmarks/agents.py --rounds {rounds}` — a job of three phases, three requests each, on a rehearsed model
without latency; medians of {rounds}, taken in turn. Written by the benchmark, at a load of {load:.1f} on {processors}
processors{busy}.

{table}

A request of about 30,000 tokens: {direct:.1f} ms straight to the server, {through:.1f} ms by way of the sandbox's shim
and relay's gateway, which add **{through - direct:.1f} ms** (medians of {REQUESTS}, in turn).

CPU and memory are those of all processes together, looked at ten times a second (what is shared counts several times).
Bare is three sessions, each in a process of its own, without sandbox, gate or commit. Under relay there are the sandbox
and its proof, two gates and a commit for each phase, snapshots, the rules and the plan in the prompt, and relay's
tools; *to the first request* holds all that relay does before it, the baseline gate too; *between two requests*, the
median, holds the look at the work tree and its snapshot.
"""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--bare", type=int, help="for the benchmark's own use")
    parser.add_argument("names", nargs="*", default=["claude", "opencode"])
    asked = parser.parse_args()
    if asked.bare is not None:
        usual = [f"Write part {n} into part{n}.txt." for n in range(1, PHASES + 1)]
        work_bare(AGENTS[asked.bare], Path.cwd(), json.loads(os.environ.get(PROMPTS, "null")) or usual)
        return
    agents = [agent for agent in AGENTS if agent.name in asked.names]
    path = install((asked.place or Path(tempfile.mkdtemp(prefix="relay-agents-"))).resolve(), agents)
    rows: dict[tuple[str, str], list[Run]] = {}
    for _ in range(asked.rounds):
        for agent in agents:
            for how in ("bare", "relay"):
                rows.setdefault((f"{agent.name} ({agent.api})", how), []).append(
                    run_job(agent, path, under_relay=how == "relay")
                )
    report = render_report(dict(sorted(rows.items())), measure_requests(), asked.rounds)
    (asked.out / "agents.md").write_text(report)
    sys.stdout.write(report)


if __name__ == "__main__":
    main()
