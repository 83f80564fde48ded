"""What is wrong with a file reads the same wherever it is met: the same words, path and line, the same hint."""

import json

import pytest

from tests.effort import NIGHTLY, take_each, take_turns

PLAN = "# P\n\n## Phase 1 — One\nVerify: `make`\n- [ ] a — a.py\n"
BROKEN = {
    "no phase": ("PLAN.md", b"just words\n", 1),
    "an item above any heading": ("PLAN.md", b"text\n\n- [ ] a\n", 3),
    "front matter that is not closed": ("PLAN.md", f"---\nrelay: {{}}\n{PLAN}".encode(), 1),
    "front matter that is no YAML": ("PLAN.md", f"---\nrelay:\n  x: [\n---\n{PLAN}".encode(), 4),
    "front matter whose mapping is not closed": ("PLAN.md", f"---\nrelay: {{verify: 3\n---\n{PLAN}".encode(), 3),
    "an alias in front matter": ("PLAN.md", f"---\nx: 1\nrelay: {{verify: *a}}\n---\n{PLAN}".encode(), 3),
    "a character that YAML forbids": ("PLAN.md", f"---\nrelay: {{verify: \x01}}\n---\n{PLAN}".encode(), 2),
    "a date without such a day": ("PLAN.md", f"---\nrelay: {{verify: 2026-13-77}}\n---\n{PLAN}".encode(), 2),
    "front matter that is no mapping": ("PLAN.md", f"---\nrelay: 3\n---\n{PLAN}".encode(), 2),
    "UTF-16": ("PLAN.md", PLAN.encode("utf-16"), 1),
    "a key twice": ("PLAN.md", f"---\nrelay: {{}}\na: 1\na: 2\n---\n{PLAN}".encode(), 4),
    "lists nested too deeply": ("PLAN.md", f"{PLAN}\n{'- ' * 200}x\n".encode(), 7),
    "a byte that is not UTF-8": ("PLAN.md", f"{PLAN}\nbad ".encode() + b"\xff", 7),
    "a folder": ("PLAN.md", None, 0),
    "too many bytes": ("PLAN.md", b"x" * (8 * 1024 * 1024 + 1), 0),
    "an unknown setting": ("relay.toml", b"\nmodle = 'm'\n", 2),
    "a value that is not allowed": ("relay.toml", b"max_sessions = 3\nreset_at = 'often'\n", 2),
    "what a repository may not say": ("relay.toml", b"sandbox = 'off'\n", 1),
    "no TOML": ("relay.toml", b"model = 'm'\nmax_sessions =\n", 2),
    "a table of relay's name": ("relay.toml", b"\n[relay]\nmodel = 'm'\n", 2),
    "an unknown setting of the plan": ("PLAN.md", f"---\nrelay:\n  modle: m\n---\n{PLAN}".encode(), 3),
    "a value of the plan": ("PLAN.md", f"---\nx: 1\nrelay: {{model: m, reset_at: often}}\n---\n{PLAN}".encode(), 3),
}


TURNS = {
    "it comes after no phase": ("After: 9\n", 3, "phase 1 comes after 9, which is no phase; there are 1"),
    "it comes after itself": ("After: 1\n", 3, "phases wait for each other: 1 → 1; change an `After:` line"),
}


def say(found):
    """Write what `check` found as an error is written."""
    hint = f"Hint: {found['hint']}\n" if found["hint"] else ""
    return f"Error: {found['path']}:{found['line']}: ".replace(":0:", ":") + f"{found['message']}\n{hint}"


def write(project, name, content):
    (project / "PLAN.md").write_text(PLAN)
    if content is None:
        (project / name).unlink()
        (project / name).mkdir()
    else:
        (project / name).write_bytes(content)


@pytest.mark.parametrize("what", take_each(6, BROKEN))
def test_a_file_that_cannot_be_used_is_told_in_the_same_words_by_every_command(relay, doctor, project, what):
    """`check` and its JSON, `run`, `status`, `plan` and the others: the file, the line and the hint, and no more.

    A sixth of them is asked about each file, in turn.
    """
    name, content, line = BROKEN[what]
    write(project, name, content)
    [found] = json.loads(relay("check", "--json").out)["violations"]
    assert (found["path"], found["line"]) == (name, line)
    told, hint = say(found), found["hint"]
    first = told.splitlines()[0]
    is_of_settings = name != "PLAN.md" or "of the plan" in what
    commands = ["check", "run", "doctor", "plan --revise x", "run --dry-run", "plan x", "gate", "plan --split 1"]
    commands += [] if is_of_settings else ["status", "review", "review --whole-plan"]  # those need none of its settings
    turn = list(BROKEN).index(what)
    for command in (one for at, one in enumerate(commands) if NIGHTLY or (at + turn) % 6 == 0):
        if command == "doctor":
            assert first.removeprefix("Error: ") in doctor().out
            continue
        ran = relay(*command.split())
        if command == "check":
            assert ran.out.startswith("\n  ".join([first.removeprefix("Error: "), *([hint] if hint else [])]) + "\n")
        elif command == "plan x" and not is_of_settings and content is not None:  # it could replace the plan
            ways = f"{hint}; --force" if hint else "--force"
            assert (ran.code, ran.out, ran.err) == (1, "", f"{first}\nHint: {ways} replaces the plan\n")
        else:
            assert (ran.code, ran.out, ran.err) == (1, "", told), command


@pytest.mark.parametrize(("what", "is_committed"), take_turns(TURNS, (True, False)))
def test_a_phase_that_never_has_its_turn_is_told_in_the_words_of_check(relay, project, commit, git, what, is_committed):
    """`run`, for its phase too, and `status`: with the line, before a key is asked for or the plan is committed."""
    after, line, words = TURNS[what]
    write(project, "PLAN.md", PLAN.replace("Verify:", f"{after}Verify:").encode())
    commit() if is_committed else None
    head = git("rev-parse", "HEAD")
    [found] = json.loads(relay("check", "--json").out)["violations"]
    assert (found["path"], found["line"]) == ("PLAN.md", line)
    assert found["message"].startswith(words)
    for flags in (("--dry-run",), ("--phase", "1"), ("--jobs", "2")):
        ran = relay("run", *flags)
        assert (ran.code, ran.out, ran.err) == (1, "", say(found)), flags
    said = say(found).strip().removeprefix("Error: ")
    assert relay("status").out.splitlines()[-2:] == [f"now    {said}", "next   relay run, after that"]
    assert json.loads(relay("status", "--json").out)["obstacle"] == said
    assert git("rev-parse", "HEAD") == head


def test_a_command_that_a_screen_hides_is_told_with_its_line(relay, project):
    """`check`, `run` and `gate`; nobody has to ask another command for the line."""
    write(project, "PLAN.md", PLAN.replace("`make`", "`ma\u202eke`").encode())
    [found] = json.loads(relay("check", "--json").out)["violations"]
    for command in (("run",), ("run", "--dry-run"), ("gate",)):
        ran = relay(*command)
        assert (ran.code, ran.out, ran.err) == (1, "", say(found)), command
