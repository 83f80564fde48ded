"""Checkpoints: snapshots of an open attempt, with what its session notes; restoring, sorting out and repairing them."""

import os
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from msgspec import structs

from relay.base.errors import RepoError
from relay.base.hints import ANOTHER_RELAY, RUN
from relay.base.secrecy import is_covered
from relay.base.tree import find_stat, remove_file, replace_file
from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.config_guard import guard
from relay.git.lock_journal import storing
from relay.git.message import CommitText, clean_text, read_texts
from relay.git.objects import RELAY_IDENTITY
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.git.trees import ABSENT, EXECUTABLE, FILE
from relay.session.usage import Spent
from relay.store import trailers
from relay.store.attempts import OpenAttempt, find_spent, read_attempt, render_skipped
from relay.store.ref_notes import Carried, Ending, Notes, make_message, note_spending, read_notes
from relay.store.refs import ATTEMPTS
from relay.store.snapshot import Snapshot, TreeSnapshot, find_unheld, write_snapshot_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """A plan for restoring a snapshot to the work tree; nothing is done yet."""

    tree: str
    """The work tree as it will be. Keep it under a ref before a file is written: only then can the restoration be
    repeated."""
    changes: tuple[PathChange, ...]
    """The files to write or remove."""
    blocked: tuple[str, ...]
    """Paths that stay as they are because an ignored file stands in their place, which no snapshot holds."""


def plan_restoration(repo: Repo, *, found: TreeSnapshot, wanted: TreeSnapshot) -> Restoration:
    """Find out which files must be written or removed for the work tree to be as in a snapshot again.

    Submodules stay as they are, and so do paths that either snapshot left out, and paths whose bytes in a snapshot were
    not the work tree's.

    Args:
        found: A snapshot of the work tree as it is now.
        wanted: The snapshot to restore, taken over the same HEAD.
    """
    between = objects.diff_trees(repo, found.tree, wanted.tree)
    others = {*found.replaced, *wanted.replaced}
    # Git makes no such tree, but may have fetched one; a ``.git`` written to the work tree decides what git runs.
    others |= {change.path for change in between if is_covered(change.path, ("**/.git",))}
    others |= find_unheld(repo, repo.head(), [change.path for change in between], found.skipped, wanted.skipped)
    differing = [change for change in between if not (change.is_submodule or change.path in others)]
    removed = {change.path for change in differing if change.kind == ChangeKind.DELETED}
    blocked = {change.path for change in differing if change.path not in removed and _is_blocked(repo, change, removed)}
    changes = tuple(change for change in differing if change.path not in blocked)
    gone = [(change.path, ABSENT, repo.zero_id) for change in changes if change.path in removed]
    new = [(change.path, change.mode, change.object_id) for change in changes if change.path not in removed]
    tree = objects.write_paths_tree(repo, (*gone, *new), start=found.tree)
    return Restoration(tree=tree, changes=changes, blocked=tuple(sorted(blocked)))


def run_restoration(repo: Repo, restoration: Restoration, *commits: str | None) -> None:
    """Write and remove the files; may be repeated.

    Args:
        restoration: The plan; the caller keeps its sources under a ref.
        commits: The commits that its snapshots were taken over, and those merged there; None for an unborn branch.
    """
    git, changes = guard(repo).git, restoration.changes
    paths = [change.path for change in changes]
    cleaned = {pair for commit in commits if commit for pair in objects.read_entries(repo, commit, paths).items()}
    # Git converts a commit's blob back, since it went through clean filters. Others are raw bytes.
    as_committed = [c for c in changes if c.mode in {FILE, EXECUTABLE} and (c.path, (c.mode, c.object_id)) in cleaned]
    converted = objects.check_out_all(git, {change.path: change.object_id for change in as_committed})
    # Removals first: a directory may have to make room for a file.
    for change in sorted(changes, key=lambda change: change.kind != ChangeKind.DELETED):
        if change.kind == ChangeKind.DELETED:
            remove_file(repo.root, change.path)
        else:
            data = converted.get(change.path)
            data = objects.load_blob(repo, change.object_id) if data is None else data
            replace_file(repo.root, change.path, data, change.mode)


