"""`relay run`, `status` and `demo --serve` from outside: real program, real git, a scripted model over HTTP."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.scripts import TWO_PHASES, serving

SCRIPT = """\
model: claude-opus-5-5
sessions:
  - turns:
      - text: "I write \\e[2Jit.\\u202e"
        tools:
          - {name: write, input: {path: hello.txt, content: "hello\\n"}}
      - tools:
          - {name: tick, input: {item: "1.1", evidence: "hello.txt says hello"}}
      - text: Done.
  - turns:
      - tools:
          - {name: write, input: {path: world.txt, content: "world\\n"}}
          - {name: tick, input: {item: "2.1", evidence: "world.txt says world"}}
      - text: Done.
"""


@pytest.fixture
def planned(project, commit):
    """A project whose plan is committed."""
    (project / "PLAN.md").write_text(TWO_PHASES)
    commit()
    return project


@pytest.fixture
def endpoint():
    """A rehearsal server and the variables that lead to it."""
    with serve(parse_script(SCRIPT)) as rehearsal:
        yield {"ANTHROPIC_BASE_URL": rehearsal.base_url, "ANTHROPIC_API_KEY": "rehearsal", "NO_PROXY": "*"}


def mask(text):
    """Replace what differs from run to run."""
    text = re.sub(r"\b[0-9a-f]{8}\b", "XXXXXXXX", text)
    text = re.sub(r"\d+\.\d s\b", "T s", text)
    text = re.sub(r"\$\d[\d.]*", "$N", text)
    return re.sub(r"\d[\d,]* (of [\d,]+ tokens \()\d+%", r"N \1N%", text)


def test_a_plan_runs_to_its_end_in_plain_lines_and_in_events(relay, planned, endpoint, git):
    """Two phases, two commits; both views are stable and harmless; afterwards git alone tells the status."""
    ran = relay("run", "--phase", "next", env=endpoint)
    assert ran.err == ""
    assert ran.code == 0
    lines = mask(ran.out).splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines[:-3] if not re.match(r"\d\d:\d\d:\d\d ", line)] == []
    lines = [*(line[9:] for line in lines[:-3]), *lines[-3:]]
    assert re.fullmatch(
        r"relay run: PLAN.md on main, model claude-opus-5-5, sandbox \S+, costs at most \$N \(run XXXXXXXX\); .*",
        lines[0],
    )
    for line in (
        "rehearsed: a script plays the model",
        "plan: 0 of 2 phases done, 0 of 2 boxes ticked",
        "phase 1 session 1 — Hello (session XXXXXXXX)",
        "model: I write it.\\u202e",
        "tick 1.1",
        "claimed 1.1 Say hello — hello.txt",
        "commit XXXXXXXX done — relay: phase 1 — Hello (items 1.1)",
        "plan: 1 of 2 phases done, 1 of 2 boxes ticked",
    ):
        assert line in lines, "\n".join(lines)
    assert lines[-2:] == ["done: phase 1 is done (spent $N)", "next: relay run"]
    check_events(relay("run", "--json", env=endpoint))
    assert git("log", "--format=%s").splitlines()[:2] == ["relay: phase 2 — World", "relay: phase 1 — Hello"]
    check_finished_status(relay, planned)


def check_events(ran):
    assert (ran.code, ran.err) == (0, "")
    events = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.out.isascii()
    assert (events[0]["event"], events[0]["rehearsed"]) == ("RunStarted", True)
    assert [event["event"] for event in events].count("Committed") == 1
    assert (events[-1]["event"], events[-1]["reason"]) == ("RunEnded", "2 of 2 phases")


def check_finished_status(relay, planned):
    ran = relay("status")
    assert (ran.code, ran.err) == (0, "")
    lines = mask(ran.out).splitlines()
    assert lines[:5] == [
        "PLAN.md on main: 2 of 2 phases done, 2 of 2 boxes ticked",
        "",
        f"  [x] {'1  Hello':<56}  1/1  $N  XXXXXXXX",
        f"  [x] {'2  World':<56}  1/1  $N  XXXXXXXX",
        "",
    ]
    assert lines[-1] == "next   nothing is left"
    body = json.loads(relay("status", "--json").out)
    assert body["done"] is True
    assert [len(phase["commits"]) for phase in body["phases"]] == [1, 1]
    assert body["spent"]["usd"] == pytest.approx(sum(phase["spent"]["usd"] for phase in body["phases"]))
    assert body["next"]["phase"] is None
    shutil.rmtree(planned / ".relay")
    assert relay("status").out == ran.out


NEW_PLAN = """\
# Farewell

