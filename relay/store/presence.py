"""Whether relay keeps any refs for a branch. Asked first: the modules that read them load most of the write path."""

from relay.git.names import render_ref_part
from relay.git.repository import Repo


def has_kept_refs(repo: Repo, branch: str | None) -> bool:
    """Return whether there is an open leg, a written plan or a rewound past; there is none for a detached HEAD."""
    if branch is None:
        return False
    part = render_ref_part(branch)
    kept = (f"refs/relay/leg/{part}", f"refs/relay/plan/{part}", "refs/relay/rewound/")
    return bool(repo.git.run("for-each-ref", "--count=1", *kept))
