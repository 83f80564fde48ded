"""The plan and the ledger as a commit or a snapshot has them."""

from relay.git.objects import read_blob
from relay.git.repository import Repo
from relay.plan.encoding import decode_text


def find_text(repo: Repo, commit: str | None, path: str) -> str | None:
    """Return a file's text as a commit has it; None when it has none there, or when there is no commit yet."""
    blob = None if commit is None else read_blob(repo, commit, path)
    return None if blob is None else decode_text(blob)
