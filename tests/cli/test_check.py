"""`relay check` from outside."""

import json
import os
import re

from tests.cli.documents import read_document

PLAN = """\
# Add keys

## Phase 1 — Schema
Verify: `python -m unittest tests.test_schema`
- [x] Add `api_keys` table — db/schema.py
- [ ] Generate migration — db/migrations/

## Phase 2 — Endpoint
Verify: `python -m unittest`
- [ ] POST /keys — api/keys.py
"""


def write(project, text, name="PLAN.md"):
    data = text if isinstance(text, bytes) else text.encode()
    (project / name).write_bytes(data)


def test_a_good_plan_is_sized(relay, project):
    write(project, PLAN)
    ran = relay("check")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "phase         open  context, cost: rough"
    assert lines[1].startswith("1  Schema     1/2   about 5.4k, $0.0")
    assert lines[2].startswith("2  Endpoint   1/1   about 5.3k, $0.0")
    assert lines[-1] == "PLAN.md is valid: 2 phases, 3 items"


def test_errors_are_exit_1_and_warnings_are_not(relay, project):
    write(project, PLAN.replace("Verify: `python -m unittest`\n", ""))
    ran = relay("check")
    assert ran.code == 0
    assert "PLAN.md:8: warning: " in ran.out
    assert ran.out.splitlines()[-1].endswith(", 1 warning")
    write(project, PLAN + "After: 9\n\n- [ ] x — a.py\n")
    ran = relay("check")
    assert ran.code == 1
    assert "PLAN.md:" in ran.out
    assert ran.out.splitlines()[-1].startswith("PLAN.md: 1 error")
    write(project, "---\nrelay: {sandbox: 'off'}\n---\n" + PLAN)
    assert "may not be set by a repository" in relay("check").out


def test_a_file_without_phases_is_an_error_with_its_place(relay, project):
    write(project, "just words\n")
    ran = relay("check")
    assert ran.code == 1
    assert ran.out.startswith("PLAN.md")
    hint = "put `- [ ] …` below each heading of work, or have a session make a plan of this text: "
    hint += "relay plan --plan NEW.md - < FILE"
    assert f"\n  {hint}\n" in ran.out
    body = json.loads(relay("check", "--json").out)
    assert body["phases"] == []
    assert [found["hint"] for found in body["violations"]] == [hint]  # relay init would keep the file


def test_what_git_ignores_is_said_before_a_run_refuses_it(relay, project):
    """Unless an item of the phase may let it in; what an item only mentions may be there to be read."""
    phases = ("Bind it — out/a.c", "Let it in — .gitignore, out/b.c", "Read `out/c.c` — c.c")
    write(
        project, "# P\n" + "".join(f"\n## Phase {n}\nVerify: `make`\n- [ ] {item}\n" for n, item in enumerate(phases))
    )
    assert "git ignores" not in relay("check").out
    (project / ".gitignore").write_text("out/\n")
    ran = relay("check")
    assert [line for line in ran.out.splitlines() if "git ignores" in line] == [
        "PLAN.md:5: warning: out/a.c: git ignores this, so no commit would hold it, and a run refuses the phase"
    ]
    assert ran.code == 0


def test_a_plan_that_is_a_link_is_not_called_valid(relay, project):
    """`relay run` refuses it in the same words."""
    write(project, PLAN, "MINE.md")
    (project / "LINK.md").symlink_to("MINE.md")
    refused = relay("run", "--plan", "LINK.md", env={"ANTHROPIC_API_KEY": "k"})
    message, hint = (line.partition(": ")[2] for line in refused.err.splitlines()[:2])
    ran = relay("check", "LINK.md")
    assert (refused.code, ran.code) == (1, 1)
    assert "leads through a symbolic link to MINE.md" in message
    assert ran.out.startswith(f"LINK.md: {message}\n  {hint}\n"), (ran.out, refused.err)
    assert ran.out.splitlines()[-1] == "LINK.md: 1 error"


