"""The states of a repository in which relay refuses to work, a sentence for each."""

import os

from relay.git.index_flags import has_unmerged
from relay.git.repository import Repo

_OPERATIONS = (
    ("rebase-merge", "a rebase is in progress", "git rebase --continue (or --abort)"),
    ("rebase-apply/applying", "git am is in progress", "git am --continue (or --abort)"),
    ("rebase-apply", "a rebase is in progress", "git rebase --continue (or --abort)"),
    ("MERGE_HEAD", "a merge is in progress", "git commit (or git merge --abort)"),
    ("CHERRY_PICK_HEAD", "a cherry-pick is in progress", "git cherry-pick --continue (or --abort)"),
    ("REVERT_HEAD", "a revert is in progress", "git revert --continue (or --abort)"),
    ("sequencer", "a sequence of cherry-picks or reverts is in progress", "git cherry-pick --continue (or --abort)"),
    ("BISECT_LOG", "a bisect is in progress", "git bisect reset"),
)


def check_state(repo: Repo) -> str | None:
    """Return what is unfinished in the repository and the command that ends it; None when nothing is."""
    for name, words, command in _OPERATIONS:
        if _exists(repo, name):
            return f"{words}; end it with: {command}"
    if has_unmerged(repo):
        return "there are unmerged files; end it with: git status, then git add <file> or git checkout --ours <file>"
    return None


def _exists(repo: Repo, name: str) -> bool:
    if os.path.exists(f"{repo.git_dir}/{name}"):  # noqa: PTH110  # looked at often, and a path takes longer than the look
        return True
    # The reftable backend keeps these refs elsewhere.
    return name.endswith("_HEAD") and (repo.common_dir / "reftable").is_dir() and repo.find_commit(name) is not None
