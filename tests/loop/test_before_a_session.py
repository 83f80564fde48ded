"""What the baseline shows that no session can mend stops a run before one is opened."""

from dataclasses import replace

import pytest

from relay.base.errors import PlanError
from relay.base.hints import AT_ROOT
from relay.gate.model import CommandCheck, GateResult, Outcome, compare_gate
from relay.git.repository import open_repo
from relay.plan.parse import parse_plan
from relay.run.commit.gates import GateRun
from relay.run.commit.omissions import Cause, LeftOut, render_left_out
from relay.run.commit.readiness import require_programs, require_room
from relay.session.events import GateFinished, Noticed, SessionStarted
from relay.session.values import SessionKind
from relay.store.attempts import read_attempt
from relay.store.snapshot import write_snapshot_tree
from tests.scripted import ScriptedRunner


def plan(stage, command, item="Say hello — hello.txt"):
    stage.write("PLAN.md", f"# P\n\n## Phase 1 — Hello\nVerify: `{command}`\n- [ ] {item}\n")
    stage.commit("plan")


def block():
    """Return a runner whose one session says at once that it cannot go on."""
    return ScriptedRunner(sessions=[[[("block", {"reason": "seen"})]]])


def refuse(stage):
    """Play a run that is refused before anything is paid for."""
    runner = ScriptedRunner(sessions=[])
    with pytest.raises(PlanError) as refused:
        stage.play(runner, sandbox="auto")
    assert refused.value.path == "PLAN.md"
    assert (runner.specs, stage.seen(SessionStarted)) == ([], [])
    assert read_attempt(open_repo(stage.root)) is None
    return refused.value


def test_a_program_that_nothing_makes_costs_nothing(stage):
    """An environment that has it is named."""
    stage.write(".venv/bin/no-such-linter", "#!/bin/sh\n")
    (stage.root / ".venv/bin/no-such-linter").chmod(0o755)
    stage.write(".gitignore", ".venv\n")
    plan(stage, "no-such-linter -q")
    refused = refuse(stage)
    assert "phase 1 was not begun: its gate can never be green, because" in str(refused)
    assert ".venv/bin/no-such-linter is there and not on PATH" in str(refused.hint)
    assert len(stage.seen(GateFinished)) == 1


def test_a_gate_that_the_sandbox_makes_red_costs_nothing(stage):
    """It would be excused in each phase of the plan, and the boxes say that tests passed which never ran."""
    command = "git config a.b c"
    stage.write(
        "PLAN.md", f"# P\nVerify: `{command}`, `git --version`\n\n## Phase 1 — Hello\n- [ ] Say hello — a.txt\n"
    )
    stage.commit("plan")
    refused = refuse(stage)
    assert f"phase 1 was not begun: the sandbox makes `{command}` red, whatever is done: " in str(refused)
    assert "only read by commands" in str(refused)
    assert "--unchecked goes on with it red" in str(refused.hint)


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


def test_a_check_that_cannot_run_costs_nothing(stage):
    """Its red says nothing about the work, and is not called red as expected."""
    stage.write("run.sh", NO_SCRIPT)
    plan(stage, "bash run.sh", "Add `shorten` — utils.py")
    words = "phase 1 was not begun: `bash run.sh` did not run: there is no such script (package.json), and no item of"
    assert words in str(refuse(stage))
    assert [event.expected for event in stage.seen(GateFinished)] == ["before the work: it checked nothing yet"]


def test_a_check_that_the_phase_may_make_runnable_is_waited_for_and_not_called_expected(stage):
    stage.write("run.sh", NO_SCRIPT)
    plan(stage, "bash run.sh", "Add a test script — package.json")
    assert stage.play(block(), sandbox="auto").reason == "phase 1: blocked: seen"
    assert [event.expected for event in stage.seen(GateFinished)] == ["before the work: it checked nothing yet"]