def test_a_name_that_is_nearly_that_of_a_file_names_it(relay, project):
    (project / "docs").mkdir()
    write(project, PLAN, "docs/BUILD.md")
    for command, typed in (
        ("check", "docs/BUILD.m"),
        ("status --plan", "docs/build.md"),
        ("run --plan", "docs/BIULD.md"),
    ):
        ran = relay(*command.split(), typed)
        assert (ran.code, ran.err) == (1, f"Error: {typed}: there is no such plan\nHint: did you mean docs/BUILD.md?\n")


def test_a_pipe_or_a_directory_as_plan_does_not_hang(relay, project):
    os.mkfifo(project / "fifo.md")
    (project / "dir.md").mkdir()
    for name in ("fifo.md", "dir.md"):
        ran = relay("check", name)
        assert ran.code == 1, name
        assert "is not a regular file" in ran.out + ran.err


def test_the_sizes_fit_the_terminal_and_a_phase_past_the_line_is_named_with_the_command_that_splits_it(relay, project):
    """With a long title and an agent."""
    items = "".join(f"- [ ] Do thing {n} — src/f{n}.py\n" for n in range(1, 100))
    head = f"\n## Phase 3 — {'Everything and ' * 9}\nVerify: `test -d .`\nRunner: opencode\nAfter: 1\n"
    write(project, PLAN + head + items)
    table = relay("check", env={"COLUMNS": "60"}).out.partition("phase  ")[2]
    assert [line for line in table.splitlines() if len(line) > 60] == []
    assert "/99  about " in table
    assert "  by opencode\n   too big for one session: relay plan --split 3 (into " in table


