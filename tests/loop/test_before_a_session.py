"""What the baseline shows that no session can mend stops a run before one is opened."""

import pytest

from relay.base.errors import PlanError
from relay.git.repository import open_repo
from relay.session.events import GateFinished, Noticed, SessionStarted
from relay.store.attempts import read_attempt
from tests.effort import take_each
from tests.scripted import ScriptedRunner


def plan(stage, command, item="Say hello — hello.txt"):
    stage.write("PLAN.md", f"# P\n\n## Phase 1 — Hello\nVerify: `{command}`\n- [ ] {item}\n")
    stage.commit("plan")


def block():
    """Return a runner whose one session says at once that it cannot go on."""
    return ScriptedRunner(sessions=[[[("block", {"reason": "seen"})]]])


@pytest.mark.parametrize("command", take_each(2, ["no-such-linter -q", "python3 -m no_such_linter"]))
def test_a_program_that_nothing_makes_costs_nothing(stage, command):
    plan(stage, command)
    runner = ScriptedRunner(sessions=[])
    with pytest.raises(PlanError, match="phase 1 was not begun: its gate can never be green, because") as refused:
        stage.play(runner, sandbox="auto")
    assert refused.value.path == "PLAN.md"
    assert runner.specs == []
    assert stage.seen(SessionStarted) == []
    assert len(stage.seen(GateFinished)) == 1
    assert read_attempt(open_repo(stage.root)) is None


def test_the_environment_that_has_it_is_named(stage):
    stage.write(".venv/bin/no-such-linter", "#!/bin/sh\n")
    (stage.root / ".venv/bin/no-such-linter").chmod(0o755)
    stage.write(".gitignore", ".venv\n")
    plan(stage, "no-such-linter -q")
    with pytest.raises(PlanError) as refused:
        stage.play(ScriptedRunner(sessions=[]), sandbox="auto")
    assert ".venv/bin/no-such-linter is there and not on PATH" in str(refused.value.hint)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("command", "item"),
    take_each(2, [("mytool --version", "Add a script `mytool` — setup.py"), ("./check.sh", "Check it — a.py")]),
)
def test_a_program_that_the_phase_may_make_is_waited_for(stage, command, item):
    plan(stage, command, item)
    assert stage.play(block(), sandbox="auto").reason == "phase 1: blocked: seen"


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("git config a.b c", "only read by commands"),
        ("echo 'getaddrinfo EAI_AGAIN registry.npmjs.org'; false", "commands have no network (`getaddrinfo`)"),
    ],
)
def test_a_gate_that_the_sandbox_makes_red_costs_nothing(stage, command, cause):
    """It would be excused in each phase of the plan, and the boxes say that tests passed which never ran."""
    stage.write(
        "PLAN.md", f"# P\nVerify: `{command}`, `git --version`\n\n## Phase 1 — Hello\n- [ ] Say hello — a.txt\n"
    )
    stage.commit("plan")
    runner = ScriptedRunner(sessions=[])
    with pytest.raises(PlanError) as refused:
        stage.play(runner, sandbox="auto")
    assert f"phase 1 was not begun: the sandbox makes `{command}` red, whatever is done: " in str(refused.value)
    assert cause in str(refused.value)
    assert "--unchecked goes on with it red" in str(refused.value.hint)
    assert runner.specs == []


def test_what_nothing_checks_is_ticked_where_the_user_typed_that(stage):
    """The commit does not say that a gate passed."""
    tests = "sh run-tests.sh"
    stage.write("run-tests.sh", "echo x > .git/cache\n")
    stage.write("PLAN.md", f"# P\nVerify: `{tests}`, `git --version`\n\n## Phase 1 — Hello\n- [ ] Say hello — a.txt\n")
    stage.commit("plan")
    write = [("write", {"path": "a.txt", "content": "a\n"}), ("tick", {"item": "1.1", "evidence": "made"})]
    ended = stage.play(ScriptedRunner(sessions=[[write]]), sandbox="auto", unchecked=True)
    assert f"1 of 1 phase, doubtful: `{tests}` was red before the work and still is" in str(ended.reason)
    assert stage.commits()[0].gate.startswith("none ")