def _is_blocked(repo: Repo, change: PathChange, removed: Collection[str]) -> bool:
    """Return whether writing the path would remove something that `found` does not hold."""
    for parent in list(PurePosixPath(change.path).parents)[:-1]:
        above = find_stat(repo.root, str(parent))
        if above is not None and not stat.S_ISDIR(above.st_mode) and str(parent) not in removed:
            return True
    there = find_stat(repo.root, change.path)
    if there is not None and stat.S_ISDIR(there.st_mode):
        return not _will_be_empty(repo, change.path, removed)
    return there is not None and change.kind == ChangeKind.ADDED


def _will_be_empty(repo: Repo, directory: str, removed: Collection[str]) -> bool:
    """Return whether all files of a directory are among the removed ones."""
    for place, below, files in os.walk(repo.root / directory):
        here = Path(place)
        names = (*files, *(name for name in below if (here / name).is_symlink()))
        if not (below or files) or any(
            (here / name).relative_to(repo.root).as_posix() not in removed for name in names
        ):
            return False
    return True


_SNAPSHOTS = "refs/relay/wip/"


class StayReason(StrEnum):
    """Why a snapshot stays."""

    OPEN = "of an open phase"
    UNMERGED = "of work that no branch has a commit of"
    YOUNG = "younger than that"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSnapshot:
    """The snapshots of an attempt, under one ref."""

    ref: str
    commit: str
    session: str
    """The attempt's last session."""
    time: int
    """The newest snapshot's time, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """All snapshots, sorted into those that may go and those that stay."""

    old: tuple[OldSnapshot, ...]
    kept: Counter[StayReason]
    """How many snapshots stay, by reason."""


def sort_snapshots(repo: Repo, *, before: float) -> Sorting:
    """Sort the snapshots into those that may go and those that stay; nothing is changed.

    Args:
        before: Seconds since the epoch; newer snapshots stay.
    """
    found = _list_snapshots(repo)
    if not found:
        return Sorting(old=(), kept=Counter())
    # Each open attempt, of any branch and work tree, names the ref of its snapshots.
    needed = {notes.wip for _, notes in _read_all(repo, repo.list_refs(ATTEMPTS).values())}
    args = ("--branches", "--basic-regexp", f"--grep=^{trailers.SESSION}:", "--")
    merged = {text.get(trailers.SESSION) for text in read_texts(repo.git, *args)}
    judged = [(snapshot, _find_reason(snapshot, needed, merged, before)) for snapshot in found]
    return Sorting(
        old=tuple(snapshot for snapshot, reason in judged if reason is None),
        kept=Counter(reason for _, reason in judged if reason is not None),
    )


def drop_snapshots(repo: Repo, old: Collection[OldSnapshot]) -> int:
    """Remove the refs of snapshots that have not moved since, and return how many were removed.

    The caller holds the work tree's lock. The objects stay until git's own collection.
    """
    return sum(refs.drop_ref(repo, snapshot.ref, snapshot.commit) for snapshot in old)


def _list_snapshots(repo: Repo) -> list[OldSnapshot]:
    listed = repo.list_refs(_SNAPSHOTS)
    read = {text.commit: (text.time, notes.session) for text, notes in _read_all(repo, listed.values())}
    found = ((ref, commit, *read[commit]) for ref, commit in listed.items() if commit in read)
    return [OldSnapshot(ref=ref, commit=commit, session=session, time=time) for ref, commit, time, session in found]


def _read_all(repo: Repo, commits: Iterable[str]) -> list[tuple[CommitText, Notes]]:
    """Return commits in one call of git, with what they say; nothing for no commits, where git would take HEAD."""
    asked = "\n".join(commits)
    texts = read_texts(repo.git, "--no-walk", "--stdin", stdin=f"{asked}\n".encode()) if asked else ()
    return [(text, read_notes(text) or Notes()) for text in texts]


def _find_reason(
    snapshot: OldSnapshot, needed: Collection[str], merged: Collection[str], before: float
) -> StayReason | None:
    """Return why a snapshot stays; None if it may go."""
    if snapshot.ref in needed:
        return StayReason.OPEN
    if not snapshot.session or snapshot.session not in merged:
        return StayReason.UNMERGED
    return StayReason.YOUNG if snapshot.time >= before else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WipRecord:
    """What a snapshot holds besides the files."""

    spend: Spent
    items: tuple[str, ...] = ()
    handoff_note: str = ""
    replace: Mapping[str, bytes] | None = None
    """Bytes that go into the tree in place of the work tree's: the plan with its claims ticked."""
    carried: Carried = Carried()
    """What all further snapshots keep, besides what the attempt has."""
    ending: Ending = Ending()


