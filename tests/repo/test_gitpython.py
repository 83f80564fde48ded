"""GitPython and git read what relay writes, and agree: scripts of others can rely on it."""

import json
import subprocess

import git
import pytest

from relay.base.errors import ExitCode
from relay.store.refs import ATTEMPTS

PLAN = """# Parts

## Phase 1 — One
Verify: `test -f one.txt`
- [ ] Write one — one.txt
- [ ] Write ünï — b c/ü.txt

## Phase 2 — Two
- [ ] Write two — two.txt
"""


def call(name, **given):
    return {"tools": [{"name": name, "input": given}]}


def make(n, path, item=1):
    return [call("write", path=path, content=f"{path}\n"), call("tick", item=f"{n}.{item}", evidence="it is there: ü")]


@pytest.fixture
def done(stage):
    """A repository with a planned, a handed over and a finished phase, and a phase that is open."""
    stage.write("PLAN.md", PLAN)
    stage.commit()
    handed = [*make(1, "one.txt"), call("hand_off", next_step="the other file", learned=["a"], dead_ends=["b"])]
    rest = [*make(1, "b c/ü.txt", 2), {"text": "Commit: feat(parts): write one — ünï"}]
    stuck = [call("write", path="two.txt", content="half\n"), call("block", reason="a person has to choose")]
    script = {"sessions": [{"turns": handed}, {"turns": rest}, {"turns": stuck}]}
    assert stage.run(json.dumps(script), unchecked=True).exit_code == ExitCode.STOPPED
    return stage


def ask(stage, *args):
    return subprocess.run(["git", *args], cwd=stage.root, check=True, capture_output=True, text=True).stdout


def test_commits_trees_index_and_refs_are_read_alike(done):
    repo, ours = git.Repo(done.root), {one.commit: one for one in done.commits()}
    commits = list(repo.iter_commits("HEAD"))
    assert [one.hexsha for one in commits] == ask(done, "rev-list", "HEAD").split()
    assert len(ours) == 2
    for commit in commits[:2]:
        one = ours[commit.hexsha]
        assert commit.message == ask(done, "log", "-1", "--format=%B", commit.hexsha).rstrip("\n") + "\n"
        assert (commit.summary, commit.tree.hexsha, commit.committed_date) == (one.subject, one.tree, one.time)
        assert tuple(parent.hexsha for parent in commit.parents) == one.parents
        assert tuple(commit.trailers_list) == one.found
        listed = ask(done, "log", "-1", "--format=%(trailers:only,unfold)", commit.hexsha).splitlines()
        assert [f"{key}: {value}" for key, value in one.found] == [line for line in listed if line]
    tree = {one.path: one.hexsha for one in repo.head.commit.tree.traverse() if isinstance(one, git.Blob)}
    rows = ask(done, "ls-tree", "-r", "-z", "HEAD").split("\0")[:-1]
    assert tree == {row.split("\t")[1]: row.split()[2] for row in rows}
    assert tree == {path: entry.hexsha for (path, stage), entry in repo.index.entries.items() if stage == 0}
    assert "b c/ü.txt" in tree
    assert not repo.is_dirty(untracked_files=False)
    assert repo.untracked_files == ["two.txt"]
    listed = dict(line.split() for line in ask(done, "for-each-ref", "--format=%(refname) %(objectname)").splitlines())
    assert any(name.startswith(ATTEMPTS) for name in listed)
    refs: list[git.Reference] = list(git.Reference.list_items(repo))
    assert {ref.path: ref.commit.hexsha for ref in refs} == listed
    assert repo.git.fsck("--no-dangling") == ""
