"""What git ignores, told without asking git where its rules are simple; of whatever is not simple only git tells.

A rule that is a name, or a star and an ending, is read as git reads it. Any other is only known by what it can never
match. Source: gitignore(5), git's dir.c and wildmatch.c, 2.39 to 2.52.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from relay.files.tree import read_start
from relay.git.config_guard import Setting, find_value
from relay.git.index_file import read_index_file
from relay.git.modes import GITLINK
from relay.git.repository import Repo
from relay.regexes import regex
from relay.values import dataclass

_LARGEST_BYTES = 1 << 16
_MOST_ENTRIES = 1_000
"""Of the work tree; to walk over more of them takes longer than starting git."""
_SIMPLE = regex(r"[\w.,+@~-]+/?|\*[\w.,+@~-]*", re.ASCII)
"""A name, a directory's name, a star and an ending."""
_TOKEN = regex(r"/?\*\*/?|\*|\?|[\[\\].*", re.DOTALL)


class _UnknownError(Exception):
    """Only git can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """The rules of one file."""

    names: frozenset[str]
    """Of what is ignored wherever it is."""
    folders: frozenset[str]
    """The same of directories only."""
    ends: tuple[str, ...]
    """Whose names end so is ignored too."""
    can_match: re.Pattern[str] | None
    """What any rule can match, and more, in lower case."""
    excepts: bool
    """Whether a rule takes something out again."""

    def judge(self, path: str, name: str, *, is_folder: bool) -> bool:
        """Return whether a path below the file's directory is ignored by it.

        Raises:
            _UnknownError: Only git can tell.
        """
        if name in self.names or (is_folder and name in self.folders) or (self.ends and name.endswith(self.ends)):
            return True
        if self.can_match and (not path.isascii() or self.can_match.fullmatch(path.lower())):
            raise _UnknownError
        return False


_Chain = tuple[tuple[int, _Rules], ...]
"""Rules, and how long the name of the directory is that they count from."""


@lru_cache(maxsize=64)
def _parse(data: bytes) -> _Rules:
    names, folders, ends, others, excepts = set(), set(), set(), [], False
    for line in os.fsdecode(data.removeprefix(b"\xef\xbb\xbf")).split("\n"):
        rule = line.rstrip(" \r")
        if not rule or rule.startswith("#"):
            continue
        if rule.startswith("!"):
            excepts = True
            continue
        text = rule.rstrip("/")
        others.append(_render_reach(text))
        # One behind white space, or of other letters than these, git may read otherwise.
        if not _SIMPLE.fullmatch(line):
            continue
        if rule != text:
            folders.add(text)
        elif text.startswith("*"):
            ends.add(text[1:])
        else:
            names.add(text)
    return _Rules(
        names=frozenset(names),
        folders=frozenset(folders),
        ends=tuple(ends),
        can_match=re.compile("|".join(others), re.DOTALL) if others else None,
        excepts=excepts,
    )


def _render_reach(rule: str) -> str:
    """Return a regular expression for paths that a rule can match, and for others too: a wild card for anything."""
    anchored = "/" in rule
    text, at, parts = rule.removeprefix("/").lower(), 0, []
    for match in _TOKEN.finditer(text):
        parts += [re.escape(text[at : match.start()]), "." if match[0] == "?" else ".*"]
        at = match.end()
    return ("" if anchored else "(?:.*/)?") + "".join((*parts, re.escape(text[at:])))


def _read(file: str) -> _Rules | None:
    """Return the rules of a file; None without one.

    Raises:
        _UnknownError: Only git can tell.
    """
    try:
        data = read_start(file, _LARGEST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _UnknownError from error
    if data is None or len(data) > _LARGEST_BYTES:
        raise _UnknownError
    return _parse(data)


def _read_general(repo: Repo, config: tuple[Setting, ...]) -> _Chain:
    """Return the rules that hold in the whole repository."""
    env = repo.git.env
    home = env.get("HOME", "")
    named = find_value(config, "core.excludesfile")
    if named is None:
        named = f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/ignore"
    elif not named or named[0] in "%~":
        if not (named.startswith("~/") and home):
            raise _UnknownError
        named = home + named[1:]
    files = (os.path.join(repo.root, named), f"{repo.common_dir}/info/exclude")  # noqa: PTH118  # it may be absolute
    return tuple((0, rules) for file in files if (rules := _read(file)) is not None)


def _read_folder(root: Path, here: str) -> _Chain:
    """Return the rules of a directory, its name with a slash at the end."""
    rules = _read(f"{root}/{here}.gitignore")
    return () if rules is None else ((len(here), rules),)


def _judge(chain: _Chain, path: str, *, is_folder: bool) -> bool:
    name = path.rpartition("/")[2]
    # An exception of any file's may follow, and counts.
    verdicts = [rules.judge(path[length:], name, is_folder=is_folder) for length, rules in chain]
    if any(verdicts) and any(rules.excepts for _, rules in chain):
        raise _UnknownError
    return any(verdicts)


def find_ignorable(repo: Repo, config: tuple[Setting, ...], paths: Iterable[str]) -> tuple[str, ...]:
    """Return those of `paths`, of which git has none in its index, that it may ignore, there or not."""
    index = read_index_file(repo)
    if index is None or index.has_flags:  # of a hidden file git reads the rules in the index
        return tuple(paths)
    return tuple(path for path in paths if not _is_known_to_be_seen(repo, config, path))


def _is_known_to_be_seen(repo: Repo, config: tuple[Setting, ...], path: str) -> bool:
    *folders, _ = parts = path.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        return False
    try:
        chain = _read_general(repo, config)
        for depth, part in enumerate(parts):
            here = "".join(f"{folder}/" for folder in folders[:depth])
            chain += _read_folder(repo.root, here)
            if _judge(chain, here + part, is_folder=depth < len(folders)):
                return False
    except _UnknownError:
        return False
    return True


def list_ignored(repo: Repo, config: tuple[Setting, ...]) -> frozenset[str] | None:
    """Return what git ignores in the work tree; None: only git can tell, or is the faster.

    Directories are among it, without a slash at the end: one that is ignored, and nothing in it then, and one in which
    everything is. It is what ``git ls-files --others --ignored --exclude-standard --directory`` prints.
    """
    index = read_index_file(repo)
    if index is None or index.has_flags or index.has_conflicts:
        return None
    try:
        sweep = _Sweep(repo.root, index.entries)
        sweep.enter("", _read_general(repo, config))
    except (_UnknownError, OSError, RecursionError):
        return None
    return frozenset(sweep.found)


def _list_folders(paths: Iterable[str]) -> frozenset[str]:
    """Return every directory above paths; a third of the time of `with_parents`."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(found)