NO_SCRIPT = "echo 'npm error Missing script: \"test\"'; exit 1"
SCRIPT = ('npm error Missing script: "test"', 1)
UTILS = "python3 -m pytest tests/test_utils.py"
NO_TESTS = ("ERROR: file or directory not found: tests/test_utils.py\nno tests ran in 0.01s", 4)
LOST = ("/usr/bin/bash: scripts/lint.sh: No such file or directory", 127)
MODULE = ("ModuleNotFoundError: No module named 'tests.test_core'", 1)
NEVER, NOT_RUN, NOTHING = "its gate can never be green, because", "did not run: there is no", "its gate runs nothing"
ADD, BOTH = "Add `shorten` — utils.py", "no script\n\n## Phase 2 — Tests\n- [ ] Have npm run the tests — package.json"
ROWS: list[tuple[str, str, tuple[str, int], str]] = [
    ("no-such -q", ADD, ("bash: line 1: no-such: command not found", 127), f"{NEVER} `no-such -q` needs `no-such`"),
    ("python3 -m lint", ADD, ("/usr/bin/python3: No module named lint", 1), f"{NEVER} `python3 -m lint` needs `lint`"),
    ("mytool", "Add a script `mytool` — setup.py", ("bash: line 1: mytool: command not found", 127), ""),
    ("./check.sh", "Check it — check.sh", ("bash: line 1: ./check.sh: No such file or directory", 127), ""),
    ("sh ./mine.sh", ADD, ("sh: 0: cannot open ./mine.sh: No such file", 2), f"{NEVER} `sh ./mine.sh` needs mine.sh"),
    ("sh .venv/run", ADD, ("sh: 0: cannot open .venv/run: No such file", 2), "have copies of yours"),
    ("cp a.txt mine.sh", ADD, ("cp: cannot stat 'a.txt': No such file or directory", 1), ""),
    ("npm test", ADD, SCRIPT, f"`npm test` {NOT_RUN} such script (package.json), and no item of the phase"),
    ("npm test", "Add a test script — package.json", SCRIPT, ""),
    ("npm test", "Have npm run the tests", SCRIPT, ""),
    ("bash scripts/lint.sh", ADD, LOST, f"{NOT_RUN} scripts/lint.sh"),
    ("bash scripts/lint.sh", "A linter — scripts/", LOST, ""),
    ("python3 -m unittest tests.test_core", ADD, MODULE, f"{NOT_RUN} tests/test_core.py"),
    ("python3 -m unittest tests.test_core", "The core — src/core.py", MODULE, ""),
    (UTILS, "Add it — utils.py, tests/test_new.py", NO_TESTS, f"{NOTHING}, because `{UTILS}` names tests/test_"),
    (UTILS, "Add it — utils.py, tests/test_new.py", NO_TESTS, "no item of the phase makes (did you mean tests/test_ut"),
    (UTILS, "Test the utils — tests/test_utils.py", NO_TESTS, ""),
    (UTILS, "Test the utils — tests/", NO_TESTS, ""),
    (UTILS, "Test what there is", NO_TESTS, ""),
]  # fmt: skip


def test_what_a_red_baseline_lacks_stops_the_phase_unless_an_item_may_bring_it(stage):
    """What a command says, by its exit code, and what the phase is to do; `--unchecked` goes on but for a program."""
    stage.write("tests/test_utils/test_a.py", "")
    stage.commit("tests")
    stage.write("mine.sh", "of no commit\n")
    stage.write(".venv/run", "of no commit\n")
    wrong = []
    with stage.enter(SessionKind.RUN, flags={"sandbox": "auto"}, runner=ScriptedRunner([])) as ctx:
        for command, item, (output, code), words in ROWS:
            said = ask(ctx, f"# P\n\n## Phase 1 — Hello\nVerify: `{command}`\n- [ ] {item}\n", command, output, code)
            if not (words in said if words else said == ""):
                wrong.append((command, item, said))
            free = replace(ctx, unchecked=True)
            said = ask(free, f"# P\n\n## Phase 1 — Hello\nVerify: `{command}`\n- [ ] {item}\n", command, output, code)
            if bool(said) != (NEVER in words or "copies of" in words):
                wrong.append((command, "--unchecked", said))
        assert wrong == []
        later = "## Phase 2 — Tests\n- [ ] Have npm run the tests — package.json\n"
        document = f"# P\nVerify: `npm test`\n\n## Phase 1 — Hello\n- [ ] Say hello — hello.txt\n\n{later}"
        assert ask(ctx, document, "npm test", *SCRIPT) == "", "a check of the document may wait for a later phase"
        package = replace(ctx, files=replace(ctx.files, plan_path="packages/api/PLAN.md"))
        said = ask(package, document.replace(later, ""), "npm test", *SCRIPT)
        assert "it runs at the root: `In: packages/api` below the heading runs it beside the plan" in said


