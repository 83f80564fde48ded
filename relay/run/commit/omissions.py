"""Files that a phase needs and its commit would lack: a box must not be ticked without its code. Doubts about ticks.

A phase needs the files that the session's file tools wrote, and the files that a ticked item names after its `` — ``.
A path that an item only mentions may be there to be read. The phase needs it if the session changed it, or if the item
names nothing after a dash and the commit has none of the mentioned paths.
"""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from pathlib import PurePosixPath

from relay.base.hints import Hint, TypedPath
from relay.base.secrecy import is_covered
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.config import Settings
from relay.gate.model import GateResult, find_flaky, has_turned_green
from relay.gate.places import describe_moved, open_ground
from relay.git.names import list_paths, render_path, with_parents
from relay.git.objects import diff_trees, read_entries
from relay.git.repository import Repo
from relay.git.status import find_ignored, find_unwelcome
from relay.git.trees import GITLINK, find_entries
from relay.plan.model import Item, Phase
from relay.run.commit.candidate import Candidate, Refused
from relay.run.commit.gates import GateRun
from relay.sandbox.policy import Policy
from relay.setup.context import PlanFiles
from relay.store.attempts import OpenAttempt
from relay.store.snapshot import NESTED, Skipped, TreeSnapshot, find_unheld, make_filter


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A commit to be made, and the evidence for it."""

    attempt: OpenAttempt
    items: tuple[Item, ...]
    """The items that the commit ticks."""
    touched: frozenset[str]
    """Paths that the session's file tools wrote."""
    changed: frozenset[str]
    """Paths that differ from the attempt's start."""
    owned: tuple[str, ...]
    """The paths of the commit."""
    user: frozenset[str]
    """Paths that no session's commit takes: git ignored them when the phase began."""
    after: TreeSnapshot
    """The work tree that passed the gate."""
    notes: tuple[str, ...] = ()
    """The notes of the phase; such a line may say what a file is called now."""


