"""The state of a phase between a clone and a remote: its branch, open attempt, snapshots, cost and fence.

When another machine has gone on with a phase, this clone's refs of the phase are put aside under ``refs/relay/aside/``
before the remote's take their place. No commit and no checkpoint is lost by it.

The fence, ``refs/relay/fence/<branch>``, names the worker's take, by its token in the queue, and the cost of its open
session. Every push of the phase moves it by compare-and-swap: who lost the phase can push nothing more of it, the
plan's branch included, whether the queue answers or not.

Each push tells the phase's cost, and a note in the clone records how much was told: whoever goes on with the phase
counts that. Cost since then, until the worker learns that it lost the phase, is kept under
``refs/relay/spent/<the plan's branch>/``.
"""

import hashlib
import json
import shlex
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase

from msgspec import structs

from relay.base.values import dataclass
from relay.fleet.takes import Take
from relay.git import objects, refs
from relay.git.lock_journal import storing
from relay.git.message import Message, read_text
from relay.git.names import parse_ref_part, render_ref_part
from relay.git.notes import drop_note, lock_worktree, read_note, write_note
from relay.git.remote import PushEnd, RefUpdate, Remote, RemoteError
from relay.git.repository import Repo
from relay.git.trees import find_odd_path, find_tree
from relay.session.usage import Spent
from relay.store.attempts import find_spent, note_spent, read_attempt
from relay.store.ref_notes import Notes, make_message, note_spending, read_notes
from relay.store.refs import ATTEMPTS, next_ref
from relay.store.spend import Whose, find_phase_cost, keep_spent

_LEAST_USD = 0.000001
_TRIES, _AGAIN_S = 20, 0.2
"""Refs may go while they are fetched, and a remote of several machines may list one longer than it has it."""
FENCES = "refs/relay/fence/"
_HEADS = "refs/heads/"
_BELOW = ("refs/relay/wip/", "refs/relay/spent/")
_PLACES = (ATTEMPTS, FENCES, *_BELOW)
_THERE = "refs/relay/tip/there/"
"""Where a clone keeps the refs of the remote that it saw last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldCost:
    """The cost of a phase as the worker's last push told it."""

    token: int = 0
    nonce: str = ""
    """Of the worker's take."""
    start: str
    """The tip of the plan's branch when this clone began with the phase."""
    cost_usd: float | None
    """Cost of the phase since then, its open session included; None where unknown."""


def read_told(repo: Repo, branch: str) -> ToldCost | None:
    """Return the cost last told of a job's branch; None where this clone has never had its phase."""
    try:
        return ToldCost(**json.loads(read_note(repo, _name_note(branch))))
    except (ValueError, TypeError):
        return None


def note_told(repo: Repo, branch: str, told: ToldCost) -> None:
    """Note what was told; read it first: untold cost of an earlier take of this clone stays so."""
    write_note(repo, _name_note(branch), json.dumps(asdict(told)), synced=False)


def drop_told(repo: Repo, branch: str) -> None:
    """Drop the note: the remote has the whole cost, or the rest is booked."""
    drop_note(repo, _name_note(branch))


def keep_untold(repo: Repo, main: str, branch: str, own: Whose, told: ToldCost) -> RefUpdate | None:
    """Keep the cost of a phase since the last push under a ref; None where there is none.

    Args:
        main: The plan's branch.
        branch: The job's branch.
        own: Names the cost.
    """
    now = find_phase_cost(repo, own.plan_path, branch, own.phase_id, told.start).cost_usd
    cost = None if now is None or told.cost_usd is None else now - told.cost_usd
    if cost is not None and cost < _LEAST_USD:
        return None
    return keep_booked(repo, main, own, Spent(cost_usd=cost, estimated=True))


def keep_booked(repo: Repo, main: str, own: Whose, spent: Spent) -> RefUpdate:
    """Keep spend on a plan that no commit records; return the update that tells the remote."""
    ref = name_booked(main, own.session_id)
    return RefUpdate(ref=ref, old=None, new=refs.find_ref(repo, ref) or keep_spent(repo, ref, own, spent))


def push_booked(remote: Remote, booked: RefUpdate) -> bool:
    """Tell the remote a booked cost; False: it was booked before, and the clone has that by now.

    Raises:
        RemoteError: It cannot be reached, or does not take it; nothing is booked here either.
    """
    end, words = PushEnd.REFUSED, ""
    try:
        pushed = remote.push(booked)
        end, words = pushed.end, pushed.words
    finally:
        if end is PushEnd.REFUSED:
            refs.drop_ref(remote.repo, booked.ref, booked.new or "")
    if end is PushEnd.REFUSED:
        raise RemoteError(f"{remote.name} does not take what was spent: {words}")
    if end is PushEnd.MOVED:
        remote.fetch(f"+{booked.ref}:{booked.ref}")
    return end is PushEnd.DONE


def list_given_up(main: str, here: Mapping[str, str]) -> tuple[RefUpdate, ...]:
    """Return the updates by which the remote keeps the cost of a job's given-up sessions when the job's refs go.

    Args:
        here: The job's refs in this clone.
    """
    spent = [commit for ref, commit in here.items() if ref.startswith("refs/relay/spent/")]
    return tuple(RefUpdate(ref=name_booked(main, commit[:16]), old=None, new=commit) for commit in spent)


