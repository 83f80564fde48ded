"""The whole product on a scripted model: what `relay demo` leaves is what relay promises."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relay.base.errors import RelayError
from relay.plan.check import check_plan
from relay.plan.parse import parse_plan
from relay.prompts.package_data import get_shipped
from relay.rehearsal.demo import run_demo
from relay.session.events import (
    Committed,
    Event,
    GateFinished,
    GaugeCrossed,
    RunStarted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
)
from relay.session.values import SessionEnd
from relay.store.trailers import parse_usage
from tests.logs import read_events
from tests.warm import run_relay


@dataclass(frozen=True)
class Played:
    """What the demo printed and the repository it left."""

    code: int
    printed: str
    processes: list[str]
    """Command lines of what still worked in the repository when the demo had ended."""
    root: Path

    def git(self, *args: str) -> str:
        return run_git(self.root, *args)

    def read_events(self) -> list[list[Event]]:
        """Return the events of each command, in the order in which the commands began."""
        logs = (read_events(path) for path in (self.root / ".relay/sessions").glob("*.jsonl"))
        runs = sorted((log.records for log in logs if log and log.records), key=lambda records: records[0].at)
        return [[record.event for record in run] for run in runs]


def run_git(root: Path, *args: str) -> str:
    environ = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}  # tests look at one repository at the same time
    done = subprocess.run(["git", *args], cwd=root, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory, program: tuple[str, ...]) -> Played:
    """Play the demo once, also when several processes share the tests: the first to come plays, the others wait."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    result = shared / "demo.json"
    with (shared / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            environ = {**os.environ, "TMPDIR": str(own)}
            done = run_relay(program[-1], ("demo", "--keep", "orgbook"), cwd=shared, environ=environ, answer="")
            found = {"code": done.returncode, "printed": done.stdout + done.stderr}
            result.write_text(json.dumps(found | {"processes": find_processes(shared / "orgbook")}))
    return Played(**json.loads(result.read_text()), root=shared / "orgbook")


@pytest.fixture
def clone(played: Played, tmp_path: Path) -> Callable[[], Path]:
    """Make a fresh clone of what the demo built: the branch and nothing else."""

    def make() -> Path:
        run_git(tmp_path, "clone", "--quiet", str(played.root), "clone")
        return tmp_path / "clone"

    return make


def test_it_ends_well_and_says_what_it_is(played: Played) -> None:
    """One command, exit 0; it says that the model is rehearsed, what it runs and what came of it."""
    assert played.code == 0, played.printed
    words = (
        "rehearsed",
        "no key",
        "$ relay plan 'add org-scoped API keys'",
        "$ relay run",
        "SIGKILL",
        "$ relay status",
        "Where to look",
    )
    for text in words:
        assert text in played.printed
    assert played.printed.count("$ relay run\n") == 2
    assert "\x1b" not in played.printed, "there is no terminal here, so no control sequences either"


@pytest.mark.parametrize("phase", ["1", "2", "3"])
def test_a_phase_commit_holds_its_code_its_ticks_and_its_trailers(played: Played, phase: str) -> None:
    """The boxes of a phase are ticked by the one commit that has its code, and by no other."""
    commit = played.git("log", "--format=%H", f"--grep=^Relay-Phase: {phase}$")
    before, after = (parse_plan(played.git("show", f"{rev}:PLAN.md") + "\n") for rev in (f"{commit}^", commit))
    ticked = {item.id for p in after.phases for item in p.items if item.done} - {
        item.id for p in before.phases for item in p.items if item.done
    }
    own = after.find_phase(phase)
    assert own is not None
    assert ticked == {item.id for item in own.items}
    changed = set(played.git("diff", "--name-only", f"{commit}^", commit).splitlines())
    assert {path for item in own.items for path in item.paths} <= changed
    trailers = dict(
        line.split(": ", 1)
        for line in played.git("log", "-1", "--format=%(trailers:unfold)", commit).splitlines()
        if line
    )
    assert trailers["Relay-Items"].split() == [item.id for item in own.items]
    assert trailers["Relay-Gate"].startswith("pass ")
    assert {"Relay-Plan", "Relay-Session", "Relay-Sandbox", "Relay-Usage", "Relay-Cost"} <= trailers.keys()
    usage = parse_usage(trailers["Relay-Usage"])
    assert usage is not None
    assert min(usage.prompt_tokens, usage.output_tokens) > 0


def test_the_plan_is_the_one_that_was_submitted_with_every_box_ticked(played: Played) -> None:
    """Boxes are ticked and nothing else is changed; the first plan, with its mistake, was refused."""
    plan = (played.root / "PLAN.md").read_text()
    assert parse_plan(plan).done
    assert plan.replace("- [x]", "- [ ]") == (get_shipped("examples") / "files/plan.md").read_text()
    planning = played.read_events()[0]
    submitted = [e.is_error for e in planning if isinstance(e, ToolFinished) and e.name == "submit_plan"]
    assert submitted == [True, False]


def test_the_plan_in_the_examples_is_that_of_the_demo_seen_from_the_root_of_a_clone() -> None:
    plan = (get_shipped("examples") / "PLAN.md").read_text()
    assert check_plan(parse_plan(plan)) == ()
    own = plan.replace("cd examples/project && ", "").replace("examples/project/", "")
    assert own == (get_shipped("examples") / "files/plan.md").read_text()


def test_a_red_gate_of_phase_1_was_repaired_by_the_same_session(played: Played) -> None:
    events = played.read_events()[1]
    gates = [e.passed for e in events if isinstance(e, GateFinished) and e.phase_id == "1" and not e.baseline]
    assert gates == [False, True]
    assert len([e for e in events if isinstance(e, SessionStarted) and e.phase_id == "1"]) == 1


def test_phase_2_was_handed_to_a_second_session_at_the_line(played: Played) -> None:
    events = played.read_events()[1]
    crossed = [(e.line, e.line_tokens) for e in events if isinstance(e, GaugeCrossed)]
    assert crossed == [("consolidate", 65_000), ("soft", 100_000)]
    ends = [(e.end, e.result) for e in events if isinstance(e, SessionEnded) and e.phase_id == "2"]
    assert ends == [(SessionEnd.ENDED_BY_TOOL, "handoff"), (SessionEnd.FINISHED, "done")]


def test_phase_3_was_interrupted_and_resumed(played: Played) -> None:
    """The second command died without a last word; the third went on with the same phase and finished it."""
    planning, killed, resumed = played.read_events()
    assert [e.command for run in (planning, killed, resumed) for e in run if isinstance(e, RunStarted)] == [
        "plan",
        "run",
        "run",
    ]
    assert [e.phase_id for e in killed if isinstance(e, SessionStarted)] == ["1", "2", "2", "3"]
    assert [e.phase_id for e in killed if isinstance(e, SessionEnded)] == ["1", "2", "2"]
    assert [e.phase_id for e in resumed if isinstance(e, SessionStarted)] == ["3"]
    assert [(e.phase_id, e.status) for e in resumed if isinstance(e, Committed)] == [("3", "done")]


def test_what_was_built_works(played: Played, clone: Callable[[], Path]) -> None:
    """The branch as anybody gets it is a working program: the tests of all phases pass in a fresh clone."""
    command = [sys.executable, "-m", "unittest", "discover", "-v"]
    done = subprocess.run(command, cwd=clone(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for module in ("test_schema", "test_issuance", "test_auth"):
        assert f"tests.{module}." in done.stderr, played.printed


def test_nothing_is_left_behind(played: Played) -> None:
    """No open attempt, no lock, no damage, nothing uncommitted, no process that still works there."""
    assert played.git("for-each-ref", "refs/relay/leg", "refs/relay/written") == ""
    assert played.git("fsck", "--strict", "--no-dangling") == ""
    assert played.git("status", "--porcelain") == ""
    assert list((played.root / ".git").rglob("*.lock")) == []
    assert played.processes == []


def test_the_commits_alone_say_where_the_plan_stands(
    played: Played, clone: Callable[[], Path], tmp_path: Path, program: tuple[str, ...]
) -> None:
    """`relay status` is the same without telemetry, without relay's refs, and in a fresh clone."""

    def read_status(root: Path) -> Any:
        done = run_relay(program[-1], ("status", "--json"), cwd=root, environ=os.environ, answer="")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    status = read_status(played.root)
    assert status["done"]
    assert status["next"]["phase"] is None
    assert [len(phase["commits"]) for phase in status["phases"]] == [1, 1, 1]
    assert status["spent"]["usd"] == pytest.approx(
        sum(float(cost.split()[0].lstrip("~")) for cost in read_trailer(played, "Relay-Cost")), abs=1e-6
    )
    bare = shutil.copytree(played.root, tmp_path / "bare", symlinks=True)
    shutil.rmtree(bare / ".relay")
    for ref in run_git(bare, "for-each-ref", "--format=%(refname)", "refs/relay").splitlines():
        run_git(bare, "update-ref", "-d", ref)
    assert read_status(bare) == status
    assert read_status(clone()) == status


def test_a_directory_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    with pytest.raises(RelayError, match="used is not empty"):
        run_demo(keep=used, say=lambda _: None, environ=os.environ)
    assert [path.name for path in used.iterdir()] == ["notes.txt"]


@pytest.fixture
def failing(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user whose `relay` ends with status 7 at once, and who has no identity for git."""
    package, home = tmp_path / "failing" / "relay", tmp_path / "home"
    home.mkdir()
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("raise SystemExit(7)")
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(package.parent)}


def test_a_command_that_ends_badly_fails_the_demo(tmp_path: Path, failing: dict[str, str]) -> None:
    """An unexpected exit status becomes the demo's own, with the command and the repository named."""
    said: list[str] = []
    assert run_demo(keep=tmp_path / "demo", say=said.append, environ=failing) == 7
    printed = "\n".join(said)
    assert "`relay plan 'add org-scoped API keys'` ended with exit status 7" in printed
    assert str(tmp_path / "demo") in printed


def test_who_has_no_identity_gets_one_in_the_demos_repository_only(tmp_path: Path, failing: dict[str, str]) -> None:
    """The first commit is made without asking, and the user's own configuration is not touched."""
    run_demo(keep=tmp_path / "demo", say=lambda _: None, environ=failing)
    assert run_git(tmp_path / "demo", "log", "--format=%an <%ae>") == "relay demo <demo@localhost.invalid>"
    assert not (tmp_path / "home").exists() or not [*(tmp_path / "home").iterdir()]


def test_without_git_the_demo_says_so(tmp_path: Path) -> None:
    with pytest.raises(RelayError, match="git was not found"):
        run_demo(keep=tmp_path / "demo", say=lambda _: None, environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})


def read_trailer(played: Played, key: str) -> list[str]:
    return [
        line for line in played.git("log", f"--format=%(trailers:key={key},valueonly,separator=)").splitlines() if line
    ]


def find_processes(root: Path) -> list[str]:
    """Return the command lines of processes whose working directory is below `root`; Linux only, else none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(root):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found
