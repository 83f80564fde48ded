"""A session that only ticks: what speaks against it is said, and where nothing speaks for it nothing is committed."""

import json
import subprocess

import pytest

from relay.base.errors import ExitCode
from relay.git.objects import diff_trees
from relay.git.repository import open_repo
from relay.plan.parse import parse_plan
from relay.run.commit.changed_checks import describe_changed_checks
from relay.session.events import GateFinished, GateStarted, Noticed
from relay.session.values import SessionOutcome
from tests.effort import take_each
from tests.scripted import Act, ScriptedRunner
from tests.scripts import run_commands

IDLE = "no file was changed, and the verify commands passed before too"
ABSENT = "1.1 names src/export.py, which no commit has"


@pytest.fixture
def run(stage):
    """Run a phase of one item to its end."""

    def run_phase(item, *commands, verify="Verify: `test -d .`\n"):
        stage.write("old.py", "old\n")
        stage.write("PLAN.md", f"## Phase 1 — Export\n{verify}- [ ] {item}\n")
        stage.commit("plan")
        return stage.run(run_commands(*commands), max_repairs=0, unchecked=True)

    return run_phase


def read_doubts(stage):
    return stage.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly,unfold)").split("\n")[:-2]


@pytest.mark.parametrize(
    ("verify", "item", "words"),
    take_each(
        3,
        [
            ("Verify: `test -f old.py`\n", "Write the export — src/export.py", f"{IDLE}; {ABSENT}"),
            ("Verify: `test -f old.py`\n", "Tidy it up — old.py", IDLE),
            ("", "Write the export — src/export.py", f"no file was changed, and nothing was checked; {ABSENT}"),
        ],
    ),
)
def test_nothing_done_by_a_phase_that_is_to_change_something(stage, run, verify, item, words):
    """The session is told, and the box stays open: all that speaks for it is what the model says."""
    ended = run(item, verify=verify)

    assert ended.exit_code == ExitCode.STOPPED
    assert f"phase 1: nothing supports its ticks: {words}; where it was done before, tick" in ended.reason
    assert stage.commits() == ()


@pytest.mark.nightly
def test_a_session_that_did_nothing_is_told_once(stage):
    """It ends again without a change: no third answer is paid for, and the phase goes to the person."""
    stage.write("PLAN.md", "## Phase 1 — Export\n\n- [ ] Write the export — src/export.py\n")
    stage.commit("plan")
    runner = ScriptedRunner(sessions=[[[("tick", {"item": "1.1", "evidence": "seen"})], [], []]])

    ended = stage.play(runner, unchecked=True)

    assert ended.exit_code == ExitCode.STOPPED
    assert "nothing supports its ticks" in ended.reason
    assert [("Nothing was committed" in told) for told in runner.told].count(True) == 1


@pytest.fixture
def run_beside(stage):
    """Run a phase of one item below commands of the document's."""

    def run_phase(*commands, document, own="", item="add — app/add.py", **given):
        gate = " ".join(f"Verify: `{command}`\n" for command in document)
        verify = f"Verify: `{own}`\n" if own else ""
        stage.write("PLAN.md", f"# P\n{gate}\n## Phase 1 — Add\n{verify}- [ ] {item}\n")
        stage.commit("plan")
        return stage.run(run_commands(*commands), max_repairs=0, **given)

    return run_phase


@pytest.mark.nightly
def test_a_phase_that_did_nothing_beside_a_red_linter_is_refused_too(run_beside):
    """What is red need not be tests, and what is green may be: neither says a word for the work."""
    ended = run_beside(document=("grep -q y old.py", "git --version"), item="Look at it")

    assert ended.exit_code == ExitCode.STOPPED
    idle = "no file was changed, and no verify command went from red to green"
    assert f"nothing supports its ticks: {idle}; `grep -q y old.py` was red before" in ended.reason


@pytest.mark.nightly
def test_what_was_red_all_the_time_is_said_wherever_a_person_looks(stage, run_beside):
    """The run's last line, the commit, status, pr, gate --last and the report; a clean gate says nothing of it."""
    ended = run_beside(
        "mkdir app && echo 1 > app/add.py", document=("grep -q y old.py", "git --version"), own="test -f app/add.py"
    )
    red = "`grep -q y old.py` was red before the work and still is (failed with exit 2)"
    assert (ended.exit_code, ended.reason) == (ExitCode.DONE, f"1 of 1 phase, doubtful: {red}")
    assert read_doubts(stage) == [red]
    assert "red-before=1" in stage.git("log", "-1", "--format=%(trailers:key=Relay-Gate,valueonly)")
    assert f"doubtful: {red}\n" in stage.relay("status").stdout
    assert "**Doubt:** " in stage.relay("pr", "--text").stdout
    last = stage.relay("gate", "--last").stdout.splitlines()
    assert last[0].endswith(": passed, but for what was red before the work too: 1 command")
    needed = stage.relay("report", "--text").stdout
    assert red in needed
    again = stage.relay("run").stdout
    assert f"done: 1 of 1 phase, doubtful: {red} (spent" in again


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("settings", "command", "expected"),
    [
        ("", "grep -q y app/add.py", "as expected: the work is not done yet"),
        (
            'verify = ["python3 -m unittest app.add"]\n',
            "git --version",
            "before the work: it checked nothing yet",
        ),
    ],
    ids=["by its path", "as a module"],
)
def test_a_command_that_names_what_an_item_makes_is_the_phases_own(stage, run_beside, settings, command, expected):
    """It was red because the work was not done: red behind it, it is no old red of somebody else's."""
    stage.write("relay.toml", settings)
    stage.commit("settings")
    ended = run_beside("mkdir app && echo x > app/add.py", document=(command, "git --version"))

    assert ended.exit_code == ExitCode.STOPPED
    assert "verify commands passed" in ended.reason
    assert "red before" not in ended.reason
    baseline = next(event for event in stage.seen(GateFinished) if event.baseline)
    assert baseline.expected == expected


