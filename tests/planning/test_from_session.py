"""`relay plan --from-session`: another agent's session becomes a plan, and nothing else is changed."""

import json
import os
import time

import click
import pytest

from relay.base.errors import ConfigError, ExitCode, RelayError
from relay.cli.plan import choose_session, make_task
from relay.git.repository import open_repo
from relay.insight.transcripts.library import get_transcript, name_project
from relay.ledger.model import parse_ledger
from relay.run.planning.marathon import find_states
from relay.run.planning.planner import PlanTask, make_command
from relay.session.events import Noticed
from relay.setup.place import get_place
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.terminal import answer_at_terminal
from tests.transcripts.samples import TOKEN, place_sample

DONE = "# Keys\n\nA key store.\n\n## Done before this plan\n\n- put, in keys.py\n\n## Phase 1 — Expiry\n"
PLAN = f"{DONE}Verify: `python3 test_keys.py`\n- [ ] get with an age — keys.py, test_keys.py\n"


def play(*calls):
    """Return a planner's script that makes these calls, one after the other."""
    turns = [{"tools": [{"name": name, "input": given}]} for name, given in calls]
    return json.dumps({"sessions": [{"turns": [*turns, {"text": "I stop here."}]}]})


def record(*turns, **more):
    return "record", {"claim": "the store is JSON", "because": "two services read it", "turns": [*turns], **more}


@pytest.fixture
def work(stage):
    """A repository in which the agent has committed one file and left another."""
    stage.write("keys.py", "import json\n\n\ndef put():\n    pass\n")
    stage.commit("keys: put")
    stage.write("test_keys.py", "from keys import get\n")
    return stage