class Cause(StrEnum):
    """The reason why a commit would lack a path."""

    USER = "ignored by git when this phase began"
    IGNORED = "ignored by git"
    SUBMODULE = "in a submodule"
    NESTED = "not of this repository"
    UNHELD = "left out of commits"
    PROTECTED = "only a person writes it"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A needed path that the commit would lack."""

    path: str
    cause: Cause
    detail: str = ""
    """The directory, and its kind; may be empty."""


def find_left_out(repo: Repo, delivery: Delivery, ignored: frozenset[str]) -> tuple[LeftOut, ...]:
    """Return the paths that an attempt's phase needs and its commit would lack, each once.

    Args:
        ignored: The ignored ones of the needed paths, from `find_ignored_files`.
    """
    named = _find_named(delivery)
    touched = {path for path in delivery.touched if path in delivery.changed or os.path.lexists(repo.root / path)}
    needed = sorted(named | touched)
    found = [
        *_find_users(repo, delivery, named, touched),
        *(LeftOut(path=path, cause=Cause.IGNORED) for path in sorted(named & ignored)),
        *_find_in_submodules(repo, delivery.after.tree, needed),
        *_find_unheld(repo, delivery, needed),
    ]
    return tuple({entry.path: entry for entry in reversed(found)}.values())[::-1]


def find_hopeless(
    repo: Repo, phase: Phase, head: str | None, now: TreeSnapshot, protected: tuple[str, ...] = ()
) -> tuple[LeftOut, ...]:
    """Return the paths that the open items of a phase need and no commit of it could hold.

    Args:
        phase: An open phase.
        head: The parent of its commit; None on an unborn branch.
        protected: Patterns of files that no session writes; an item that only mentions such a file may read it.
    """
    clean = {path: str(PurePosixPath(path)) for item in phase.open_items for path in item.paths}
    if not clean:
        return ()
    may_be_let_in = any(".gitignore" in item.text for item in phase.open_items)
    ignored = () if may_be_let_in else find_unwelcome(repo, tuple(clean))
    there = [path for path in clean.values() if os.path.lexists(repo.root / path)]
    nested = [entry for entry in now.skipped if entry.reason == NESTED]  # commits cannot hold future files there either
    unheld = find_unheld(repo, head, there, now.skipped) | find_unheld(repo, head, clean.values(), nested)
    entries = (
        *(_explain_unheld(path, now.skipped) for path in unheld),
        *(LeftOut(path=clean[name], cause=Cause.IGNORED) for name in ignored),
        *_find_in_submodules(repo, now.tree, clean.values()),
        *(LeftOut(path=path, cause=Cause.PROTECTED) for path in find_protected_targets(phase, protected)),
    )
    found = {entry.path: entry for entry in entries}
    hopeless = set[str]()
    for item in phase.open_items:
        lost = {clean[path] for path in item.targets or item.paths} & found.keys()
        hopeless |= lost if item.targets or len(lost) == len(item.paths) else set()
    return tuple(found[path] for path in sorted(hopeless))


def find_protected_targets(phase: Phase, protected: tuple[str, ...]) -> list[str]:
    """Return the paths that open items name after their dash and no session writes."""
    targets = clean_paths(path for item in phase.open_items for path in item.targets)
    return sorted(path for path in targets if is_covered(path, protected))


def find_ignored_files(repo: Repo, delivery: Delivery) -> frozenset[str]:
    """Return the ignored paths among those that the items need or the session wrote, with one call of git."""
    needed = sorted(_find_named(delivery) | delivery.touched)
    held = read_entries(repo, delivery.after.tree, needed)  # git does not ignore the files of a snapshot
    return frozenset(find_ignored(repo, [path for path in needed if path not in held]))


def _find_named(delivery: Delivery) -> set[str]:
    """Return the paths that the ticked items need, without trailing slashes."""
    inside = with_parents(delivery.owned)
    needed: set[str] = set()
    for item in delivery.items:
        names, targets = clean_paths(item.paths), clean_paths(item.targets)
        is_told = targets or names & inside
        needed |= targets | (names & (delivery.changed | delivery.touched) if is_told else names)
    return needed


def clean_paths(paths: Iterable[str]) -> set[str]:
    """Return paths of items in git's form."""
    return {str(PurePosixPath(path)) for path in paths}


def _find_users(repo: Repo, delivery: Delivery, named: set[str], touched: set[str]) -> list[LeftOut]:
    """Return needed paths that differ from HEAD because of the user."""
    changes = diff_trees(repo, delivery.attempt.base_head or repo.empty_tree, delivery.after.tree)
    users = delivery.user & {change.path for change in changes}
    below = with_parents(users) - users - with_parents(delivery.owned)
    found = (named & (users | below)) | (touched & users & delivery.changed)
    return [LeftOut(path=path, cause=Cause.USER) for path in sorted(found)]


def _find_in_submodules(repo: Repo, tree: str, needed: Collection[str]) -> list[LeftOut]:
    entries = read_entries(repo, tree, sorted(with_parents(needed)))
    modules = {path for path, (mode, _) in entries.items() if mode == GITLINK}
    above = ((path, modules & with_parents([path])) for path in needed)
    return [LeftOut(path=path, cause=Cause.SUBMODULE, detail=list_paths(sorted(mods))) for path, mods in above if mods]


def _find_unheld(repo: Repo, delivery: Delivery, needed: list[str]) -> list[LeftOut]:
    """Return needed paths that snapshots lack now, or lacked at the start unless they are as in HEAD now."""
    attempt, after = delivery.attempt, delivery.after
    there = [path for path in needed if os.path.lexists(repo.root / path)]
    inside = with_parents(delivery.owned)
    at_head = read_entries(repo, attempt.base_head, there) if attempt.base_head else {}
    now = read_entries(repo, after.tree, there)
    as_in_head = {path for path in at_head if now.get(path) == at_head[path]}
    unheld = find_unheld(repo, attempt.base_head, there, after.skipped)
    unheld |= find_unheld(repo, attempt.base_head, there, attempt.skipped) - as_in_head
    found = []
    for path in sorted(unheld):
        left = _explain_unheld(path, (*after.skipped, *attempt.skipped))
        if left.detail.startswith(f"{render_path(path)}: ") or path not in inside:
            found.append(left)
    return found


