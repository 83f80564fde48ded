"""`relay lab inspect`: a transcript's figures on the screen, as JSON, and which transcripts there are."""

import json
import os

import pytest

from relay.base.errors import ExitCode
from relay.insight.transcripts.library import name_project
from tests.lab.samples import (
    CWD,
    Base,
    answer,
    ask,
    boundary,
    call,
    counts,
    file_edit,
    file_read,
    finish,
    line,
    meta,
    say,
    write_lines,
)


def see(number, prompt, path, read, lines=4):
    """Make a turn that shows a file, the same each time."""
    shown = file_read(f"{CWD}/{path}", 1, lines)
    return (
        say(number, f"m{number}", prompt, call(f"c{number}", "Read", file_path=f"{CWD}/{path}"), read=read),
        answer(number + 0.5, f"c{number}", f"{path}\n" * 8_000, shown),
    )


@pytest.fixture
def marathon(tmp_path):
    """A session that reads a file twice, is compacted, and then edits a file that it no longer sees."""
    return write_lines(
        tmp_path / "marathon.jsonl",
        ask(0),
        *see(1, 20_000, "a.py", 0),
        *see(2, 40_000, "b.py", 20_000),
        *see(3, 60_000, "a.py", 40_000),
        say(4, "m4", 92_000, call("c4", "Bash", command="echo \x1b[31mred"), read=60_000),
        answer(5, "c4", "x" * 60_000),
        say(6, "m6", 110_000, {"type": "text", "text": "far"}, read=92_000),
        boundary(7, 110_010, 6_000),
        ask(7.005, "a summary", isCompactSummary=True),
        say(8, "m8", 24_000, call("c8", "Edit", file_path=f"{CWD}/b.py")),
        answer(9, "c8", "fine", file_edit(f"{CWD}/b.py")),
        *see(10, 25_000, "a.py", 24_000),
        say(11, "m11", 40_000, read=25_000),
        {"type": "brand-\x1b[31mnew", "sessionId": "x"},
        {"type": "cost-state", "totalCostUSD": 9.5},
        "{torn",
    )


def test_the_decay_of_a_session_on_the_screen(relay, marathon):
    shown = relay("lab", "inspect", str(marathon))
    assert (shown.code, shown.err) == (ExitCode.DONE, "")
    assert "\x1b" not in shown.out
    for words in (
        "8 turns and 6 tool calls in 2 contexts\n",
        "1/0c0ffee     5    110k  unknown  tool Read 60k, history 32k, tool Bash 18k",
        "          24k   40k  $0.17      6%  compacted (auto) from 110,010 tokens to 6,000 tokens  ended",
        "1 time a session saw the same part of an unchanged file again: ",
        "1 file changed by a session that had not seen the file",
        "  as it was:                  $0.57, 411k tokens of prompts, at most 110k at a time",
        "  at list prices it was $0.",
        "  a relay, little read again: $0.64, 401k tokens of prompts, at most 92k at a time, 1 reset",
        "  its line is at 90k\n",
        "    re-read tax: superseded results, sent again",
        "skipped 1 unreadable line",
        "unknown and not counted: brand-new (1)",
        "the agent counted $9.50: ",
    ):
        assert words in shown.out, shown.out


def test_the_same_for_machines_and_as_a_page(relay, marathon, tmp_path):
    found = json.loads(relay("lab", "inspect", "--json", str(marathon)).out)
    assert found["transcript"]["format"] == "Claude Code"
    assert (found["figures"]["totals"]["turns"], found["relayed"]["least"]["resets"]) == (8, 1)
    assert (found["read"]["torn"], found["read"]["cwd"], "hear" in found["read"]) == (1, CWD, False)
    page = tmp_path / "page.html"
    made = relay("lab", "inspect", "--html", str(page), str(marathon))
    assert (made.code, made.out) == (ExitCode.DONE, f"{page}\n")
    html = page.read_text()
    assert (html[:15], "<script" in html) == ("<!doctype html>", False)
    for words in ("Claude Code 2.1.316", "a relay, little read again:", "Tokens by source"):
        assert words in html
    assert relay("lab", "inspect", "--html", str(page)).code == ExitCode.USAGE


def test_what_there_is_about_this_directory(relay, project, tmp_path):
    home, here = tmp_path / "home", str(project)
    assert relay("lab", "inspect").out == f"no transcript of Claude Code, Codex, OpenCode is about {here}\n"
    folder = home / ".claude/projects" / name_project(project)
    claude = write_lines(folder / "one.jsonl", {"type": "mode"}, ask(0, cwd=here))
    write_lines(folder / "elsewhere.jsonl", ask(0, cwd=f"{here}-not"))
    days = home / ".codex/sessions/2026/11/22"
    codex = write_lines(days / "rollout-1.jsonl", {**meta(), "payload": {"cwd": here}})
    base = Base(home / ".local/share/opencode/opencode.db")
    base.add_session("ses_1", second=3, cwd=here)
    for second, path in enumerate((claude, codex)):
        os.utime(path, (2e9 - second, 2e9 - second))

    lines = relay("lab", "inspect").out.splitlines()
    assert [text.split("  relay lab inspect ")[1] for text in lines] == [
        *map(str, (claude, codex)),
        f"{base.path} --session ses_1  # keys",
    ]
    listed = json.loads(relay("lab", "inspect", "--json").out)
    assert [one["format"] for one in listed["transcripts"]] == ["Claude Code", "Codex", "OpenCode"]
    moved = {"CLAUDE_CONFIG_DIR": "/none", "CODEX_HOME": "/none", "XDG_DATA_HOME": "/none"}
    assert relay("lab", "inspect", env=moved).out.startswith("no transcript")


def test_what_is_not_known_is_said(relay, tmp_path):
    """No price, no turn, another format."""
    spent = (line("turn_context", 0, model="gpt-5.5"), line("token_usage_record", 1, usage=counts(9_000, 0, 5)))
    shown = relay("lab", "inspect", str(write_lines(tmp_path / "r.jsonl", meta(), *spent))).out
    assert "9,000 tokens in, 0% of them from the cache, 5 out\n  cost unknown\n" in shown
    assert "it never reached the line at 90k: a relay changes nothing" in shown
    assert "the window of gpt-5.5 is unknown; a relay's line is that of 200,000 tokens" in shown
    empty = relay("lab", "inspect", str(write_lines(tmp_path / "e.jsonl", ask(0)))).out
    assert "it holds no answer of a model" in empty
    base = Base(tmp_path / "o.db")
    base.add_session("ses_1")
    base.add("ses_1", 0, {"role": "assistant", "modelID": "m"}, finish(0, 0, 0))
    unknown = relay("lab", "inspect", str(base.path)).out
    assert "the tokens of 1 turn are unknown; no figure includes them" in unknown
    assert "$0" not in unknown
    (tmp_path / "x.txt").write_text("hello\n")
    failed = relay("lab", "inspect", str(tmp_path / "x.txt"))
    assert failed.code == ExitCode.USER
    assert "x.txt is of no format that relay knows" in failed.err
    assert "known are Claude Code (~/.claude/projects/" in failed.err
    assert relay("lab", "inspect", "--html", "x", "--json", str(tmp_path / "x.txt")).code == ExitCode.USAGE
