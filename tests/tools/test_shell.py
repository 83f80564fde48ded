"""`bash` runs in the sandbox and says first how it ended."""

import dataclasses

from relay.sandbox.policy import Level
from relay.session.values import ToolResult


def test_the_exit_code_comes_first(bench):
    """The same command gives the same text; each runs at the root, afresh, without input."""
    assert bench.ok("bash", command="echo hi") == "exit 0\nhi"
    failed = bench.call("bash", command="echo err >&2; exit 3")
    assert (failed.text, failed.is_error, failed.changed_paths) == ("exit 3\nerr", True, None)
    assert bench.ok("bash", command="true") == "exit 0\n(no output)"
    assert len({bench.ok("bash", command="sleep 0.05; echo x") for _ in range(3)}) == 1
    assert bench.ok("bash", command="cd src; X=1; pwd").endswith("/repo/src")
    assert bench.ok("bash", command="pwd; echo ${X-unset}; cat").endswith("/repo\nunset")


def test_what_stops_a_formatter_of_all_files_is_said_in_a_line(bench):
    """`pre-commit run --all-files` opens the plan to write it, and ends there with a traceback."""
    kept = "[PLAN.md: a session's commands only read it, gates and commit hooks have copies: name other files]"

    assert bench.refused("bash", command="echo x | tee -a new.txt ./PLAN.md").endswith(f"\n{kept}")
    assert kept not in bench.refused("bash", command="grep EVIL PLAN.md; echo x > /usr/no; cat PLAN.md; exit 1")


def test_a_hidden_file_of_the_users_checkout_is_named_though_a_tree_of_relays_lacks_it(bench):
    (bench.outside / ".env").write_text("KEY=hunter2\n")
    sandbox = bench.workspace.sandbox
    policy = dataclasses.replace(sandbox.policy, seen_at=bench.outside)
    said = bench.change(sandbox=dataclasses.replace(sandbox, policy=policy)).refused("bash", command="cat .env")
    assert said.endswith("\n[.env: hidden from commands and tools; a gate may be shown one]")


def test_a_name_that_nobody_can_look_at_takes_nothing_from_the_result(bench):
    """As an absolute one of another user's is, in a command or in what it says."""
    assert bench.ok("bash", command=f"ln -s {'x' * 300} long; echo said of ./long") == "exit 0\nsaid of ./long"


def test_a_time_limit_kills_and_keeps_what_was_said(bench):
    text = bench.refused("bash", command="echo before; sleep 30; echo after", timeout_s=1)
    assert text == "killed after 1 s (timeout_s may be 20); output so far:\nbefore"


def test_the_longest_time_is_the_users_setting_and_the_session_is_told_its_name(bench):
    """A build that takes longer needs another setting, so the session can say so in `block` or `record`."""
    limits = dataclasses.replace(bench.workspace.limits, timeout_s=0.5)
    text = bench.change(limits=limits).refused("bash", command="echo before; sleep 20", timeout_s=600)
    assert text == "killed after 0 s (the user's command_timeout_s allows no more); output so far:\nbefore"


def test_a_stop_kills_the_command(bench):
    asked = []

    def should_stop():
        asked.append(True)
        return len(asked) > 3

    other = bench.change(should_stop=should_stop)
    assert "the run is being stopped" in other.refused("bash", command="sleep 20")


def test_commands_that_cannot_run_are_refused(bench):
    for command in ("", "  \n", "a\0b", "x" * 100_001):
        assert "command must be" in bench.refused("bash", command=command)
    assert '"background" is not known' in bench.refused("bash", command="sleep 9", background=True)


def test_the_planner_can_look_but_not_write(bench, open_box):
    answers = {
        "x": ToolResult(text="line 3: no phase", is_error=True),
        "# x": ToolResult(text="The plan is accepted.", ends_session=True),
    }
    planner = bench.plan(answers.__getitem__, sandbox=open_box(bench.root, Level.READ_ONLY))
    assert planner.ok("read", path="src/a.py").startswith("def a")
    assert planner.ok("bash", command="git grep --untracked -n def")
    assert planner.call("bash", command="echo x > new.txt").is_error
    assert not (bench.root / "new.txt").exists()
    assert "There is no tool 'write'" in planner.refused("write", path="a", content="b")
    assert planner.refused("submit_plan", markdown="x") == "line 3: no phase"
    accepted = planner.call("submit_plan", markdown="# x")
    assert accepted.ends_session
    assert not accepted.is_error
