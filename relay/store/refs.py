"""The names of relay's refs, and which kinds of them a repository has.

`relay status` asks here first: the modules that read the refs load far more.
"""

from urllib.parse import unquote

from relay.base.errors import RepoError
from relay.git.names import JOB_BRANCHES, find_plan_branch, name_jobs, render_ref_part
from relay.git.repository import Repo

LEGS = "refs/relay/leg/"
"""The open leg of each branch."""
PLANS = "refs/relay/plan/"
"""A written plan that no commit has yet, of each branch."""
SPENT = "refs/relay/spent/"
"""What sessions cost that no commit tells of."""
REWOUND = "refs/relay/rewound/"
"""What `relay rewind` left."""
_JOBS = f"refs/heads/{JOB_BRANCHES}"
SEEN_CLAIMS = "refs/relay/remote/"
"""Below it: claims of many machines, as this clone's remote had them when it was last asked."""


def has_kept_refs(repo: Repo) -> bool:
    """Say whether there is a leg, a written plan, a rewound past, a cost, a job's branch or a move that was cut off."""
    if (repo.relay_dir / "pending").exists():
        return True
    # Of every branch: what they cost may be this plan's.
    kept = (LEGS, PLANS, REWOUND, SPENT, _JOBS)
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


def get_branch(repo: Repo) -> str:
    """Return the branch that HEAD names.

    Raises:
        RepoError: HEAD is detached.
    """
    branch = repo.branch
    if branch is None:
        raise RepoError("HEAD is detached; relay commits on a branch", hint="git switch -c <name>")
    return branch


def find_leg_ref(branch: str) -> str:
    """Return the full name of the ref that holds a branch's open leg."""
    return f"{LEGS}{render_ref_part(branch)}"


def next_ref(repo: Repo, kind: str, branch: str) -> str:
    """Return the name of a ref that does not exist yet: ``refs/relay/<kind>/<branch>/<n>``, n counting up."""
    prefix = f"refs/relay/{kind}/{render_ref_part(branch)}/"
    numbers = [int(tail) for name in repo.list_refs(prefix) if (tail := name.removeprefix(prefix)).isdecimal()]
    return f"{prefix}{max(numbers, default=0) + 1:06d}"