def name_booked(main: str, token: str) -> str:
    """Return the ref of a booked cost of a plan's branch; with the token ``*``, a pattern for all."""
    return f"refs/relay/spent/{render_ref_part(main)}/booked-{token}"


def _name_note(branch: str) -> str:
    return f"told-{hashlib.sha256(branch.encode(errors='surrogateescape')).hexdigest()[:16]}"


@storing
def move_fence(repo: Repo, branch: str, take: Take) -> None:
    """Set a phase's fence in this clone to a take and the cost of its open session by now; the next push has it."""
    attempt = read_attempt(repo, branch)
    noted = None if attempt is None else find_spent(repo, attempt.session_id)
    notes = Notes(take=f"{take.token} {take.nonce}", worker=take.worker)
    if attempt is not None and noted is not None:
        notes = structs.replace(notes, session=attempt.session_id, **note_spending(noted))
    message = make_message(f"relay: phase {take.phase_id} is at work", notes)
    ref = name_fence(branch)
    refs.move_ref(
        repo, ref, objects.write_commit(repo, objects.write_paths_tree(repo, ()), (), message), refs.find_ref(repo, ref)
    )


def name_fence(branch: str) -> str:
    """Return the ref of a job's fence."""
    return f"{FENCES}{render_ref_part(branch)}"


def save_noted(repo: Repo, branch: str) -> None:
    """Save the cost of another machine's open session here, from its fence, for who goes on with the phase."""
    commit = refs.find_ref(repo, name_fence(branch))
    notes = read_notes(read_text(repo, commit)) if commit else None
    if notes and notes.session and notes.cost:
        note_spent(repo, notes.session, notes.spent, synced=True)


def read_here(repo: Repo, branch: str) -> Mapping[str, str]:
    """Return a clone's refs of a job's branch: ref → commit."""
    part = render_ref_part(branch)
    single = (f"{_HEADS}{branch}", f"{ATTEMPTS}{part}", f"{FENCES}{part}")
    found = {ref: commit for ref in single if (commit := refs.find_ref(repo, ref))}
    return found | repo.list_refs(*(f"{place}{part}/" for place in _BELOW))


def fetch_there(remote: Remote, prefix: str, *others: str) -> Mapping[str, Mapping[str, str]]:
    """Fetch a remote's refs of the branches that begin with `prefix`; return them: branch → ref → commit.

    They are kept beside the clone's own, which stay.

    Args:
        others: Refspecs that the same fetch brings.

    Raises:
        RemoteError: It cannot be reached.
    """
    part = render_ref_part(prefix)
    patterns = (f"{_HEADS}{prefix}*", *(f"{place}{part}*" for place in _PLACES))
    specs = (*others, *(f"+{pattern}:{pattern.replace('refs/', _THERE, 1)}" for pattern in patterns))
    with lock_worktree(remote.repo, "fetch", wait_s=remote.limit_s):  # two at once fail at each other's refs
        for tries_left in reversed(range(_TRIES)):
            try:
                remote.fetch(*specs)
                break
            except RemoteError as error:
                if "not our ref" not in str(error) or not tries_left:
                    raise
                time.sleep(_AGAIN_S)
    jobs: dict[str, dict[str, str]] = {}
    for kept, commit in remote.repo.list_refs(_THERE).items():
        ref = kept.replace(_THERE, "refs/", 1)
        if any(fnmatchcase(ref, pattern) for pattern in patterns):
            place = next((place for place in _PLACES if ref.startswith(place)), "")
            branch = parse_ref_part(ref.removeprefix(place).partition("/")[0]) if place else ref.removeprefix(_HEADS)
            jobs.setdefault(branch, {})[ref] = commit
    return jobs


def take_over(remote: Remote, there: Mapping[str, Mapping[str, str]], *, but: Collection[str] = ()) -> None:
    """Set a clone's refs of the branches to the remote's; put its own aside where they differ.

    Args:
        there: From `fetch_there`.
        but: Branches to leave alone, since they have a work tree here.

    Raises:
        RemoteError: A commit has a path that no work tree can hold: git would fail at it later, and name no ref.
    """
    repo, lacking = remote.repo, dict[str, str]()
    for branch, found in there.items():
        if branch not in but:
            here = read_here(repo, branch)
            put_aside(repo, branch, list_work({ref: c for ref, c in here.items() if found.get(ref, c) != c}))
            lacking |= {ref: commit for ref, commit in found.items() if here.get(ref) != commit}
    for ref, commit in lacking.items():
        if path := find_odd_path(repo, commit):
            raise RemoteError(
                f"{ref} of {remote.name} holds {path!r}, which no work tree can have: it was not made by git",
                hint=f"look who pushed it; git push {remote.name} --delete {shlex.quote(ref)} takes it away",
            )
    refs.set_refs(repo, lacking)


def list_work(found: Mapping[str, str]) -> tuple[str, ...]:
    """Return the commits of a job's refs, without the fence, which holds no work."""
    return tuple(commit for ref, commit in found.items() if not ref.startswith(FENCES))


@storing
def put_aside(repo: Repo, branch: str, commits: tuple[str, ...]) -> str:
    """Keep `commits`, which others replace, under a new ref and return it; empty without commits."""
    if not commits:
        return ""
    ref = next_ref(repo, "aside", branch)
    message = Message(subject=f"relay: what was here of {branch}")
    kept = objects.write_commit(repo, find_tree(repo, commits[0]), dict.fromkeys(commits), message)
    refs.move_ref(repo, ref, kept, None)
    return ref
