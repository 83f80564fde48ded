"""A command line in a clean place: its own home, no key, no `RELAY_*`."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from relay.session.events import Event
from relay.session.records import parse_record
from tests.conftest import keep_first
from tests.warm import run_bytes

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(tmp_path),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }


@pytest.fixture
def project(tmp_path: Path, environ: dict[str, str], arranged: Path) -> Path:
    """An empty git repository with one commit, made by whoever needs it first."""
    kept = arranged / "project"
    if not kept.exists():
        with keep_first(kept) as made:
            for args in (("init", "-q", "-b", "main", "--template="), ("commit", "-q", "--allow-empty", "-m", "start")):
                subprocess.run(["git", *args], cwd=made, env=environ, check=True)
            for folder in ("hooks", "info"):
                (made / ".git" / folder).mkdir()
    return Path(shutil.copytree(kept, tmp_path / "project"))


@pytest.fixture
def git(project: Path, environ: dict[str, str]) -> Callable[..., str]:
    """Run git in the project, with further variables where they are given; return what it prints, without its end."""

    def run(*args: str, **variables: str) -> str:
        done = subprocess.run(
            ["git", *args], cwd=project, env={**environ, **variables}, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    return run


@pytest.fixture
def commit(git: Callable[..., str]) -> Callable[..., None]:
    """Commit all that is in the project."""

    def run() -> None:
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", "plan")

    return run


@pytest.fixture
def relay(program: tuple[str, ...], project: Path, environ: dict[str, str]) -> Callable[..., Ran]:
    """Run the real program in the project and return how it ended."""

    def run(*args: str, cwd: Path = project, env: Mapping[str, str] | None = None) -> Ran:
        done = run_bytes(program[-1], args, cwd=cwd, environ={**environ, **(env or {})})
        return Ran(
            code=done.returncode,
            out=done.stdout.decode(errors="surrogateescape"),
            err=done.stderr.decode(errors="surrogateescape"),
        )

    return run


@pytest.fixture
def doctor(relay: Callable[..., Ran]) -> Callable[..., Ran]:
    """Run the doctor without a sandbox: one is proven each time anew."""

    def run(*args: str, env: Mapping[str, str] | None = None, **where: Path) -> Ran:
        return relay("doctor", *args, env={"RELAY_SANDBOX": "off", **(env or {})}, **where)

    return run


@pytest.fixture(scope="session")
def recorded() -> tuple[tuple[float, Event], ...]:
    """A recorded run: one phase in two sessions, a retry, a broken cache, a put-back plan, unknown costs."""
    lines = (Path(__file__).parent / "recorded.jsonl").read_text(encoding="utf-8").splitlines()
    records = tuple(parse_record(line) for line in lines)
    return tuple((record.at, record.event) for record in records if record is not None)