## Phase 1 — Bye
Verify: `grep -q bye bye.txt`
- [ ] Say bye — bye.txt

## Phase 2 — Again
Verify: `grep -q again again.txt`
- [ ] Say it again — again.txt
"""

PLANNER = """\
model: claude-opus-5-5
sessions:
  - turns:
      - tools:
          - {name: submit_plan, input: {markdown: %s}}
"""


def test_a_plan_is_written_and_shown_and_nothing_committed(relay, project, git):
    """The plan's text and its sizes follow the log; the file is there and HEAD is where it was."""
    head = git("rev-parse", "HEAD")
    with serving(PLANNER % json.dumps(NEW_PLAN)) as (_, env):
        ran = relay("plan", "say goodbye", env=env)
        assert (ran.code, ran.err) == (0, "")
        assert NEW_PLAN in ran.out
        assert "next: relay run\n" in ran.out
        assert ran.out.splitlines()[-1] == "PLAN.md is valid: 2 phases, 2 items"
        assert (project / "PLAN.md").read_text() == NEW_PLAN
        assert git("rev-parse", "HEAD") == head
        ran = relay("plan", "something else", env=env)
        assert (ran.code, "--force" in ran.err) == (1, True)


def test_the_difference_of_a_revised_plan_is_shown(relay, planned):
    now = TWO_PHASES.replace("Say world — world.txt", "Say world loudly — world.txt")
    with serving(PLANNER % json.dumps(now)) as (_, given):
        ran = relay("plan", "--revise", "louder", "-e", env={**given, "EDITOR": "sed -i s/loudly/LOUDLY/"})
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert {"-- [ ] Say world — world.txt", "+- [ ] Say world LOUDLY — world.txt"} <= set(lines)
    assert "# Greetings" not in lines
    assert "LOUDLY" in (planned / "PLAN.md").read_text()


@pytest.mark.usefixtures("planned")
def test_without_a_key_nothing_starts(relay, git):
    """A clear error, exit 1, and not a byte changed."""
    before = git("for-each-ref"), git("status", "--porcelain", "--ignored")
    ran = relay("run")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "Error: no API key: neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set\n"
        "Hint: export ANTHROPIC_API_KEY=…; to see relay work without one, run `relay demo`\n"
    )
    assert (git("for-each-ref"), git("status", "--porcelain", "--ignored")) == before


@pytest.mark.usefixtures("planned")
def test_a_bad_value_says_what_is_allowed(relay):
    """A variable of a script that was not set asks neither for the next phase nor for all of them."""
    for typed, words in {
        "run --reset-at most": "--reset-at: reset_at: found 'most'; allowed: 45%, 80k",
        "run --phase=": "--phase: found ''; allowed: next, all",
        "run --sandbox on": "'on' is not one of 'auto', 'container', 'off'",
        "run --runner magic": "--runner: runner: found 'magic'; allowed: api",
        "plan x --split 1": "choose one: relay plan",
        "plan --split 1 --force": "--force is for a new plan only",
    }.items():
        ran = relay(*typed.split())
        assert (ran.code, words in ran.err) == (2, True), ran


