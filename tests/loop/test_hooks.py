"""Commit hooks as their managers make them: they write into the git directory and into caches, and both are theirs."""

from collections.abc import Sequence

import pytest

from relay.errors import ExitCode
from relay.session.values import SessionOutcome
from tests.scripted import Act, ScriptedRunner

WORK: list[list[Sequence[Act | SessionOutcome]]] = [
    [[("write", {"path": "hello.txt", "content": "hello\n"}), ("tick", {"item": "1.1", "evidence": "made"})]],
    [
        [
            ("write", {"path": "world.txt", "content": "world world\n"}),
            ("tick", {"item": "2.1", "evidence": "made"}),
            ("tick", {"item": "2.2", "evidence": "made"}),
        ]
    ],
]
LIKE_LINT_STAGED = """\
set -e
test -z "$(git stash list)"
echo draft >> hello.txt
backup=$(git stash create)
git stash store --quiet --message backup "$backup"
test "$(git stash list --format=%gs)" = backup
git diff > "$(git rev-parse --git-path lint-staged_unstaged.patch)"
git checkout --quiet -- hello.txt
git stash drop --quiet
git update-ref refs/heads/sneaked HEAD
git config user.name somebody
echo evil > .git/hooks/post-checkout
test "$(git log --format=%s | tail -1)" = start
"""


def install_hook(stage, script, name="pre-commit"):
    hook = stage.root / ".git/hooks" / name
    hook.write_text(f"#!/bin/sh\n{script}")
    hook.chmod(0o755)


@pytest.fixture
def begun(stage):
    """A repository that has the file which hooks put aside."""
    stage.write("hello.txt", "start\n")
    stage.commit()
    return stage


def read_git_dir(stage):
    names = ("config", "hooks/post-checkout", "refs/stash", "lint-staged_unstaged.patch", "refs/heads/sneaked")
    return {name: (stage.root / ".git" / name).read_bytes() for name in names if (stage.root / ".git" / name).exists()}


def test_a_hook_that_keeps_a_stash_while_it_works_has_a_git_directory_of_its_own(begun):
    """As lint-staged does at every commit; what it leaves there is nobody's."""
    install_hook(begun, LIKE_LINT_STAGED)
    before = read_git_dir(begun)

    runner = ScriptedRunner(sessions=[*WORK])
    ended = begun.play(runner, sandbox="auto")

    assert ended.exit_code == ExitCode.DONE, runner.told
    assert read_git_dir(begun) == before
    assert len(begun.commits()) == 2
    assert begun.git("status", "--porcelain") == ""


def test_hooks_of_a_linked_work_tree_have_one_too(begun, tmp_path):
    """Its own files are below the common directory."""
    install_hook(begun, LIKE_LINT_STAGED.replace("> .git/hooks/", '> "$(git rev-parse --git-common-dir)"/hooks/'))
    begun.git("worktree", "add", "-q", str(tmp_path / "linked"), "-b", "side")
    before = read_git_dir(begun)
    main, begun.root = begun.root, tmp_path / "linked"

    ended = begun.play(ScriptedRunner(sessions=[*WORK]), sandbox="auto")

    begun.root = main
    assert ended.exit_code == ExitCode.DONE
    assert read_git_dir(begun) == before


def test_what_a_session_leaves_in_its_scratch_directory_is_not_there_for_a_hook(begun):
    """It could be a configuration that makes the hook's program say yes."""
    install_hook(begun, 'test -z "$(ls -A $TMPDIR | grep -v hook-)"\n')
    first, *rest = WORK
    assert isinstance(first[0], list)
    first = [[("bash", {"command": "mkdir -p $TMPDIR/.cache && echo yes > $TMPDIR/.cache/rules"}), *first[0]]]

    ended = begun.play(ScriptedRunner(sessions=[first, *rest]), sandbox="auto")

    assert ended.exit_code == ExitCode.DONE
