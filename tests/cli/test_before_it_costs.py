"""`relay run` and `relay check` say before anything is paid what could not show that the work is done."""

import json

import pytest

from relay.base.errors import ExitCode
from tests.commit.candidate import WHOLE
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.scripts import serving
from tests.terminal import answer_at_terminal

KEY = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
"""An endpoint that nobody answers at: whoever asks it fails otherwise."""


@pytest.fixture
def write(project, commit):
    def put(verify, item="Say hello — hello.txt"):
        (project / "PLAN.md").write_text(f"# Greetings\n\n## Phase 1 — Hello\n{verify}\n- [ ] {item}\n")
        commit()

    return put


def test_a_command_that_shows_nothing_is_refused_with_its_line(relay, write):
    command = "pytest || true"
    write(f"Verify: `{command}`")
    for words in ("run", "gate"):  # no key either: this is said first
        ran = relay(words)
        assert ran.code == ExitCode.USER
        assert ran.err.startswith(f"Error: PLAN.md:4: the verify command `{command}` "), words
        assert "Hint: write one that fails while the work is not done" in ran.err
    checked = relay("check")
    assert checked.code == ExitCode.USER
    assert f"PLAN.md:4: the verify command `{command}` " in checked.out


def test_a_phase_without_a_gate_needs_the_word_of_the_user(relay, write):
    write("")
    ran = relay("run", env=KEY)
    assert ran.code == ExitCode.USER
    assert "PLAN.md:3: phase 1 has no verify command, so nothing would check the ticks" in ran.err
    assert "--unchecked" in ran.err
    assert relay("run", "--dry-run").code == ExitCode.USER
    assert relay("run", "--dry-run", "--unchecked", env=KEY).code == ExitCode.DONE


def test_a_typed_verify_command_is_the_gate_of_each_phase(relay, write):
    write("")
    ran = relay("run", "--dry-run", "--verify", "test -f hello.txt", "--verify", "test -s hello.txt", env=KEY)
    assert ran.code == ExitCode.DONE, ran.err
    assert "gate   test -f hello.txt; test -s hello.txt" in ran.out
    assert "the verify command `true`" in relay("run", "--dry-run", "--verify", "true", env=KEY).err