def test_a_dry_run_says_what_would_be_done_and_does_nothing(relay, planned, git):
    before = git("for-each-ref"), sorted(planned.iterdir())
    ran = relay("run", "--dry-run", env={"RELAY_VERIFY": "test -e .", "ANTHROPIC_API_KEY": "k"})
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-5:] == [
        "phase  1  Hello",
        "gate   test -e .; grep -q hello hello.txt",
        "runner api",
        "model  claude-opus-5-5, hands over at min(45%,100k)",
        "dry run: relay sent nothing and changed nothing",
    ]
    assert (git("for-each-ref"), sorted(planned.iterdir())) == before


@pytest.mark.usefixtures("planned")
def test_a_phase_that_cannot_be_run_is_refused_without_a_key(relay):
    """A dry run and a run choose in the same way, and neither needs a key to say no."""
    missing, waits = "there is no phase '7' in the plan\nHint: phases: 1, 2", "phase 2 comes after 1, which is not done"
    for words, said in (("7", missing), ("7 --dry-run", missing), ("2 --dry-run", f"{waits}\nHint: relay run")):
        ran = relay("run", "--phase", *words.split())
        assert (ran.code, ran.out, ran.err) == (1, "", f"Error: {said}\n")


def test_what_is_done_is_said_without_a_key(relay, planned, git):
    """Nothing is left: no key, no session, exit 0; an edit that nobody has committed is not taken for done."""
    text = TWO_PHASES.replace("[ ]", "[x]", 1)
    (planned / "PLAN.md").write_text(text)
    git("commit", "-qam", "by hand")
    ran = relay("run", "--phase", "1")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "done: the phase was done already (spent $0.00)\nnext: relay run\n"
    (planned / "PLAN.md").write_text(text.replace("[ ]", "[x]"))
    assert relay("run").err.startswith("Error: no API key")
    git("commit", "-qam", "by hand")
    ran = relay("run")
    assert (ran.code, ran.out, ran.err) == (0, "done: 2 of 2 phases (spent $0.00)\n", "")
    assert "next   nothing is left" in relay("run", "--dry-run").out
    event = json.loads(relay("run", "--json").out)
    assert (event["event"], event["exit_code"]) == ("RunEnded", 0)
    assert git("for-each-ref", "refs/relay") == ""


