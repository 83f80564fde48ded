"""What a second session in an agent's old process would win, and what it would find of the first one.

    python benchmarks/second_session.py [--place DIR] [--rounds N] [--out DIR] [AGENT …]

Each round starts an agent in relay's sandbox, as a phase does. A command of its first session leaves a process, a text
in TMPDIR and instructions where agents look for those of their user. Then the plan is replaced, as relay's commit does
it, and a second session begins in the same process. Packages are installed into DIR. Writes ``second_session.md``.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents import HERE, MODEL, WINDOW
from processes import make_repository

from relay.base.interrupts import Interrupts
from relay.config import ModelSettings, Settings
from relay.git.repository import open_repo
from relay.runners.agents.session import AgentSession
from relay.runners.base import Callbacks, SessionSpec, Surroundings
from relay.runners.registry import list_runners
from relay.sandbox.private_folder import find_folder
from relay.sandbox.supervisor import find_descendants
from relay.session.events import Event, RequestStarted
from relay.session.gauge import parse_reset_at
from relay.session.values import SessionKind, ToolResult, ToolSpec
from relay.setup.context import RunRequest
from relay.setup.workspace import open_own_workspace
from rigs.agents.real import AGENTS, Agent, install
from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve

TEXT, PLANTED, SPAN = "a-text-of-phase-one", "INSTRUCTIONS-LEFT-BY-PHASE-ONE", "86399"
PLAN = "# A plan\n\n## Phase 1 — One\n- [{}] Do it — a.txt\n"
INSTRUCTIONS = (
    ".claude/CLAUDE.md", ".config/opencode/AGENTS.md", ".codex/AGENTS.md", ".config/goose/.goosehints",
    ".pi/agent/AGENTS.md", ".qwen/QWEN.md", ".kimi-code/AGENTS.md", ".gemini/GEMINI.md",
    ".copilot/copilot-instructions.md", ".cline/rules/x.md",
)  # fmt: skip
"""Below the home directory, of all agents."""
LEAVE = f"setsid sleep {SPAN} > /dev/null 2>&1 & cd ~; echo {TEXT} > $TMPDIR/left; " + "".join(
    f"mkdir -p {Path(name).parent}; echo {PLANTED} > {name}; " for name in INSTRUCTIONS
)
FIND = "echo tampered >> PLAN.md; cat $TMPDIR/left > found.txt; pgrep -f [s]leep.86399 >> found.txt; echo found"
TICK = ToolSpec(name="tick", description="Claim an item.", input_schema={"type": "object", "properties": {}})


@dataclass(slots=True, kw_only=True)
class Seen:
    """What one round showed. Mutable: it is filled in as the round goes on."""

    starts: list[tuple[float, float]] = field(default_factory=list)
    """Time and processor time so far at each request of both conversations."""
    fresh_s: float = 0.0
    further_s: float = 0.0
    fresh_cpu_s: float = 0.0
    further_cpu_s: float = 0.0
    """Processor time, which others on the machine hardly change."""
    memory_mb: float = 0.0
    """Of the agent and all below it, between the sessions."""
    finds: set[str] = field(default_factory=set)
    """What the second session finds of the first."""

    def observe(self, event: Event) -> None:
        """Note when a request starts."""
        if isinstance(event, RequestStarted):
            self.starts.append((time.monotonic(), measure_cpu()))


def make_script(agent: Agent) -> str:
    """Return both sessions: a command and a text each."""

    def bash(command: str) -> dict[str, Any]:
        given = {"commands": [command]} if agent.command == "commands" else {agent.command: command}
        return {"tools": [{"name": agent.bash, "input": {**given, "description": "x"}}]}

    title = {"name": "title", "aside": True, "when": {"first_message_contains": "itle"}, "turns": [{"text": "x"}]}
    sessions = [
        {"when": {"tools_include": [agent.bash]}, "turns": [bash(command), {"text": "Done."}]}
        for command in (LEAVE, FIND)
    ]
    model = {"model": {"id": agent.model, "window": int(WINDOW)}} if agent.model else {}
    return json.dumps({**model, "sessions": [*([title] if agent.makes_titles else []), *sessions]})


def run_round(agent: Agent, path: str) -> Seen:
    """Hold both sessions once."""
    seen, model, interrupts = Seen(), agent.model or MODEL, Interrupts()
    base, root_path = ("GOOGLE_GEMINI", "") if agent.family == "GEMINI" else (agent.family, "/v1")
    with (
        make_repository({"PLAN.md": PLAN.format(" ")}) as root,
        serve(parse_script(make_script(agent))) as server,
        tempfile.TemporaryDirectory() as home,
    ):
        address = server.base_url + (root_path if agent.family != "ANTHROPIC" else "")
        environ = {"PATH": path, "HOME": home, f"{agent.family}_API_KEY": "rehearsal", f"{base}_BASE_URL": address}
        limits = ModelSettings(window_tokens=int(WINDOW), max_output_tokens=128_000)
        settings = Settings(runner=agent.name, model=model, models={model: limits}, max_cost_usd=None)
        kind = list_runners(settings)[agent.name]
        request = RunRequest(
            kind=SessionKind.RUN, repo=open_repo(root, environ), settings=settings, plan_path="PLAN.md",
            environ=environ,
        )  # fmt: skip
        given = Surroundings(environ=environ, settings=settings, observe=seen.observe, interrupts=interrupts)
        with open_own_workspace(request) as workspace, kind.open(given) as runner:
            runner.get_model(model)
            callbacks = Callbacks(run_tool=lambda _: ToolResult(text="ok"), render_soft_notice=lambda _fill, _room: "")
            spec = SessionSpec(
                session_id="one", callbacks=callbacks, reset_at=parse_reset_at("100%"), model=model, system="Work.",
                tools=(TICK,), check_budget=lambda _prompt, _output: None, price=None, sandbox=workspace.sandbox,
                writes=True, limits=workspace.limits,
            )  # fmt: skip
            begun = time.monotonic()
            with runner.open_session(spec) as session:
                outcome = session.advance(f"Do phase one: {TEXT}.")
                seen.fresh_s, seen.fresh_cpu_s = seen.starts[0][0] - begun, seen.starts[0][1]
                session.__class__ = Further
                assert isinstance(session, Further)
                hold_second(session, root, server, seen)
                if not seen.further_s:
                    raise RuntimeError(f"{agent.name}: {outcome}, {server.errors}")
    interrupts.close()
    return seen


class Further(AgentSession):
    """A session whose process has held one before. Mutable, as every session."""

    def thaw(self) -> None:
        """Let the process go on."""
        self._process.child.thaw()

    def begin_again(self, message: str) -> None:
        """Hold a further session in the process."""
        self._open(self._process)
        self._say(f"{message}\n\n{self._context.mark}")
        self._work()

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        capabilities: Any = {"sessionCapabilities": {"systemPrompt": {}}} if self._takes_system else {}
        return {"agentCapabilities": capabilities} if method == "initialize" else super()._ask(method, params)


def hold_second(session: Further, root: Path, server: Endpoint, seen: Seen) -> None:
    """Begin another session in the process of the first, and note what it finds."""
    session.thaw()
    seen.memory_mb = sum(map(measure_memory, find_descendants(os.getpid())))
    (root / "new").write_text(PLAN.format("x"))
    (root / "new").replace(root / "PLAN.md")  # as the commit of a phase does
    count, asked, begun, used = len(seen.starts), len(server.requests), time.monotonic(), measure_cpu()
    session.begin_again("Do phase two.")
    if len(seen.starts) == count:
        return
    seen.further_s, seen.further_cpu_s = seen.starts[count][0] - begun, seen.starts[count][1] - used
    bodies = [json.dumps(request.body) for request in server.requests[asked:]]
    found = (root / "found.txt").read_text() if (root / "found.txt").exists() else ""
    home = next((place for place in Path(find_folder()).glob("*/tmp") if (place / "left").exists()), root)
    kept = [place for place in (home / "home").rglob("*") if place.is_file() and TEXT in read(place)]
    checks = {
        "its process": any(line.isdigit() for line in found.splitlines()),
        "its files in TMPDIR": TEXT in found,
        "its transcript at home": bool(kept),
        "**its instructions, in the prompt**": any(PLANTED in body for body in bodies),
        "its conversation, in the prompt": any(TEXT in body for body in bodies),
        "**PLAN.md, writable**": "tampered" in (root / "PLAN.md").read_text(),
    }
    seen.finds = {name for name, holds in checks.items() if holds}


def read(place: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    with suppress(OSError):
        return place.read_bytes().decode("utf-8", "replace")
    return ""


def measure_cpu() -> float:
    """Return the seconds of processor time of all below this process, and of the ended ones below those."""
    total = 0
    for pid in find_descendants(os.getpid()):
        fields = read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def measure_memory(pid: int) -> float:
    """Return a process's share of memory in MB; what is shared counts once."""
    lines = read(Path(f"/proc/{pid}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def render_report(rows: dict[str, list[Seen]], rounds: int) -> str:
    """Write the table."""
    lines = []
    for name, found in rows.items():
        parts = ("fresh_s", "further_s", "fresh_cpu_s", "further_cpu_s")
        times = [statistics.median(getattr(one, part) for one in found) for part in parts]
        memory = statistics.median(one.memory_mb for one in found)
        finds = ", ".join(sorted(set.union(*(one.finds for one in found))))
        lines.append(f"| {name} | {' | '.join(f'{value:.1f}' for value in times)} | {memory:.0f} | {finds} |\n")
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    return f"""# A second session in an agent's old process

`python benchmarks/second_session.py --rounds {rounds}` — to the first request: of a process of its own, with relay's
sandbox and gateway around it, and of a further session in a process that has held one. Medians of {rounds}, taken in
turn. Processor time is that of the agent and all below it. Written by the benchmark, at a load of {load:.1f} on
{processors} processors. Memory is that between the two sessions.

| agent | own process, s | further, s | own process, CPU s | further, CPU s | memory, MB | the further session finds |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
{"".join(lines)}
Instructions are those that a command of the first session wrote where the agent looks for its user's. PLAN.md was
replaced between the sessions, as a commit does it; where the further session can write it, the table says so.
"""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    each = {agent.name: agent for agent in reversed(AGENTS) if not asked.names or agent.name in asked.names}
    path = install((asked.place or Path(tempfile.mkdtemp(prefix="relay-agents-"))).resolve(), list(each.values()))
    rows: dict[str, list[Seen]] = {name: [] for name in sorted(each)}
    for _ in range(asked.rounds):
        for name, found in rows.items():
            found.append(run_round(each[name], path))
            sys.stderr.write(f"{found[-1]}\n")
    report = render_report(rows, asked.rounds)
    (asked.out / "second_session.md").write_text(report)
    sys.stdout.write(report)


if __name__ == "__main__":
    main()
