"""Later items that a change makes wrong: they name files that it removed or renamed, or symbols that it removed.

Files are compared by the two trees. A symbol counts as removed if a file that the change touches defined it, and no
line of the tree defines it any more. So an unchanged file costs nothing, however many there are.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from relay.base.values import dataclass
from relay.git.names import render_path, with_parents
from relay.git.objects import diff_trees, find_lines, find_renames, load_blob
from relay.git.repository import Repo
from relay.git.status import ChangeKind, PathChange
from relay.git.trees import find_entries
from relay.plan.model import Phase, Plan

MAX_FILES = 200
"""Most changed files that are searched for removed symbols; a change of more is no edit by hand."""
MAX_BYTES = 1024 * 1024
"""Larger files are not searched."""
MAX_SYMBOLS = 1_000
MAX_LINES = 50
"""Most lines of a file that are looked at for another definition of a symbol."""
OUTDATED = re.compile(r"item (?P<item>\S+) names `?(?P<name>.+?)`?, which ")
"""The beginning of `Outdated.words`."""
_PROSE = (".md", ".mdx", ".rst", ".txt", ".adoc")
_KEYWORDS = (
    "def|defp|class|func|function\\*?|fn|fun|sub|proc|struct|enum|trait|interface|protocol|type|typedef|union|record|object"
    "|const|let|var|val|static|module|mod|namespace|package|macro|macro_rules!|table|view|TABLE|VIEW|\\#define"
)
_CALLS = "return|await|yield|throw|raise|new|else|in|not|and|or|case|assert|delete|import|from|using|if|elif|while|goto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """A name in a later item that is wrong now."""

    phase_id: str
    item_id: str
    name: str
    now: str
    """The file's new name; empty if it is unknown or there is none."""
    words: str
    """``item 3.1 names src/keys.py, which is src/api_keys.py now``."""


def find_outdated(
    repo: Repo, before: str, after: str, phases: Iterable[Phase], *, without: Collection[str] = (), files: bool = False
) -> tuple[Outdated, ...]:
    """Return the names in open items of these phases that the change between two trees makes wrong.

    Args:
        without: Symbols that are not looked for: each that is lost costs a search of the whole tree.
        files: Look for files and folders only.
    """
    changes = diff_trees(repo, before, after)
    items = [(phase, item) for phase in phases for item in phase.open_items] if changes else []
    if not items:
        return ()
    gone = _find_gone(repo, (before, after), changes, [path for _, item in items for path in item.paths])
    symbols = () if files else [name for _, item in items for name in item.symbols if name not in without]
    lost = _find_lost(repo, after, changes, symbols)
    found = []
    for phase, item in items:
        paths = [(path, gone[path]) for path in item.paths if path in gone]
        said = [(path, now, _say_gone(path, now)) for path, now in paths]
        there = [(name, lost[name]) for name in item.symbols if name in lost]
        said += [(name, "", f"`{name}`, which {render_path(path)} defined before") for name, path in there]
        found += [
            Outdated(phase_id=phase.id, item_id=item.id, name=name, now=now, words=f"item {item.id} names {words}")
            for name, now, words in said
        ]
    return tuple(found)


def _say_gone(path: str, now: str) -> str:
    return f"{render_path(path)}, which is {f'{render_path(now)} now' if now else 'gone'}"


def is_amended(found: Outdated, before: Plan, after: Plan) -> bool:
    """Return whether a plan's phase has got a line that names what became wrong, or its new name."""
    was, is_ = before.find_phase(found.phase_id), after.find_phase(found.phase_id)
    old = set(before.text[was.start : was.end].splitlines()) if was else set[str]()
    lines = after.text[is_.start : is_.end].splitlines() if is_ else []
    names = [found.now, found.name, posixpath.basename(found.name.rstrip("/"))]
    return any(name in line for line in lines if line not in old for name in names if name)


