"""Whether relay keeps refs here, or runs phases side by side: asked first, because what knows more loads far more."""

from urllib.parse import unquote

from relay.git.names import JOB_BRANCHES, find_plan_branch, name_jobs
from relay.git.repository import Repo

LEGS = "refs/relay/leg/"
"""The open leg of each branch."""
_JOBS = f"refs/heads/{JOB_BRANCHES}"
SEEN_CLAIMS = "refs/relay/remote/"
"""Below it: claims of many machines, as this clone's remote had them when it was last asked."""


def has_kept_refs(repo: Repo) -> bool:
    """Say whether there is a leg, a written plan, a rewound past, a cost, a job's branch or a move that was cut off."""
    if (repo.relay_dir / "pending").exists():
        return True
    # Of every branch: what they cost may be this plan's.
    kept = (LEGS, "refs/relay/plan/", "refs/relay/rewound/", "refs/relay/spent/", _JOBS)
    return bool(repo.list_refs(*kept))


def has_jobs(repo: Repo) -> bool:
    """Return whether any phase has a branch of its own."""
    return bool(repo.list_refs(_JOBS))


def has_seen_claims(repo: Repo) -> bool:
    """Return whether this clone has ever asked its remote what is claimed."""
    return bool(repo.list_refs(SEEN_CLAIMS))


def list_beside(repo: Repo) -> frozenset[str]:
    """Return the phases that have a branch of their own beside this one's, which land on the same branch or on this."""
    branch = repo.branch or ""
    others = repo.list_refs(f"refs/heads/{name_jobs(find_plan_branch(branch))}")
    refs = (ref for ref in others if ref != f"refs/heads/{branch}")
    return frozenset(unquote(ref.rpartition("/")[2]) for ref in refs)
