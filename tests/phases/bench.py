"""A repository with a plan of two phases, and relay at work in it against a server that plays its sessions."""

import json
import os
import subprocess

from relay.base.errors import ExitCode
from relay.plan.parse import parse_plan
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.waiting import wait_until

GATES = ("test -s 1.txt", "test -s 2.txt")
WORDS = ("one", "two", "three")
HOLD = "touch held; while [ ! -e go ]; do sleep 0.02; done; rm go"


def make_plan(*gates, after="none", files="{}.txt"):
    """A plan with a phase for each gate."""
    phases = (
        f"## Phase {n} — {word}\nAfter: {after}\nVerify: `{gate}`\n- [ ] Write {word} — {files.format(n)}\n"
        for n, (word, gate) in enumerate(zip(WORDS, gates, strict=False), 1)
    )
    return "# Plan\n\n" + "\n".join(phases)


def write_session(number, *commands, **more):
    """The session of a phase, or of each that does it: it runs commands and ticks."""
    word = WORDS[number - 1]
    tick = {"tools": [{"name": "tick", "input": {"item": f"{number}.1", "evidence": "done"}}]}
    run = [{"tools": [{"name": "bash", "input": {"command": command}}]} for command in commands]
    turns = [*run, tick, {"text": f"Commit: Write {word}"}]
    return {"name": word, "when": {"first_message_contains": f"Write {word} — "}, "turns": turns, **more}


class Bench:
    def __init__(self, stage, plan="", **files):
        """Commit a plan: of two phases, one after the other, or another one; and more files with it."""
        self.stage, self.root = stage, stage.root
        self.places = self.root.with_name(f"{self.root.name}.relay")
        stage.write("PLAN.md", plan or make_plan(*GATES))
        for name, text in files.items():
            stage.write(name, text)
        stage.commit("plan")

    def git(self, *args, root=None, check=True):
        done = subprocess.run(["git", *args], cwd=root or self.root, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout

    def start(self, server, *args):
        environ = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        argv = [*self.stage.find_program(), *args]
        return subprocess.Popen(
            argv, cwd=self.root, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def play(self, sessions, *args, ends=ExitCode.DONE, meanwhile=(), holds=1):
        """Run relay to its end; return what it said.

        Args:
            meanwhile: What is done, one after the other, each time that so many sessions hold; they go on behind it.
        """
        with serve(parse_script(json.dumps({"sessions": sessions}))) as server:
            run = self.start(server, *(args or ("run",)))
            for act in [meanwhile] if callable(meanwhile) else meanwhile:
                wait_until(lambda: len(self.find_held()) == holds, by=run)
                act()
                self.let_go()
            out = run.communicate()[0]
        assert run.returncode == ends, out
        return out

    def let_go(self):
        for place in self.find_held():
            place.unlink()
            place.with_name("go").touch()

    def find_held(self):
        return list(self.places.glob("*/held"))

    def read_plan(self):
        return parse_plan(self.git("show", "main:PLAN.md"))
