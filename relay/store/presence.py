"""Whether relay keeps any refs for a branch. Asked first: the modules that read them load most of the write path."""

from relay.git.repository import Repo


def has_kept_refs(repo: Repo, branch: str | None) -> bool:
    """Return whether there is a leg, a written plan, a rewound past or a cost; there is none for a detached HEAD."""
    if branch is None:
        return False
    # Of every branch: what they cost may be this plan's.
    kept = ("refs/relay/leg/", "refs/relay/plan/", "refs/relay/rewound/", "refs/relay/spent/")
    return bool(repo.list_refs(*kept))
