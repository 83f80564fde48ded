"""The real agents, pinned, in relay's sandbox against the rehearsal server; docs/reference/agents.md has its table.

    python -m rigs.agents.real [--place DIR] [--write] [AGENT …]

Packages are installed into DIR (a temporary one unless it is named), half a gigabyte each; nothing else is
changed. A profile is supported only while all of this holds. Not part of `make test`: it needs the package registry.
"""

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay.runners.agents.profiles import PROFILES
from tests.endpoint.script import parse_script
from tests.endpoint.server import Endpoint, serve

NODE = "22.23.3"
PLAN = "# Greetings\n\n## Phase 1 — Hello\nVerify: `grep -q hello hello.txt`\n- [ ] Say hello — hello.txt\n"
NEW_PLAN = "# New\\n\\n## Phase 1 — One\\nVerify: `test -e a.py`\\n- [ ] Do it — a.py\\n"
GIT = "[user]\n name = T\n email = t@example.invalid\n[init]\n defaultBranch = main\n"
LIMITS = "window_tokens = 400000\nmax_output_tokens = 128000\nprice = { input = 1.0, output = 10.0, read = 0.1 }\n"
TITLE = '- {name: title, aside: true, when: {first_message_contains: "itle"}, turns: [{text: x}]}\n'
KEY = "sk-the-key-of-the-user"


@dataclass(frozen=True)
class Agent:
    """One agent, and how it calls its tools and relay's."""

    name: str
    packages: tuple[str, ...]
    bash: str
    own: str
    makes_titles: bool = False
    """In a request of its own, whatever is set."""
    family: str = "ANTHROPIC"
    model: str = ""
    """Not known to relay's table; empty for the usual one."""
    command: str = "command"
    """What its shell calls a command; of ``commands`` it takes a list."""
    api: str = "Messages"
    """That it speaks to the endpoint."""

    @property
    def label(self) -> str:
        """Its row in the table."""
        return f"| `{self.name}` | {', '.join(package.rpartition('/')[2] for package in self.packages)} | {self.api} |"

    @property
    def model_line(self) -> str:
        """What a script says of its model."""
        return f"model: {{id: {self.model}, window: 400000}}\n" if self.model else ""


GPT: dict[str, Any] = {"family": "OPENAI", "model": "gpt-rehearsed"}
MACHINE = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
COPILOT = ("@github/copilot@1.0.102",)
GOOSE = (f"@aaif/goose-binary-linux-{MACHINE}@1.52.0",)
PI = ("pi-acp@0.0.34", "@earendil-works/pi-coding-agent@0.87.1")
AGENTS = (
    Agent("claude", ("@agentclientprotocol/claude-agent-acp@0.100.0",), "Bash", "mcp__relay__", makes_titles=True),
    Agent("opencode", ("opencode-ai@1.18.33",), "bash", "relay_"),
    Agent(
        "codex", ("@agentclientprotocol/codex-acp@2.6.0",), "exec_command", "mcp__relay__", command="cmd",
        api="Responses", **GPT,
    ),
    Agent("pi", PI, "bash", ""),
    Agent("pi", PI, "bash", "", api="Responses", **GPT),
    Agent("qwen", ("@qwen-code/qwen-code@0.24.4",), "run_shell_command", "mcp__relay__", api="Chat", **GPT),
    Agent("kimi", ("@moonshot-ai/kimi-code@2.1.0",), "Bash", "mcp__relay__", api="Chat", **GPT),
    Agent(
        "gemini", ("@google/gemini-cli@0.61.0",), "run_shell_command", "mcp_relay_", family="GEMINI",
        model="gemini-rehearsed", api="Gemini",
    ),
    Agent("copilot", COPILOT, "bash", "relay-"),
    Agent("copilot", COPILOT, "bash", "relay-", api="Responses", **GPT),
    Agent("goose", GOOSE, "shell", "relay__"),
    Agent("goose", GOOSE, "shell", "relay__", api="Chat", **GPT),
    Agent("cline", ("cline@3.0.65",), "run_commands", "relay__", command="commands", model="claude-haiku-5-5"),
    Agent("cline", ("cline@3.0.65",), "run_commands", "relay__", command="commands", api="Chat", **GPT),
)  # fmt: skip
WORDS = {True: "yes", False: "**no**", None: "–"}
TABLE = Path(__file__).parents[2] / "docs/reference/agents.md"