def test_outside_a_repository_a_plan_can_be_checked(relay, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    write(folder, PLAN)
    assert relay("check", cwd=folder).code == 0


GATED = """\
# P
Verify: `pytest -q tests/test_utils.py tests/test_new.py`

## Phase 1 — Shorten
- [ ] Add it to the utils — src/utils.py, tests/test_new.py

## Phase 2 — Lengthen
Verify: `pytest tests/test_long.py::test_one && cat out/report.txt`
Verify: `cd web && npm test src/one.test.ts`
Verify: `ruff check src/none.py > tests/log.txt`
- [ ] Add it — src/lengthen.py
"""


def test_a_test_file_that_is_not_there_and_that_no_item_makes_is_named(relay, project):
    """With its line and what may be meant: a gate of it runs nothing. Other operands may be made by a command."""
    (project / "tests/test_utils").mkdir(parents=True)
    write(project, GATED)
    found = json.loads(relay("check", "--json").out)["violations"]
    assert [(one["line"], one["message"].partition(",")[0]) for one in found if "not there" in one["message"]] == [
        (2, "tests/test_utils.py"),
        (8, "tests/test_long.py"),
        (9, "web/src/one.test.ts"),
    ]
    assert found[0]["message"].endswith("no item makes it (did you mean tests/test_utils?)")
    assert all(one["warning"] for one in found)
    assert [one["message"] for one in found if "runs" in one["message"]] == [
        "web, where a verify command runs, is no directory, and no item makes it"
    ]
    for name in ("tests/test_utils.py", "tests/test_long.py"):
        (project / name).write_text("")
    assert "tests/" not in relay("check").out


def test_what_can_run_side_by_side(relay, project):
    """Waves, what is saved; a path that keeps two phases apart is named."""
    phases = [("none", "a.py"), ("1", "b.py"), ("1", "c.py"), ("1", "docs/"), ("none", "docs/api.md")]
    text = "".join(f"## Phase {n}\nVerify: `make`\nAfter: {a}\n- [ ] x — {p}\n" for n, (a, p) in enumerate(phases, 1))
    write(project, f"# P\n\n{text}")
    lines = relay("check").out.splitlines()
    assert "side by side  1 5 │ 2 3 4" in lines
    assert "  relay run --jobs 3 takes about 40 % of the time" in lines
    assert "one by one    4, 5: they name docs" in lines
    parallel = json.loads(relay("check", "--json").out)["parallel"]
    assert parallel["waves"] == [["1", "5"], ["2", "3", "4"]]
    assert (parallel["jobs"], parallel["parallel"] / parallel["serial"]) == (3, 0.4)
    assert parallel["shared"] == [{"path": "docs", "phase_ids": ["4", "5"]}]


def test_a_tool_server_that_is_not_the_users_is_a_warning_with_its_line(relay, project, tmp_path):
    config = tmp_path / "home/.config/relay/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[mcp_servers.db]\ncommand = ["db-server"]\n')
    done = "## Phase 1 — A\nVerify: `test -f a`\nTools: gone\n- [x] Make a — a\n\n"
    phase = "## Phase 2 — B\nVerify: `test -f b`\nTools: db, evil\n- [ ] Make b — b\n"
    (project / "PLAN.md").write_text(f"# P\n\n{done}{phase}")

    ran = relay("check")

    assert ran.code == 0
    assert "PLAN.md:10: warning: Tools: evil is none of your mcp_servers: a run stops there\n" in ran.out
    assert ran.out.count("Tools: ") == 1


def test_a_plan_that_one_session_can_do_is_called_overkill(relay, project):
    """The estimate counts the fixed part once, and a phase alone is never too many."""
    small = "\n\n".join(f"## Phase {n}\nVerify: `test -e a{n}.py`\n- [ ] Do {n} — a{n}.py" for n in (1, 2, 3))
    (project / "PLAN.md").write_text(f"# P\n\n{small}\n")
    ran = relay("check")
    assert ran.code == 0
    assert re.search(r"one session can do all open phases \(about \d+k of 100k\); one phase", ran.out)
    assert read_document("relay check", relay("check", "--json").out)["overkill"] is True
    (project / "PLAN.md").write_text(f"# P\n\n{small.replace('[ ]', '[x]', 2)}\n")
    assert "one session can do all" not in relay("check").out
    (project / "PLAN.md").write_text(f"# P\n\n{small}\n")
    for n in (1, 2, 3):
        (project / f"a{n}.py").write_text("x = 1\n" * 10_000)
    assert read_document("relay check", relay("check", "--json").out)["overkill"] is False


def test_a_phase_is_priced_at_its_own_model(relay, project):
    """With what it chooses behind the price; the line of a model is its own, too."""
    phase = "## Phase {n}\nVerify: `test -e a{n}.py`\n{own}- [ ] Do {n} — a{n}.py\n\n"
    own = ["", "Model: claude-haiku-4-5\nEffort: low\n"]
    (project / "PLAN.md").write_text("# P\n\n" + "".join(phase.format(n=n, own=one) for n, one in enumerate(own, 1)))
    ran = relay("check")
    assert ran.code == 0
    rows = [line for line in ran.out.splitlines() if re.match(r"[12]  ", line)]
    costs = [float(row.partition("$")[2].split()[0]) for row in rows]
    assert costs[1] < costs[0]
    assert rows[1].endswith("  on claude-haiku-4-5, effort low")
    assert "a session hands over at 90k or 100k" in ran.out
    assert "on claude" not in relay("check", env={"RELAY_MODEL": "claude-opus-5-5", "RELAY_EFFORT": "low"}).out
    phases = read_document("relay check", relay("check", "--json").out)["phases"]
    chosen = [(one["runner"], one["model"], one["effort"]) for one in phases]
    assert chosen == [(None, None, None), (None, "claude-haiku-4-5", "low")]


def test_a_model_or_effort_that_there_is_not_is_an_error_with_what_is_allowed(relay, project):
    for own, found in (
        ("Model: opus", "PLAN.md:5: Model: found 'opus' (did you mean claude-opus-5-5"),
        ("Effort: extreme", "PLAN.md:5: Effort: found 'extreme'; allowed: low, medium, high, xhigh, max"),
    ):
        (project / "PLAN.md").write_text(f"# P\n\n## Phase 1\nVerify: `test -e a.py`\n{own}\n- [ ] Do — a.py\n")
        ran = relay("check")
        assert (ran.code, found in ran.out) == (1, True), ran.out
    unknown = relay("check", env={"RELAY_ESCALATE": "model=claude-opus-99"})
    assert (unknown.code, "RELAY_ESCALATE: escalate: found 'claude-opus-99'" in unknown.out) == (1, True), unknown
    typed = {"RELAY_MODEL": "claude-opus-5-5", "RELAY_EFFORT": "low"}
    assert relay("check", env=typed).code == 0  # a typed one counts for all phases
