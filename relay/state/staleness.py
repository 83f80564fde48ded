"""Files that a phase names and that others changed since the plan was made: what a plan may be wrong about."""

from collections.abc import Iterable

from relay.git.message import CommitText, read_texts
from relay.git.objects import diff_trees, read_entries
from relay.git.repository import Repo
from relay.git.status import ChangeKind
from relay.plan.model import Phase
from relay.store import trailers
from relay.store.trailers import AMENDED
from relay.values import dataclass

MAX_COMMITS = 500
"""Commits looked at; a plan that is older than that has other troubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touched:
    kind: ChangeKind
    commit: CommitText


def find_stale(repo: Repo, plan_path: str, phase: Phase) -> tuple[str, ...]:
    """Return a line for each file that the phase names and that commits not relay's have changed, made or removed.

    Counted from the commit that last wrote the phase: ``planned``, ``amended``, a session's amendment of this phase,
    or a commit of the user's own that changed the plan file. What is not committed is not looked at.
    """
    named = tuple(dict.fromkeys(path.rstrip("/") for path in phase.open_paths))
    head = repo.head()
    made = _find_plan_commit(repo, plan_path, phase.id) if named and head else None
    if head is None or made is None or made == head:
        return ()
    args = ("--no-merges", f"--max-count={MAX_COMMITS}", f"{made}..{head}", "--", *named)
    commits = [text for text in read_texts(repo.git, *args) if not text.get(trailers.PLAN)]
    touched = _find_touched(repo, reversed(commits), named)
    left = read_entries(repo, head, tuple(touched))
    return tuple(_describe(path, touched[path], is_there=path in left) for path in sorted(touched))


def _find_plan_commit(repo: Repo, plan_path: str, phase_id: str) -> str | None:
    for text in read_texts(repo.git, f"--max-count={MAX_COMMITS}", "HEAD", "--", plan_path):
        by_relay = bool(text.get(trailers.PLAN))
        if not by_relay or text.get(trailers.STATUS) in {"planned", "amended"}:
            return text.commit
        if phase_id in text.get(AMENDED).split():
            return text.commit
    return None


def _find_touched(repo: Repo, commits: Iterable[CommitText], named: tuple[str, ...]) -> dict[str, _Touched]:
    """Return the last change of each file among or below `named`; `commits` come oldest first."""
    touched: dict[str, _Touched] = {}
    for text in commits:
        parent = text.parents[0] if text.parents else repo.empty_tree
        for change in diff_trees(repo, parent, text.commit):
            if any(change.path == name or change.path.startswith(f"{name}/") for name in named):
                touched[change.path] = _Touched(kind=change.kind, commit=text)
    return touched


def _describe(path: str, touched: _Touched, *, is_there: bool) -> str:
    what = "is gone" if not is_there else "is new" if touched.kind is ChangeKind.ADDED else "has changed"
    return f"{path} {what}: {touched.commit.commit[:8]} {touched.commit.message.subject[:72]}"
