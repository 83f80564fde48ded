"""`relay gate` from outside: a phase's verify commands and the hooks, in the sandbox, without a key."""

import json
import stat

import pytest

from relay.base.errors import ExitCode
from tests.scripts import serving


@pytest.fixture
def write(project, git):
    def put(verify, **files):
        (project / "PLAN.md").write_text(f"# P\n\n## Phase 1 — Hello\n{verify}\n- [ ] Say hello — hello.txt\n")
        for name, text in files.items():
            (project / name).write_text(text)
        git("add", "PLAN.md")
        git("commit", "-q", "--allow-empty", "-m", "plan")

    return put


def test_a_gate_is_run_shown_explained_and_found_again(relay, write):
    """On the files as they are; what the sandbox kept is named with its setting, and no value of a variable is."""
    write("Verify: `grep -q hello hello.txt`, `test -n ${DATABASE_URL:?}`", **{"hello.txt": "hello\n"})
    ran = relay("gate", env={"DATABASE_URL": "postgres://hunter2"})
    assert (ran.code, ran.err) == (ExitCode.STOPPED, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("gate of phase 1, ")
    assert "`grep -q hello hello.txt` passed (" in lines[1]
    assert any(line.startswith("`test -n ${DATABASE_URL:?}` ") for line in lines)
    assert any("DATABASE_URL: set here and not given to commands" in line for line in lines)
    assert "1 of 2 verify commands passed." in lines
    assert "the gate saw uncommitted files: hello.txt" in lines
    assert "hunter2" not in ran.out

    last = relay("gate", "--last")
    assert last.code == ExitCode.STOPPED
    assert last.out.startswith("gate of phase 1, ")
    assert "DATABASE_URL: set here" in last.out
    assert relay("gate", "--last", "--json").code == ExitCode.USAGE

    given = relay("gate", "1", "--json", env={"DATABASE_URL": "x", "RELAY_ENV": "DATABASE_URL"})
    assert given.code == 0
    events = [json.loads(line) for line in given.out.splitlines()]
    assert [event["event"] for event in events] == ["GateStarted", "GateFinished"]
    assert events[1]["passed"]
    assert relay("gate", "7").code == ExitCode.USER


def test_what_became_of_a_command_is_said_in_words(relay, write):
    """Not by the name that it has in the log."""
    write("Verify: `no-such-program-at-all`, `true --if-present`")
    lines = relay("gate").out.splitlines()
    assert "`no-such-program-at-all` did not run: a program is missing or not executable" in lines
    assert "`true --if-present` ran no tests" in lines


def test_what_the_repository_has_is_tried_where_a_phase_names_nothing(relay, write):
    write("", Makefile="test:\n\t@test -f PLAN.md && echo seen\n")
    ran = relay("gate")
    assert ran.code == 0
    assert "trying `make test` from Makefile" in ran.out
    assert "  | seen" in ran.out
    checked = relay("check")
    assert "proposed: Verify: `make test` (Makefile); relay gate tries it" in checked.out


def test_without_anything_to_run_it_says_so(relay, write):
    assert relay("gate", "--last").code == ExitCode.USER
    write("")
    ran = relay("gate")
    assert ran.code == ExitCode.USER
    assert "phase 1 has no verify command, and relay finds no test command in this repository" in ran.err


@pytest.mark.nightly
def test_hooks_are_tried_on_what_is_staged(relay, write, project):
    write("Verify: `test -f PLAN.md`")
    hook = project / ".git/hooks/commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ngrep -qE '^(feat|fix): ' \"$1\" || { echo not conventional; exit 1; }\n")
    hook.chmod(hook.stat().st_mode | stat.S_IXUSR)
    assert relay("gate").code == 0
    ran = relay("gate", "--hooks")
    assert ran.code == ExitCode.STOPPED
    assert "  | not conventional" in ran.out
    assert "the commit-msg hook refused" in ran.out
    assert "RELAY_HOOKS" not in ran.out

    hook.write_text("#!/bin/sh\nno-such-program-at-all\n")
    ran = relay("gate", "--hooks")
    assert "`commit-msg hook` failed with exit 127\n" in ran.out
    assert "sandbox: a program of it is missing here, or hidden from it: paths.read in your own settings" in ran.out


IGNORED = """\
sessions:
  - turns:
      - tools:
          - {name: write, input: {path: out.log, content: "hello\\n"}}
          - {name: write, input: {path: .venv/bin/x, content: "x"}}
          - {name: bash, input: {command: "echo hello > old.log"}}
          - {name: block, input: {reason: "which?"}}
"""


@pytest.mark.nightly
def test_what_the_gate_of_a_run_is_not_shown_is_named(relay, write, project, commit):
    """Git ignores it and the phase did not begin with it as it is: green here, and red there."""
    (project / ".gitignore").write_text("*.log\n.venv/\n")
    (project / "old.log").write_text("there before\n")
    (project / ".venv").mkdir()
    write("Verify: `grep -q hello out.log`")
    commit()
    with serving(IGNORED) as (_, given):
        assert relay("run", env=given).out.splitlines()[-1].startswith("next: relay say ")
    ran = relay("gate")
    assert ran.code == ExitCode.DONE
    why = "files that no commit holds and that sessions made or changed"
    assert ran.out.splitlines()[-1] == f"the gate of a run would not see {why}: old.log, out.log"
