"""What must hold after every interruption, seen from outside: git, the file system, bytes."""

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from relay.base.tree import is_temporary
from rigs.crash.scenario import MARKS, PHASES, git
from tests.copied import FSCK

OWN = ("PLAN.md", "PLAN.ledger.yaml")
USERS = ("dirty.txt", "staged.txt", "notes/untracked.txt", "stashed.txt", "kept.txt")
MOST_USD = 1.0
"""No request of the scenario can cost as much: 32,000 tokens out, a few thousand in."""
_ROUNDED_USD = 1e-5
_BOX = re.compile(r"^- \[(.)\] (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What of the user's must stay as it is."""

    files: dict[str, bytes]
    staged: str
    """The index entry of the staged file."""
    stash: str
    config: bytes
    hook: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """How a run ended that nobody interrupted."""

    tree: tuple[str, ...]
    """Entries of HEAD's tree but for the two files that only relay writes."""
    status: str


def hash_blob(data: bytes) -> str:
    """Return git's id of a file's bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def find_versions(root: Path, environ: dict[str, str]) -> dict[str, str]:
    """Return object id → where it was seen, for every file of the work trees and every entry of their indexes.

    Not for those of gates: they hold what a commit has, torn where a check-out was.
    """
    found = {}
    for tree in (root, *(tree for tree in list_own_trees(root) if tree.suffix != ".gate")):
        for folder, names, files in os.walk(tree):
            names[:] = [name for name in names if Path(folder, name) not in {tree / ".git", tree / ".relay"}]
            # relay's own temporary files hold what git has; a linked tree's .git is a file
            for name in filter(lambda name: name != ".git" and not is_temporary(name), files):
                path = Path(folder, name)
                if data := path.read_bytes():  # git makes a file before it writes it
                    found[hash_blob(data)] = str(path.relative_to(root.parent))
        for line in git(tree, "ls-files", "-s", environ=environ, check=False).splitlines():
            head, _, shown = line.partition("\t")
            found.setdefault(head.split()[1], f"index:{shown}")
    return found


def list_own_trees(root: Path) -> list[Path]:
    """Return relay's own work trees beside the user's."""
    return [place for place in root.with_name(f"{root.name}.relay").glob("*") if (place / ".git").exists()]


def read_kept(root: Path, environ: dict[str, str]) -> Kept:
    """Read what is the user's."""
    return Kept(
        files={name: (root / name).read_bytes() for name in USERS if (root / name).exists()},
        staged=git(root, "ls-files", "-s", "staged.txt", environ=environ),
        stash=git(root, "rev-parse", "refs/stash", environ=environ, check=False),
        config=(root / ".git/config").read_bytes(),
        hook=(root / ".git/hooks/pre-commit").read_bytes(),
    )


def read_final(root: Path, environ: dict[str, str]) -> Final:
    """Read where a run ended."""
    entries = git(root, "ls-tree", "-r", "HEAD", environ=environ).splitlines()
    return Final(
        tree=tuple(entry for entry in entries if entry.partition("\t")[2] not in OWN),
        status=git(root, "status", "--porcelain", environ=environ),
    )


def check_all(root: Path, environ: dict[str, str], *, kept: Kept, final: Final, seen: Iterable[str]) -> list[str]:
    """Return in words what does not hold.

    Args:
        root: The work tree after the last run.
        environ: For git.
        kept: The user's things before the first run.
        final: Where an uninterrupted run ends.
        seen: Every object id that was in the work tree or the index before the run or at a kill.
    """
    wrong = []
    now = read_kept(root, environ)
    wrong += [f"the user's {name} changed" for name in kept.__slots__ if getattr(now, name) != getattr(kept, name)]
    ended = read_final(root, environ)
    if ended.tree != final.tree:
        wrong.append(f"the final tree differs: {sorted(set(ended.tree) ^ set(final.tree))}")
    if ended.status != final.status:
        wrong.append(f"the final status differs: {ended.status!r} instead of {final.status!r}")
    wrong += [f"lost: {blob}" for blob in find_lost(root, environ, seen)]
    wrong += _check_history(root, environ)
    wrong += _check_leftovers(root, environ)
    return wrong


def find_lost(root: Path, environ: dict[str, str], seen: Iterable[str]) -> list[str]:
    """Return which object ids of `seen` are neither in the work tree, nor in the index, nor reachable from a ref."""
    reachable = {line[:40] for line in git(root, "rev-list", "--objects", "--all", environ=environ).splitlines()}
    return sorted(set(seen) - reachable - set(find_versions(root, environ)))


def read_trailers(text: str) -> dict[str, str]:
    """Return the last paragraph of a commit message as keys and values; a line that begins with a blank goes on."""
    last = re.sub(r"\n +", " ", text.strip().split("\n\n")[-1])
    return dict(line.split(": ", 1) for line in last.splitlines() if ": " in line)


def _check_history(root: Path, environ: dict[str, str]) -> list[str]:
    """Boxes come with their gate, phases are committed once, the branch is a line on top of the user's commit."""
    wrong = []
    # A phase that waited for the user's file to be moved away is merged.
    commits = git(root, "rev-list", "--first-parent", "--reverse", "HEAD", environ=environ).split()
    done: list[str] = []
    ticked: set[str] = set()
    for commit in commits:
        text = git(root, "show", "-s", "--format=%B", commit, environ=environ)
        trailers = read_trailers(text)
        boxes = find_ticked(git(root, "show", f"{commit}:PLAN.md", environ=environ, check=False))
        items = trailers.get("Relay-Items", "").split()
        if len(boxes - ticked) != len(items) or ticked - boxes:
            wrong.append(f"{commit[:8]} ticks {sorted(boxes ^ ticked)} but names {items}")
        # Without a sandbox a gate sees the user's files too, and counts them. `_check_gate` looks at the commit alone.
        seen = r"|none \w+ .*seen=[1-9]" if trailers.get("Relay-Sandbox") == "off" else ""
        if items and not re.match(f"pass {seen}", trailers.get("Relay-Gate", "")):
            wrong.append(f"{commit[:8]} ticks without a gate")
        ticked = boxes
        if trailers.get("Relay-Status") in {"done", "handoff"}:
            wrong += _check_gate(root, environ, commit, trailers)
        done += [trailers["Relay-Phase"]] if trailers.get("Relay-Status") == "done" else []
    if sorted(done) != sorted(PHASES):
        wrong.append(f"phases committed: {done}")
    if len(ticked) != sum(PHASES.values()) or "- [ ]" in (root / "PLAN.md").read_text():
        wrong.append(f"not all boxes are ticked: {sorted(ticked)}")
    return wrong


def check_spent(root: Path, environ: dict[str, str], *, billed: float, kills: int) -> list[str]:
    """Return in words what is wrong with what the commits say was spent: never less than was billed.

    A request that a kill or a failing call may have cut off counts with the most that it can have cost.
    """
    costs = git(root, "log", "--format=%(trailers:key=Relay-Cost,valueonly)", environ=environ).split("\n")
    spent = sum(float(cost.lstrip("~").removesuffix(" USD")) for cost in costs if cost.endswith(" USD"))
    if billed - _ROUNDED_USD <= spent <= billed + kills * MOST_USD + _ROUNDED_USD:
        return []
    return [f"spent {spent:.6f} USD, billed {billed:.6f} USD, {kills} interruptions"]


def find_ticked(plan: str) -> set[str]:
    """Return the texts of the ticked boxes of a plan."""
    return {text for box, text in _BOX.findall(plan) if box == "x"}


def _check_gate(root: Path, environ: dict[str, str], commit: str, trailers: dict[str, str]) -> list[str]:
    name, mark = MARKS[trailers["Relay-Phase"]]
    if mark in git(root, "show", f"{commit}:{name}", environ=environ, check=False):
        return []
    return [f"{commit[:8]} does not pass the gate of its phase"]


def _check_leftovers(root: Path, environ: dict[str, str]) -> list[str]:
    wrong = []
    fsck = git(root, *FSCK, environ=environ, check=False)
    if fsck.strip():
        wrong.append(f"fsck: {fsck.strip()}")
    folder = root / ".git"
    locks = [*folder.rglob("*.lock"), *(folder / "relay").glob("*.new"), *(folder / "relay").glob("status-*")]
    wrong += [f"left: {path.relative_to(root)}" for path in locks]
    if (folder / "relay/intent").exists():
        wrong.append("an intent is left")
    if git(root, "for-each-ref", "refs/relay/leg", environ=environ):
        wrong.append("an attempt is open")
    return wrong