@storing
def save_wip(repo: Repo, attempt: OpenAttempt, record: WipRecord) -> OpenAttempt:
    """Snapshot the work tree on top of the attempt's last snapshot and return the attempt as it is now.

    Raises:
        RepoError: The snapshot cannot be stored, another process moved the attempt's snapshot ref, or somebody is
            removing the work tree: what is left of it is no work of the attempt.
    """
    last = attempt.last_wip
    found = write_snapshot_tree(repo, replace=record.replace)
    if not os.path.lexists(repo.root / ".git"):
        words = f"{repo.root} was removed while relay worked in it; its last checkpoint stays as it was"
        raise RepoError(words, hint=RUN)
    if last and last.tree == found.tree and _is_noted(repo, attempt, _make_notes(attempt, record, found)):
        return replace(attempt, last_wip=Snapshot.of(found, last.commit))
    return save_snapshots(repo, attempt, record, found)


def _is_noted(repo: Repo, attempt: OpenAttempt, notes: Notes) -> bool:
    """Return whether the last snapshot says all of this but the cost, which `relay.store.attempts` notes."""
    saved = structs.replace(attempt.saved, usage=notes.usage, cost=notes.cost)
    return saved == notes and find_spent(repo, attempt.session_id) is not None


@storing
def save_snapshots(repo: Repo, attempt: OpenAttempt, record: WipRecord, *snapshots: TreeSnapshot) -> OpenAttempt:
    """Store snapshots on top of the attempt's last one, in order; the ref moves once, to the last of them.

    Raises:
        RepoError: Another process moved the attempt's snapshot ref.
    """
    last = attempt.last_wip
    for snapshot in snapshots:
        attempt = _write_snapshot(repo, attempt, record, snapshot)
    if attempt.last_wip and not refs.move_ref(
        repo, attempt.wip_ref, attempt.last_wip.commit, last.commit if last else None
    ):
        raise RepoError(f"{attempt.wip_ref} was moved by somebody else", hint=ANOTHER_RELAY)
    return attempt


def _write_snapshot(repo: Repo, attempt: OpenAttempt, record: WipRecord, found: TreeSnapshot) -> OpenAttempt:
    """Store a snapshot that no ref holds yet."""
    notes = _make_notes(attempt, record, found)
    parent = attempt.last_wip.commit if attempt.last_wip else attempt.commit
    message = make_message(f"relay: snapshot of phase {attempt.phase_id}", notes)
    commit = objects.write_commit(repo, found.tree, (parent,), message)
    return replace(attempt, last_wip=Snapshot.of(found, commit), spend=record.spend, saved=notes)


def _make_notes(attempt: OpenAttempt, record: WipRecord, found: TreeSnapshot) -> Notes:
    return Notes(
        plan=attempt.plan_path,
        phase=attempt.phase_id,
        session=attempt.session_id,
        items=record.items,
        skipped=render_skipped(found.skipped),
        replaced=found.replaced,
        handoff_note=clean_text(record.handoff_note),
        carried=attempt.carried.join(record.carried),
        ending=record.ending,
        **note_spending(record.spend),
    )


_ROOT = "refs/relay/"

_MOST_READ = 50
"""Up to this number relay reads the objects itself; for more, starting git takes less time."""

_Commits = Mapping[str, tuple[CommitText, Notes]]
"""Every commit of relay's own that git still has, by id, whether or not a ref holds it."""