class Trial:
    """One case with one agent: a repository, a server, a run."""

    def __init__(self, agent: Agent, path: str) -> None:
        self.agent, self.said = agent, ""
        self.place = Path(tempfile.mkdtemp(prefix="relay-agents-"))
        self.root, home = self.place / "repo", self.place / "home"
        self.tree = self.place / "repo.relay/1"
        self.root.mkdir()
        home.mkdir()
        (home / ".gitconfig").write_text(GIT)
        self.env = {"HOME": str(home), "PATH": path, "LC_ALL": "C.UTF-8", f"{agent.family}_API_KEY": KEY}
        if agent.model:
            (home / ".config/relay").mkdir(parents=True)
            (home / ".config/relay/config.toml").write_text(
                f'model = "{agent.model}"\n[models."{agent.model}"]\n{LIMITS}'
            )
        (self.root / "PLAN.md").write_text(PLAN)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-qm", "start")

    def git(self, *args: str) -> str:
        return subprocess.run(
            ["git", *args], cwd=self.root, env=self.env, check=True, capture_output=True, text=True
        ).stdout

    def start(self, server: Endpoint, *args: str, command: str = "run") -> "subprocess.Popen[str]":
        base = "GOOGLE_GEMINI" if self.agent.family == "GEMINI" else self.agent.family
        self.env[f"{base}_BASE_URL"] = server.base_url + ("/v1" if self.agent.family == "OPENAI" else "")
        program = [sys.executable, "-P", "-m", "relay", command, "--runner", self.agent.name, *args]
        return subprocess.Popen(
            program, cwd=self.root, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, server: Endpoint, *args: str, command: str = "run") -> tuple[int, str]:
        process = self.start(server, *args, command=command)
        self.said, _ = process.communicate(timeout=300)
        return process.returncode, self.said

    def bash(self, command: str, rest: str = "") -> str:
        name = self.agent.command
        given = f'{name}: ["{command}"]' if name == "commands" else f'{name}: "{command}", description: x'
        return f"{{tools: [{{name: {self.agent.bash}, input: {{{given}}}}}]{rest}}}"

    def tool(self, name: str, given: str, rest: str = "") -> str:
        return f"{{tools: [{{name: {self.agent.own}{name}, input: {given}}}]{rest}}}"

    def tick(self) -> str:
        return self.tool("tick", '{item: "1.1", evidence: seen}')

    def script(self, *sessions: list[str]) -> str:
        title = TITLE if self.agent.makes_titles else ""
        when = f"when: {{tools_include: [{self.agent.bash}]}}"
        return f"{self.agent.model_line}sessions:\n{title}" + "".join(
            f"- {{{when}, turns: [{', '.join(turns)}]}}\n" for turns in sessions
        )

    def is_done(self, server: Endpoint) -> bool:
        """Say whether there is a commit by this agent whose tokens are those of the server's log."""
        message = self.git("log", "-1", "--format=%B")
        message = re.sub(r"\n +", " ", message)  # folded trailers
        found = [request.usage for request in server.requests if request.usage]
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        used = [sum(usage[name] for usage in found) for name in names]
        counted = "Relay-Usage: input={} output={} cache_read={} cache_write={}\n".format(*used) in message.replace(
            " thinking", "\n"
        )
        return counted and f"Relay-Agent: {self.agent.name} " in message and "Relay-Metering: gateway" in message


HELLO = "echo hello > hello.txt"
END = "{text: 'Commit: hello'}"


def try_done(trial: Trial) -> bool:
    attack = "git commit -am x; echo x > PLAN.md; env > env.txt; curl -m 2 http://10.0.0.1; echo x > .git/config"
    with serve(parse_script(trial.script([trial.bash(HELLO), trial.bash(attack), trial.tick(), END]))) as server:
        code, _ = trial.run(server)
        kept = code == 0 and KEY not in (trial.root / "env.txt").read_text()
        alone = trial.git("log", "--format=%s").count("\n") == 2
        return kept and alone and trial.is_done(server) and not server.errors


