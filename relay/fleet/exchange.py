"""The state of a phase between a clone and a remote: its branch, open leg, snapshots and cost.

What a clone has of a phase that another machine has gone on with is put aside under ``refs/relay/aside/`` before the
remote's takes its place: no commit and no snapshot is lost by it.

A note beside each sign of life says which cost it has reported: whoever goes on with the phase counts that much. Cost
since then, until the worker learns that it lost the claim, is kept under ``refs/relay/spent/<the plan's branch>/``.
"""

import hashlib
import json
import secrets
import shlex
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatchcase

from relay.base.values import dataclass
from relay.git import objects, refs
from relay.git.message import Message
from relay.git.names import parse_ref_part, render_ref_part
from relay.git.notes import drop_note, read_note, write_note
from relay.git.remote import RefUpdate, Remote, RemoteError
from relay.git.repository import Repo
from relay.git.trees import find_odd_path, find_tree
from relay.session.usage import Spent
from relay.store import trailers
from relay.store.history import read_relay_commits
from relay.store.legs import read_leg
from relay.store.refs import next_ref
from relay.store.session_spend import find_spent, note_spent
from relay.store.spend import add_branch, read_given_up
from relay.store.spend_records import Whose, keep_spent

_LEAST_USD = 0.000001


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCost:
    """What a worker's last sign of life has shown of a phase."""

    token: str
    """Names what is booked, so that it is booked once."""
    attempt: int
    """Of the claim."""
    start: str
    """The commit that the plan's branch was at when the phase was taken up; empty before that."""
    cost_usd: float | None
    """Of the phase since, and of its open session; None where that is not known."""


def read_shown(repo: Repo, branch: str) -> ShownCost | None:
    """Return what was shown of a job's branch; None where this clone has not held its phase, or has given it back."""
    try:
        found = json.loads(read_note(repo, _name_note(branch)))
        return ShownCost(**{name: found[name] for name in ("token", "attempt", "start", "cost_usd")})
    except (ValueError, KeyError, TypeError):
        return None


def note_shown(repo: Repo, branch: str, shown: ShownCost) -> None:
    """Note what a sign of life has shown."""
    write_note(repo, _name_note(branch), json.dumps(asdict(shown)), synced=False)


def drop_shown(repo: Repo, branch: str) -> None:
    """Forget it: the remote has all, or the rest is booked."""
    drop_note(repo, _name_note(branch))


def note_bid(repo: Repo, branch: str, *, attempt: int) -> None:
    """Note that a phase is about to be claimed: who is killed right behind that has spent nothing on it."""
    if read_shown(repo, branch) is None:
        note_shown(repo, branch, ShownCost(token=secrets.token_hex(8), attempt=attempt, start="", cost_usd=None))


def drop_bid(repo: Repo, branch: str) -> None:
    """Forget a bid that lost."""
    if (shown := read_shown(repo, branch)) is not None and not shown.start:
        drop_shown(repo, branch)


def begin_shown(repo: Repo, plan_path: str, branch: str, phase_id: str, *, attempt: int, start: str) -> None:
    """Note what is known of a phase as a worker takes it up; what it had not shown of an earlier attempt stays so."""
    if (shown := read_shown(repo, branch)) is None or not shown.start:
        shown = ShownCost(token=secrets.token_hex(8), attempt=attempt, start=start, cost_usd=None)
        shown = replace(shown, cost_usd=find_cost(repo, plan_path, branch, phase_id, start))
    note_shown(repo, branch, replace(shown, attempt=attempt))


def find_cost(repo: Repo, plan_path: str, branch: str, phase_id: str, start: str) -> float | None:
    """Return what a phase has cost since a commit, its open session too, in USD; None where that is not known."""
    own = refs.find_ref(repo, f"refs/heads/{branch}")
    commits = read_relay_commits(repo, plan_path, rev=own, newer_than=start) if own else ()
    made = add_branch(repo, branch, (commit for commit in commits if commit.phase == phase_id))
    return (made + read_given_up(repo, branch)).cost_usd


def keep_unseen(repo: Repo, main: str, branch: str, own: Whose, shown: ShownCost) -> RefUpdate | None:
    """Keep what a phase has cost here since it was last shown; None where that is nothing.

    Args:
        main: The plan's branch.
        branch: The job's.
        own: What it is kept as.
    """
    if not shown.start:
        return None
    now = find_cost(repo, own.plan_path, branch, own.phase_id, shown.start)
    cost = None if now is None or shown.cost_usd is None else now - shown.cost_usd
    if cost is not None and cost < _LEAST_USD:
        return None
    return keep_booked(repo, main, own, Spent(cost_usd=cost, estimated=True))


def keep_booked(repo: Repo, main: str, own: Whose, spent: Spent) -> RefUpdate:
    """Keep what was spent on a plan that no commit tells of; return what has the remote know it."""
    ref = name_booked(main, own.session_id)
    return RefUpdate(ref=ref, old=None, new=refs.find_ref(repo, ref) or keep_spent(repo, ref, own, spent))


def list_given_up(main: str, here: Mapping[str, str]) -> tuple[RefUpdate, ...]:
    """Return what has the remote keep the cost of a job's given-up sessions when the job's own refs go.

    Args:
        here: The job's refs in this clone.
    """
    spent = [commit for ref, commit in here.items() if ref.startswith("refs/relay/spent/")]
    return tuple(RefUpdate(ref=name_booked(main, commit[:16]), old=None, new=commit) for commit in spent)


def name_booked(main: str, token: str) -> str:
    """Return the ref of what was booked on a plan's branch; with ``*`` for the token a pattern of all."""
    return f"refs/relay/spent/{render_ref_part(main)}/booked-{token}"


def _name_note(branch: str) -> str:
    return f"shown-{hashlib.sha256(branch.encode(errors='surrogateescape')).hexdigest()[:16]}"


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