def start_with(stage, **files):
    """Play a run whose work tree has files that no commit has; nothing is paid for."""
    for path, text in files.items():
        stage.write(path, text)
    runner = ScriptedRunner(sessions=[])
    with pytest.raises(PlanError) as refused:
        stage.play(runner, sandbox="auto")
    assert runner.specs == []
    assert read_attempt(open_repo(stage.root)) is None
    assert all((stage.root / path).read_text() == text for path, text in files.items())
    return str(refused.value)


@pytest.mark.parametrize(
    ("item", "ignored", "cause"),
    take_each(
        2,
        [
            ("Say hello — hello.txt", "*.txt\n", "ignored by git"),
            ("Build it — out/", "out/\n", "ignored by git"),
            ("Bind it — out/a.c", "out/\n", "ignored by git"),
            ("Write the rules — lib/CLAUDE.md", "", "only a person writes it"),
            ("Allow the network — relay.toml", "", "only a person writes it"),
        ],
    ),
)
def test_a_file_that_no_commit_could_hold_costs_nothing(stage, item, ignored, cause):
    stage.write(".gitignore", ignored)
    plan(stage, "grep -q hello hello.txt", item)
    words = start_with(stage, **{"hello.txt": "a draft\n"} if "hello" in item else {})
    start = "PLAN.md:3: no session was started for phase 1: the commit would lack files that the phase needs: "
    assert words.startswith(start)
    assert words.endswith(f" ({cause})")


@pytest.mark.nightly
def test_a_phase_that_lets_the_file_into_git_may_begin(stage):
    stage.write(".gitignore", "out/\n")
    plan(stage, "test -f out/a.c", "Keep what is bound — .gitignore, out/a.c")
    assert stage.play(block()).reason == "phase 1: blocked: seen"


@pytest.mark.nightly
def test_a_file_that_only_a_person_writes_may_be_read_and_is_named_as_the_run_begins(stage):
    plan(stage, "grep -q hello hello.txt", "Say hello as AGENTS.md has it")
    text = (stage.root / "PLAN.md").read_text()
    stage.write("PLAN.md", f"{text}\n## Phase 2 — Rules\nVerify: `test -f AGENTS.md`\n- [ ] Write them — AGENTS.md\n")
    stage.commit("rules")
    assert stage.play(block()).reason == "phase 1: blocked: seen"
    words = (
        "phase 2 is to write files that only a person writes: AGENTS.md; write it and tick the box, or this run stops"
    )
    assert f"{words} there" in [event.text for event in stage.seen(Noticed)]


@pytest.mark.nightly
def test_a_check_that_no_commit_has_costs_nothing(stage):
    """The session would see it pass, and the gate would not find it."""
    plan(stage, "sh ./check.sh")
    words = start_with(stage, **{"check.sh": "grep -q hello hello.txt\n"})
    assert "its gate can never be green, because `sh ./check.sh` needs check.sh, which no commit has" in words


@pytest.mark.nightly
@pytest.mark.parametrize("gate", take_each(2, ["test ! -e notes.txt && false", "cp hello.txt notes.txt"]))
def test_a_check_that_only_names_such_a_file_is_no_reason_to_refuse(stage, gate):
    stage.write("notes.txt", "mine\n")
    plan(stage, gate)
    assert stage.play(block(), sandbox="auto").reason == "phase 1: blocked: seen"


NO_TESTS = "echo 'ERROR: file or directory not found: tests/test_utils.py'; echo 'no tests ran in 0.01s'; exit 4"