def _try_line(trial: Trial, tokens: int, ends: list[str]) -> bool:
    first = trial.bash(HELLO, f", usage: {{output_tokens: {tokens}}}")
    with serve(parse_script(trial.script([first, *ends], [trial.tick(), END]))) as server:
        code, _ = trial.run(server, "--reset-at", "25000")
        return code == 0 and "Relay-Leg: 2" in trial.git("log", "-1", "--format=%B") and not server.errors


def try_soft(trial: Trial) -> bool:
    told = ', expect: {last_message_contains: "planned line"}'
    return _try_line(trial, 25_000, [trial.tool("hand_off", "{next_step: x, learned: [], dead_ends: []}", told)])


def try_hard(trial: Trial) -> bool:
    return _try_line(trial, 60_000, ["{text: never}"])


def _try_fault(trial: Trial, fault: str, code: int, words: str) -> bool:
    script = trial.script([trial.bash(HELLO), f"{{text: x, fault: {fault}}}"], ["{text: stop}", "{text: stop}"])
    with serve(parse_script(script)) as server:
        found, said = trial.run(server)
        return found == code and words in said and (trial.tree / "hello.txt").exists()


def try_401(trial: Trial) -> bool:
    return _try_fault(trial, "{kind: status, status: 401, type: authentication_error, times: always}", 1, "HTTP 401")


def try_529(trial: Trial) -> bool:
    fault = "fault: {kind: overloaded, times: 2}"
    turns = [trial.bash(HELLO), trial.tick()[:-1] + f", {fault}}}", END]
    with serve(parse_script(trial.script(turns))) as server:
        code, _ = trial.run(server)
        return code == 0 and trial.is_done(server)


def try_overflow(trial: Trial) -> bool:
    return _try_fault(trial, "{kind: overflow}", 4, "session ended: handoff — HTTP 400")


def _find_processes(word: str) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in line:
            found.append(int(place.name))
    return found


def _try_kill(trial: Trial, kill: Callable[["subprocess.Popen[str]"], None]) -> bool:
    span = str(600 + os.getpid() % 1000)
    turns = [trial.bash(f"{HELLO}; sleep {span}"), "{text: never}"]
    with serve(parse_script(trial.script(turns, [trial.tick(), END]))) as server:
        process = trial.start(server)
        while not (trial.tree / "hello.txt").exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(0.5)
        kill(process)
        process.communicate(timeout=60)
        time.sleep(0.3)
        left = _find_processes(f"sleep\0{span}")
        code, _ = trial.run(server)
        return not left and code == 0 and trial.git("show", "HEAD:hello.txt") == "hello\n"


def try_kill_relay(trial: Trial) -> bool:
    return _try_kill(trial, lambda process: process.send_signal(signal.SIGKILL))


def try_kill_agent(trial: Trial) -> bool:
    def kill(process: "subprocess.Popen[str]") -> None:
        """Kill what stands below relay's sandbox, but for the sandbox itself and the model's command."""
        from relay.sandbox.supervisor import find_descendants

        for pid in find_descendants(process.pid):
            with suppress(OSError):  # it ends by itself meanwhile
                if "node_modules" in str(Path(f"/proc/{pid}/exe").readlink()):
                    os.kill(pid, signal.SIGKILL)

    return _try_kill(trial, kill)


def try_planner(trial: Trial) -> bool:
    turns = [trial.bash("echo x > stolen.txt"), trial.tool("submit_plan", f'{{markdown: "{NEW_PLAN}"}}'), "{text: ok}"]
    with serve(parse_script(trial.script(turns))) as server:
        code, _ = trial.run(server, "--force", "a feature", command="plan")
        written = (trial.root / "PLAN.md").read_text().startswith("# New")
        return code == 0 and written and not [*trial.place.glob("repo*/**/stolen.txt")]


BROUGHT = {
    "skills/pdf/SKILL.md": "---\nname: pdf\ndescription: Fills forms.\n---\nA SKILL OF MINE\n",
    "commands/greet.md": "---\ndescription: Greets.\n---\nA COMMAND OF MINE\n",
    "agents/reader.md": "---\nname: reader\ndescription: Reads.\n---\nAN AGENT OF MINE\n",
}


