"""Refs of relay's that name what git has lost, put on the newest thing that is whole.

Git deletes what nothing points to, and ``git prune --expire=now`` may look before a ref is there and delete after it
is. What the ref held a moment earlier was reachable then, so it is there: a snapshot's forerunner.
"""

from collections.abc import Iterable, Mapping

from relay.base.errors import RepoError
from relay.base.hints import ANOTHER_RELAY
from relay.git import refs
from relay.git.identity import RELAY_IDENTITY
from relay.git.message import CommitText, read_texts
from relay.git.repository import Repo
from relay.store.legs import read_leg
from relay.store.trailers import WIP

_ROOT, _SNAPSHOTS, _LEGS = "refs/relay/", "refs/relay/wip/", "refs/relay/leg/"

_MOST_READ = 50
"""Objects whose files are read: for more, starting git takes less time."""

_Commits = Mapping[str, CommitText]
"""Every commit of relay's own that git still has, by its id; no ref need hold it."""


def repair_refs(repo: Repo) -> tuple[str, ...]:
    """Look at every ref under ``refs/relay/``, and at all that the open leg's newest snapshot holds.

    Returns:
        A sentence for each ref that named something lost, and what was done about it.

    Raises:
        GitError: Git cannot say what is missing.
    """
    held = repo.list_refs(_ROOT)
    gone = _find_gone(repo, held.values())
    lost = [ref for ref in held if held[ref] in gone]
    if not lost and (newest := _find_newest(repo)) and newest in held and not _is_whole(repo, held[newest]):
        lost = [newest]
    if not lost:
        return ()
    own = _read_own(repo)
    return tuple(_repair(repo, ref, held[ref], own) for ref in lost)


def _find_gone(repo: Repo, objects: Iterable[str]) -> frozenset[str]:
    """Return those of the objects that git does not have; of many, and of packed ones, it says so by name."""
    names = frozenset(objects)
    asked = names if len(names) > _MOST_READ else [name for name in names if repo.read_object(name) is None]
    stdin = "".join(f"{name}\n" for name in asked).encode()
    lines = repo.git.run("cat-file", "--batch-check", stdin=stdin).decode().splitlines() if stdin else []
    return frozenset(line.removesuffix(" missing") for line in lines if line.endswith(" missing"))


def _find_newest(repo: Repo) -> str | None:
    leg = read_leg(repo)
    return leg.wip_ref if leg and leg.last_wip else None


def _is_whole(repo: Repo, commit: str) -> bool:
    """Return whether git has every tree and file of a commit; what a branch has is not looked at."""
    out = repo.git.run("rev-list", "--objects", "--no-object-names", "--missing=print", commit, "--not", "--branches")
    return not any(line.startswith(b"?") for line in out.splitlines())


def _read_own(repo: Repo) -> dict[str, CommitText]:
    lines = repo.git.run("cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)").splitlines()
    commits = b"".join(line.removeprefix(b"commit ") + b"\n" for line in lines if line.startswith(b"commit "))
    who = f"<{RELAY_IDENTITY['GIT_AUTHOR_EMAIL']}>"
    found = read_texts(repo.git, "--no-walk=unsorted", "-F", f"--author={who}", "--stdin", stdin=commits)
    return {text.commit: text for text in found}


def _repair(repo: Repo, ref: str, old: str, own: _Commits) -> str:
    words = f"{ref} named {old[:10]}, which git has lost or not whole (git gc or prune, while relay was at work?)"
    if not ref.startswith((_SNAPSHOTS, _LEGS)):
        return f"{words}; git update-ref -d {ref} drops it"
    found = _find_snapshot(repo, ref, old, own) if ref.startswith(_SNAPSHOTS) else _find_leg(repo, ref, own)
    moved = refs.drop_ref(repo, ref, old) if found is None else refs.move_ref(repo, ref, found, old)
    if not moved:
        raise RepoError(f"{ref} was moved by somebody else", hint=ANOTHER_RELAY)
    if found is None:
        return f"{words}: nothing of it was found, and it is gone; the work tree is as it was"
    return f"{words}: it is at {found[:10]} now, the newest before it that is whole; the work tree is as it was"


def _find_snapshot(repo: Repo, ref: str, old: str, own: _Commits) -> str | None:
    """Return the newest whole snapshot of the leg whose snapshots the ref holds."""
    chains = [chain for commit in own if commit != old and (chain := _follow(commit, ref, own))]
    for chain in sorted(chains, key=len, reverse=True):
        if _is_whole(repo, chain[0]):
            return chain[0]
    return None


def _follow(commit: str, ref: str, own: _Commits) -> tuple[str, ...]:
    """Return a snapshot and those before it, back to its leg; nothing when it is none, or of another ref's leg."""
    chain: list[str] = []
    while commit in own and not own[commit].get(WIP):
        chain.append(commit)
        commit = next(iter(own[commit].parents), "")
    return tuple(chain) if commit in own and own[commit].get(WIP) == ref else ()


def _find_leg(repo: Repo, ref: str, own: _Commits) -> str | None:
    """Return the newest commit that opened or went on with the branch's newest leg."""
    branch = ref.removeprefix(_LEGS)
    legs = [text for text in own.values() if text.get(WIP).startswith(f"{_SNAPSHOTS}{branch}/")]
    legs.sort(key=lambda text: (text.get(WIP), text.time), reverse=True)
    return next((text.commit for text in legs if _is_whole(repo, text.commit)), None)
