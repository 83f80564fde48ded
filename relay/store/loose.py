"""Loose plans: no commit holds them, since git ignores them or they lie outside of the repository.

A commit of relay for such a plan holds code alone, or nothing, and names in ``Relay-Plan-Tree`` the tree that has plan
and ledger as the commit leaves them. So `relay.store.history.find_text` finds them in a commit as it finds those that
commits hold, on each branch, after a rebase and in a clone. ``refs/relay/plan/<plan>`` keeps these trees, a commit for
each; it moves before the branch does (`relay.store.commit`), which is the commit point: a version that no commit names
counts for nothing.

The user's own file is where the user has it, in his work tree or outside. A run there reads and writes it between
sessions alone (`relay.run.commit.plan_commit`). In a work tree of relay's own HEAD's version is the plan, whatever a
session put at its path.
"""

from pathlib import Path

from relay.base.errors import PlanError
from relay.base.hints import TypedPath
from relay.base.places import find_place, is_outside
from relay.base.tree import read_file, replace_file
from relay.git.repository import Repo
from relay.git.trees import FILE, find_entries
from relay.plan.lineage import check_ticks_kept
from relay.plan.model import Plan
from relay.plan.operations import read_operations, replay
from relay.plan.parse import find_plan_in
from relay.plan.text import encode_text, find_ledger_path
from relay.store.history import (
    FETCH_LOOSE,
    find_plan_tree,
    find_text,
    read_all_plans,
    read_plan_commits,
    read_undone,
)
from relay.store.refs import name_loose
from relay.store.worktree_notes import is_own_tree


def is_loose(repo: Repo, plan_path: str) -> bool:
    """Return whether commits leave a plan out: not if HEAD holds it, whatever git would ignore."""
    head = repo.head()
    if is_outside(plan_path) or (head and plan_path in find_entries(repo, head, (plan_path,))):
        return is_outside(plan_path)
    if head and find_plan_tree(repo, head, plan_path):
        return True
    from relay.git.status import find_ignored

    return bool(find_ignored(repo, (plan_path,)))


def require_in_commits(repo: Repo, plan_path: str) -> None:
    """Refuse a loose plan where others read it from commits.

    Raises:
        PlanError: It is one.
    """
    if is_loose(repo, plan_path):
        ways = (
            "put it into the repository and commit it"
            if is_outside(plan_path)
            else ("git add -f ", TypedPath(path=plan_path))
        )
        raise PlanError(f"{plan_path} is in no commit; allowed here: a plan that commits hold", hint=ways)


def require_versions(repo: Repo, plan_path: str) -> None:
    """Refuse a plan that this clone has commits of and no version.

    Raises:
        PlanError: Its ref was not fetched.
    """
    if any(one.plan == plan_path and one.plan_tree for one in read_all_plans(repo, plan_path=plan_path)):
        words = f"commits here name versions of it, and this clone does not have {name_loose(plan_path)}"
        raise PlanError(words, path=plan_path, hint=FETCH_LOOSE)


def read_own(repo: Repo, plan_path: str, path: str = "") -> bytes | None:
    """Return the plan's file as a run here has it, or with `path` its ledger's; None without one."""
    path = path or plan_path
    if is_own_tree(repo) and is_loose(repo, plan_path):
        text = find_text(repo, "HEAD", path)
        return None if text is None else encode_text(text)
    return read_file(*_find_file(repo, path))


def write_own(repo: Repo, plan_path: str, data: bytes, path: str = "") -> None:
    """Replace that file; in a work tree of relay's own no file of a loose plan is written."""
    if is_own_tree(repo) and is_loose(repo, plan_path):
        return
    root, name = _find_file(repo, path or plan_path)
    root.mkdir(parents=True, exist_ok=True)  # outside, in a clone on another machine
    replace_file(root, name, data, FILE)


def is_behind(repo: Repo, plan_path: str) -> bool:
    """Return whether a loose plan's file or ledger is not as HEAD has it: a kill may come before it is written."""
    if not is_loose(repo, plan_path):
        return False
    texts = {path: find_text(repo, "HEAD", path) for path in (plan_path, find_ledger_path(plan_path))}
    return any(text and read_own(repo, plan_path, path) != encode_text(text) for path, text in texts.items())


def _find_file(repo: Repo, path: str) -> tuple[Path, str]:
    if not is_outside(path):
        return repo.root, path
    place = find_place(repo.root, path)
    return place.parent, place.name


def find_meant(repo: Repo, plan_path: str, head: Plan, shown: Plan) -> Plan | None:
    """Return the plan that a loose plan's file means; None for what only its user may settle.

    What relay did since the file's version is done in it, too: it landed while the user edited, or relay was killed
    before it wrote the file. A file that is exactly an earlier version, or that of another branch, is HEAD's.
    """
    if _is_version(repo, plan_path, shown) and (
        check_ticks_kept(head, shown) or replay(read_operations(shown, head), head, shown).plan.text == head.text
    ):
        return head
    if not check_ticks_kept(head, shown):
        return shown
    for commit in read_all_plans(repo, plan_path=plan_path):
        text = find_text(repo, commit.commit, plan_path) if commit.plan == plan_path and commit.plan_tree else None
        then = find_plan_in(text or "")
        if then is not None and not check_ticks_kept(then, shown):
            return replay(read_operations(then, head), head, shown).plan
    return None


def take_back_reverted(repo: Repo, plan_path: str, head: Plan) -> Plan:
    """Return HEAD's plan without the ticks of commits that `git revert` undid since: it takes back files alone."""
    own = read_plan_commits(repo, plan_path)
    undone = read_undone(repo, own[:1])
    for commit in own if undone else ():
        then = find_plan_in(find_text(repo, commit.commit, plan_path) or "") if commit.commit in undone else None
        texts = {item.text for item in then.items if item.id in commit.items} if then else set[str]()
        head = head.untick([item.id for item in head.items if item.done and item.text in texts])
    return head


def _is_version(repo: Repo, plan_path: str, shown: Plan) -> bool:
    """Return whether relay knows these very bytes."""
    from relay.git.message import read_texts
    from relay.git.objects import find_blob_id

    blob = find_blob_id(repo, encode_text(shown.text))
    kept = read_texts(repo.git, ref, "--") if repo.list_refs(ref := name_loose(plan_path)) else ()
    return any(find_entries(repo, one.commit, (plan_path,)).get(plan_path, ("", ""))[1] == blob for one in kept)
