"""`relay run --branch`: the work goes on a branch of the plan's own; the one before and every file stay as they are."""

import pytest

from relay.store.branches import name_branch
from tests.scripts import HELLO, ONE_PHASE, serving

PLAN = ONE_PHASE.replace("Greetings", "Add keys & *such*")
BRANCH = "relay/add-keys-such"


@pytest.fixture
def endpoint():
    with serving(HELLO) as (_, env):
        yield {**env, "RELAY_SANDBOX": "off"}


def test_the_work_goes_on_a_branch_of_its_own(relay, project, git, endpoint):
    """With what is not committed, the plan itself too; a second run stays there."""
    (project / "PLAN.md").write_text(PLAN)
    (project / "staged.txt").write_text("mine\n")
    git("add", "staged.txt")
    start = git("rev-parse", "main")

    ran = relay("run", "--branch", env=endpoint)

    assert (ran.code, ran.err) == (0, "")
    assert git("symbolic-ref", "HEAD") == f"refs/heads/{BRANCH}"
    assert git("rev-parse", "main") == start
    assert git("log", "-1", "--format=%s") == "Say hello"
    assert git("status", "--porcelain") == "A  staged.txt"
    assert relay("run", "--branch", env=endpoint).code == 0
    assert git("branch", "--format=%(refname:short)").split() == ["main", BRANCH]


def test_a_branch_that_is_there_is_left_alone(relay, project, git, endpoint):
    (project / "PLAN.md").write_text(PLAN)
    git("branch", BRANCH)

    ran = relay("run", "--branch", env=endpoint)

    assert ran.code == 1
    assert f"there is a branch {BRANCH} already" in ran.err
    assert f"git switch --no-overwrite-ignore {BRANCH}" in ran.err
    assert git("symbolic-ref", "HEAD") == "refs/heads/main"


def test_a_branch_is_named_for_its_plan():
    for title, path, name in (
        ("Add org-scoped API keys", "PLAN.md", "relay/add-org-scoped-api-keys"),
        ("", "docs/Keys.plan.md", "relay/keys-plan"),
        ("../..//refs\n-rf", "PLAN.md", "relay/refs-rf"),
        ("計画", "計画.md", "relay/plan"),
        ("x" * 200, "PLAN.md", "relay/" + "x" * 48),
    ):
        assert name_branch(title, path) == name


@pytest.mark.parametrize("obstacle", ["a merge", "no key"])
def test_a_run_that_is_refused_moves_nobody_to_a_branch(relay, project, git, endpoint, obstacle):
    (project / "PLAN.md").write_text(PLAN)
    if obstacle == "a merge":
        (project / ".git/MERGE_HEAD").write_text(git("rev-parse", "HEAD") + "\n")
    ran = relay("run", "--branch", env=endpoint if obstacle == "a merge" else {})
    assert ran.code == 1
    assert git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert git("branch", "--format=%(refname:short)").split() == ["main"]