def test_the_rest_of_a_session_becomes_a_plan(work, tmp_path):
    """The planner sees the digest as data, without the secret; its plan, its claims and the costs are written."""
    before = {path: work.git("hash-object", path) for path in ("keys.py", "test_keys.py")}
    script = play(
        record("99"),
        record("seven"),
        record("7", "12", sources=["keys.py:4"]),
        record("7", "12", sources=["keys.py:4"]),
        record("12", kind="constraint"),
        record("12", kind="whim"),
        ("submit_plan", {"markdown": PLAN.replace("[ ]", "[x]")}),
        ("submit_plan", {"markdown": PLAN}),
    )
    task = PlanTask(force=True, session=get_transcript(place_sample(tmp_path, "claude"), ""), feature="no new files")

    ended = work.plan(script, task)

    assert ended.exit_code == ExitCode.DONE, ended
    bodies = [request.body for request in work.server.requests if request.path == "/v1/messages"]
    first = json.dumps(bodies[0]["messages"][0]["content"], ensure_ascii=False)
    assert TOKEN not in json.dumps(bodies)
    for words in ("The user adds: no new files", "[redacted] later, not now", "keys.py [8]: committed", "- test_keys.py [9]: new, not committed"):  # fmt: skip  # noqa: E501
        assert words in first
    opened = first.index("<session-") + 1
    mark = first[opened : opened + len("session-") + 12]
    assert first.count(mark) == 2
    assert first.index(f"</{mark}>") > first.index("Removed by compactions")
    told = [
        block["content"] if isinstance(block["content"], str) else block["content"][0]["text"]
        for message in bodies[-1]["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]
    assert [text[:16] for text in told[:6]] == [
        "turns: the numbe", "turns: the numbe", "Recorded as c" + told[2][13:16], "Already recorded",
        "Recorded as c" + told[4][13:16], 'record: "kind" m',
    ]  # fmt: skip
    assert "is ticked; only relay ticks" in told[6]
    assert (work.root / "PLAN.md").read_text() == PLAN
    claims = list(parse_ledger((work.root / "PLAN.ledger.yaml").read_text()).claims.values())
    assert [(str(claim.kind), [str(source) for source in claim.sources]) for claim in claims] == [
        ("decision", ["keys.py:4"]),
        ("constraint", []),
    ]
    assert claims[0].because.startswith("two services read it (turns 7, 12, 2026-11-29T")
    assert "of Claude Code 2.1" in claims[0].because
    assert {path: work.git("hash-object", path) for path in before} == before
    assert work.git("status", "--porcelain").split() == ["M", "PLAN.md", "??", "PLAN.ledger.yaml", "??", "test_keys.py"]
    notices = [one.text for one in work.events if isinstance(one, Noticed)]
    (cost,) = (text for text in notices if "so far" in text)
    assert "has cost $0.2" in cost
    assert any("was written a moment ago: stop that agent" in text for text in notices)
    assert "as a relay" in cost
    assert any(text.endswith("a run sees none of them: test_keys.py") for text in notices)


def test_where_a_changed_file_stands_in_git(stage):
    for path in ("kept", "changed", "gone"):
        stage.write(f"src/{path}", path)
    stage.write(".gitignore", "ignored\n")
    stage.commit("files")
    stage.write("src/changed", "now")
    (stage.root / "src/gone").unlink()
    for path in ("src/new", "src/ignored"):
        stage.write(path, "x")
    rows = {
        "kept": "committed", "changed": "changed, not committed", "gone": "deleted, not committed",
        "new": "new, not committed", "ignored": "ignored by git", "never": "not there", "../src/kept": "committed",
        str(stage.root / "src/kept"): "committed", "../../x": "outside of this repository",
        "/etc/passwd": "outside of this repository", "a\0b": "outside of this repository",
        "a\nb": "outside of this repository", "x" * 5_000: "not there",
    }  # fmt: skip
    repo = open_repo(stage.root)
    found = find_states(repo, str(stage.root / "src"), rows)
    assert {path: words for path, words in found.items() if words != rows[path]} == {}
    assert find_states(repo, "/home/me/keys", ["src/kept"]) == {"src/kept": "committed"}  # from another machine
    assert find_states(repo, "", ["src/kept"]) == {"src/kept": "committed"}


def make_folder(work, tmp_path):
    """Make Claude Code's folder for the repository, in a home below `tmp_path`."""
    folder = tmp_path / "home/.claude/projects" / name_project(work.root)
    folder.mkdir(parents=True)
    return folder


def write_two(work, tmp_path, at):
    """Write two sessions about the repository, the second a second newer."""
    folder = tmp_path / "home/.claude/projects" / name_project(work.root)
    text = place_sample(tmp_path, "claude").read_text().replace("/home/me/keys", str(work.root))
    for after, name in enumerate(("old-one", "new-one")):
        (folder / f"{name}.jsonl").write_text(text)
        os.utime(folder / f"{name}.jsonl", (at + after, at + after))


def test_a_person_at_a_terminal_picks_one(work, tmp_path):
    """The older one; its plan is written and shown, with what it has cost and what has to be committed."""
    make_folder(work, tmp_path)
    write_two(work, tmp_path, time.time() - 5)
    with serve(parse_script(play(("submit_plan", {"markdown": PLAN})))) as server:
        environ = {"CLAUDE_CONFIG_DIR": str(tmp_path / "home/.claude"), "TERM": "dumb", "ANTHROPIC_API_KEY": "k"}
        environ["ANTHROPIC_BASE_URL"] = server.base_url
        argv = [*work.find_program(), "plan", "--force", "--from-session"]
        shown, code = answer_at_terminal(argv, ["2\n"], cwd=work.root, environ=environ, prompt="[1]: ")
    shown = " ".join(shown.split())
    assert (code, (work.root / "PLAN.md").read_text()) == (ExitCode.DONE, PLAN)
    for words in (
        "Build a small key store",
        "old-one.jsonl was written a moment ago",
        "so far; the rest, by estimate",
    ):
        assert words in shown


def test_a_session_is_found_by_directory_and_nobody_guesses(work, tmp_path, monkeypatch, capsys):
    """One file, an id, the newest with --yes; without a person the sessions are listed, and none is taken."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    folder = make_folder(work, tmp_path)
    place = get_place(plan=None, environ={}, cwd=work.root)
    with pytest.raises(RelayError, match="no session of Claude Code, Codex or OpenCode is about"):
        choose_session(place, "", yes=True, as_json=False)
    write_two(work, tmp_path, 1e9)
    file = folder / "old-one.jsonl"
    found = {
        name: choose_session(place, typed, yes=yes, as_json=False).path.stem
        for name, typed, yes in (("newest", "", True), ("file", str(file), False), ("id", "old", False))
    }
    assert found == {"newest": "new-one", "file": "old-one", "id": "old-one"}
    assert capsys.readouterr().out == ""
    for typed, words in (("", "nobody is here"), ("one", "no id of one session"), ("/etc/nothing", "no transcript")):
        with pytest.raises(RelayError, match=words):
            choose_session(place, typed, yes=False, as_json=False)
    listed = capsys.readouterr().out.splitlines()
    assert [line[0] for line in listed] == ["1", "2"]
    assert all("Claude Code  Build a small key store" in line for line in listed)
    with pytest.raises(RelayError, match="nobody is here"):
        choose_session(place, "", yes=False, as_json=True)
    assert capsys.readouterr().out == ""
    (folder / "empty.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match="no format that relay knows"):
        choose_session(place, str(folder / "empty.jsonl"), yes=True, as_json=True)


def test_a_session_stands_alone_or_with_what_the_user_adds(tmp_path):
    task = make_task(None, revise=None, split=None, force=True, needs=False)
    assert (task.feature, task.force) == ("", True)
    assert make_task("only the API", revise=None, split=None, force=False, needs=False).feature == "only the API"
    for revise, split in (("x", None), (None, "1")):
        with pytest.raises(click.UsageError, match="--from-session"):
            make_task(None, revise=revise, split=split, force=False, needs=False)
    session = get_transcript(place_sample(tmp_path, "codex"), "")
    words = make_command(PlanTask(session=session, force=True, feature="only\nit")).words
    assert words == ("plan", "--force", "--from-session", str(session.path), "only it")
