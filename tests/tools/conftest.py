"""A real repository, a real sandbox, real tools."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from relay.plan.parse import parse_plan
from relay.sandbox.policy import Level, Limits, Policy
from relay.sandbox.run import Sandbox, open_sandbox
from relay.session.values import ToolCall, ToolResult
from relay.tools.claims import AttemptNotes
from relay.tools.toolbox import SUBMIT_PLAN, Toolbox, build_reader_tools, build_runner_tools
from relay.tools.workspace import Workspace

LIMITS = Limits(timeout_s=20.0)


def git(root: Path, *args: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *args], cwd=root, env=env, check=True, capture_output=True)


PLAN = """\
# Plan
## Phase 1 — done
- [x] do 1.1
## Phase 2 — now
- [x] do 2.1
- [ ] do 2.2
- [ ] do 2.3
## Phase 3 — later
- [ ] do 3.1
"""


def make_notes() -> AttemptNotes:
    """A plan with a finished phase 1, the current phase 2 and a later phase 3."""
    plan = parse_plan(PLAN)
    phase = plan.find_phase("2")
    assert phase is not None
    return AttemptNotes(plan=plan, phase=phase)


@dataclass
class Bench:
    """A repository with the tools of a session on it."""

    root: Path
    outside: Path
    workspace: Workspace
    notes: AttemptNotes
    tools: Toolbox
    calls: int = field(default=0)

    def change(self, **changes: Any) -> "Bench":
        """The same repository with another workspace."""
        workspace = replace(self.workspace, **changes)
        tools = build_runner_tools(workspace, self.notes)
        return Bench(self.root, self.outside, workspace, self.notes, tools)

    def plan(self, submit: Callable[[str], ToolResult], **changes: Any) -> "Bench":
        """The same repository with a planner's tools."""
        workspace = replace(self.workspace, **changes)
        return Bench(
            self.root,
            self.outside,
            workspace,
            self.notes,
            build_reader_tools(workspace, (SUBMIT_PLAN, lambda given: submit(given["markdown"]))),
        )

    def git(self, *args: str) -> None:
        git(self.root, *args)

    def call(self, name: str, **given: Any) -> ToolResult:
        self.calls += 1
        result = self.tools.run(ToolCall(id=f"call_{self.calls}", name=name, input=given))
        # Whole seconds are told from one on, which a busy machine takes for an echo.
        return replace(result, text=re.sub(r"\A(exit \d+), \d+ s", r"\1", result.text))

    def ok(self, name: str, **given: Any) -> str:
        result = self.call(name, **given)
        assert not result.is_error, result.text
        return result.text

    def refused(self, name: str, **given: Any) -> str:
        result = self.call(name, **given)
        assert result.is_error, result.text
        return result.text


def make_repository(base: Path) -> Path:
    root = base / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("ignored/\n*.log\n")
    (root / "PLAN.md").write_text("# Plan\n")
    (root / "AGENTS.md").write_text("# Rules\n")
    (root / "src").mkdir()
    (root / "src" / "a.py").write_text("def a():\n    return 1\n")
    return root


@pytest.fixture(scope="session")
def open_box() -> Iterator[Callable[[Path], Sandbox]]:
    """Opens sandboxes that are closed at the end."""
    opened: list[Sandbox] = []

    def open_one(root: Path, level: Level = Level.WORKSPACE_WRITE) -> Sandbox:
        policy = Policy(root=root, git_dirs=(root / ".git",), protected=(root / "PLAN.md",), env=dict(os.environ))
        opened.append(open_sandbox(policy, level))
        return opened[-1]

    yield open_one
    for sandbox in opened:
        sandbox.close()


@pytest.fixture
def bench(tmp_path: Path, open_box: Callable[[Path], Sandbox]) -> Iterator[Bench]:
    base = tmp_path.resolve()
    root = make_repository(base)
    outside = base / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("TOP-SECRET\n")
    workspace = Workspace(
        root=root,
        sandbox=open_box(root),
        protected=("PLAN.md", "PLAN.ledger.yaml"),
        should_stop=lambda: False,
        limits=LIMITS,
    )
    notes = make_notes()
    yield Bench(root, outside, workspace, notes, build_runner_tools(workspace, notes))
    workspace.sandbox.close()


@pytest.fixture(scope="session")
def make_tools(tmp_path_factory, open_box) -> Callable[[Path], Toolbox]:
    """Tools of a session on any directory; for file tools, which need no sandbox of their own."""
    sandbox = open_box(tmp_path_factory.mktemp("unused").resolve())

    def make(root: Path) -> Toolbox:
        workspace = Workspace(
            root=root,
            sandbox=sandbox,
            protected=("PLAN.md", "PLAN.ledger.yaml"),
            should_stop=lambda: False,
            limits=LIMITS,
        )
        return build_runner_tools(workspace, make_notes())

    return make