def repair_refs(repo: Repo) -> tuple[str, ...]:
    """Check every ref under ``refs/relay/``, and all objects of the open attempt's newest snapshot.

    Returns:
        One sentence per ref that held no id or named a lost object, with what was done about it.

    Raises:
        GitError: Git cannot say what is missing.
    """
    broken = refs.put_aside_broken(repo, _ROOT)
    held = repo.list_refs(_ROOT)
    gone = _find_gone(repo, held.values())
    lost = [ref for ref in held if held[ref] in gone]
    if not lost and (newest := _find_newest(repo)) and newest in held and not _is_whole(repo, held[newest]):
        lost = [newest]
    if not lost and not broken:
        return ()
    own = _read_own(repo)
    words = {ref: f"{ref} held no id (a power cut?), and its file is {place} now" for ref, place in broken.items()}
    lost_words = "which git has lost or not whole (git gc or prune, while relay was at work?)"
    words |= {ref: f"{ref} named {held[ref][:10]}, {lost_words}" for ref in lost}
    return tuple(_repair(repo, ref, held.get(ref), own, words[ref]) for ref in sorted(words))


def _find_gone(repo: Repo, objects: Iterable[str]) -> frozenset[str]:
    """Return those of the objects that git does not have."""
    names = frozenset(objects)
    asked = names if len(names) > _MOST_READ else [name for name in names if repo.read_object(name) is None]
    stdin = "".join(f"{name}\n" for name in asked).encode()
    lines = repo.git.run("cat-file", "--batch-check", stdin=stdin).decode().splitlines() if stdin else []
    return frozenset(line.removesuffix(" missing") for line in lines if line.endswith(" missing"))


def _find_newest(repo: Repo) -> str | None:
    attempt = read_attempt(repo)
    return attempt.wip_ref if attempt and attempt.last_wip else None


def _is_whole(repo: Repo, commit: str) -> bool:
    """Return whether git has every tree and file of a commit, apart from objects that a branch has."""
    out = repo.git.run("rev-list", "--objects", "--no-object-names", "--missing=print", commit, "--not", "--branches")
    return not any(line.startswith(b"?") for line in out.splitlines())


def _read_own(repo: Repo) -> _Commits:
    lines = repo.git.run("cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").splitlines()
    commits = b"".join(line.removeprefix(b"commit ") + b"\n" for line in lines if line.startswith(b"commit "))
    who = f"<{RELAY_IDENTITY['GIT_AUTHOR_EMAIL']}>"
    found = read_texts(repo.git, "--no-walk=unsorted", "-F", f"--author={who}", "--stdin", stdin=commits)
    return {text.commit: (text, notes) for text in found if (notes := read_notes(text)) is not None}


def _repair(repo: Repo, ref: str, old: str | None, own: _Commits, words: str) -> str:
    if not ref.startswith((_SNAPSHOTS, ATTEMPTS)):
        return f"{words}; git update-ref -d {ref} drops it" if old else words
    found = _find_snapshot(repo, ref, own) if ref.startswith(_SNAPSHOTS) else _find_attempt(repo, ref, own)
    if not (refs.move_ref(repo, ref, found, old) if found else old is None or refs.drop_ref(repo, ref, old)):
        raise RepoError(f"{ref} was moved by somebody else", hint=ANOTHER_RELAY)
    if found is None:
        return f"{words}: nothing of it was found, and it is gone; the work tree is as it was"
    return f"{words}: it is at {found[:10]} now, the newest before it that is whole; the work tree is as it was"


def _find_snapshot(repo: Repo, ref: str, own: _Commits) -> str | None:
    """Return the newest whole snapshot of the attempt whose snapshots the ref holds."""
    chains = [chain for commit in own if (chain := _follow(commit, ref, own))]
    for chain in sorted(chains, key=len, reverse=True):
        if _is_whole(repo, chain[0]):
            return chain[0]
    return None


def _follow(commit: str, ref: str, own: _Commits) -> tuple[str, ...]:
    """Return a snapshot and those before it, back to its attempt; empty for other commits, and other refs."""
    chain: list[str] = []
    while commit in own and not own[commit][1].wip:
        chain.append(commit)
        commit = next(iter(own[commit][0].parents), "")
    return tuple(chain) if commit in own and own[commit][1].wip == ref else ()


def _find_attempt(repo: Repo, ref: str, own: _Commits) -> str | None:
    """Return the newest commit that opened or continued the branch's newest attempt."""
    begins = f"{_SNAPSHOTS}{ref.removeprefix(ATTEMPTS)}/"
    attempts = [(notes.wip, text.time, text.commit) for text, notes in own.values() if notes.wip.startswith(begins)]
    return next((commit for _, _, commit in sorted(attempts, reverse=True) if _is_whole(repo, commit)), None)
