"""Switch off filter drivers and configured hooks, which no fixed flag switches off, by name.

A clean filter runs whenever git compares a file whose time changed, so even ``git status`` executes
``filter.<name>.clean``. Drivers from the user's own configuration (system, global) stay: LFS lives there. Drivers
from the repository's configuration, from a file inside the work tree that any configuration includes, or whose program
may be in the work tree, are overruled by the user's value for the same key, else by nothing.

`read_listing` runs ``git config --list`` again only when one of its files changed. relay needs the configuration before
every command that could run a filter or a hook: 50 times in a phase of four tools. An answer is valid while every file
that it came from, or could come from, is the same file with the same size and times. Where the configuration includes
other files git is asked each time: one may appear, a condition may be met, and one in the work tree is a session's,
which may change it twice within one tick of the clock.

`runs_outside` tells whether a filter command of the user's own configuration runs only code that no session can write.
Git runs a filter at the top of the work tree. A relative path, a name that an interpreter or a launcher finds in the
current directory, and text that a shell would still expand, may be a session's.

`is_armed` judges a git directory below the work tree: a session may leave one, and a person's git obeys it. A plain
``git status`` at the root enters the directory of a submodule; an editor and a shell's prompt enter any other.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from relay.base.tree import FileState, make_look
from relay.base.values import dataclass
from relay.git.command import Git
from relay.git.repository import Repo

_INERT = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|abbrev|sharedrepository|compression)"
    r"|remote\.[^\n]*\.(url|fetch|tagopt|mirror)|branch\.[^\n]*\.(remote|merge|rebase)|submodule\.[^\n]*\.(url|active)"
    r"|user\.(name|email)|init\.defaultbranch|gc\.auto|(commit|tag)\.gpgsign|maintenance\.auto"
    r"|extensions\.(objectformat|refstorage|partialclone)|receive\.deny[a-z]+|uploadpack\.allow[a-z]+|http\.[a-z]+buffer"
)
"""Settings that make git run no program and read no other file: those that git writes itself and that tests set."""


def is_git_layout(names: frozenset[str]) -> bool:
    """Return whether git takes a directory with these entries for a git directory, as of a bare repository."""
    return {"HEAD", "objects", "refs"} <= names


def is_armed(repo: Repo, place: Path) -> bool:
    """Return whether a git directory, or a ``.git`` file, makes git run programs or read files of its maker's choice.

    A file or a link names a directory elsewhere and counts as armed.
    """
    if not stat.S_ISDIR(place.lstat().st_mode) or os.path.lexists(place / "commondir"):
        return True
    return _has_hook(place / "hooks") or any(_has_setting(repo, place / name) for name in ("config", "config.worktree"))


def _has_hook(folder: Path) -> bool:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return os.path.lexists(folder)
    return any(not entry.name.endswith(".sample") and os.access(entry, os.X_OK) for entry in entries)


def _has_setting(repo: Repo, file: Path) -> bool:
    """Return whether a configuration file holds more than inert settings, or cannot be read."""
    if not os.path.lexists(file):
        return False
    if not stat.S_ISREG(file.lstat().st_mode):
        return True
    result = repo.git.probe("config", "--no-includes", "--name-only", "-z", "--list", "--file", str(file))
    return bool(result.code) or any(not _INERT.fullmatch(os.fsdecode(key)) for key in result.out.split(b"\0") if key)


_known: dict[tuple[object, ...], tuple[tuple[str, ...], tuple[FileState, ...] | None, bytes]] = {}
"""By work tree and environment: the files, how they looked, and git's answer. None: they changed meanwhile."""


def read_listing(repo: Repo) -> bytes:
    """Return scope, origin and setting of each entry of the current configuration, a NUL after each."""
    key = (repo.root, repo.git_dir, *repo.git.env.items())
    files, looks, out = _known.get(key) or (_find_standard_files(repo), None, b"")
    now = tuple(map(_look, files))
    if now != looks:
        out = repo.git.run("config", "--list", "-z", "--show-scope", "--show-origin")
        # Only the answer names the files: it is kept where they looked the same before and after it.
        found = _find_files(repo, out)
        _known[key] = (found, now if found and found == files and now == tuple(map(_look, found)) else None, out)
    return out


def _look(path: str) -> FileState:
    try:
        return make_look(os.stat(path))  # noqa: PTH116  # for speed
    except (OSError, ValueError):
        return ()


