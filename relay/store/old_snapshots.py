"""Snapshots whose work is in a commit of a branch by now: what `relay gc` may take away, and what it keeps."""

from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum

from relay.base.values import dataclass
from relay.git import refs
from relay.git.message import CommitText, read_texts
from relay.git.repository import Repo
from relay.store import trailers

_SNAPSHOTS, _LEGS = "refs/relay/wip/", "refs/relay/leg/"


class StayReason(StrEnum):
    """Why a snapshot stays."""

    OPEN = "of an open phase"
    UNMERGED = "of work that no branch has a commit of"
    YOUNG = "younger than that"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSnapshot:
    """The snapshots of a leg, under one ref."""

    ref: str
    commit: str
    session: str
    """Of its last session."""
    time: int
    """Of the newest, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """All snapshots, as far as they are old."""

    old: tuple[OldSnapshot, ...]
    """What may go."""
    kept: Counter[StayReason]
    """How many stay, and why."""


def sort_snapshots(repo: Repo, *, before: float) -> Sorting:
    """Tell what may go from what has to stay; changes nothing.

    Args:
        before: Seconds since the epoch; what is newer stays.
    """
    found = _list_snapshots(repo)
    if not found:
        return Sorting(old=(), kept=Counter())
    # A leg names the ref of its snapshots, of whatever branch and work tree it is.
    needed = {text.get(trailers.WIP) for text in _read_all(repo, repo.list_refs(_LEGS).values())}
    args = ("--branches", "--basic-regexp", f"--grep=^{trailers.SESSION}: ", "--")
    merged = {text.get(trailers.SESSION) for text in read_texts(repo.git, *args)}
    judged = [(snapshot, _find_reason(snapshot, needed, merged, before)) for snapshot in found]
    return Sorting(
        old=tuple(snapshot for snapshot, reason in judged if reason is None),
        kept=Counter(reason for _, reason in judged if reason is not None),
    )


def drop_snapshots(repo: Repo, old: Collection[OldSnapshot]) -> int:
    """Remove the refs of snapshots, each only if it still is what was looked at; return how many went.

    The caller holds the work tree's lock. The objects stay until git's own collection.
    """
    return sum(refs.drop_ref(repo, snapshot.ref, snapshot.commit) for snapshot in old)


def _list_snapshots(repo: Repo) -> list[OldSnapshot]:
    listed = repo.list_refs(_SNAPSHOTS)
    texts = {text.commit: text for text in _read_all(repo, listed.values())}
    return [
        OldSnapshot(ref=ref, commit=commit, session=texts[commit].get(trailers.SESSION), time=texts[commit].time)
        for ref, commit in listed.items()
        if commit in texts
    ]


def _read_all(repo: Repo, commits: Iterable[str]) -> Iterable[CommitText]:
    """Return commits in one call of git; none without any, where git would take HEAD."""
    asked = "\n".join(commits)
    return read_texts(repo.git, "--no-walk", "--stdin", stdin=f"{asked}\n".encode()) if asked else ()


def _find_reason(
    snapshot: OldSnapshot, needed: Collection[str], merged: Collection[str], before: float
) -> StayReason | None:
    """Return why a snapshot stays; None when it may go."""
    if snapshot.ref in needed:
        return StayReason.OPEN
    if not snapshot.session or snapshot.session not in merged:
        return StayReason.UNMERGED
    return StayReason.YOUNG if snapshot.time >= before else None
