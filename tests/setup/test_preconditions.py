"""What has to hold before a session: looked at once, shown by the doctor and required by a run."""

from pathlib import Path

import pytest

from relay.config import Settings
from relay.errors import PlanError, RelayError, RepoError, RunnerError
from relay.files.replacement import make_temporary_name
from relay.git.repository import open_repo
from relay.prompts.package_data import get_shipped
from relay.runners.registry import RUNNERS
from relay.setup.preconditions import (
    State,
    check_clean,
    check_key,
    check_plan_file,
    check_repository,
    check_rules,
    require,
)
from relay.setup.rules import RuleFile, Rules, load_repository_rules
from tests.scripted import ScriptedRunner


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"ANTHROPIC_API_KEY": "k"}, "ANTHROPIC_API_KEY is set"),
        ({"ANTHROPIC_AUTH_TOKEN": "k"}, "ANTHROPIC_AUTH_TOKEN is set"),
        ({"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": "k"}, "ANTHROPIC_AUTH_TOKEN is set"),
    ],
)
def test_a_key_is_named_and_never_shown(environ, words):
    finding = check_key(RUNNERS["api"], environ)
    assert (finding.state, finding.words, finding.error) == (State.OK, words, None)


def test_a_runner_without_a_key_misses_none():
    finding = check_key(ScriptedRunner([]).kind, {})
    assert (finding.state, finding.words) == (State.OK, "this runner needs none")


def test_what_is_missing_is_one_error_with_the_words_that_are_shown():
    """The doctor shows the finding, a run stops with the error; they cannot say different things."""
    finding = check_key(RUNNERS["api"], {})
    with pytest.raises(RunnerError) as raised:
        require(finding)
    assert finding.state is State.MISSING
    assert (raised.value.message, raised.value.hint) == (finding.words, finding.hint)


def test_what_is_there_stops_nothing(stage):
    repo = open_repo(stage.root)
    found = check_repository(repo)
    require(found)
    assert (found.state, found.words) == (State.OK, f"{stage.root} on main")


def test_uncommitted_changes_are_missing_until_a_phase_is_open(stage):
    """The plan's own files are no obstacle."""
    repo = open_repo(stage.root)
    stage.write("PLAN.md", "# Changed\n")
    require(check_clean(repo, "PLAN.md"))
    stage.write("AGENTS.md", "changed\n")
    with pytest.raises(RepoError, match=r"uncommitted changes: AGENTS\.md"):
        require(check_clean(repo, "PLAN.md"))


@pytest.mark.parametrize("dirty", [False, True])
def test_what_stood_in_the_work_tree_for_a_moment_is_gone_before_a_session(stage, dirty):
    """Found by what git is asked whether all is clean, or by a question of its own."""
    stage.write(f"deep/{make_temporary_name()}", "half")
    with stage.enter("run", runner=ScriptedRunner([]), flags={"sandbox": "off"}, dirty=dirty):
        assert not (stage.root / "deep").exists()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda root: (root / "LINK.md").symlink_to("PLAN.md"), "leads through a symbolic link to PLAN.md"),
        (lambda root: (root / "LINK.md").symlink_to("/etc/passwd"), "leads through a symbolic link to /etc/passwd"),
        (lambda root: [(root / name).write_text("LINK.md") for name in ("LINK.md", ".gitignore")], "is ignored by git"),
    ],
)
def test_a_plan_that_relay_cannot_replace_or_git_would_not_keep_is_missing(stage, prepare, words):
    prepare(stage.root)
    finding = check_plan_file(open_repo(stage.root), "LINK.md")
    assert words in finding.words
    assert isinstance(finding.error, PlanError)


def test_rules_that_are_cut_or_not_read_are_a_warning(tmp_path: Path):
    """A run goes on with what there is of them."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "AGENTS.md").write_text("x" * 100)
    cut = check_rules(load_repository_rules(tmp_path, Settings(rules_max_bytes=50)))
    require(cut)
    assert (cut.state, cut.words, cut.hint) == (
        State.WARNING,
        "AGENTS.md (50 of 100 bytes)",
        "shorten them, or raise rules_max_bytes",
    )
    assert check_rules(load_repository_rules(tmp_path, Settings())).state is State.OK
    file = RuleFile(path="AGENTS.md", bytes_used=1, bytes_total=1)
    warned = check_rules(Rules(text="x", files=(file,), warnings=("AGENTS.override.md is blank",)))
    assert (warned.state, warned.details, warned.hint) == (State.WARNING, ("AGENTS.override.md is blank",), "")
    none = check_rules(Rules())
    assert (none.state, none.words, none.hint) == (
        State.INFO,
        "no AGENTS.md here",
        "relay init writes one to start from",
    )
    (tmp_path / "AGENTS.md").rename(tmp_path / "CLAUDE.md")
    (tmp_path / "AGENTS.md").write_bytes(get_shipped("templates/AGENTS.md").read_bytes())
    example = check_rules(load_repository_rules(tmp_path, Settings()))
    assert (example.state, "is the example that relay init put here" in example.details[0]) == (State.WARNING, True)
    (tmp_path / "AGENTS.md").unlink()

    unread = check_rules(load_repository_rules(tmp_path, Settings()))
    assert (unread.state, unread.words, unread.hint) == (State.WARNING, "no AGENTS.md here", "")
    assert 'rules_fallback_names = ["CLAUDE.md"]' in unread.details[0]


def test_the_first_thing_that_a_user_can_repair_is_said_first(stage):
    """No key, an unfinished merge, a plan that is ignored and a dirty tree: one after the other."""
    stage.write(".gitignore", "LOST.md\n")
    stage.commit("ignore")
    stage.write("LOST.md", "# Lost\n")
    stage.write("AGENTS.md", "changed\n")
    merge = stage.root / ".git/MERGE_HEAD"
    merge.write_text(stage.git("rev-parse", "HEAD"))
    stage.plan_path = "LOST.md"
    environ: dict[str, str] = {}

    def try_to_start() -> str:
        with pytest.raises(RelayError) as raised, stage.enter("run", environ=environ):
            pass
        return str(raised.value.message)

    assert try_to_start().startswith("no API key")
    environ["ANTHROPIC_API_KEY"] = "k"
    assert try_to_start().startswith("a merge is in progress")
    merge.unlink()
    assert try_to_start().startswith("LOST.md is ignored by git")
    stage.plan_path = "PLAN.md"
    assert try_to_start().startswith("tracked files have uncommitted changes: AGENTS.md")