def _find_standard_files(repo: Repo) -> tuple[str, ...]:
    """Return the files that git always reads; a system-wide file elsewhere counts once it exists."""
    env = repo.git.env
    home = env.get("HOME", "")
    system = env.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig")
    user = (f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config", f"{home}/.gitconfig")
    return (system, *((env["GIT_CONFIG_GLOBAL"],) if "GIT_CONFIG_GLOBAL" in env else user), *_find_own_files(repo))


def _find_own_files(repo: Repo) -> tuple[str, ...]:
    return str(repo.common_dir / "config"), str(repo.git_dir / "config.worktree")


def _find_files(repo: Repo, out: bytes) -> tuple[str, ...]:
    """Return every file that the configuration comes from.

    Empty where a session can write one, at any moment, and where files include others, present or not.
    """
    parts = out.split(b"\0")
    own, files = _find_own_files(repo), dict.fromkeys(_find_standard_files(repo))
    for raw_origin, entry in zip(parts[1::3], parts[2::3], strict=False):
        if entry.startswith((b"include.", b"includeif.")):
            return ()
        origin = os.fsdecode(raw_origin)
        if origin.startswith("file:"):  # else it is relay's own
            files[os.path.join(repo.root, origin.removeprefix("file:"))] = None  # noqa: PTH118  # as git does, no link followed
    is_safe = all(file in own or _is_outside_file(repo.root, os.fsencode(file)) for file in files)
    return tuple(files) if is_safe else ()


def find_tree_files(repo: Repo) -> tuple[str, ...]:
    """Return the files of the work tree that git's configuration reads, present or not, in its order.

    Whoever changes one of them decides which programs git runs, the user's own git included. Relative to the root.
    """
    parts = read_listing(repo).split(b"\0")
    files = []
    for raw_origin, entry in zip(parts[1::3], parts[2::3], strict=False):
        origin = os.fsdecode(raw_origin)
        if origin.startswith("file:"):
            file = os.path.join(repo.root, origin.removeprefix("file:"))  # noqa: PTH118  # as git does
            files += [file, *_get_included(repo, file, os.fsdecode(entry))]
    # A linked work tree has the same files, and what is committed there comes to the main one.
    roots = dict.fromkeys((repo.root, *([repo.common_dir.parent] if repo.common_dir.name == ".git" else [])))
    own = (os.path.relpath(os.path.abspath(file), root) for file in files for root in roots)  # noqa: PTH100
    return tuple(dict.fromkeys(name for name in own if name.split("/")[0] not in {"..", ".git"}))


def _get_included(repo: Repo, file: str, entry: str) -> Iterator[str]:
    """Yield the file that an entry of `file` includes, whether or not its condition is met."""
    key, _, value = entry.partition("\n")
    if not (key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))):
        return
    if value.startswith("%") or (value.startswith("~") and not value.startswith("~/")):
        return  # git's own directory, or the home of another user
    place = value.replace("~", repo.git.env.get("HOME", ""), 1) if value.startswith("~/") else value
    yield os.path.join(os.path.dirname(file), place)  # noqa: PTH118, PTH120  # as git does, no link followed


_LAUNCHERS = re.compile(
    r"(ba|da|z|k|fi|c|tc|a|pw)?sh|busybox|env|exec|eval|source|\.|command|xargs|find|nice|nohup|setsid|stdbuf|timeout|time|sudo"
    r"|doas|parallel|g?make|just|task|rake|ninja|node|nodejs|deno|bun|bunx|np[mx]|pnpm|pnpx|yarn|corepack|tsx|ts-node|prettier"
    r"|eslint|biome|ruby|bundle|bundler|perl|php|composer|lua\w*|tclsh|guile|java|jshell|groovy|kotlin|scala|dotnet|go|cargo"
    r"|mix|iex|elixir|escript|R|Rscript|julia|uvx?|pipx?|pipenv|poetry|hatch|pdm|rye|conda|mamba|micromamba|pixi|nix\S*"
    r"|direnv|mise|asdf|docker|podman|pre-commit|lefthook|husky|ipython\S*|jupyter\S*|pypy\S*"
)
"""Programs that run code from the current directory or from their arguments."""
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_SAFE_PYTHON = re.compile(r"python3\.(1[1-9]|[2-9]\d)")
"""Since 3.11 PYTHONSAFEPATH keeps the current directory off ``sys.path``; relay sets it for git."""
_TEXT_TOOLS = frozenset({"sed", "gsed", "awk", "gawk", "mawk", "grep", "tr", "cut", "jq", "yq"})
"""Programs whose arguments are patterns or scripts with slashes, not paths."""
_PROGRAM_FILE = re.compile(r"-[a-zA-Z]*[fEilL]|--(file|from-file|exec|include|load|in-place)\b.*")
_EXPANDS = re.compile(r"[`\n<>]|\$[\w({]")
_SEPARATORS = frozenset({";", "|", "||", "&", "&&"})


