"""What the sessions of a phase have left, between a clone and a remote: its branch, open leg, snapshots and cost.

What a clone has of a phase that another machine has gone on with is put aside under ``refs/relay/aside/`` before the
remote's takes its place: no commit and no snapshot is lost by it.
"""

import shlex
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase

from relay.git import objects, refs
from relay.git.message import Message
from relay.git.names import parse_ref_part, render_ref_part
from relay.git.remote import RefUpdate, Remote, RemoteError
from relay.git.repository import Repo
from relay.git.trees import find_odd_path, find_tree
from relay.store import trailers
from relay.store.legs import next_ref, read_leg
from relay.store.session_cost import find_spent, note_spent

_HEADS = "refs/heads/"
_LEG = "refs/relay/leg/"
_NOTED = 3
"""Trailers of a note: the session, what it used and what that cost."""
_BELOW = ("refs/relay/wip/", "refs/relay/spent/")


def read_here(repo: Repo, branch: str) -> Mapping[str, str]:
    """Return what a clone has of a job's branch: ref → commit."""
    part = render_ref_part(branch)
    single = (f"{_HEADS}{branch}", f"{_LEG}{part}")
    found = {ref: commit for ref in single if (commit := refs.find_ref(repo, ref))}
    return found | repo.list_refs(*(f"{place}{part}/" for place in _BELOW))


def read_there(remote: Remote, prefix: str, *others: str) -> Mapping[str, Mapping[str, str]]:
    """Return what a remote has of the branches that begin with `prefix`: branch → ref → commit.

    Args:
        others: Further refs, by full names or patterns; they are listed with the branch that they belong to.

    Raises:
        RemoteError: It cannot be reached.
    """
    part = render_ref_part(prefix)
    patterns = (f"{_HEADS}{prefix}*", f"{_LEG}{part}*", *(f"{place}{part}*" for place in _BELOW))
    found = remote.list_refs(*patterns, *others)
    jobs: dict[str, dict[str, str]] = {}
    for ref, commit in found.items():
        branch = find_branch(ref)  # git matches a pattern with the end of a name, too
        if branch.startswith(prefix) or any(fnmatchcase(ref, pattern) for pattern in others):
            jobs.setdefault(branch, {})[ref] = commit
    return jobs


def find_branch(ref: str) -> str:
    """Return the job's branch that a ref belongs to; empty for a ref of another kind."""
    if ref.startswith(_HEADS):
        return ref.removeprefix(_HEADS)
    if ref.startswith(_LEG):
        return parse_ref_part(ref.removeprefix(_LEG))
    below = next((ref.removeprefix(place) for place in _BELOW if ref.startswith(place)), "")
    return parse_ref_part(below.partition("/")[0])


def find_updates(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[RefUpdate, ...]:
    """Return what a remote lacks, or has and should not have any more."""
    return tuple(
        RefUpdate(ref=ref, old=there.get(ref), new=here.get(ref))
        for ref in sorted({*here, *there})
        if here.get(ref) != there.get(ref)
    )


def fetch_jobs(remote: Remote, there: Mapping[str, Mapping[str, str]], *, but: Collection[str]) -> bool:
    """Have a clone's refs of the branches be the remote's; what it had instead is put aside.

    Args:
        there: As `read_there` says.
        but: Branches that stay as they are here: those with a work tree.

    Returns:
        False when the remote has no longer all of them: others have landed since it was asked.

    Raises:
        RemoteError: It cannot be reached.
    """
    lacking = []
    for branch, found in there.items():
        if branch not in but:
            here = read_here(remote.repo, branch)
            put_aside(remote.repo, branch, tuple(c for ref, c in here.items() if found.get(ref, c) != c))
            lacking += [ref for ref, commit in found.items() if here.get(ref) != commit]
    try:
        if lacking:
            remote.fetch(*(f"+{ref}:{ref}" for ref in lacking))
    except RemoteError:
        if set(lacking) <= set(remote.list_refs(*lacking)):
            raise
        return False
    for ref in lacking:
        _require_plain(remote, ref)
    return True


def _require_plain(remote: Remote, ref: str) -> None:
    """Refuse what no work tree can hold: git would fail at it wherever it is needed, and name no ref.

    Raises:
        RemoteError: The ref's commit has such a path; the ref is gone here, and fetched again by whoever asks again.
    """
    commit = refs.find_ref(remote.repo, ref)
    if commit is None or not (path := find_odd_path(remote.repo, commit)):
        return
    refs.drop_ref(remote.repo, ref, commit)
    raise RemoteError(
        f"{ref} of {remote.name} holds {path!r}, which no work tree can have: it was not made by git",
        hint=f"look who pushed it; git push {remote.name} --delete {shlex.quote(ref)} takes it away",
    )


def put_aside(repo: Repo, branch: str, commits: tuple[str, ...]) -> str:
    """Keep commits that other ones take the place of; return the ref that does, empty when there are none."""
    if not commits:
        return ""
    ref = next_ref(repo, "aside", branch)
    message = Message(subject=f"relay: what was here of {branch}")
    kept = objects.write_commit(repo, find_tree(repo, commits[0]), dict.fromkeys(commits), message)
    refs.move_ref(repo, ref, kept, None)
    return ref


def find_noted(repo: Repo, branch: str) -> tuple[tuple[str, str], ...]:
    """Return what the open session of a job has cost, as trailers: a note of this machine's; nothing without one."""
    leg = read_leg(repo, branch)
    noted = None if leg is None else find_spent(repo, leg.session_id)
    return () if leg is None or noted is None else ((trailers.SESSION, leg.session_id), *trailers.render_spent(noted))


def save_noted(repo: Repo, noted: tuple[tuple[str, str], ...]) -> None:
    """Have a note of another machine's be one of this one's, for the session that goes on with the job."""
    found = dict(noted)
    if len(found) == len(noted) == _NOTED:
        spent = trailers.parse_spent(found[trailers.USAGE], found[trailers.COST])
        note_spent(repo, found[trailers.SESSION], spent, synced=True)