def _find_gone(
    repo: Repo, trees: tuple[str, str], changes: Sequence[PathChange], named: Iterable[str]
) -> Mapping[str, str]:
    """Return the named files and folders that are gone, each with its new name; empty if that is unknown."""
    deleted = [change.path for change in changes if change.kind is ChangeKind.DELETED]
    above = with_parents(deleted)
    paths = {path: path.rstrip("/") for path in named if path.rstrip("/") in above}
    there = find_entries(repo, trees[1], set(paths.values()))
    paths = {path: bare for path, bare in paths.items() if bare not in there}
    renames = find_renames(repo, *trees) if paths else {}
    return {path: _find_new_name(bare, renames) for path, bare in paths.items()}


def _find_new_name(path: str, renames: Mapping[str, str]) -> str:
    """Return a file's new name, or the folder to which all renamed files of a folder went."""
    inside = [(old.removeprefix(path), new) for old, new in renames.items() if old.startswith(f"{path}/")]
    folders = {new.removesuffix(rest) if new.endswith(rest) else "" for rest, new in inside}
    return renames.get(path, "") or (folders.pop() if len(folders) == 1 else "")


def _find_lost(repo: Repo, tree: str, changes: Iterable[PathChange], named: Iterable[str]) -> Mapping[str, str]:
    """Return the named symbols that a changed file defined and no file defines now, each with that file."""
    names = list(dict.fromkeys(named))[:MAX_SYMBOLS]
    last = {name: re.split(r"[.#:]+", name)[-1] for name in names}
    if not last:
        return {}
    pattern = _make_pattern(set(last.values()))
    code = [change for change in changes if _is_code(change)][:MAX_FILES]
    still = {name for change in code for name in _list_defined(pattern, _read(repo, change.object_id))}
    lost: dict[str, str] = {}
    for change in code:
        text = _read(repo, change.old_object_id)
        gone = {*_list_defined(pattern, text)} - still
        for name in names if gone else ():
            if last[name] in gone and all(part in text for part in re.split(r"[.#:]+", name)):
                lost.setdefault(name, change.path)
    words = {last[name] for name in lost}
    lines = find_lines(repo, tree, words, most_per_file=MAX_LINES) if words else ""
    still = words if lines is None else {*_list_defined(pattern, lines)}
    return {name: path for name, path in lost.items() if last[name] not in still}


def _is_code(change: PathChange) -> bool:
    is_file = all(mode.startswith(("100", "000")) for mode in (change.old_mode, change.mode))
    return is_file and not change.path.lower().endswith(_PROSE)


def _read(repo: Repo, blob: str) -> str:
    data = load_blob(repo, blob) if blob else b""
    return data.decode(errors="replace") if len(data) <= MAX_BYTES and b"\0" not in data else ""


def _make_pattern(names: Iterable[str]) -> re.Pattern[str]:
    """Compile the forms of a definition: after a keyword, an assignment at a line's start, a function of C or Java."""
    name = f"({'|'.join(sorted(map(re.escape, names)))})"
    words = r"(?:[A-Za-z@][\w\"().:<>-]*+[ \t]++){0,6}?"
    between = r"(?:\([^()\n]*+\)[ \t]*+|self\.|IF NOT EXISTS[ \t]++)?"
    return re.compile(
        rf"^[ \t]*+{words}(?:{_KEYWORDS})[ \t]++{between}{name}(?![\w$])"
        rf"|^(?:export[ \t]+)?{name}[ \t]*+(?::[^=\n]{{1,80}})?=(?![=>~])"
        rf"|^[ \t]*+(?!(?:{_CALLS})\b)(?:[A-Za-z_][\w<>\[\],.:]*+[ \t]++){{1,6}}[*&]*{name}[ \t]*+\([^;\n]*+$",
        re.MULTILINE,
    )


def _list_defined(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    return (next(filter(None, found.groups())) for found in pattern.finditer(text))