class _Sweep:
    """A walk over a work tree. Mutable: collects what is ignored."""

    def __init__(self, root: Path, tracked: Mapping[str, tuple[str, str]]) -> None:
        self._root = root
        self._tracked = tracked
        self._above = _list_folders(tracked)
        self._left = _MOST_ENTRIES
        self.found: set[str] = set()

    def enter(self, here: str, chain: _Chain) -> bool:
        """Look at a directory, its name with a slash behind; return whether it holds ignored files and no others."""
        chain += _read_folder(self._root, here)
        ignored, others = False, False
        with os.scandir(f"{self._root}/{here}") as entries:
            for entry in entries:
                path = here + entry.name
                self._left -= 1
                if not self._left or (entry.name == ".git" and here):  # a repository of its own
                    raise _UnknownError
                is_folder = entry.is_dir(follow_symlinks=False)
                if path == ".git":
                    continue
                if path in self._tracked and (not is_folder or self._tracked[path][0] == GITLINK):
                    others = True
                elif self._look(path, chain, is_folder=is_folder):
                    ignored = True
                else:
                    others = True
        return ignored and not others

    def _look(self, path: str, chain: _Chain, *, is_folder: bool) -> bool:
        """Put down what is ignored of an entry; return whether all of it is."""
        if path in self._above:
            if _judge(chain, path, is_folder=is_folder):
                raise _UnknownError
            self.enter(f"{path}/", chain)
            return False
        is_ignored = _judge(chain, path, is_folder=is_folder) or (is_folder and self.enter(f"{path}/", chain))
        if is_ignored:
            self.found.add(path)
        return is_ignored