def runs_outside(command: str, root: Path) -> bool:
    """Return whether a filter command runs no code from the work tree."""
    parts = _split(command)
    return parts is not None and all(_are_outside(part, root) for part in parts)


@cache
def _split(command: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the words of each simple command; None where only a shell can tell."""
    if _EXPANDS.search(command):
        return None
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:
        return None
    if any(set(word) <= set("();&|") and word not in _SEPARATORS for word in words):
        return None
    simple: list[list[str]] = [[]]
    for word in words:
        if word in _SEPARATORS:
            simple.append([])
        else:
            simple[-1].append(word)
    return tuple(tuple(part) for part in simple if part)


def _are_outside(words: Sequence[str], root: Path) -> bool:
    program, *given = words
    if not is_outside(program, root):
        return False
    name = os.path.basename(program)  # noqa: PTH119  # a word, not a path
    if _PYTHON.fullmatch(name):
        real = os.path.basename(os.path.realpath(os.path.expanduser(program)))  # noqa: PTH111, PTH119  # never raises
        return _SAFE_PYTHON.fullmatch(real) is not None and given[:1] == ["-m"]
    if name in _TEXT_TOOLS:
        return not any(_PROGRAM_FILE.match(word) for word in given)
    if "=" in name or _LAUNCHERS.fullmatch(name):
        return False
    places = (part for word in given if word != "%f" for part in word.split("="))
    return not any(_is_below(place, root) for place in places if "/" in place or os.path.lexists(root / place))


def is_outside(program: str, root: Path) -> bool:
    """Return whether a program is found on PATH, or absolute and outside of the work tree."""
    return "/" not in program or (program.startswith(("/", "~")) and not _is_below(program, root))


def _is_below(word: str, root: Path) -> bool:
    place = os.path.realpath(root / os.path.expanduser(word))  # noqa: PTH111  # never raises
    return Path(place).is_relative_to(root)


_FILTER = re.compile(r"filter\.(?P<name>.*)\.(?P<key>clean|smudge|process|required)", re.DOTALL)
_COMMAND = re.compile(rf"{_FILTER.pattern}|gpg\.ssh\.defaultkeycommand", re.DOTALL)
_PROGRAM = re.compile(r"gpg\.(.*\.)?program", re.DOTALL)
_HOOK = re.compile(r"hook\.(?P<name>.*)\.[a-z]+", re.DOTALL)
_FILTER_KEYS = ("clean", "smudge", "process", "required")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSetting:
    """One setting of the effective configuration; of several with one key the last wins."""

    key: str
    """Section and variable in lower case, the subsection as written."""
    value: str
    trusted: bool
    """Whether it comes from the user's own files, outside the repository."""
    is_bare: bool = False
    """Whether it has no value, which means true."""


def read_config(repo: Repo) -> tuple[GitSetting, ...]:
    """Return the current configuration without relay's own overrides."""
    entries = _list_entries(read_listing(repo))
    of_user = {source for source, _ in entries if source[0] in {b"system", b"global"}}
    trusted = {source for source in of_user if _is_outside_file(repo.root, source[1])}
    return tuple(_parse_setting(repo.root, entry, trusted=source in trusted) for source, entry in entries)


def _list_entries(listing: bytes) -> list[tuple[tuple[bytes, bytes], bytes]]:
    """Return scope and origin of each entry, and the entry; relay's own overrides are none."""
    parts = listing.split(b"\0")
    entries = zip(zip(parts[0::3], parts[1::3], strict=False), parts[2::3], strict=False)
    return [(source, entry) for source, entry in entries if source[0] != b"command"]


def _is_outside_file(root: Path, origin: bytes) -> bool:
    file = os.path.realpath(os.path.join(root, os.fsdecode(origin).removeprefix("file:")))  # noqa: PTH118  # for speed
    return not f"{file}/".startswith(os.path.join(root, ""))  # noqa: PTH118  # the root may be "/"


def _parse_setting(root: Path, entry: bytes, *, trusted: bool) -> GitSetting:
    key, end, value = os.fsdecode(entry).partition("\n")
    trusted = trusted and (not _COMMAND.fullmatch(key) or runs_outside(value, root))
    trusted = trusted and (not _PROGRAM.fullmatch(key) or is_outside(value, root))
    return GitSetting(key=key, value=value, trusted=trusted, is_bare=not end)


def find_value(config: tuple[GitSetting, ...], key: str, *, trusted_only: bool = False) -> str | None:
    """Return the value that wins for `key` (section and variable in lower case); None when it is not set."""
    values = [s.value for s in config if s.key == key and (s.trusted or not trusted_only)]
    return values[-1] if values else None


def is_true(value: str | None, *, default: bool) -> bool:
    """Read a boolean setting as git does; a key without a value arrives as an empty string and is true."""
    return default if value is None else value.lower() in {"", "true", "yes", "on", "1"}


def find_own_filters(config: tuple[GitSetting, ...]) -> frozenset[str]:
    """Return the names of filter drivers that the repository defines, unless the user defines them alike."""
    matches = (_FILTER.fullmatch(setting.key) for setting in config if not setting.trusted)
    return frozenset(
        match["name"]
        for match in matches
        if match
        and any(
            find_value(config, key) != find_value(config, key, trusted_only=True)
            for key in (f"filter.{match['name']}.clean", f"filter.{match['name']}.process")
        )
    )


def overrule(config: tuple[GitSetting, ...]) -> tuple[tuple[str, str], ...]:
    """Return the settings that switch off a repository's filter drivers and all configured hooks."""
    pairs: dict[str, str] = {}
    for setting in config:
        driver = _FILTER.fullmatch(setting.key)
        if driver and not setting.trusted:
            pairs |= _disarm(config, f"filter.{driver['name']}")
        hook = _HOOK.fullmatch(setting.key)
        if hook:
            pairs[f"hook.{hook['name']}.enabled"] = "false"
    return tuple(pairs.items())


def _disarm(config: tuple[GitSetting, ...], driver: str) -> dict[str, str]:
    found = {key: find_value(config, f"{driver}.{key}", trusted_only=True) for key in _FILTER_KEYS}
    if not (found["clean"] or found["process"]):
        found["required"] = None
    # With `required` left true, git would fail on every file of a driver that has no command any more. With a `process`
    # that is there and empty it runs no `clean` and no `smudge` (convert.c, 2.39 to 2.52).
    given = [key for key in _FILTER_KEYS if key == "required" or find_value(config, f"{driver}.{key}") is not None]
    return {f"{driver}.{key}": found[key] or ("false" if key == "required" else "") for key in given}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """Git for commands that may run filters or hooks, with the configuration that it was made from."""

    git: Git
    config: tuple[GitSetting, ...]

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean setting."""
        return is_true(find_value(self.config, key), default=default)


def guard(repo: Repo) -> Guarded:
    """Return git with the filters and hooks of the current configuration switched off.

    Call it once per operation: a config may include a file of the work tree, which a session can write.
    """
    config = read_config(repo)
    pairs = overrule(config)
    # Git's own trial when it makes a repository; one of another machine would hide a name that is spelt anew.
    if is_true(find_value(config, "core.ignorecase"), default=False) and not (repo.common_dir / "CoNfIg").exists():
        pairs += (("core.ignorecase", "false"),)
    return Guarded(git=repo.git.overruled(pairs), config=config)


def find_filters(guarded: Guarded, paths: tuple[str, ...]) -> Mapping[str, str]:
    """Return ``path: filter driver`` for those of `paths` that have one, by the current attributes."""
    stdin = b"".join(os.fsencode(path) + b"\0" for path in paths)
    parts = guarded.git.run("check-attr", "-z", "--stdin", "filter", stdin=stdin).split(b"\0")
    triples = zip(parts[0::3], parts[2::3], strict=False)
    return {os.fsdecode(p): os.fsdecode(v) for p, v in triples if v not in {b"unspecified", b"unset", b"set"}}