def test_a_command_that_went_from_red_to_green_speaks_for_a_phase_that_changed_no_file(stage, run):
    """What it made git ignores, so no commit has it and none could: that is said and does not stop the phase."""
    stage.write(".gitignore", "node_modules\n")
    ended = run("Install it — src/export.py", "mkdir -p node_modules/a", verify="Verify: `test -d node_modules/a`\n")
    assert ended.exit_code == ExitCode.DONE
    seen = "the gate used packages that sessions installed, and no setup command: node_modules"
    assert read_doubts(stage) == ["no file was changed", ABSENT, seen]


@pytest.mark.nightly
def test_what_was_done_since_the_phase_was_planned_speaks_for_it(stage):
    """An earlier session went further than its own phase; the one that finds it done only ticks."""
    phases = (f"## Phase {n} — P\nVerify: `test -d .`\n- [ ] Write it — {n}.txt\n" for n in (1, 2))
    stage.write("PLAN.md", "\n".join(phases))
    stage.commit("plan")
    both: list[Act | SessionOutcome] = [("write", {"path": f"{n}.txt", "content": "x\n"}) for n in (1, 2)]
    tick = [("tick", {"item": f"{n}.1", "evidence": "made"}) for n in (1, 2)]
    runner = ScriptedRunner(sessions=[[[*both, tick[0]]], [[tick[1]]]])

    assert stage.play(runner).exit_code == ExitCode.DONE
    assert read_doubts(stage) == [IDLE]


@pytest.mark.nightly
def test_a_phase_that_only_looks_is_marked(stage, run):
    """It names nothing that it changes, and its gate is green; commit, view and status say that nothing was changed."""
    assert run("Check that the tests pass", verify="Verify: `test -f old.py`\n").exit_code == ExitCode.DONE
    assert read_doubts(stage) == [IDLE]
    assert any(notice.text == f"ticked anyway: {IDLE}" for notice in stage.seen(Noticed))
    assert f"doubtful: {IDLE}" in stage.relay("status").stdout
    assert json.loads(stage.relay("status", "--json").stdout)["phases"][0]["doubts"] == [IDLE]


@pytest.mark.nightly
def test_a_name_that_is_not_there_is_marked(stage, run):
    """The work may have got another name."""
    verify = "Verify: `test -f src/exporter.py`\n"
    ended = run("Write the export — src/export.py", "mkdir src && echo x > src/exporter.py", verify=verify)
    assert ended.exit_code == ExitCode.DONE
    assert read_doubts(stage) == [ABSENT]


@pytest.mark.parametrize(
    ("item", "command"),
    take_each(
        5,
        [
            ("Write it — new.py", "echo x > new.py"),
            ("Fill the folder — src/deep/", "mkdir -p src/deep && echo x > src/deep/a.py"),
            ("Remove it — old.py", "rm old.py"),
            ("Rename it — old.py, new.py", "mv old.py new.py"),
            ("Write them — src/*.py", "echo x > new.py"),
        ],
    ),
)
def test_what_was_done_is_not_doubted(stage, run, item, command):
    assert run(item, command, verify="Verify: `git ls-files`\n").exit_code == ExitCode.DONE
    assert read_doubts(stage) == []


CHECKED = {
    "Makefile": "all:\n\ntest: all\n\tsh ./check.sh\n\tsh ./more.sh\n\nlint:\n\ttrue\n",
    "package.json": '{"scripts": {"test": "sh ./check.sh", "lint": "true"}}\n',
    "check.sh": "true\n",
    "tests/test_a.py": "def test_a():\n    assert 1\n\n\ndef test_b():\n    assert 2\n",
    "setup.cfg": "[coverage:report]\nfail_under = 80\n",
    ".github/workflows/ci.yml": "on: push\n",
    "src/app.py": "a = 1\n",
}


