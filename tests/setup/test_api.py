"""`relay.api`: the plan as values, and a run as events, for a program that is not relay."""

import ast
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import relay.api
from relay.base.errors import ExitCode
from relay.session.events import Event, ResponseReceived, RunStarted
from tests.scripts import call, serving

ROOT = Path(__file__).parents[2]
PLAN = """# Parts

## Phase 1 — One
Verify: `grep -q right one.txt`
- [ ] Write one — one.txt
"""
CLAIM = {"claim": "one is right", "because": "grep", "kind": "decision", "sources": ["one.txt:1"]}


TURNS = [
    call("write", path="one.txt", content="right\n"),
    call("record", **CLAIM),
    call("tick", item="1.1", evidence="grep"),
    {"text": "Commit: Write one"},
]
SCRIPT = json.dumps({"sessions": [{"turns": TURNS}, {"turns": TURNS}]})


@pytest.fixture
def warm(program):
    """The environment in which `python -m relay` is a relay with its imports."""
    return {**os.environ, "PYTHONPATH": str(Path(program[-1]).parent)}


@pytest.fixture
def project(stage, warm):
    """A plan of one phase, and the endpoint that plays its session."""
    stage.write("PLAN.md", PLAN)
    stage.commit()
    with serving(SCRIPT) as (_, env):
        yield relay.api.open_project(stage.root, environ={**warm, **env})


def test_a_run_is_events_and_its_values_are_those_of_its_commits(project):
    """Also behind an observer that raised, which stops the run with its work and its cost kept."""

    def refuse(event):
        if isinstance(event, ResponseReceived):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        project.run(observe=refuse)
    seen: list[Event] = []
    ended = project.run("all", "--max-cost", "5", observe=seen.append)  # nobody holds the lock
    assert (ended.exit_code, seen[-1]) == (ExitCode.DONE, ended)
    [before] = [event.spent_usd or 0.0 for event in seen if isinstance(event, RunStarted)]
    assert before > 0
    cost = before + sum(event.cost_usd or 0.0 for event in seen if isinstance(event, ResponseReceived))

    summary = project.summarize()
    assert summary.spent.cost_usd == pytest.approx(cost, abs=1e-6)
    assert summary.spent == summary.phases[0].spent
    assert [item.text for item in project.read_plan().items] == ["Write one — one.txt"]
    (outcome,) = project.list_outcomes()
    assert (outcome.phase_id, outcome.spent, outcome.repairs) == ("1", summary.spent, 0)
    assert {(held.claim.claim, str(held.belief.status)) for held in project.list_claims()} == {("one is right", "in")}


def test_a_repository_may_be_a_path_below_it_or_gitpythons_value(stage, tmp_path):
    (stage.root / "deep").mkdir()

    class Repo:
        def __init__(self, place):
            self.working_tree_dir = place

    for where in (stage.root, str(stage.root / "deep"), Repo(str(stage.root))):
        assert relay.api.open_project(where, environ={}).root == stage.root
    refused = {
        Repo(None): "bare",
        tmp_path.parent: "not inside a git repository",
        tmp_path / "gone": "gone is no directory",
    }
    for where, words in refused.items():
        with pytest.raises(relay.api.RelayError, match=words):
            relay.api.open_project(where, environ={})


def test_what_a_run_cannot_begin_with_or_a_plan_that_is_not_there_is_said_with_a_hint(project, stage, warm, tmp_path):
    stage.write("PLAN.md", "# P\n\n## Phase 1 — One\n- [ ] Do it — one.txt\n")
    stage.commit("no gate")
    with pytest.raises(relay.api.RelayError, match="no verify command") as refused:
        project.run()
    assert refused.value.hint
    subprocess.run(["git", "init", "-q", tmp_path / "empty"], check=True)
    empty = relay.api.open_project(tmp_path / "empty", environ=warm)
    for read in (empty.read_plan, empty.summarize, empty.run):
        with pytest.raises(relay.api.RelayError, match="there is no such plan") as refused:
            read()
        assert str(refused.value.hint).startswith("`relay plan "), refused.value.hint
    assert empty.list_claims() == ()


@pytest.fixture
def quick_switches():
    """Threads take turns a thousand times as often, so that what they share is met half done."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.nightly
def test_a_program_with_many_open_files_reads_and_runs(project):
    """`select` takes no descriptor above 1,023."""
    lines = (
        "import os, resource, sys, relay.api",
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))",
        "held = [os.dup(0) for _ in range(1_100)]",
        "project = relay.api.open_project(sys.argv[1])",
        "print(project.run().exit_code, len(project.summarize().phases))",
    )
    words = (sys.executable, "-c", "\n".join(lines), project.root)
    environ = {name: value for name, value in project.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=environ)
    assert ran.stdout.split() == ["0", "1"], ran.stderr


@pytest.mark.nightly
@pytest.mark.usefixtures("quick_switches")
def test_threads_may_read_plans_of_one_repository(stage):
    """What one has read of history is kept for the next, and each new plan takes its place."""
    for name in ("PLAN.md", "OTHER.md"):
        stage.write(name, PLAN)
    stage.commit()
    plans = [relay.api.open_project(stage.root, plan=name, environ=os.environ) for name in ("PLAN.md", "OTHER.md")]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda at: plans[at % 2].list_outcomes() + plans[at % 2].summarize().phases, range(200)))
    assert found == found[:2] * 100


def test_the_page_has_every_name():
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    names = [
        node.name
        for node in ast.walk(ast.parse(Path(relay.api.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    assert [name for name in names if f"{name}(" not in page and name != "working_tree_dir"] == []
    assert f"(now {relay.api.VERSION})" in page