def test_a_person_is_offered_the_projects_own_test_command_as_gate(stage):
    """It was tried in the sandbox; no terminal leaves the phase without a gate, and nothing is paid."""
    stage.write("PLAN.md", "# Greetings\n\n## Phase 1 — Hello\n- [ ] Say hello — hello.txt\n")
    stage.write("Makefile", "test:\n\t@! test -e hello.txt || grep -q hello hello.txt\n")
    stage.commit()
    with serve(parse_script(WHOLE)) as server:
        environ = {"TERM": "dumb", "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        argv = [*stage.find_program(), "run"]
        shown, code = answer_at_terminal(argv, ["y\n"], cwd=stage.root, environ=environ, prompt="[Y/n]: ")
    assert "Makefile names a test command: make test; trying it in the sandbox" in shown
    assert 'verify = ["make test"] in relay.toml makes it the gate of every phase' in shown
    assert code == ExitCode.DONE, shown
    assert "Relay-Gate: pass" in stage.git("show", "-s", "--format=%B")


@pytest.mark.nightly
def test_the_example_is_no_plan(relay, doctor, commit):
    assert relay("init").code == 0
    commit()
    for ran in (relay("run", env=KEY), relay("check"), relay("run", "--dry-run")):
        assert ran.code == ExitCode.USER
        assert "PLAN.md: this is still the example from relay init" in ran.err + ran.out
    assert "example" in relay("status").out
    assert "warning  plan        PLAN.md: this is still the example" in doctor().out
    planned = relay("plan", "something", env=KEY)
    assert "unfinished plan" not in planned.err  # it goes on to ask the endpoint


def test_a_runner_that_is_missing_on_this_machine_is_a_warning_of_check(relay, write):
    """Where a phase wishes for it, with its line; a plan may be checked where none is, so it is valid."""
    write("Verify: `test -f hello.txt`\nRunner: claude")
    words = "Claude Code is not installed: there is no claude-agent-acp on PATH"
    bare = {"PATH": "/usr/bin:/bin"}
    ran = relay("check", env=bare)
    assert ran.code == ExitCode.DONE
    assert f"PLAN.md:5: warning: {words}\n  npm install -g" in ran.out
    assert "is valid: 1 phase, 1 item, 1 warning" in ran.out
    [found] = json.loads(relay("check", "--json", env=bare).out)["violations"]
    assert (found["line"], found["message"], found["warning"]) == (5, words, True)

    write("Verify: `test -f hello.txt`")
    assert f"PLAN.md: warning: {words}" in relay("check", env={**bare, "RELAY_RUNNER": "claude"}).out
    assert "warning" not in relay("check", env=bare).out


def test_an_agent_that_is_missing_or_could_not_be_held_is_named_before_any_key(relay, write, project):
    """Whoever names it: the plan, or the settings as the one who reviews."""
    bare = {"PATH": "/usr/bin:/bin"}
    write("Verify: `test -f hello.txt`\nRunner: claude")
    ran = relay("run", env=bare)
    assert ran.code == ExitCode.USER
    assert "Claude Code is not installed: there is no claude-agent-acp on PATH" in ran.err
    assert "npm install -g @agentclientprotocol/claude-agent-acp" in ran.err
    assert "starts no agent without its sandbox" in relay("run", "--sandbox", "off", env=bare).err

    write("Verify: `test -f hello.txt`")
    (project / "relay.toml").write_text('review = "phase"\nroles.review_runner = "codex"\n')
    ran = relay("run", env=bare)
    assert ran.code == ExitCode.USER
    assert "Codex is not installed" in ran.err


def plan_phases(*sizes):
    phases = (
        f"## Phase {n}\nVerify: `test -e a{n}.py`\n" + "".join(f"- [ ] Do {n}, {k} — a{n}.py\n" for k in range(size))
        for n, size in enumerate(sizes, start=1)
    )
    return "# P\n\n" + "\n".join(phases)


BLOCK = json.dumps({"sessions": [{"turns": [{"tools": [{"name": "block", "input": {"reason": "lunch"}}]}]}]})


def test_a_run_says_before_it_pays_that_one_session_would_do_or_that_a_phase_fits_into_none(relay, project, commit):
    """In the same words as `relay check`, and only of what is asked for."""
    (project / "PLAN.md").write_text(plan_phases(1, 1))
    commit()
    words = "one session can do all open phases"
    assert words in relay("check").out
    with serving(BLOCK) as (_, endpoint):
        said = relay("run", "--sandbox", "off", env=endpoint).out
    assert words in said
    assert said.index(words) < (said + "lunch").index("lunch")
    assert words not in relay("run", "--phase", "1", "--dry-run", env=KEY).out

    (project / "PLAN.md").write_text(plan_phases(40, 1))
    commit()
    assert "too big for one session" in relay("check").out
    said = " ".join(relay("run", "--dry-run", env=KEY).out.split())
    assert "too big for one session, which hands over at 100k: phase 1 (about 1" in said
    assert "phase 2 (" not in said


@pytest.mark.nightly
def test_a_phase_that_the_file_has_split_already_is_split_without_a_model(relay, project, commit):
    """No key, nothing sent; the text is the user's but for the numbers, and is not committed."""
    text = (
        "# P\n\n## Phase 1 — Both\nSaid of both.\n\n### Schema\nVerify: `test -e a`\n- [ ] A — a\n\n"
        "### Api\nVerify: `test -e b`\n- [ ] B — b\n"
    )
    (project / "PLAN.md").write_text(text)
    commit()
    ran = relay("plan", "--split", "1")
    assert (ran.code, ran.err) == (ExitCode.DONE, "")
    assert "phase 1 of PLAN.md is 2 phases now, at the headings that it has; no model was asked" in ran.out
    assert "+### Phase 1a — Schema" in ran.out
    split = text.replace("### Schema", "### Phase 1a — Schema").replace("### Api", "### Phase 1b — Api")
    assert (project / "PLAN.md").read_text() == split
    assert not (project / ".relay").exists()
    assert "is valid: 2 phases" in relay("check").out
    assert "ANTHROPIC_API_KEY" in relay("plan", "--split", "1b").err