def test_status_outside_a_repository_and_without_a_plan(relay, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    ran = relay("status", cwd=empty)
    assert ran.code == 1
    assert ran.err.endswith("is not inside a git repository\nHint: git init\n")
    ran = relay("status")
    assert ran.code == 1
    assert ran.err.startswith("Error: PLAN.md: there is no such plan\nHint: `relay plan")


def test_a_plan_that_is_gone_comes_back_from_its_commit(relay, planned, git):
    """The hint is no command that would write, and pay for, another one."""
    Path(planned, "PLAN.md").unlink()
    for words in ("status", "check", "run"):
        assert "Hint: the last commit has it: git restore PLAN.md\n" in relay(words).err
    git("rm", "-q", "PLAN.md")
    for message in ("tidy", "x"):
        git("commit", "-q", "--allow-empty", "-m", message)
    git(*relay("status").err.partition("took it out: git ")[2].split())
    assert Path(planned, "PLAN.md").exists()


def test_status_while_a_run_is_at_work(relay, planned, environ):
    """The lock's holder is named; nothing is guessed about the resume point."""
    from relay.git.notes import lock_worktree
    from relay.git.repository import open_repo
    from relay.store.attempts import AttemptStart, open_attempt

    repo = open_repo(planned, environ)
    open_attempt(repo, AttemptStart(session_id="abcd1234", phase_id="1", plan_path="PLAN.md"))
    ran = relay("status", "--why")
    assert ran.out.splitlines()[-2].startswith("found  ")
    assert "phase 1" in ran.out.splitlines()[-1]
    with lock_worktree(repo):
        ran = relay("status", "--why")
        assert ran.code == 0
        assert ran.out.splitlines()[-1].startswith("now    another relay is at work here: process ")
        assert json.loads(relay("status", "--json").out)["next"] is None


def test_status_on_another_branch_than_the_run_s_names_that(relay, planned, environ, git):
    """The user may switch while it works: the page is about his branch, which has nothing of it."""
    from relay.git.notes import lock_worktree
    from relay.git.repository import open_repo
    from relay.store.worktree_notes import LastRun, save_last_run

    repo = open_repo(planned, environ)
    save_last_run(repo, LastRun(began=1.0, command="run", plan_path="PLAN.md", branch="main"))
    assert "beside" not in relay("status").out
    git("switch", "-q", "-c", "other")
    where = " on main, where its commits are: git switch main"
    assert f"beside the last run was{where}" in relay("status").out.splitlines()
    with lock_worktree(repo):
        assert f"beside a run is at work{where}" in relay("status").out.splitlines()
    git("branch", "-q", "-D", "main")
    assert "beside" not in relay("status").out


UNKNOWN = {"model": "claude-opus-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "nobody knows me"}]}


def test_a_served_script_prints_two_lines_to_export_and_serves(tmp_path, project, environ, doctor):
    """A doctor that follows the two lines finds the rehearsed model; Ctrl-C ends the server, with its report.

    Also as a shell's background job, which is begun with Ctrl-C ignored.
    """
    script = tmp_path / "script.yaml"
    script.write_text("sessions: []")
    running = subprocess.Popen(
        ["env", "--ignore-signal=INT", sys.executable, "-P", "-m", "relay", "demo", "--serve", str(script)],
        cwd=project,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    lines = [running.stdout.readline().strip() for _ in range(2)]
    assert re.fullmatch(r"export ANTHROPIC_BASE_URL=http://127\.0\.0\.1:\d+", lines[0])
    assert lines[1] == "export ANTHROPIC_API_KEY=rehearsal"
    exported = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    ran = doctor("--json", env={**exported, "NO_PROXY": "*"})
    body = json.loads(ran.out)
    model = next(finding for finding in body["findings"] if finding["name"] == "model")
    assert model["state"] == "ok"
    assert model["words"].endswith("; rehearsed: a script plays the model")
    asked = Request(f"{exported['ANTHROPIC_BASE_URL']}/v1/messages", json.dumps(UNKNOWN).encode(), {"x-api-key": "k"})
    with pytest.raises(HTTPError):
        urlopen(asked)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, "\nError: " in err) == (1, True), err
    assert ("no real model answers" in err, "Traceback" in err) == (True, False)
    assert re.search(r"\d+ requests? came", err)


def test_doctor_starts_each_tool_server_once(relay, environ):
    fake = Path(__file__).parents[1] / "tools/fake_server.py"
    own = Path(environ["HOME"], ".config/relay/config.toml")
    own.parent.mkdir(parents=True)
    own.write_text(
        f'[mcp_servers.good]\ncommand = ["{sys.executable}", "-c", {json.dumps(fake.read_text())}, "good"]\n'
        f'[mcp_servers.bad]\ncommand = ["{sys.executable}", "-c", "raise SystemExit(\'Error: no database\')"]\n'
    )
    said = relay("doctor").out
    assert re.search(r"^ok +servers +good adds 1 tool, \d+ tokens on every request$", said, re.MULTILINE)
    assert re.search(r"^warning +servers +bad: its program has ended: Error: no database$", said, re.MULTILINE)


def test_doctor_puts_what_is_missing_first_then_what_is_doubtful_then_what_is_there(relay, doctor, project):
    """Its last line sums up; a sandbox that holds takes a line, and settings are shown where they are asked for."""
    (project / "AGENTS.md").write_text("Be brief.\n" * 5_000)
    ran = relay("doctor", env={"RELAY_PATHS": '{"write": ["/no/such"]}'})
    *findings, empty, verdict, following = (line for line in ran.out.splitlines() if not line.startswith(" "))
    marks = [line.split()[0] for line in findings]
    assert marks == sorted(marks, key=["PROBLEM", "warning", "-", "ok"].index)
    assert {"PROBLEM", "warning", "ok"} <= set(marks)
    assert (empty, verdict) == ("", "relay run cannot work here yet: key")
    assert following.startswith("next: export ANTHROPIC_API_KEY=…")
    assert not re.search(r"^ +(refused|allowed): ", ran.out, re.MULTILINE)
    assert any(re.match(r"ok +git +\d", line) for line in findings)
    assert re.search(r"^ {21}AGENTS.md is cut to 32,768 of 50,000 bytes", ran.out, re.MULTILINE), "its details"
    assert json.loads(doctor("--json").out)["findings"][0]["state"] == "missing"

    *_, last, empty, verdict, _ = doctor("--settings").out.splitlines()
    assert last.split() == ["rules_fallback_names", "CLAUDE.md,", "GEMINI.md", "(default)"]
    assert verdict == "relay run cannot work here yet: key"


def test_doctor_never_shows_the_key(doctor):
    """Neither the key nor its length appears; an unreachable endpoint is a finding, not a crash."""
    env = {"ANTHROPIC_API_KEY": "sk-ant-verysecretkey", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "NO_PROXY": "*"}
    for args in ((), ("--json",)):
        ran = doctor(*args, env=env)
        assert ran.code == 1
        assert "verysecret" not in ran.out + ran.err
        assert "cannot be reached" in ran.out


@pytest.mark.nightly
@pytest.mark.parametrize("on", ["models", "messages"])
def test_a_key_that_the_endpoint_says_back_is_shown_nowhere(relay, doctor, planned, on):
    """Not by a run, a planner, the doctor or in JSON, and not kept in what they leave in git."""
    key = "gw-4f1c2a9be07d55"
    fault = {"kind": "status", "status": 401, "message": f"no such key: {key}", "times": "always"}
    turn = {"text": "no", **({"fault": fault} if on == "messages" else {})}
    script = {
        "models_fault": fault if on == "models" else [],
        "sessions": [{"repeat": True, "turns": [turn]}],
    }
    with serving(json.dumps(script), key=key) as (_, env):
        commands = [("run",), ("run", "--json"), ("plan", "--force", "x")]
        said = [relay(*words, env=env) for words in commands] + [doctor(*words, env=env) for words in ((), ("--json",))]

    assert [ran.code for ran in said[:3]] == [1, 1, 1]
    assert all("no such key: [redacted]" in ran.out + ran.err for ran in said[:3])
    assert not [ran for ran in said if key in ran.out + ran.err]
    kept = subprocess.run(["git", "log", "--all", "-p"], cwd=planned, capture_output=True, text=True, check=True)
    assert key not in kept.stdout


@pytest.mark.nightly
def test_a_locale_that_is_not_utf8_is_no_obstacle(planned, environ, endpoint, git):
    """Subjects, commands and file names reach git as UTF-8, and the screen as what it can show."""
    plain = {**environ, **endpoint, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    (planned / "PLAN.md").write_text(TWO_PHASES.replace("Greetings", "Grüße — an alle"))
    (planned / "größe.txt").write_text("mine\n")
    command = [sys.executable, "-P", "-m", "relay", "run", "--phase", "next"]
    done = subprocess.run(command, cwd=planned, env=plain, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"phase 1 session 1 \\u2014 Hello" in done.stdout
    assert "relay: phase 1 — Hello" in git("log", "--format=%s%n%gs", "-g", "main")


def test_doctor_ends_with_the_command_to_type_next(doctor, project):
    open_plan = "# P\n\n## Phase 1\nVerify: `test -e a`\n- [ ] Do it — a\n"
    with serving("sessions: []") as (_, env):
        for plan, following in (
            ("", "relay plan 'what you want'"),
            ("# P\n", "relay check"),
            (open_plan, "relay run"),
            (open_plan.replace("[ ]", "[x]"), "relay plan 'what you want'"),
        ):
            if plan:
                (project / "PLAN.md").write_text(plan)
            *_, verdict, last = doctor(env=env).out.splitlines()
            assert (verdict, last) == ("relay run can work here", f"next: {following}")
