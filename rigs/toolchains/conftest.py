"""A project of a tool chain: made with the network as its user would, then worked on by relay without."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

_WITHOUT = ("RELAY_", "ANTHROPIC_", "GIT_", "XDG_", "VIRTUAL_ENV", "PYTHON")


@dataclass
class Project:
    """A repository, the home directory of its user, and what that user has installed."""

    root: Path
    home: Path
    tools: Path
    """Holds an environment for each program of the user's."""
    env: dict[str, str] = field(default_factory=dict)

    def install(self, *packages: str) -> None:
        """Install programs from PyPI for the user, each in an environment of its own, kept for the test run.

        What stands behind a program's name is installed beside it.
        """
        for package in map(str.split, packages):
            place = self.tools / package[0]
            if not (place / "bin/pip").exists():
                self.sh(shlex.join([sys.executable, "-m", "venv", str(place)]))
                self.sh(shlex.join([f"{place}/bin/pip", "install", "-q", "--disable-pip-version-check", *package]))
            self.env["PATH"] = f"{place}/bin:{self.env['PATH']}"

    def install_packages(self, *packages: str) -> None:
        """Install programs from npm for the user, kept for the test run."""
        for package in packages:
            place = self.tools / package
            if not place.exists():
                self.sh(shlex.join(["npm", "install", "--prefix", str(place), package]))
            self.env["PATH"] = f"{place}/node_modules/.bin:{self.env['PATH']}"

    def sh(self, command: str) -> str:
        """Run a command as the user, with the network, and return what it prints."""
        done = subprocess.run(
            ["/bin/bash", "-c", command], cwd=self.root, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def write(self, path: str, text: str) -> None:
        """Write a file of the repository."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def commit(self, subject: str = "chore: start") -> None:
        """Commit everything, with the project's own hooks."""
        self.sh(f"git add -A && git commit -q -m {shlex.quote(subject)}")

    def plan(self, *verify: str, items: tuple[str, ...]) -> None:
        """Write a plan with a phase for each item."""
        phases = [
            f"## Phase {number} — step {number}\nVerify: {', '.join(f'`{line}`' for line in verify)}\n- [ ] {item}\n"
            for number, item in enumerate(items, 1)
        ]
        self.write("PLAN.md", "# Everyday work\n\n" + "\n".join(phases))

    def relay(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run relay as the user."""
        return subprocess.run(
            [str(Path(sys.executable).with_name("relay")), *args],
            cwd=self.root, env={**self.env, **env}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def run(self, *phases: "Phase", args: tuple[str, ...] = (), **env: str) -> subprocess.CompletedProcess[str]:
        """Have a rehearsed model work on the plan, a session for each phase."""
        sessions = [phase.render(number) for number, phase in enumerate(phases, 1)]
        with serve(parse_script(json.dumps({"sessions": sessions}))) as server:
            env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url, **env}
            return self.relay("run", *args, **env)

    def log(self) -> list[str]:
        """Return the subjects of all commits, newest first."""
        return self.sh("git log --format=%s").splitlines()

    def work(self, *phases: "Phase") -> str:
        """Run the plan to its end and return what relay said."""
        done = self.run(*phases)
        assert done.returncode == 0, done.stdout + done.stderr + self.sh("git log --format=%B -n 3")
        assert self.sh("git status --porcelain") == ""
        return done.stdout


@dataclass
class Phase:
    """What the rehearsed session of a phase does."""

    files: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    subject: str = "feat: do the step"
    reads: tuple[str, ...] = ()
    """Files that are there already: a session does not replace what it has not seen."""
    edits: tuple[tuple[str, str, str], ...] = ()
    """Path, what stands there once, and what takes its place."""

    def render(self, number: int) -> Mapping[str, object]:
        """Return a session of a script."""
        calls: list[dict[str, object]] = [{"name": "read", "input": {"path": path}} for path in self.reads]
        calls += [{"name": "write", "input": {"path": path, "content": text}} for path, text in self.files.items()]
        calls += [
            {"name": "edit", "input": dict(zip(("path", "old", "new"), edit, strict=True))} for edit in self.edits
        ]
        calls += [{"name": "bash", "input": {"command": command}} for command in self.commands]
        turns: list[object] = [{"tools": [call]} for call in calls]
        turns.append({"tools": [{"name": "tick", "input": {"item": f"{number}.1", "evidence": "done"}}]})
        turns.append({"text": f"Commit: {self.subject}"})
        return {"name": f"phase {number}", "turns": turns}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say where projects come from."""
    parser.addoption(
        "--source",
        default="",
        help="where git finds https://github.com/OWNER/NAME instead, as /mirror/{owner}+{name}; default: there",
    )


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where programs of the user are installed, once for a test run."""
    return tmp_path_factory.mktemp("user") / "tools"


@pytest.fixture
def project(tmp_path: Path, tools: Path) -> Project:
    """An empty repository of a user with a home directory."""
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(_WITHOUT)}
    env |= {"HOME": str(home), "PATH": f"{home}/.local/bin:{env['PATH']}", "NO_COLOR": "1"}
    made = Project(root=root.resolve(), home=home.resolve(), tools=tools, env=env)
    (home / ".gitconfig").write_text("[user]\nname = T\nemail = t@example.invalid\n[init]\ndefaultBranch = main\n")
    made.sh("git init -q")
    return made