CHANGES = [
    ("sed -i 's/more/other/' Makefile", "Makefile (the rule test)"),
    ("sed -i '/check/d' Makefile", "Makefile (the rule test)"),
    ("sed -i 's/sh .\\/check.sh/true/' package.json", "package.json (the rule test)"),
    ("echo exit 0 > check.sh", "check.sh (1 line changed)"),
    ("sed -i 's/assert 1/pass/' tests/test_a.py", "tests/test_a.py (1 line changed)"),
    ("sed -i '1i @pytest.mark.skip' tests/test_a.py", "tests/test_a.py (tests skipped)"),
    ("sed -i '1i @unittest.skipIf(True, 1)' tests/test_a.py", "tests/test_a.py (tests skipped)"),
    ("rm tests/test_a.py", "tests/test_a.py (removed)"),
    ("mv tests/test_a.py src/a.py", "tests/test_a.py (removed)"),
    ("sed -i s/80/20/ setup.cfg", "setup.cfg (a coverage floor)"),
    ("sed -i /under/d setup.cfg", "setup.cfg (a coverage floor)"),
    ("echo 'on: never' > .github/workflows/ci.yml", ".github/workflows/ci.yml (CI)"),
    ("sed -i s/80/90/ setup.cfg", ""),
    ("sed -i 's/true/false/' Makefile package.json", ""),
    ("printf 'def test_c():\\n    assert 3\\n' >> tests/test_a.py", ""),
    ("echo 'assert 4' > tests/test_new.py; echo 'b = 1' > src/app.py", ""),
    ("echo 'on: push' > .github/workflows/more.yml", ""),
    ("sed -i 's/assert 2/assert 3/' tests/test_named.py", ""),
]


@pytest.fixture
def checked(stage):
    """A plan whose gate and tests are in the repository."""
    for path, text in CHECKED.items():
        stage.write(path, text)
    stage.write("tests/test_named.py", CHECKED["tests/test_a.py"])
    gate = "Verify: `sh check.sh || make test || npm test`\n"
    item = "Write it — src/export.py, tests/test_named.py"
    stage.write("PLAN.md", f"## Phase 1 — Export\n{gate}- [ ] {item}\n")
    stage.commit("plan")
    return stage


def test_what_changes_the_check_is_named(checked):
    """What adds to it, and what an item names, is work as any other."""
    repo, base = open_repo(checked.root), checked.git("rev-parse", "HEAD").strip()
    (phase,) = parse_plan((checked.root / "PLAN.md").read_text()).phases
    said = {}
    for command, _ in CHANGES:
        subprocess.run(command, shell=True, cwd=checked.root, check=True)
        changes = diff_trees(repo, base, checked.commit("a change"))
        said[command] = describe_changed_checks(repo, phase, "PLAN.md", changes, phase.verify)
        checked.git("reset", "-q", "--hard", base)
    assert said == {command: words and f"the check was changed: {words}" for command, words in CHANGES}


def test_a_session_that_changes_its_check_or_takes_a_later_gate_from_its_files_is_said_in_commit_and_view(stage):
    """It moves no gate of its own phase: the commit that the phase started from decides."""
    stage.plan_path = "packages/api/PLAN.md"
    stage.write("check.sh", "grep -q x out.txt\n")
    phases = (f"## Phase {n} — P\nVerify: `sh check.sh`\n- [ ] Write it — out.txt\n" for n in (1, 2))
    stage.write("packages/api/PLAN.md", "\n".join(phases))
    stage.commit("plan")

    own = "echo 'test -f out.txt' > check.sh"
    stage.run(run_commands(f"{own}; echo true > packages/api/check.sh; echo x > out.txt"), phase="1")

    assert [event.commands for event in stage.seen(GateStarted)] == [("sh check.sh",)] * 2
    words = [
        "the check was moved: `sh check.sh` ran in the root (check.sh), now in packages/api",
        "the check was changed: check.sh (1 line changed)",
    ]
    assert sorted(read_doubts(stage)) == sorted(words)
    said = [event.text for event in stage.seen(Noticed) if event.text.startswith("ticked anyway: ")]
    assert [one for one in words if one not in str(said)] == []


@pytest.mark.nightly
def test_a_phase_may_change_the_tests_that_its_earlier_session_made(stage):
    stage.write("PLAN.md", "## Phase 1 — Two\nVerify: `true; test -e a.py`\n- [ ] One — a.py\n- [ ] Two — b.py\n")
    stage.commit("plan")
    ended = stage.run("""
sessions:
  - turns:
      - tools: [{name: bash, input: {command: "mkdir tests; echo 'assert 1' > tests/test_a.py; touch a.py"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "there"}}]
      - tools: [{name: hand_off, input: {next_step: "two", learned: [], dead_ends: []}}]
  - turns:
      - tools: [{name: bash, input: {command: "echo 'assert 2' > tests/test_a.py; echo b > b.py"}}]
      - tools: [{name: tick, input: {item: "1.2", evidence: "there"}}]
      - text: "Commit: Two"
""")

    assert ended.exit_code == ExitCode.DONE, ended
    assert [commit.status for commit in stage.commits()] == ["done", "handoff"]
    assert read_doubts(stage) == []