def ask(ctx, text, command, output, code):
    """Return why a phase whose baseline is that is not begun, with the way out."""
    status = Outcome.MISSING if code in {126, 127} else Outcome.NO_TESTS if "no tests ran" in output else Outcome.FAILED
    check = CommandCheck(command=command, exit_code=code, status=status, duration_s=0.0, output_tail=output)
    result, found = GateResult(commands=(check,)), parse_plan(text)
    try:
        require_programs(ctx, found, found.phases[0], GateRun(result=result, verdict=compare_gate(None, result)))
    except PlanError as error:
        return f"{error}; {error.hint}"
    return ""


ROOM = [
    ("Say hello — hello.txt", "*.txt\n", "hello.txt (ignored by git)"),
    ("Build it — out/", "out/\n", "out (ignored by git)"),
    ("Bind it — out/a.c", "out/\n", "out/a.c (ignored by git)"),
    ("Write the rules — lib/CLAUDE.md", "", "lib/CLAUDE.md (only a person writes it)"),
    ("Allow the network — relay.toml", "", "relay.toml (only a person writes it)"),
    ("Keep what is bound — .gitignore, out/a.c", "out/\n", ""),
    ("Say hello as AGENTS.md has it", "", ""),
]


def test_a_file_that_no_commit_could_hold_costs_nothing(stage):
    """Each kind by a call; that a run asks, and that a draft of such a file stays, by a run."""
    with stage.enter(SessionKind.RUN, flags={}, runner=ScriptedRunner([])) as ctx:
        for item, ignored, words in ROOM:
            stage.write(".gitignore", ignored)
            found = parse_plan(f"# P\n\n## Phase 1 — Hello\nVerify: `true`\n- [ ] {item}\n")
            try:
                require_room(ctx, found, found.phases[0], write_snapshot_tree(ctx.repo))
            except PlanError as error:
                said = str(error)
                start = "PLAN.md:3: no session was started for phase 1: the commit would lack files that the phase"
                assert said.startswith(start), item
                assert words, item
                assert said.endswith(words), item
            else:
                assert words == "", item
        two = parse_plan("# P\n\n## Phase 1\n- [ ] Say it — a.txt\n\n## Phase 2\n- [ ] Write them — AGENTS.md\n")
        require_room(ctx, two, two.phases[0], write_snapshot_tree(ctx.repo))
    words = (
        "phase 2 is to write files that only a person writes: AGENTS.md; write it and tick the box, or this run stops"
    )
    assert [event.text for event in stage.seen(Noticed)] == [f"{words} there"]

    stage.write(".gitignore", "*.txt\n")
    plan(stage, "grep -q hello hello.txt")
    stage.write("hello.txt", "a draft\n")
    assert str(refuse(stage)).endswith(" (ignored by git)")
    assert (stage.root / "hello.txt").read_text() == "a draft\n"


WAYS = {
    Cause.USER: "commit it yourself, with its line in .gitignore (git add 'a b' && git commit), and run again",
    Cause.UNHELD: "commit it yourself (git add 'a b' && git commit) or move it away, and run again",
    Cause.NESTED: "commit it there and tick the box yourself, or remove that .git to have it in this repository",
    Cause.IGNORED: "let git have it (git check-ignore -v 'a b' names the rule), and run again",
    Cause.PROTECTED: "write it yourself, commit it and tick the box",
    Cause.SUBMODULE: "commit it in the submodule and here, and tick the box yourself (lib)",
}


def test_each_cause_for_which_a_commit_would_lack_a_file_has_its_way_out():
    """Several causes name theirs one after the other, and what to do if an item only reads the file."""
    found = [LeftOut(path="lib" if cause is Cause.SUBMODULE else "a b", cause=cause) for cause in WAYS]
    said = [AT_ROOT.write(render_left_out((one,))[1]) for one in found]
    last = "; if an item only reads it, name the files that the item makes after its “ — ”"
    assert said == [f"{way}{last}" for way in WAYS.values()]
    assert AT_ROOT.write(render_left_out(tuple(found))[1]) == f"{'; '.join(WAYS.values())}{last}"
