"""The names of relay's refs, and which kinds of them a repository has.

`relay status` asks here first: the modules that read the refs take far longer to load.
"""

import os
import re
from urllib.parse import quote, unquote, unquote_to_bytes

from relay.base.errors import RepoError
from relay.git.names import JOB_BRANCHES, find_plan_branch, name_jobs, render_ref_part
from relay.git.repository import Repo

ATTEMPTS = "refs/relay/leg/"
"""The open attempt of each branch."""
WRITTEN = "refs/relay/written/"
"""The written plan of each branch that no commit has yet."""
LOOSE = "refs/relay/plan/"
"""The versions of each loose plan, by its name (`relay.store.loose`)."""
SPENT = "refs/relay/spent/"
"""Cost of sessions that no commit records."""
ASIDE = "refs/relay/aside/"
"""What relay kept for a person before it wrote over it, by branch: no run reads it."""
REWOUND = "refs/relay/rewound/"
"""Commits that `relay rewind` left."""
_JOBS = f"refs/heads/{JOB_BRANCHES}"


def has_kept_refs(repo: Repo) -> bool:
    """Return whether there is an attempt, a written plan, a rewound past, a cost, a job's branch or an open move."""
    if (repo.relay_dir / "pending").exists():
        return True
    # Look at those of every branch: their cost may belong to this plan.
    kept = (ATTEMPTS, WRITTEN, REWOUND, SPENT, _JOBS)
    return bool(repo.list_refs(*kept))


def has_jobs(repo: Repo) -> bool:
    """Return whether any phase has a branch of its own, or is open on one that only another clone has."""
    open_on = f"{ATTEMPTS}{render_ref_part(JOB_BRANCHES)}"
    return bool(repo.list_refs(_JOBS)) or any(ref.startswith(open_on) for ref in repo.list_refs(ATTEMPTS))


def list_beside(repo: Repo) -> frozenset[str]:
    """Return the other phases with a branch of their own that land on the same branch as this one, or on this one."""
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
        raise RepoError("HEAD is detached; relay commits on a branch", hint="git switch -c NAME, or relay run --branch")
    return branch


def find_attempt_ref(branch: str) -> str:
    """Return the full name of the ref that holds a branch's open attempt."""
    return f"{ATTEMPTS}{render_ref_part(branch)}"


def name_loose(plan_path: str) -> str:
    """Return the ref of a loose plan: its name is percent-encoded where a ref's name may not have it as it is."""
    part = quote(os.fsencode(plan_path), safe="").replace("~", "%7E").replace("..", "%2E%2E")
    return LOOSE + re.sub(r"^\.|\.(?=(lock)?$)", "%2E", part)


def parse_loose(ref: str) -> str:
    """Undo it."""
    return os.fsdecode(unquote_to_bytes(ref.removeprefix(LOOSE)))


def next_ref(repo: Repo, kind: str, branch: str) -> str:
    """Return the name of a new ref: ``refs/relay/<kind>/<branch>/<n>``, n counting up."""
    prefix = f"refs/relay/{kind}/{render_ref_part(branch)}/"
    numbers = [int(tail) for name in repo.list_refs(prefix) if (tail := name.removeprefix(prefix)).isdecimal()]
    return f"{prefix}{max(numbers, default=0) + 1:06d}"
