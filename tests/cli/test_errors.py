"""What is wrong with a file reads the same wherever it is met: the same words, the same path and line."""

import json

import pytest

from tests.effort import THOROUGH

PLAN = "# P\n\n## Phase 1 — One\nVerify: `make`\n- [ ] a — a.py\n"
BROKEN = {
    "no phase": ("PLAN.md", b"just words\n", 1),
    "an item above any heading": ("PLAN.md", b"text\n\n- [ ] a\n", 3),
    "front matter that is not closed": ("PLAN.md", f"---\nrelay: {{}}\n{PLAN}".encode(), 1),
    "front matter that is no YAML": ("PLAN.md", f"---\nrelay:\n  x: [\n---\n{PLAN}".encode(), 4),
    "a key twice": ("PLAN.md", f"---\nrelay: {{}}\na: 1\na: 2\n---\n{PLAN}".encode(), 4),
    "lists nested too deeply": ("PLAN.md", f"{PLAN}\n{'- ' * 200}x\n".encode(), 7),
    "a byte that is not UTF-8": ("PLAN.md", f"{PLAN}\nbad ".encode() + b"\xff", 7),
    "too many bytes": ("PLAN.md", b"x" * (8 * 1024 * 1024 + 1), 0),
    "an unknown setting": ("relay.toml", b"\nmodle = 'm'\n", 2),
    "a value that is not allowed": ("relay.toml", b"max_legs = 3\nreset_at = 'often'\n", 2),
    "what a repository may not say": ("relay.toml", b"sandbox = 'off'\n", 1),
    "no TOML": ("relay.toml", b"model = 'm'\nmax_legs =\n", 2),
    "a table of relay's name": ("relay.toml", b"\n[relay]\nmodel = 'm'\n", 2),
    "an unknown setting of the plan": ("PLAN.md", f"---\nrelay:\n  modle: m\n---\n{PLAN}".encode(), 3),
    "a value of the plan": ("PLAN.md", f"---\nx: 1\nrelay: {{model: m, reset_at: often}}\n---\n{PLAN}".encode(), 3),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_cannot_be_used_is_told_in_the_same_words_by_every_command(relay, doctor, project, what):
    """`check`, its JSON, `run`, `status`, `plan` and `doctor` name the file and the line alike.

    Half of the last four are asked about each file, in turn.
    """
    name, content, line = BROKEN[what]
    (project / "PLAN.md").write_text(PLAN)
    (project / name).write_bytes(content)
    ran = relay("run")
    words = ran.err.splitlines()[0].removeprefix("Error: ")
    assert (ran.code, ran.out) == (1, "")
    assert words.startswith(f"{name}:{line}: " if line else f"{name}: ")
    [found] = json.loads(relay("check", "--json").out)["violations"]
    assert (found["path"], found["line"], words.endswith(f": {found['message']}")) == (name, line, True)
    turn = list(BROKEN).index(what) % 2
    if THOROUGH or turn == 0:
        assert relay("check").out.splitlines()[0] == words
        assert words in doctor().out
    if THOROUGH or turn == 1:
        assert words in relay("plan", "--revise", "x").err
        if name == "PLAN.md" and "of the plan" not in what:  # `status` needs none of its settings
            assert words in relay("status").err
