"""One plan, three phases, three runners with the real agents: killed in each phase, run again, counted to the token.

    python -m rigs.agents.phases [--place DIR] [AGENT AGENT [AGENT]]

Of two agents each runs a phase behind one of relay's own loop. All have one model, whose API they can speak. See
`rigs.agents.real`.
"""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from relay.git.message import parse_message
from relay.store.trailers import parse_usage
from rigs.agents.real import AGENTS, KEY, TITLE, Agent, Trial, install
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

WORDS = ("one", "two", "three")
ITEMS = "Verify: `grep -q {word} {word}.txt`\n- [ ] Say {word} — {word}.txt\n\n"


class Phases(Trial):
    """The plan, and a session for each of its phases."""

    def __init__(self, agents: list[Agent], path: str) -> None:
        super().__init__(agents[0], path)
        own = Agent("api", (), "bash", "", model=agents[0].model)
        self.runners = (*[own][: len(WORDS) - len(agents)], *agents)
        text = "# Words\n\n"
        for number, (word, runner) in enumerate(zip(WORDS, self.runners, strict=True), start=1):
            text += f"## Phase {number} — {word}\nRunner: {runner.name}\n{ITEMS.format(word=word)}"
        (self.root / "PLAN.md").write_text(text)
        self.git("commit", "-qam", "plan")

    def start(self, server: Any, *args: str, command: str = "run") -> Any:
        """Start relay without naming a runner: the plan does."""
        import subprocess

        self.env |= {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY}
        self.env |= {"OPENAI_BASE_URL": f"{server.base_url}/v1", "OPENAI_API_KEY": KEY}
        program = [sys.executable, "-P", "-m", "relay", command, *args]
        return subprocess.Popen(
            program, cwd=self.root, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def bash(self, command: str, rest: str = "") -> str:
        """Return a turn that calls the shell; relay's own takes nothing besides the command."""
        turn = super().bash(command, rest)
        return turn.replace(", description: x", "") if self.agent.name == "api" else turn

    def write_script(self, hanging: str = "") -> str:
        """Return a session for each phase; that of `hanging` hangs once its file is written."""
        text = f"{self.agent.model_line}sessions:\n"
        text += TITLE if any(runner.makes_titles for runner in self.runners) else ""
        for number, (word, runner) in enumerate(zip(WORDS, self.runners, strict=True), start=1):
            self.agent = runner
            hang = "; sleep 600" if word == hanging else ""
            tick = self.tool("tick", f'{{item: "{number}.1", evidence: seen}}')
            when = f"when: {{first_message_contains: 'Say {word}', tools_include: [{runner.bash}]}}"
            turns = f"{self.bash(f'echo {word} > {word}.txt{hang}')}, {tick}, {{text: 'Commit: {word}'}}"
            text += f"- {{{when}, turns: [{turns}]}}\n"
        return text


def try_phases(agents: list[Agent], path: str) -> bool:
    """Say whether a run without a kill ends in three green commits with the tokens of the server's log."""
    trial = Phases(agents, path)
    with serve(parse_script(trial.write_script())) as server:
        code, said = trial.run(server)
        messages = trial.git("log", "-3", "--format=%B%x00", "--reverse").split("\0")[:3]
        names = [
            f"Relay-Agent: {runner.name} " in message for message, runner in zip(messages, trial.runners, strict=True)
        ]
        counted = sum(_count(message) for message in messages)
        used = [request.usage for request in server.requests if request.usage]
        logged = sum(sum(int(usage.get(name) or 0) for name in _CLASSES) for usage in used)
    held = (
        code == 0
        and names == [runner.name != "api" for runner in trial.runners]
        and counted == logged
        and _is_whole(trial)
    )
    if not held:
        sys.stderr.write(f"{code} {names} {counted} {logged}\n{said}")
    return held


_CLASSES = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def _count(message: str) -> int:
    usage = parse_usage(dict(parse_message(message).trailers).get("Relay-Usage", ""))
    return usage.context_tokens if usage else 0


def _is_whole(trial: Trial) -> bool:
    texts = [trial.git("show", f"HEAD:{word}.txt") for word in WORDS]
    return texts == [f"{word}\n" for word in WORDS] and "- [ ]" not in trial.git("show", "HEAD:PLAN.md")


def try_kills(agents: list[Agent], path: str) -> bool:
    """Say whether a run that is killed in each phase ends in the same tree, by the same number of commits."""
    trial = Phases(agents, path)
    for word in WORDS:
        with serve(parse_script(trial.write_script(word))) as server:
            process = trial.start(server)
            while not (trial.tree / f"{word}.txt").exists() and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
    with serve(parse_script(trial.write_script())) as server:
        code, said = trial.run(server)
    held = code == 0 and _is_whole(trial) and trial.git("rev-list", "--count", "HEAD").strip() == "5"
    if not held:
        sys.stderr.write(f"{code}\n{said}{trial.git('log', '--format=%s')}")
    return held


def main() -> int:
    """Print what held; 1 when something did not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", type=Path)
    parser.add_argument("names", nargs="*", default=["claude", "opencode"])
    asked: Any = parser.parse_args()
    if len(asked.names) not in {len(WORDS) - 1, len(WORDS)}:
        parser.error("name two agents, beside whom relay's own loop works, or three")
    known = {name: [agent for agent in AGENTS if agent.name == name] for name in asked.names}
    family = min(set.intersection(*({agent.family for agent in found} for found in known.values())))
    agents = [next(agent for agent in found if agent.family == family) for found in known.values()]
    path = install((asked.place or Path(tempfile.mkdtemp(prefix="relay-agents-"))).resolve(), agents)
    found = {"to the token": try_phases(agents, path), "killed in each phase": try_kills(agents, path)}
    who = ", ".join([*["api"][: len(WORDS) - len(agents)], *asked.names])
    for name, held in found.items():
        sys.stdout.write(f"three phases under {who}, {name}: {'yes' if held else '**no**'}\n")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
