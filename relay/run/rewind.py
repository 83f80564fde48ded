"""Goes back to the green tree before a phase, without losing any work.

By default relay makes a new branch and moves nothing. With --revert it makes a commit on top of the branch, so that
the undone commits stay in its history. Either way ``refs/relay/rewound/<branch>/<n>`` keeps the old tip, so that not
even deleting the branch loses later work.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from relay.base.errors import PlanError, RepoError
from relay.base.hints import STATUS, Command
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.config import Settings
from relay.git import objects, refs
from relay.git.config_guard import guard
from relay.git.hooks import has_hook
from relay.git.identity import Draft, get_identity, render_signoff, write_user_commit
from relay.git.message import CommitText, Message, read_texts, render_message
from relay.git.names import list_paths, render_path
from relay.git.repository import Repo
from relay.git.status import PathChange, check_state, read_status
from relay.git.trees import FILE
from relay.plan.lineage import find_lineage
from relay.plan.model import Plan
from relay.plan.parse import parse_plan
from relay.plan.text import encode_text
from relay.run.commit.gates import open_hooks
from relay.run.commit.hooks import explain_hook
from relay.run.commit.plan_commit import list_other_subjects, render_subject
from relay.setup.context import RunRequest
from relay.setup.workspace import open_own_workspace
from relay.store import trailers
from relay.store.branches import find_untracked_in_the_way, move_branch
from relay.store.commit import CommitRequest, judge_message
from relay.store.history import RelayCommit, find_text, read_plan_commits, read_undone
from relay.store.legs import read_leg
from relay.store.plan_versions import find_phases, parse_at
from relay.store.refs import get_branch, next_ref

_MESSAGE_HOOKS = frozenset({"prepare-commit-msg", "commit-msg"})
"""Hooks that `git revert` runs."""


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
    foreign: tuple[CommitText, ...]
    """Those that are not relay's work on this plan. A revert would undo them too, so relay refuses it."""


def get_rewind(repo: Repo, plan_path: str, phase_id: str) -> Rewind:
    """Return the effect of going back to before a phase.

    Raises:
        RepoError: No commit of the phase is on this branch, nothing comes before it, or the work tree has uncommitted
            changes.
    """
    if words := check_state(repo):
        raise RepoError(words)
    branch, head = get_branch(repo), repo.head()
    own = _read_since_rewind(repo, plan_path, phase_id)
    if head is None or not own:
        raise RepoError(f"no commit of phase {phase_id} is on {branch}", hint=STATUS)
    _require_clean(repo)
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
        foreign=tuple(text for text in undone if text.get(trailers.PLAN) != render_path(plan_path)),
    )


def _read_since_rewind(repo: Repo, plan_path: str, phase_id: str) -> list[RelayCommit]:
    """Return the phase's commits that no revert has undone, newest first."""
    commits = read_plan_commits(repo, plan_path)
    text = find_text(repo, "HEAD", plan_path)
    phases = find_phases(repo, plan_path, parse_at(text, plan_path), commits) if text else {}
    undone = read_undone(repo, commits)
    return [
        commit
        for commit in commits
        if phases.get(commit.commit) == phase_id and commit.status != trailers.REWOUND and commit.commit not in undone
    ]


def _require_clean(repo: Repo) -> None:
    changed = read_status(repo).changed
    if not changed:
        return
    shown = list_paths(changed)
    leg = read_leg(repo)
    where = f" Phase {leg.phase_id} is open; its checkpoints are under {leg.wip_ref}." if leg else ""
    raise RepoError(
        f"tracked files have uncommitted changes: {shown}.{where} relay does not go back over them",
        hint="commit them, or put them aside yourself, and run this again",
    )


def rewind_to_branch(repo: Repo, rewind: Rewind) -> str:
    """Make a branch at the tree before the phase and return its name; nothing else moves.

    Raises:
        RepoError: All names that relay tries exist.
    """
    keep_tip(repo, rewind)
    base = f"{rewind.branch}-before-{rewind.phase_id}"
    for name in (base, *(f"{base}-{number}" for number in range(2, 100))):
        if repo.git.probe("check-ref-format", "--branch", name).code:
            break
        reason = f"relay: before phase {rewind.phase_id}"
        if refs.move_ref(repo, f"refs/heads/{name}", rewind.target, None, reason=reason):
            return name
    raise RepoError(f"no branch {base} could be made", hint=f"git branch <name> {rewind.target[:12]}")


def keep_tip(repo: Repo, rewind: Rewind) -> str:
    """Keep the branch's tip under ``refs/relay/rewound`` and return the ref."""
    ref = next_ref(repo, trailers.REWOUND, rewind.branch)
    if not refs.move_ref(repo, ref, rewind.head, None):
        raise RepoError(f"{ref} was made by somebody else meanwhile", hint="run this again")
    return ref


