"""A repository with everything that needs protection, a home with secrets, and sandboxes on it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from relay.sandbox.bwrap import open_bwrap
from relay.sandbox.command import CommandResult
from relay.sandbox.policy import Level, Limits, Mechanism, Policy
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.run import Sandbox, holds, open_sandbox, prove

LIMITS = Limits(timeout_s=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A sandbox with short ways to run things in it."""

    sandbox: Sandbox

    def sh(self, script: str, **more: Any) -> CommandResult:
        return self.run("/bin/sh", "-c", script, **more)

    def python(self, script: str, *args: str, **more: Any) -> CommandResult:
        return self.run(sys.executable, "-I", "-S", "-c", script, *args, **more)

    def run(self, *argv: str, limits: Limits = LIMITS, **more: Any) -> CommandResult:
        return self.sandbox.run(argv, limits=limits, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One fixture: directories on the host and the policy for them."""

    root: Path
    outside: Path
    home: Path
    policy: Policy
    model: Policy
    """The template's policy: what is probed, once per process."""

    def git(self, *args: str, cwd: Path | None = None) -> str:
        return git(cwd or self.root, *args)

    @contextmanager
    def open(self, level: Level, mechanism: Mechanism = Mechanism.BWRAP, **changes: Any) -> Iterator[Box]:
        """Open a sandbox that uses this mechanism, or skip with what the probe found."""
        policy = replace(self.policy, **changes)
        if mechanism is Mechanism.OFF:
            opened = open_sandbox(policy, level, mechanism=Mechanism.OFF)
        else:
            opened = _open_proven(policy, level, self.model)
        with opened:
            yield Box(sandbox=opened)


def _open_proven(policy: Policy, level: Level, model: Policy) -> Sandbox:
    acts = prove(model, level)
    if not holds(acts):
        failed = "; ".join(f"{act.act}: {act.happened}" for act in acts if not act.holds)
        pytest.skip(f"bubblewrap does not hold {level} here: {failed or 'not installed'}")
    private = PrivateDir()
    return Sandbox(policy=policy, level=level, bwrap=open_bwrap(policy, level, private), private=private)


def git(cwd: Path, *args: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    argv = ("git", *identity, *args)
    return subprocess.run(argv, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout


def make_template(base: Path) -> None:
    root, outside, home = base / "repo", base / "outside", base / "home"
    for folder in (root / "docs", root / "src", root / ".relay", outside, home / ".ssh", home / ".aws"):
        folder.mkdir(parents=True)
    (root / "src" / "app.py").write_text("VALUE = 1\n")
    (root / "PLAN.md").write_text("- [ ] 1.1 one\n")
    (root / "AGENTS.md").write_text("rules\n")
    (root / "docs" / "AGENTS.md").write_text("nested rules\n")
    (root / ".env").write_text("DATABASE_PASSWORD=env-secret\n")
    (root / ".env.example").write_text("DATABASE_PASSWORD=\n")
    (root / ".relay" / "journal").write_text("journal\n")
    (root / ".gitignore").write_text(".env\n.relay/\nvendor/\n")
    git(base, "init", "-q", "--template=", str(root))
    git(base, "init", "-q", "--template=", str(root / "vendor" / "lib"))
    for hooks in (root / ".git" / "hooks", root / "vendor" / "lib" / ".git" / "hooks"):
        hooks.mkdir()
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    (outside / "file").write_text("outside\n")
    (outside / "file").chmod(0o644)
    (home / ".ssh" / "id_ed25519").write_text("ssh-secret\n")
    (home / ".aws" / "credentials").write_text("aws-secret\n")
    (home / ".netrc").write_text("netrc-secret\n")


def make_policy(base: Path) -> Policy:
    root, home = base / "repo", base / "home"
    return Policy(
        root=root,
        env={**os.environ, "HOME": str(home), "ANTHROPIC_API_KEY": "sk-secret", "GIT_DIR": "/nowhere"},
        git_dirs=(root / ".git",),
        protected=(root / "PLAN.md", root / ".relay", root / "missing.toml"),
    )


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("template")
    make_template(base)
    return base


@pytest.fixture
def place(tmp_path: Path, template: Path) -> Place:
    shutil.copytree(template, tmp_path, symlinks=True, dirs_exist_ok=True)
    base = tmp_path.resolve()
    return Place(
        root=base / "repo",
        outside=base / "outside",
        home=base / "home",
        policy=make_policy(base),
        model=make_policy(template.resolve()),
    )


@pytest.fixture
def writer(place: Place) -> Iterator[Box]:
    with place.open(Level.WORKSPACE_WRITE) as box:
        yield box


@pytest.fixture
def reader(place: Place) -> Iterator[Box]:
    with place.open(Level.READ_ONLY) as box:
        yield box


@pytest.fixture
def bare(place: Place) -> Iterator[Box]:
    with place.open(Level.WORKSPACE_WRITE, Mechanism.OFF) as box:
        yield box
