"""Changes since something was written: to files that a phase names, and to sources that claims of the ledger cite."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial

from relay.base.errors import LedgerError, RepoError, within
from relay.base.tree import find_stat, read_file
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.git.message import CommitText, read_texts, walk_texts
from relay.git.objects import diff_trees, find_blob_id, find_renames, load_blob, read_blob, read_entries
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange, read_status
from relay.ledger.belief import DOUBTFUL, ClaimStatus, Judgement, judge
from relay.ledger.citation import MAX_CITED_BYTES, cite, find_change
from relay.ledger.model import Ledger, Source, parse_ledger
from relay.ledger.snapshot import clip
from relay.plan.model import Phase
from relay.plan.text import decode_text, find_ledger_path
from relay.store import trailers
from relay.store.history import walk_changes
from relay.store.loose import read_own
from relay.store.trailers import AMENDED

MAX_COMMITS = 500
"""The most commits that relay looks at."""

_MOST_READ = 32
"""Up to this number relay reads commits one by one, down from HEAD; for older ones it asks git."""

MAX_RENAMES = 5
"""The most renames of one file that are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Touched:
    kind: ChangeKind
    commit: CommitText


def find_stale(repo: Repo, plan_path: str, phase: Phase) -> tuple[str, ...]:
    """Return a line for each file that the phase names and that other commits than relay's changed, made or removed.

    Counted from the commit that last wrote the phase: ``planned``, ``amended``, a session's amendment of this phase, or
    a commit of the user's own that changed the plan file. Uncommitted changes do not count.
    """
    named = tuple(dict.fromkeys(path.rstrip("/") for path in phase.open_paths))
    head = repo.head()
    made = _find_plan_commit(repo, head, plan_path, phase.id) if named and head else None
    if head is None or made is None or made == head or _are_own(repo, made, head):
        return ()
    args = ("--no-merges", f"--max-count={MAX_COMMITS}", f"{made}..{head}", "--", *named)
    commits = [text for text in read_texts(repo.git, *args) if not text.get(trailers.PLAN)]
    touched = _find_touched(repo, reversed(commits), named)
    left = read_entries(repo, head, tuple(touched))
    return tuple(_describe(path, touched[path], is_there=path in left) for path in sorted(touched))


def has_moved(repo: Repo, plan_path: str, phase: Phase) -> bool:
    """Return whether commits, whoever made them, have changed files that items of a phase name since it was planned."""
    named = tuple(path.rstrip("/") for item in phase.items for path in item.targets)
    head = repo.head()
    made = _find_plan_commit(repo, head, plan_path, phase.id) if named and head else None
    return bool(head and made and _find_below(diff_trees(repo, made, head), named))


def _find_below(changes: Iterable[PathChange], named: tuple[str, ...]) -> list[PathChange]:
    """Return the changes of files among or below `named`."""
    return [change for change in changes if any(f"{change.path}/".startswith(f"{name}/") for name in named)]


def _find_plan_commit(repo: Repo, head: str, plan_path: str, phase_id: str) -> str | None:
    for text in walk_changes(repo, head, (plan_path,), order="--date-order"):
        by_relay = bool(text.get(trailers.PLAN))
        if not by_relay or text.get(trailers.STATUS) in {"planned", "amended"}:
            return text.commit
        if phase_id in text.get(AMENDED).split():
            return text.commit
    return None


def _are_own(repo: Repo, made: str, head: str) -> bool:
    """Return whether all commits from `made` to `head` are relay's, as those of earlier phases are."""
    for text in walk_texts(repo, head, _MOST_READ):
        if text.commit == made or not text.get(trailers.PLAN):
            return text.commit == made
    return False


def _find_touched(repo: Repo, commits: Iterable[CommitText], named: tuple[str, ...]) -> dict[str, _Touched]:
    """Return the last change of each file among or below `named`; `commits` come oldest first."""
    touched: dict[str, _Touched] = {}
    for text in commits:
        parent = text.parents[0] if text.parents else repo.empty_tree
        for change in _find_below(diff_trees(repo, parent, text.commit), named):
            touched[change.path] = _Touched(kind=change.kind, commit=text)
    return touched


def _describe(path: str, touched: _Touched, *, is_there: bool) -> str:
    what = "is gone" if not is_there else "is new" if touched.kind is ChangeKind.ADDED else "has changed"
    return f"{path} {what}: {touched.commit.commit[:8]} {touched.commit.message.subject[:72]}"


def find_changed_sources(repo: Repo, sources: Iterable[Source]) -> dict[Source, str]:
    """Return how the sources of claims have changed in the work tree.

    Sources that still say the same are left out, also under another name. So are sources that cannot be compared: their
    former content is unknown, or they are hidden now, or too large.
    """
    return {source: words for source, _, words in _iter_changed(repo, sources)}


def read_judged_ledger(repo: Repo, plan_path: str) -> tuple[Ledger, dict[Source, str], Judgement]:
    """Return the ledger beside a plan, its changed sources, and where its claims stand, as the work tree has it all.

    Raises:
        LedgerError: The file is not a valid ledger.
    """
    path = find_ledger_path(plan_path)
    with within(path):
        ledger = parse_ledger(decode_text(read_own(repo, plan_path, path) or b""))
    changed = find_changed_sources(repo, ledger.sources)
    return ledger, changed, judge(ledger, changed)