def _explain_unheld(path: str, skipped: tuple[Skipped, ...]) -> LeftOut:
    entry = next(entry for entry in skipped if make_filter((entry,))(path))
    cause = Cause.NESTED if entry.reason == NESTED else Cause.UNHELD
    return LeftOut(path=path, cause=cause, detail=f"{render_path(entry.path)}: {entry.reason}")


def render_left_out(found: tuple[LeftOut, ...]) -> tuple[str, Hint]:
    """Return a refusal's words, and what the user can do.

    Args:
        found: At least one path.
    """
    groups: dict[tuple[Cause, str], list[str]] = {}
    for entry in found:
        groups.setdefault((entry.cause, entry.detail), []).append(entry.path)
    parts = [
        f"{list_paths(paths)} ({cause}{f', {detail}' if detail else ''})" for (cause, detail), paths in groups.items()
    ]
    causes = tuple(dict.fromkeys(entry.cause for entry in found))
    ways = tuple((_render_way(cause, [e.path for e in found if e.cause == cause]), "; ") for cause in causes)
    last = "if an item only reads it, name the files that the item makes after its “ — ”"
    return f"the commit would lack files that the phase needs: {'; '.join(parts)}", (ways, last)


def _render_way(cause: Cause, paths: list[str]) -> Hint:
    typed = tuple((" ", TypedPath(path=path)) for path in paths[:3])
    match cause:
        case Cause.USER:
            return "commit it yourself, with its line in .gitignore (git add", typed, " && git commit), and run again"
        case Cause.UNHELD:
            return "commit it yourself (git add", typed, " && git commit) or move it away, and run again"
        case Cause.NESTED:
            return "commit it there and tick the box yourself, or remove that .git to have it in this repository"
        case Cause.IGNORED:
            return "let git have it (git check-ignore -v", typed, " names the rule), and run again"
        case Cause.PROTECTED:
            return "write it yourself, commit it and tick the box"
        case Cause.SUBMODULE:
            return "commit it in the submodule and here, and tick the box yourself (", typed[0][1], typed[1:], ")"


def describe_unseen(repo: Repo, run: GateRun, user: frozenset[str], now: TreeSnapshot) -> str:
    """Return what sessions made and a gate did not see, with the reasons why a commit would lack it; empty for none.

    Args:
        run: A red gate.
        user: As in `Delivery`.
        now: The work tree, with its skipped paths.
    """
    groups: dict[str, Sequence[str]] = {"a link to what no commit has": run.links, Cause.USER: sorted(user)}
    held = read_entries(repo, now.tree, run.unseen)
    groups |= {Cause.SUBMODULE: sorted(held), Cause.IGNORED: [path for path in run.unseen if path not in held]}
    for entry in now.skipped:
        groups[entry.reason] = (*groups.get(entry.reason, ()), entry.path)
    return "; ".join(f"{list_paths(paths)} ({reason})" for reason, paths in groups.items() if paths)


def describe_installed(run: GateRun) -> tuple[str, ...]:
    """Return a doubt where a gate used packages that sessions installed: no commit has them, nor the user."""
    if not run.installed:
        return ()
    return (f"the gate used packages that sessions installed, and no setup command: {list_paths(run.installed)}",)


