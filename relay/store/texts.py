"""The plan and the ledger as a commit or a snapshot has them."""

from relay.git.command import GitError
from relay.git.repository import Repo
from relay.plan.encoding import decode_text


def find_text(repo: Repo, commit: str | None, path: str) -> str | None:
    """Return a file's text as a commit has it; None when it has none there, or when there is no commit yet.

    One call of git; `relay status` pays for it, so it does without the rest of what reads objects.

    Raises:
        GitError: There is a file, or git cannot say whether there is one, and it cannot be read.
    """
    if commit is None:
        return None
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