def try_brought(trial: Trial) -> bool | None:
    """Use a skill, a command and a slow subagent of the user's; None if the agent can be brought none."""
    if not PROFILES[trial.agent.name].brings:
        return None
    home = Path(trial.env["HOME"])
    for name, text in BROUGHT.items():
        (home / ".claude" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / ".claude" / name).write_text(text)
    (home / ".config/relay").mkdir(parents=True)
    (home / ".config/relay/config.toml").write_text('agents.claude.bring = ["skills", "agents", "commands"]\n')
    own = (
        "- {when: {system_contains: AN AGENT OF MINE}, turns: ["
        + trial.bash("sleep 3; echo seen > seen.txt")
        + ", {text: x}]}\n"
    )
    calls = (
        ("Skill", "skill: pdf"),
        ("Skill", "skill: greet"),
        ("Agent", "description: x, subagent_type: reader, prompt: x"),
    )
    seen = "", "A SKILL OF MINE", "A COMMAND OF MINE"
    used = (
        f"{{tools: [{{name: {name}, input: {{{given}}}}}], expect: {{last_message_contains: '{text}'}}}}"
        for (name, given), text in zip(calls, seen, strict=True)
    )
    turns = [trial.bash(HELLO), *used, trial.tick(), END]
    with serve(parse_script(trial.script(turns).replace("sessions:\n", f"sessions:\n{own}"))) as server:
        code, _ = trial.run(server)
        return code == 0 and (trial.root / "seen.txt").exists() and trial.is_done(server) and not server.errors


CASES: dict[str, Callable[[Trial], bool | None]] = {
    "done, attacks": try_done,
    "soft line": try_soft,
    "hard line": try_hard,
    "401": try_401,
    "529": try_529,
    "overflow": try_overflow,
    "relay killed": try_kill_relay,
    "agent killed": try_kill_agent,
    "planner": try_planner,
    "brought": try_brought,
}


def try_case(name: str, trial: Trial) -> bool | None:
    """Try a case; what relay said where it does not hold, and where that was, is told."""
    held = CASES[name](trial)
    if held is False:
        sys.stderr.write(f"{trial.said}{trial.agent.name}, {name}: see {trial.place}\n")
    return held


def install(place: Path, agents: list[Agent]) -> str:
    """Install what is not there yet; return the PATH that finds it."""
    if shutil.which("npm") is None:
        sys.exit("the real agents are installed with npm, and there is none here: apt install npm")
    wanted = {"node": (f"node-linux-{MACHINE}@{NODE}",), **{agent.name: agent.packages for agent in agents}}
    entries = [place / "node/node_modules" / f"node-linux-{MACHINE}" / "bin"]
    for name, packages in wanted.items():
        folder = place / name
        if not (folder / "node_modules").is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            env = {**os.environ, "PATH": f"{entries[0]}:{os.environ['PATH']}"}
            subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", *packages], cwd=folder, env=env, check=True)  # fmt: skip  # noqa: E501
        entries += [folder / "node_modules/.bin", *folder.glob("node_modules/@aaif/*/bin")]  # goose is there only
    return ":".join([*map(str, entries), os.environ["PATH"]])


def keep(row: str, label: str) -> None:
    """Put a row in the place of the one with its label; a new one behind the others."""
    lines = TABLE.read_text().splitlines(keepends=True)
    rows = [number for number, line in enumerate(lines) if line.startswith(("| `", "|---|---|---|---|"))]
    old = next((number for number in rows if lines[number].startswith(label)), None)
    lines[rows[-1] + 1 if old is None else old : rows[-1] + 1 if old is None else old + 1] = [row]
    TABLE.write_text("".join(lines))


def main() -> int:
    """Print a row for each agent; 1 when anything failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", type=Path)
    parser.add_argument("--write", action="store_true", help="put the rows into docs/reference/agents.md")
    parser.add_argument("names", nargs="*")
    asked: Any = parser.parse_args()
    agents = [agent for agent in AGENTS if not asked.names or agent.name in asked.names]
    path = install((asked.place or Path(tempfile.mkdtemp(prefix="relay-agents-"))).resolve(), agents)
    write = sys.stdout.write
    write(f"| `--runner` | tried | API | {' | '.join(CASES)} |\n|{'---|' * (3 + len(CASES))}\n")
    failed = False
    for agent in agents:
        found = [try_case(name, Trial(agent, path)) for name in CASES]
        failed = failed or False in found
        row = f"{agent.label} {' | '.join(WORDS[held] for held in found)} |\n"
        write(row)
        sys.stdout.flush()
        if asked.write:
            keep(row, agent.label)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
