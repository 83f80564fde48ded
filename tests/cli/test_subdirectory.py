"""Every command started from a subdirectory: the repository's root is found, and a named plan is where it was typed."""

import shlex

import pytest

from tests.scripts import HELLO, ONE_PHASE, serving


@pytest.fixture
def deep(project, commit):
    """A directory two levels down, in a project with a plan at its root and another one half way."""
    folder = project / "docs/deep"
    folder.mkdir(parents=True)
    (folder / "kept.txt").write_text("kept\n")
    (project / "PLAN.md").write_text(ONE_PHASE)
    (project / "docs/BUILD.md").write_text(ONE_PHASE.replace("Greetings", "Built"))
    commit()
    return folder


@pytest.fixture
def play(relay):
    """Run a command against a script."""

    def run(script, *args, **options):
        with serving(script) as (server, env):
            ran = relay(*args, env=env, **options)
            assert server.errors == []
        return ran

    return run


def test_a_command_works_on_the_roots_plan_and_makes_nothing_where_the_user_stands(relay, deep):
    assert "PLAN.md on main: 0 of 1 phase done" in relay("status", cwd=deep).out
    assert relay("status", cwd=deep).out == relay("status").out
    assert relay("check", cwd=deep).out.endswith("PLAN.md is valid: 1 phase, 1 item\n")
    ran = relay("run", "--dry-run", cwd=deep, env={"ANTHROPIC_API_KEY": "k"})
    assert (ran.code, "gate   grep -q hello hello.txt" in ran.out) == (0, True), ran
    assert [path.name for path in deep.iterdir()] == ["kept.txt"]


@pytest.mark.nightly
def test_the_plan_that_was_meant_is_named(relay, deep, git):
    """One beside the user that was not named, and one that was named as if the user stood at the root."""
    git("mv", "PLAN.md", "docs/deep/PLAN.md")
    git("commit", "-q", "-m", "moved")

    hint = "Hint: there is PLAN.md: `relay check PLAN.md` checks it, `relay run --plan PLAN.md` builds it"
    ran = relay("status", "--plan", "docs/deep/PLAN.md", cwd=deep)
    assert (ran.code, ran.err.splitlines()[1]) == (1, hint)
    assert ran.err.splitlines()[0].endswith("PLAN.md: there is no such plan")
    (below := deep / "below").mkdir()
    for typed in (("check",), ("status",), ("run", "--dry-run"), ("check", "PLAN.md")):
        folder = deep if len(typed) > 1 else below  # the nearest one upwards
        ran = relay(*typed, cwd=folder, env={"ANTHROPIC_API_KEY": "k"})
        assert (ran.code, "docs/deep/PLAN.md" in ran.out) == (0, True), typed
    away = "Hint: there is docs/deep/PLAN.md: `relay check docs/deep/PLAN.md` checks it, "
    assert relay("run").err.splitlines()[1].startswith(away)
    git("rm", "-q", "docs/deep/PLAN.md")
    deep.mkdir(exist_ok=True)

    assert " took it out: git restore --source " in relay("status").err
    assert "init" not in relay("status", "--plan", "other.md").err


@pytest.mark.nightly
def test_of_two_plans_the_one_that_is_taken_is_named_and_how_to_take_the_other(play, relay, deep, commit):
    """In a monorepo: the nearest is taken; a name of the settings counts from the root."""
    (deep / "PLAN.md").write_text(ONE_PHASE)
    commit()
    words = "this is PLAN.md, the nearest plan; relay {} ../../PLAN.md takes the root's"
    assert relay("check", cwd=deep).out.splitlines()[0] == words.format("check")
    dry = relay("run", "--dry-run", cwd=deep, env={"ANTHROPIC_API_KEY": "k"}).out
    assert words.format("run --plan") in dry.splitlines()
    for named in (("check", "PLAN.md"), ("check", "../../PLAN.md")):
        assert "the nearest plan" not in relay(*named, cwd=deep).out
    assert "the nearest plan" not in relay("check").out
    settings = "this is ../../PLAN.md, the settings' plan; relay check PLAN.md takes this folder's"
    assert relay("check", cwd=deep, env={"RELAY_PLAN": "PLAN.md"}).out.splitlines()[0] == settings
    ran = play(HELLO, "run", cwd=deep)
    assert words.format("run --plan") in " ".join(ran.out.split())
    assert "[x]" in (deep / "PLAN.md").read_text()


PACKAGE = """\
sessions:
- when: {first_message_contains: "Verify commands run as `cd packages/api && bash check.sh`"}
  turns:
  - tools: [{name: write, input: {path: packages/api/app/core.py, content: "y = 2\\n"}}]
  - tools: [{name: tick, input: {item: "1.1", evidence: seen}}]
  - {text: done, repeat: 3}
"""


def test_a_packages_plan_is_built_in_its_directory(play, relay, project, commit, git):
    """Gate and items count from there, no doubt is left, and `check` and `gate` say where.

    The session's paths and the commit are the root's, and relay keeps what it keeps there.
    """
    api = project / "packages/api"
    (api / "app").mkdir(parents=True)
    (api / "check.sh").write_text("grep -q y app/core.py\n")
    text = "# Core\n\n## Phase 1 — Core\nVerify: `bash check.sh`\n- [ ] Add y — app/core.py\n"
    (api / "PLAN.md").write_text(text.replace("Verify", "In: ../x\nVerify"))
    commit()
    for words in (("check", "PLAN.md"), ("run", "--dry-run", "--plan", "PLAN.md"), ("gate", "--plan", "PLAN.md")):
        ran = relay(*words, cwd=api, env={"ANTHROPIC_API_KEY": "k"})
        assert ran.code == 1
        assert (ran.out + ran.err).count("packages/api/PLAN.md:4: `In: ../x` names no place for verify commands") == 1
    (api / "PLAN.md").write_text(text)
    commit()
    assert "runs in packages/api  bash check.sh\n" in relay("check", "PLAN.md", cwd=api).out
    shown = relay("gate", "--plan", "PLAN.md", cwd=api).out.splitlines()[0]
    assert shown.endswith(": cd packages/api && bash check.sh")

    ran = play(PACKAGE, "run", "--plan", "PLAN.md", cwd=api)

    assert (ran.code, ran.err, "doubt" in ran.out) == (0, "", False)
    assert git("show", "--name-only", "--format=", "HEAD").split() == [
        "packages/api/PLAN.md",
        "packages/api/app/core.py",
    ]
    assert "Relay-Doubt" not in git("show", "-s", "--format=%B", "HEAD")
    assert (git("status", "--porcelain"), (project / ".relay").is_dir(), (api / ".relay").exists()) == ("", True, False)


def test_a_hint_is_typed_where_the_command_was(relay, deep, project, commit):
    """Paths count from there, and the plan is named as it was."""
    (project / "docs/LINK.md").symlink_to("BUILD.md")
    commit()
    for typed, hint in (
        ("run --plan 'no plan.md'", "`relay plan --plan 'no plan.md' \"what you want\"` writes one"),
        ("plan more --plan ../BUILD.md", "relay plan --plan ../BUILD.md --revise 'what to change' changes it"),
        ("rewind 1 --plan ../BUILD.md", "relay status --plan ../BUILD.md"),
        ("run --dry-run --plan ../LINK.md", "--plan ../BUILD.md"),
    ):
        ran = relay(*shlex.split(typed), cwd=deep, env={"ANTHROPIC_API_KEY": "k"})
        assert (ran.code, ran.out, ran.err.splitlines()[-1].startswith(f"Hint: {hint}")) == (1, "", True), ran
