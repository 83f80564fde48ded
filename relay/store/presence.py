"""Whether relay keeps refs here: asked first, because what reads more loads most of the write path."""

from relay.git.repository import Repo


def has_kept_refs(repo: Repo, branch: str | None) -> bool:
    """Return whether there is a leg, a written plan, a rewound past, a cost, a job's branch or a move that was cut off.

    There is none for a detached HEAD.
    """
    if branch is None:
        return False
    if (repo.relay_dir / "pending").exists():
        return True
    # Of every branch: what they cost may be this plan's.
    kept = ("refs/relay/leg/", "refs/relay/plan/", "refs/relay/rewound/", "refs/relay/spent/", "refs/heads/relay-jobs/")
    return bool(repo.list_refs(*kept))
