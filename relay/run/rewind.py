"""Goes back to the green tree before a phase, without losing any work.

relay makes a new branch and moves nothing. ``refs/relay/rewound/<branch>/<n>`` keeps the old tip, so that not even
deleting the branch loses later work. Whoever wants the work undone on the branch itself is told the ``git revert``.
"""

from relay.base.errors import RepoError
from relay.base.hints import STATUS
from relay.base.values import dataclass
from relay.git import refs
from relay.git.message import CommitText, read_texts
from relay.git.names import render_path
from relay.git.repository import Repo
from relay.git.status import check_state
from relay.store import trailers
from relay.store.history import RelayCommit, find_text, read_plan_commits, read_undone
from relay.store.plan_versions import find_phases, parse_at
from relay.store.refs import get_branch, next_ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """The effect of going back."""

    branch: str
    phase_id: str
    plan_path: str
    head: str
    target: str
    """The commit before the first commit of the phase."""
    undone: tuple[CommitText, ...]
    """The commits after it, newest first."""
    revert: str
    """The command that undoes relay's commits for this plan, and no other, on this branch; empty if there is none."""


def get_rewind(repo: Repo, plan_path: str, phase_id: str) -> Rewind:
    """Return the effect of going back to before a phase.

    Raises:
        RepoError: No commit of the phase is on this branch, or nothing comes before it.
    """
    if words := check_state(repo):
        raise RepoError(words)
    branch, head = get_branch(repo), repo.head()
    own = _read_since_rewind(repo, plan_path, phase_id)
    if head is None or not own:
        raise RepoError(f"no commit of phase {phase_id} is on {branch}", hint=STATUS)
    # For a merged phase, go back to before the merge: phases that landed meanwhile stay.
    landed = {text.commit for text in read_texts(repo.git, "--first-parent", head, f"^{own[-1].commit}^@", "--")}
    first = next((commit for commit in reversed(own) if commit.commit in landed), own[-1])
    if not first.parents:
        raise RepoError(f"nothing comes before phase {phase_id}: {first.commit[:10]} is the first commit")
    target = first.parents[0]
    undone = read_texts(repo.git, "--topo-order", f"{target}..{head}", "--")
    return Rewind(
        branch=branch,
        phase_id=phase_id,
        plan_path=plan_path,
        head=head,
        target=target,
        undone=undone,
        revert=_render_revert(target, undone, plan_path, read_undone(repo, read_plan_commits(repo, plan_path))),
    )


def _render_revert(target: str, undone: tuple[CommitText, ...], plan_path: str, gone: frozenset[str]) -> str:
    """Return the `git revert`: a range if it holds nothing else, else relay's commits one by one.

    Args:
        target: The commit before the first of the phase.
        undone: The commits since then, newest first.
        gone: Commits that were reverted already.
    """
    own = [
        text.commit[:12]
        for text in undone
        if text.get(trailers.PLAN) == render_path(plan_path) and len(text.parents) == 1 and text.commit not in gone
    ]
    whole = f"{target[:12]}..{undone[0].commit[:12]}"
    if not own:
        return ""
    return f"git revert --no-edit {whole if len(own) == len(undone) else ' '.join(own)}"


def _read_since_rewind(repo: Repo, plan_path: str, phase_id: str) -> list[RelayCommit]:
    """Return the phase's commits that no revert has undone, newest first."""
    commits = read_plan_commits(repo, plan_path)
    text = find_text(repo, "HEAD", plan_path)
    phases = find_phases(repo, plan_path, parse_at(text, plan_path), commits) if text else {}
    undone = read_undone(repo, commits)
    return [commit for commit in commits if phases.get(commit.commit) == phase_id and commit.commit not in undone]


def rewind_to_branch(repo: Repo, rewind: Rewind) -> str:
    """Make a branch at the tree before the phase and return its name; nothing else moves.

    Raises:
        RepoError: All names that relay tries exist.
    """
    _keep_tip(repo, rewind)
    base = f"{rewind.branch}-before-{rewind.phase_id}"
    for name in (base, *(f"{base}-{number}" for number in range(2, 100))):
        if repo.git.probe("check-ref-format", "--branch", name).code:
            break
        reason = f"relay: before phase {rewind.phase_id}"
        if refs.move_ref(repo, f"refs/heads/{name}", rewind.target, None, reason=reason):
            return name
    raise RepoError(f"no branch {base} could be made", hint=f"git branch NAME {rewind.target[:12]}")


def _keep_tip(repo: Repo, rewind: Rewind) -> None:
    """Keep the branch's tip under ``refs/relay/rewound``."""
    ref = next_ref(repo, "rewound", rewind.branch)
    if not refs.move_ref(repo, ref, rewind.head, None):
        raise RepoError(f"{ref} was made by somebody else meanwhile", hint="run this again")
