"""GitPython and git read what relay writes, and agree: scripts of others can rely on it."""

import git

from relay.git.message import Message
from relay.session.usage import Spent, Usage
from relay.store.attempts import AttemptStart, open_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.commit import CommitRequest, commit_paths
from relay.store.history import read_relay_commits
from relay.store.refs import ATTEMPTS


def commit(box, path, subject, status):
    box.write(path, f"{path}\n")
    repo = box.open()
    pairs = (("Relay-Plan", "PLAN.md"), ("Relay-Phase", "1"), ("Relay-Status", status), ("Relay-Gate", "none " * 40))
    message = Message(subject=subject, body="- [x] 1.1 it is there: ü", trailers=pairs)
    assert commit_paths(repo, CommitRequest(branch="main", head=repo.head(), message=message, paths=(path,))).commit


def test_commits_trees_index_and_refs_are_read_alike(box):
    commit(box, "one.txt", "phase 1 hands over", "handoff")
    commit(box, "b c/ü.txt", "feat(parts): write one — ünï", "done")
    attempt = open_attempt(box.open(), AttemptStart(session_id="s", phase_id="2", plan_path="PLAN.md"))
    box.write("two.txt", "half\n")
    save_wip(box.open(), attempt, WipRecord(spend=Spent(usage=Usage(output_tokens=1)), handoff_note="next:\n\n- do"))
    repo, ours = git.Repo(box.root), {one.commit: one for one in read_relay_commits(box.open(), "PLAN.md")}
    commits = list(repo.iter_commits("HEAD"))
    assert [one.hexsha for one in commits] == box.text("rev-list", "HEAD").split()
    assert len(ours) == 2
    for found in commits[:2]:
        one = ours[found.hexsha]
        assert found.message == box.text("log", "-1", "--format=%B", found.hexsha) + "\n"
        assert (found.summary, found.tree.hexsha, found.committed_date) == (one.subject, one.tree, one.time)
        assert tuple(parent.hexsha for parent in found.parents) == one.parents
        assert tuple(found.trailers_list) == one.found
        listed = box.text("log", "-1", "--format=%(trailers:only,unfold)", found.hexsha).splitlines()
        assert [f"{key}: {value}" for key, value in one.found] == listed
    tree = {one.path: one.hexsha for one in repo.head.commit.tree.traverse() if isinstance(one, git.Blob)}
    rows = box.text("ls-tree", "-r", "-z", "HEAD").split("\0")[:-1]
    assert tree == {row.split("\t")[1]: row.split()[2] for row in rows}
    assert tree == {path: entry.hexsha for (path, stage), entry in repo.index.entries.items() if stage == 0}
    assert "b c/ü.txt" in tree
    assert not repo.is_dirty(untracked_files=False)
    assert repo.untracked_files == ["two.txt"]
    listed = dict(line.split() for line in box.text("for-each-ref", "--format=%(refname) %(objectname)").splitlines())
    assert any(name.startswith(ATTEMPTS) for name in listed)
    refs: list[git.Reference] = list(git.Reference.list_items(repo))
    assert {ref.path: ref.commit.hexsha for ref in refs} == listed
    assert repo.git.fsck("--no-dangling") == ""
