"""The plan and the ledger as a commit or a snapshot has them."""

from pathlib import Path

from relay.git.command import GitError
from relay.git.ref_files import find_head_ref, find_id, has_replacements
from relay.git.repository import Repo
from relay.git.trees import GITLINK, find_entries
from relay.plan.files import decode_text

_KEPT = 16
_known: dict[tuple[Path, str, str], str | None] = {}
"""By git directory, commit and path: a commit does not change. What is asked between two commits of a phase is few."""


def find_text(repo: Repo, commit: str | None, path: str) -> str | None:
    """Return a file's text as a commit has it; None when it has none there, or when there is no commit yet.

    One call of git at most; `relay status` pays for it, so it does without the rest of what reads objects.

    Raises:
        GitError: There is a file, or git cannot say whether there is one, and it cannot be read.
    """
    if commit is None:
        return None
    rev = (_find_head(repo) or commit) if commit == "HEAD" else commit
    key = (repo.common_dir, rev, path)
    if rev == "HEAD" or has_replacements(repo.common_dir):
        return _read_text(repo, rev, path)
    if key not in _known:
        _known[key] = _read_text(repo, rev, path)
        while len(_known) > _KEPT:
            del _known[next(iter(_known))]
    return _known[key]


def _find_head(repo: Repo) -> str | None:
    """Return the commit that HEAD names where that can be told without git."""
    ref = find_head_ref(repo.git_dir)
    return find_id(repo.common_dir, ref) if ref else None


def _read_text(repo: Repo, commit: str, path: str) -> str | None:
    if (known := find_entries(repo, commit, (path,))) is not None:
        mode, blob = known.get(path, (GITLINK, ""))
        if mode == GITLINK:
            return None
        if (loose := repo.read_object(blob)) is not None and loose[0] == "blob":
            return decode_text(loose[1])
    found = repo.git.probe("cat-file", "blob", f"{commit}:{path}")
    if not found.code:
        return decode_text(found.out)
    _require_absent(repo, commit, path, found.words)
    return None


def _require_absent(repo: Repo, commit: str, path: str, words: str) -> None:
    """Make sure that git found no file because there is none: it fails alike where it cannot look."""
    if commit == "HEAD" and repo.head() is None:
        return
    if b" blob " in repo.git.run("ls-tree", "-z", "--full-tree", commit, "--", path):
        raise GitError(f"{path} cannot be read as {commit[:10]} has it: {words}")