def find_newly_changed(
    repo: Repo, ledger: Ledger, before: Ledger, head: str | None, paths: Collection[str]
) -> dict[Source, str]:
    """Return how the sources changed that a change of these paths has changed, from `head` to the work tree.

    Args:
        before: The ledger of `head`.
    """
    known, changed = set(before.sources), dict[Source, str]()
    for source, now, words in _iter_changed(repo, ledger.sources):
        names = {source.path, now}
        if names.isdisjoint(paths):
            continue
        blobs = (read_blob(repo, head, name) for name in names) if head else ()
        was = next((blob for blob in blobs if blob is not None), None)
        # A source that `head` does not have was right when a session of this phase cited it.
        if source not in known or not find_change(source, was, partial(find_blob_id, repo)):
            changed[source] = words
    return changed


_LEFT = re.compile(r"(?:claim|contradiction) (\S+) \(.*\) was (?:put in doubt|recorded) and left: .*", re.DOTALL)
_CLAIM_CHARS = 60


def describe_left(ledger: Ledger, judgement: Judgement, before: Ledger) -> tuple[str, ...]:
    """Return a sentence for each stale claim and each open contradiction that `before` lacks, for `trailers.DOUBT`."""
    stale = ((claim, judgement[claim.id]) for claim in ledger.claims.values())
    return (
        *(
            f"claim {claim.id} ({clip(claim.claim, _CLAIM_CHARS)}) was put in doubt and left: {belief.because}"
            for claim, belief in stale
            if belief.status is ClaimStatus.STALE
        ),
        *(
            f"contradiction {one.id} ({list_some(one.claims)}) was recorded and left: {clip(one.because, _CLAIM_CHARS)}"
            for one in judgement.contradictions
            if one.id not in before.nogoods
        ),
    )


def drop_settled(repo: Repo, plan_path: str, doubts: tuple[str, ...]) -> tuple[str, ...]:
    """Return doubts without those of `describe_left` that have been settled since."""
    named = {words: match[1] for words in doubts if (match := _LEFT.fullmatch(words))}
    if not named:
        return doubts
    try:
        _, _, judgement = read_judged_ledger(repo, plan_path)
    except LedgerError:  # the next run says what is wrong with it
        return doubts
    doubtful = {name for name, belief in judgement.beliefs.items() if belief.status in DOUBTFUL}
    doubtful |= {nogood.id for nogood in judgement.contradictions}
    return tuple(words for words in doubts if words not in named or named[words] in doubtful)


def _iter_changed(repo: Repo, sources: Iterable[Source]) -> Iterator[tuple[Source, str, str]]:
    """Yield changed sources, the present names of their files, and how they changed."""
    found: dict[str, str] = {}
    data: dict[str, bytes | None] = {}
    for source in sources:
        path = source.path
        if not source.blob or not _is_comparable(repo, path):
            continue
        if path not in found:
            found[path] = path if find_stat(repo.root, path) else _find_moved(repo, path)
            data[path] = read_file(repo.root, found[path])
        moved = f", now {found[path]}," if found[path] != path else ""
        if words := find_change(source, data[path], partial(find_blob_id, repo)):
            yield source, found[path], f"{source}{moved}{words.removeprefix(str(source))}"


def _find_moved(repo: Repo, path: str) -> str:
    """Return the present name of a file that is gone; the path itself if it is unknown."""
    name: str | None = path
    if (head := repo.head()) and (entry := read_entries(repo, head, (path,)).get(path)):
        name = _find_copy(repo, entry[1])
    for _ in range(MAX_RENAMES):
        if head is None or name is None or find_stat(repo.root, name):
            break
        texts = read_texts(repo.git, "--max-count=1", head, "--", name)
        name = next((find_renames(repo, t.parents[0], t.commit).get(name) for t in texts if t.parents), None)
    return name if name and _is_comparable(repo, name) else path


def _find_copy(repo: Repo, blob: str) -> str | None:
    """Return a file of the work tree that HEAD does not have and whose content is a blob's."""
    size = len(load_blob(repo, blob))
    for path in (entry.path for entry in read_status(repo).entries if "A" in entry.index or entry.untracked):
        found = find_stat(repo.root, path)
        if found and found.st_size == size and find_blob_id(repo, read_file(repo.root, path) or b"") == blob:
            return path
    return None


def cite_sources(repo: Repo, sources: Iterable[Source], own: Collection[str]) -> tuple[Source, ...]:
    """Return sources with their present content. Sources that are no file stay as they are, and so do relay's `own`.

    A plan changes with every tick: that says nothing about what a claim cites of it.
    """
    make_id = partial(find_blob_id, repo)
    found = ((s, None if s.path in own else read_file(repo.root, s.path)) for s in sources)
    return tuple(source if data is None else cite(source, data, make_id) for source, data in found)


def may_cite(repo: Repo, path: str) -> bool:
    """Return whether a path names a place in the repository that may be shown; git refuses others with an error."""
    return not (path.startswith("/") or {"..", ".git"} & set(path.split("/")) or repo.hidden.covers(path))


def _is_comparable(repo: Repo, path: str) -> bool:
    if not may_cite(repo, path):
        return False
    try:
        os.fsencode(path)
        found = find_stat(repo.root, path)
    except (ValueError, RepoError):
        return False
    return found is None or found.st_size <= MAX_CITED_BYTES