@pytest.mark.nightly
def test_a_gate_that_tests_a_file_which_nothing_makes_costs_nothing(stage):
    """Its runner runs nothing, whatever a session does; `--unchecked` goes on."""
    stage.write("tests/test_utils/test_a.py", "")
    stage.write("check.sh", NO_TESTS)
    item = "Add `shorten` to the utils — utils.py, tests/test_new.py"
    plan(stage, "sh ./check.sh tests/test_utils.py", item)
    words = start_with(stage)
    assert "runs nothing, because `sh ./check.sh tests/test_utils.py` names tests/test_utils.py" in words
    assert "(did you mean tests/test_utils?)" in words
    assert stage.play(block(), sandbox="auto", unchecked=True).reason == "phase 1: blocked: seen"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "item",
    take_each(
        2,
        [
            "Test the utils — tests/test_utils.py",
            "Test the utils — tests/",
            "Add `shorten` to the utils — src/strings.py",
            "Test what there is",
        ],
    ),
)
def test_a_test_that_the_phase_may_write_is_waited_for(stage, item):
    """An item names it, or its folder, or what it tests; or nothing says where its work is."""
    stage.write("check.sh", NO_TESTS)
    plan(stage, "sh ./check.sh tests/test_utils.py", item)
    assert stage.play(block(), sandbox="auto").reason == "phase 1: blocked: seen"


NO_SCRIPT = "echo 'npm error Missing script: \"test\"'; exit 1"


@pytest.mark.parametrize(
    ("command", "item", "lack"),
    take_each(
        2,
        [
            ("bash run.sh", "Add `shorten` — utils.py", "such script (package.json)"),
            ("bash scripts/lint.sh", "Add `shorten` — utils.py", "scripts/lint.sh"),
            ("python3 -m unittest tests.test_core", "Add `shorten` — utils.py", "tests/test_core.py"),
        ],
    ),
)
def test_a_check_that_cannot_run_costs_nothing(stage, command, item, lack):
    """Its red says nothing about the work; `--unchecked` goes on."""
    stage.write("run.sh", NO_SCRIPT)
    plan(stage, command, item)
    words = start_with(stage)
    assert f"phase 1 was not begun: `{command}` did not run: there is no {lack}, and no item of the phase" in words
    assert [event.expected for event in stage.seen(GateFinished)] == ["before the work: it checked nothing yet"]
    assert stage.play(block(), sandbox="auto", unchecked=True).reason == "phase 1: blocked: seen"


@pytest.mark.parametrize(
    ("command", "item"),
    take_each(
        2,
        [
            ("bash run.sh", "Add a test script — package.json"),
            ("bash run.sh", "Have npm run the tests"),
            ("bash scripts/lint.sh", "A linter — scripts/"),
            ("python3 -m unittest tests.test_core", "The core — src/core.py"),
        ],
    ),
)
def test_a_check_that_the_phase_may_make_runnable_is_waited_for_and_not_called_expected(stage, command, item):
    stage.write("run.sh", NO_SCRIPT)
    plan(stage, command, item)
    assert stage.play(block(), sandbox="auto").reason == "phase 1: blocked: seen"
    assert [event.expected for event in stage.seen(GateFinished)] == ["before the work: it checked nothing yet"]


@pytest.mark.nightly
def test_a_check_of_the_document_may_wait_for_a_later_phase(stage):
    stage.write("run.sh", NO_SCRIPT)
    later = "## Phase 2 — Tests\n- [ ] Have npm run the tests — package.json\n"
    first = "## Phase 1 — Hello\nVerify: `grep -q hello hello.txt`\n- [ ] Say hello — hello.txt\n"
    stage.write("PLAN.md", f"# P\nVerify: `bash run.sh`\n\n{first}\n{later}")
    stage.commit("plan")
    assert stage.play(block(), sandbox="auto").reason == "phase 1: blocked: seen"


@pytest.mark.nightly
def test_a_plan_of_a_package_is_told_how_its_commands_reach_it(stage):
    stage.write("packages/api/app/core.py", "")
    plan(stage, "bash run.sh # npm error Missing script", "Add y — app/core.py")
    stage.write("run.sh", NO_SCRIPT)
    stage.git("mv", "PLAN.md", "packages/api/PLAN.md")
    stage.plan_path = "packages/api/PLAN.md"
    stage.commit("moved")
    with pytest.raises(PlanError, match=r"did not run: there is no such script \(package\.json\)") as refused:
        stage.play(ScriptedRunner(sessions=[]), sandbox="auto")
    assert "it runs at the root: `In: packages/api` below the heading runs it beside the plan" in str(
        refused.value.hint
    )
