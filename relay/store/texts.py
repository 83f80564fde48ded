"""The plan and the ledger as a commit or a snapshot has them."""

from relay.git.repository import Repo
from relay.plan.encoding import decode_text


def find_text(repo: Repo, commit: str | None, path: str) -> str | None:
    """Return a file's text as a commit has it; None when it has none there, or when there is no commit yet.

    One call of git; `relay status` pays for it, so it does without the rest of what reads objects.
    """
    found = None if commit is None else repo.git.probe("cat-file", "blob", f"{commit}:{path}")
    return None if found is None or found.code else decode_text(found.out)