def require_revert(repo: Repo, rewind: Rewind) -> None:
    """Check that a revert commit would undo only relay's work.

    Raises:
        RepoError: Others' commits or a submodule's change lie between, or an untracked file is in the way.
    """
    if rewind.foreign:
        names = list_some([f"{text.commit[:8]} {text.message.subject}" for text in rewind.foreign], joint="; ")
        raise RepoError(
            f"a revert to before phase {rewind.phase_id} would undo commits that are not relay's: {names}",
            hint=(Command(words=("rewind", rewind.phase_id)), " makes a branch instead"),
        )
    changes = _find_changes(repo, rewind)
    if moved := [change.path for change in changes if change.is_submodule]:
        raise RepoError(f"a submodule moved since then: {list_paths(moved)}", hint="relay rewind without --revert")
    if found := find_untracked_in_the_way(repo, changes):
        raise RepoError(f"untracked files are in the way: {list_paths(found)}", hint="move them and run this again")


Judge = Callable[[Message, tuple[str, ...]], bytes]
"""Given a message and alternative subjects, returns the message that the user's hooks accept. Raises RepoError."""


@contextmanager
def open_judge(request: RunRequest) -> Iterator[Judge]:
    """Yield a judge that runs the user's message hooks, if there are any, as git does for a revert.

    Raises:
        RelayError: There are hooks, and no sandbox to run them in.
    """
    repo, settings = request.repo, request.settings
    config = guard(repo).config
    if not any(has_hook(repo, config, name) for name in settings.hooks if name in _MESSAGE_HOOKS):
        yield take_as_it_is
        return
    with open_own_workspace(request) as workspace, open_hooks(repo, settings, workspace) as hooks:

        def judge(message: Message, others: tuple[str, ...]) -> bytes:
            asked = CommitRequest(branch="", head=None, message=message, other_subjects=others)
            judged = judge_message(repo, asked, hooks) if hooks else render_message(message)
            if isinstance(judged, bytes):
                return judged
            refused = explain_hook(judged)
            raise RepoError(f"nothing was changed: {refused.for_user}", hint=refused.ways)

        yield judge


def take_as_it_is(message: Message, _: tuple[str, ...]) -> bytes:
    """Accept a message without hooks; a `Judge`."""
    return render_message(message)


def rewind_by_commit(
    repo: Repo, rewind: Rewind, settings: Settings | None = None, judge: Judge = take_as_it_is
) -> tuple[str, tuple[str, ...]]:
    """Commit the tree before the phase on top of the branch, with the current plan and its boxes open again.

    Args:
        settings: Give the form of relay's subjects; None for the defaults.
        judge: Judges the message.

    Returns:
        The commit, and a message for each file, or the index, that could not be updated.

    Raises:
        RepoError: See `require_revert`; or a hook refused, or the branch moved meanwhile.
    """
    require_revert(repo, rewind)
    identity, settings = get_identity(repo).environment, settings or Settings()
    words = f"back to before phase {rewind.phase_id}"
    body = "\n".join(f"Undone: {text.commit[:10]} {text.message.subject}" for text in rewind.undone[:50])
    message = Message(
        subject=render_subject(words, settings),
        body=body,
        trailers=(
            (trailers.PLAN, render_path(rewind.plan_path)),
            (trailers.PHASE, rewind.phase_id),
            (trailers.STATUS, trailers.REWOUND),
            (trailers.REWOUND_TO, rewind.target),
            (trailers.COST, trailers.render_cost(0.0)),
            *render_signoff(repo, wanted=settings.signoff),
        ),
    )
    text = judge(message, list_other_subjects(words, settings))
    keep_tip(repo, rewind)
    # A ref keeps the old tip from here on.
    tree = _write_tree(repo, rewind)
    draft = Draft(tree=tree, parents=(rewind.head,), message=text, identity=identity)
    commit = write_user_commit(repo, guard(repo), draft)
    objects.sync_objects(repo, commit, rewind.head)
    left = move_branch(repo, rewind.branch, rewind.head, commit, reason=f"relay: {words}", identity=identity)
    if left is None:
        raise RepoError(f"{rewind.branch} moved meanwhile; nothing was changed", hint="run this again")
    return commit, left


def _find_changes(repo: Repo, rewind: Rewind) -> tuple[PathChange, ...]:
    changes = objects.diff_trees(repo, rewind.head, rewind.target)
    return tuple(change for change in changes if change.path != rewind.plan_path)


def _write_tree(repo: Repo, rewind: Rewind) -> str:
    """Store the tree before the phase, with HEAD's plan in which later ticks are removed."""
    entries = objects.read_entries(repo, rewind.head, (rewind.plan_path,))
    mode = entries[rewind.plan_path][0] if rewind.plan_path in entries else FILE
    plan = parse_plan(find_text(repo, rewind.head, rewind.plan_path) or "")
    opened = plan.untick(plan.done_ids - _find_done(repo, rewind, plan))
    blob = repo.store_object("blob", encode_text(opened.text))
    return objects.write_paths_tree(repo, [(rewind.plan_path, mode, blob)], start=rewind.target)


def _find_done(repo: Repo, rewind: Rewind, plan: Plan) -> frozenset[str]:
    """Return the items of the plan that were ticked before the phase."""
    try:
        before = parse_plan(find_text(repo, rewind.target, rewind.plan_path) or "")
    except PlanError:
        return frozenset()
    heirs = find_lineage(before, plan).items
    return frozenset(heirs[item] for item in before.done_ids if item in heirs)
