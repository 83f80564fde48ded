"""GitPython and git read what relay writes, and agree: scripts of others can rely on it."""

import json
import os
import subprocess

import git
import pytest

from relay.base.errors import ExitCode
from relay.git.repository import open_repo
from relay.run.phases.worktrees import find_jobs
from relay.store.refs import ATTEMPTS
from tests.scripts import serving

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


@pytest.mark.nightly
def test_commits_and_their_trailers_are_read_alike(done):
    repo = git.Repo(done.root)
    commits = list(repo.iter_commits("HEAD"))
    assert [one.hexsha for one in commits] == ask(done, "rev-list", "HEAD").split()
    ours = {one.commit: one for one in done.commits()}
    assert len(ours) == 2
    for commit in commits[:2]:
        one = ours[commit.hexsha]
        assert commit.message == ask(done, "log", "-1", "--format=%B", commit.hexsha).rstrip("\n") + "\n"
        assert (commit.summary, commit.tree.hexsha) == (one.subject, one.tree)
        assert tuple(parent.hexsha for parent in commit.parents) == one.parents
        assert commit.committed_date == one.time
        assert tuple(commit.trailers_list) == one.found
        listed = ask(done, "log", "-1", "--format=%(trailers:only,unfold)", commit.hexsha).splitlines()
        assert [f"{key}: {value}" for key, value in one.found] == [line for line in listed if line]


@pytest.mark.nightly
def test_trees_index_and_work_tree_are_clean_in_both_eyes(done):
    repo = git.Repo(done.root)
    tree = {one.path: one.hexsha for one in repo.head.commit.tree.traverse() if isinstance(one, git.Blob)}
    listed = ask(done, "ls-tree", "-r", "-z", "HEAD").split("\0")
    assert tree == {line.split("\t")[1]: line.split()[2] for line in listed if line}
    assert "b c/ü.txt" in tree
    index = {path: entry.hexsha for (path, stage), entry in repo.index.entries.items() if stage == 0}
    assert index == tree
    assert not repo.is_dirty(untracked_files=False)
    assert repo.untracked_files == ask(done, "ls-files", "-o", "--exclude-standard").split() == ["two.txt"]


def test_refs_of_an_open_phase_are_read_alike(done):
    repo = git.Repo(done.root)
    listed = dict(line.split() for line in ask(done, "for-each-ref", "--format=%(refname) %(objectname)").splitlines())
    assert any(name.startswith(ATTEMPTS) for name in listed)
    refs: list[git.Reference] = list(git.Reference.list_items(repo))
    assert {ref.path: ref.commit.hexsha for ref in refs} == listed
    assert repo.active_branch.path == ask(done, "symbolic-ref", "HEAD").strip()
    assert repo.git.fsck("--no-dangling") == ""


@pytest.mark.nightly
def test_a_jobs_work_tree_is_a_repository_of_its_own(stage):
    stage.write("PLAN.md", PLAN.replace("## Phase 2 — Two\n", "## Phase 2 — Two\nAfter: none\n"))
    stage.commit()
    block = [call("block", reason="a person has to choose")]
    with serving(json.dumps({"sessions": [{"turns": block, "repeat": True}]})) as (_, env):
        stage.relay("run", "--jobs", "2", "--unchecked", environ=env)
    jobs = find_jobs(open_repo(stage.root, os.environ), "PLAN.md")
    assert jobs
    for job in jobs:
        repo = git.Repo(job.repo.root)
        assert repo.head.commit == git.Repo(stage.root).head.commit
        assert repo.active_branch.path == job.repo.git.run("symbolic-ref", "HEAD").decode().strip()