_WORD = re.compile(r"[^\s`'\"()<>,;:]*[^\s`'\"()<>,;:.]")
"""A word of a note that may be a path."""
MAX_ABSENT = 20
"""Most paths of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """Doubts about the ticks of a commit."""

    idle: str = ""
    """A message that the commit changes no file, with the gate's result; empty if it changes one."""
    is_phantom: bool = False
    """Whether nothing supports the ticks: no file was changed, and no command went from red to green."""
    others: tuple[str, ...] = ()
    """A message for each command that is red as before, and for each missing path that an item names."""

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*((self.idle,) if self.idle else ()), *self.others)


def find_doubts(repo: Repo, delivery: Delivery, run: GateRun, baseline: GateResult | None) -> Doubts:
    """Return the doubts about a commit.

    Args:
        run: Its gate.
        baseline: The gate before the phase; None if unknown.
    """
    named = [f"{item.id} names {render_path(path)}, which no commit has" for item, path in _find_absent(repo, delivery)]
    others = (*run.verdict.excused, *find_flaky(run.flaky), *named[:MAX_ABSENT])
    if delivery.owned or not delivery.items:
        return Doubts(others=others)
    if run.result.commands and has_turned_green(baseline, run.result):
        return Doubts(idle="no file was changed", others=others)
    shown = "the verify commands passed before too" if run.result.passed else "no verify command went from red to green"
    idle = f"no file was changed, and {shown if run.result.commands else 'nothing was checked'}"
    # A phase without paths to change may only look at something; then the green gate is its evidence.
    only_looks = run.result.passed and not any(item.targets for item in delivery.items)
    return Doubts(idle=idle, is_phantom=not only_looks, others=others)


def find_moved_gates(files: PlanFiles, candidate: Candidate, after: TreeSnapshot) -> tuple[str, ...]:
    """Return a doubt for each verify command that the work takes away from the files on which it ran."""
    revs = candidate.attempt.base_head, after.tree
    before, now = (open_ground(files.repo.root, files.repo, files.plan_path, rev) for rev in revs)
    named = clean_paths(path for item in candidate.phase.items for path in item.paths)
    return tuple(describe_moved(candidate.pending.plan, before, now, named))


def doubt_daemons(settings: Settings, policy: Policy, run: GateRun) -> tuple[str, ...]:
    """Return a doubt where a check could ask a program outside of the sandbox, which sees the user's checkout."""
    network = settings.network
    named = [*map(str, network.sockets), *(f"port {port}" for port in network.localhost)]
    named = ["this machine's network"] if network.whole else named
    if not named or policy.seen_at is None or not run.result.commands:
        return ()
    return (
        f"a program outside of the sandbox ({list_some(named, 3)}) sees the user's checkout, not the phase's files",
    )


def check_phantom(doubts: Doubts) -> Refused | None:
    """Refuse ticks without evidence; only a person ticks work from before the phase."""
    if not doubts.is_phantom:
        return None
    words = "; ".join(doubts.sentences)
    return Refused(
        for_user=f"nothing supports its ticks: {words}",
        for_model=f"Nothing was committed: {words}. Do the work; if it was done before this phase, or there is none to "
        "do, call block and say so.",
        ways="where it was done before, tick the boxes yourself and commit that",
        once=True,
    )


def _find_absent(repo: Repo, delivery: Delivery) -> tuple[tuple[Item, str], ...]:
    """Return the paths that ticked items name after their `` — `` and that neither this commit nor its parent has.

    The parent has paths that this commit removes. A name with ``*`` in it is no path. A path is not absent if a note of
    the phase has it beside a path that is there: it was renamed.
    """
    inside, head = with_parents(delivery.owned), delivery.attempt.base_head
    named = [(item, path) for item in delivery.items for path in sorted(clean_paths(item.targets)) if "*" not in path]
    outside = [path for _, path in named if path not in inside]
    noted = {path: {w for note in delivery.notes if path in note for w in _WORD.findall(note)} for path in outside}
    asked = set(outside).union(*noted.values())
    there = inside | {"."} | (set(find_entries(repo, head, asked)) if head and outside else set())
    return tuple((item, path) for item, path in named if path not in there and there.isdisjoint(noted[path] - {"."}))
