"""The repository's instructions for agents (AGENTS.md), found and cut exactly as Codex does.

Each directory from the project's root down to the working directory contributes one file, under one byte budget. The
user's own file comes first, outside the budget. Warnings report cuts, because the files nearest to the work are cut
first. Sessions work at the root; a phase also gets the files of the folders that it names.

relay is stricter than the original in one point: it skips a file that tools hide from the model, and a link to such a
file or out of the project, because its content would be sent to the provider.

Source: ``core/src/agents_md.rs`` of openai/codex at ba2fb4831.
"""

import codecs
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath

from relay.base.secrecy import NOTHING_NAMED, RULES, Hidden, is_covered
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.config import Settings
from relay.sandbox.policy import PROTECTED_NAMES
from relay.setup.project import is_unfinished
from relay.setup.skills import Skill, load_skills

MAX_BYTES = 32 * 1024
"""Of all files together, as in the original; every request pays for them."""
MAX_GLOBAL_BYTES = 1024 * 1024
"""The user's own file is outside the budget; this limit only keeps an accident out of memory."""
GLOBAL_SEPARATOR = "\n\n--- project-doc ---\n\n"
MAX_FOLDERS = 500
"""Most folders of one phase."""
_NAMES = ("AGENTS.override.md", "AGENTS.md")
_OTHERS = ("WARP.md", ".cursorrules")
"""Rules of other agents that `rules_fallback_names` can name. A session may write them, so none is read by default."""
_OTHER_PLACES = (".github/copilot-instructions.md", ".cursor/rules", ".kiro/steering")
"""Rules of other agents that relay cannot read."""
_UNFINISHED = "AGENTS.md, which relay init wrote, has places to fill in (…): say how this project is built and tested"
_IMPORT = re.compile(r"(?:^|(?<=\s))@([\w.~/-]{1,200})")
"""Claude Code's import, ``@docs/rules.md``. relay reads no such file: a session may write it."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """A file of rules, and how much of it is in the text."""

    path: str
    """Relative to the project's root with forward slashes; absolute for the user's own file."""
    bytes_used: int
    bytes_total: int
    truncated: bool = False
    omitted: bool = False
    """Nothing of it is in the text: the budget was used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for one working directory."""

    text: str = ""
    """All files joined; empty without files."""
    files: tuple[RuleFile, ...] = ()
    """In the order of the text: the user's own file, then from the root down."""
    skills: tuple[Skill, ...] = ()
    """What relay's own loop tells of the repository's skills; other agents look for themselves."""
    warnings: tuple[str, ...] = ()
    """One line for each file that was cut, skipped or unreadable."""

    @property
    def cut_bytes(self) -> int:
        """Size of what did not fit into the budget."""
        return sum(max(0, file.bytes_total - file.bytes_used) for file in self.files)

    @property
    def project_bytes(self) -> int:
        """The used part of the budget."""
        return sum(file.bytes_used for file in self.files if not file.path.startswith("/"))


_Found = tuple[str, str]
"""The file of a directory: its path in the project, and with links resolved."""


@dataclass(slots=True, kw_only=True)
class _Project:
    """Where to look for files, and which to skip. Mutable: it collects warnings."""

    root: Path
    names: tuple[str, ...]
    """The first name that exists wins."""
    hidden: Hidden
    warnings: list[str] = field(default_factory=list)


def load_repository_rules(
    root: Path, settings: Settings, hidden: Hidden = NOTHING_NAMED, user_dir: Path | None = None
) -> Rules:
    """Load the rules and the skills of a repository, as its settings say.

    Args:
        hidden: The repository's hidden files.
        user_dir: The user's config directory of relay, which may hold an AGENTS.md; None without one.
    """
    rules = Rules()
    if "rules" not in settings.ablate:
        rules = load_rules(root, fallback_names=settings.rules_fallback_names, user_dir=user_dir, hidden=hidden)
        if is_unfinished(rules.text):
            rules = replace(rules, warnings=(*rules.warnings, _UNFINISHED))
        is_chosen = settings.origins.get("rules_fallback_names", "default") != "default"
        if not is_chosen and all(file.path.startswith("/") for file in rules.files):
            rules = replace(rules, warnings=(*rules.warnings, *_describe_unread(root)))
    if "skills" in settings.ablate:
        return rules
    skills, warnings = load_skills(root, hidden)
    return replace(rules, skills=skills, warnings=(*rules.warnings, *warnings))


def _describe_unread(root: Path) -> Iterator[str]:
    """Warn of other agents' rules that relay does not read, if the repository has no rules of its own."""
    places = [place for place in _OTHER_PLACES if os.path.lexists(root / place)]
    if unread := next((name for name in _OTHERS if (root / name).is_file()), ""):
        way = f'rules_fallback_names = ["{unread}"] in relay.toml has it read'
        yield f"there is no AGENTS.md, and {unread} is not read: {way}"
    elif places:
        yield f"there is no AGENTS.md, and {', '.join(places)} cannot be read: put the important rules into AGENTS.md"


def load_folder_rules(  # what a phase, its settings and the repository each know
    root: Path,
    paths: Iterable[str],
    *,
    max_bytes: int,
    fallback_names: Sequence[str] = (),
    hidden: Hidden = NOTHING_NAMED,
    find_strange: Callable[[frozenset[str]], Collection[str]] = lambda _: (),
) -> Rules:
    """Load the rules of the folders below the root that lead to some paths, from the root down.

    Args:
        paths: Relative to the root; they need not exist.
        max_bytes: The rest of the budget after the rules of the root.
        fallback_names: As for `load_rules`, but only names that no session can write.
        hidden: As for `load_rules`.
        find_strange: Given files relative to the root, returns those that a session may have made; they are not obeyed.
    """
    names = (*_NAMES, *(name for name in fallback_names if name in PROTECTED_NAMES))
    project = _Project(root=Path(os.path.realpath(root)), names=names, hidden=hidden)
    read = _read_all(project, [project.root / folder for folder in _find_folders(paths)], max_bytes, find_strange)
    texts = (f"## {file.path}\n\n{text.strip()}" for text, file in read if text)
    files = tuple(file for _, file in read)
    return Rules(text="\n\n".join(texts), files=files, warnings=tuple(project.warnings))


def _read_all(
    project: _Project,
    folders: Iterable[Path],
    max_bytes: int,
    find_strange: Callable[[frozenset[str]], Collection[str]] = lambda _: (),
) -> list[tuple[str, RuleFile]]:
    """Return the file of each folder with its text. As in the original, none where one of them is unreadable."""
    try:
        looks = (
            next(filter(None, (_probe(project, folder / name) for name in project.names)), None) for folder in folders
        )
        found = [file for file in looks if file]
        strange = find_strange(frozenset(shown for shown, _ in found)) if found else ()
        project.warnings.extend(f"{path} may be a session's; it is not read" for path in sorted(strange))
        return [*_read_files([file for file in found if file[0] not in strange], max_bytes, project.warnings)]
    except OSError as exc:
        project.warnings.append(f"no project rules are loaded: {exc.filename or project.root}: {exc.strerror or exc}")
        return []


def _find_folders(paths: Iterable[str]) -> list[str]:
    """Return the folders that lead to paths, parents first, without the root."""
    folders: set[tuple[str, ...]] = set()
    for path in paths:
        parts = PurePosixPath(path).parts
        if len(folders) < MAX_FOLDERS and ".." not in parts and not path.startswith("/"):
            folders.update(parts[:depth] for depth in range(1, len(parts) + 1))
    return ["/".join(parts) for parts in sorted(folders)[:MAX_FOLDERS]]


def load_rules(
    cwd: Path,
    *,
    max_bytes: int = MAX_BYTES,
    fallback_names: Sequence[str] = (),
    user_dir: Path | None = None,
    hidden: Hidden = NOTHING_NAMED,
) -> Rules:
    """Load the rules of a directory.

    Args:
        cwd: The working directory of the sessions.
        max_bytes: The budget of all project files together; 0 leaves all out.
        fallback_names: File names for directories without Codex's own, such as ``CLAUDE.md``.
        user_dir: The directory of the user's own file; None without one.
        hidden: The repository's hidden files.
    """
    here = Path(os.path.realpath(cwd))
    root = next((folder for folder in (here, *here.parents) if os.path.lexists(folder / ".git")), here)
    names = tuple(dict.fromkeys((*_NAMES, *(name for name in fallback_names if name))))
    project = _Project(root=root, names=names, hidden=hidden)
    warnings = project.warnings
    own, own_files = _read_global(user_dir, warnings)
    above = [directory for directory in reversed(here.parents) if directory.is_relative_to(root)]
    read = _read_all(project, (*above, here) if max_bytes > 0 else (), max_bytes)
    shared = "\n\n".join(text for text, _ in read if text)
    return Rules(
        text=own + GLOBAL_SEPARATOR + shared if own and shared else own + shared,
        files=(*own_files, *(file for _, file in read)),
        warnings=tuple(warnings),
    )


def _probe(project: _Project, path: Path) -> _Found | None:
    """Return the file at a path if it is regular, or a link inside the project, and not hidden; else None."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    real = Path(os.path.realpath(path))
    shown = path.relative_to(project.root).as_posix()
    inside, what = os.path.relpath(real, project.root), ""
    if real != path and not (real.is_relative_to(project.root) and RULES.fullmatch(real.name)):
        what = f"is a link to {real}, which is not a rules file of this project"
    elif project.hidden.covers(inside) or is_covered(inside, ("**/.git", ".relay")):
        what = "may hold secrets" if real == path else f"is a link to {real}, which may hold secrets"
    elif found.st_nlink > _count_names(project, real, found):
        what = "has another name elsewhere (a hard link), which may be a hidden file's"
    if not what:
        return shown, str(real)
    project.warnings.append(f"{shown} {what}; it is left out")
    return None


def _count_names(project: _Project, real: Path, found: os.stat_result) -> int:
    """Return how many rules file names in its directory are this same file."""
    beside = (real.parent / name for name in {real.name, *project.names, *PROTECTED_NAMES, *_OTHERS})
    return sum(not place.is_symlink() and place.exists() and os.path.samestat(place.stat(), found) for place in beside)


def _read_files(found: Sequence[_Found], max_bytes: int, warnings: list[str]) -> Iterator[tuple[str, RuleFile]]:
    """Yield each file with its text (empty: omitted) within the shared budget; blank files cost nothing."""
    left = max_bytes
    for shown, real in found:
        read = _read_start(real, left)
        if read is None:
            continue
        content, total = read
        if left == 0 and total:
            warnings.append(f"{shown} is left out: the {max_bytes:,} bytes for rules are used up")
            yield "", RuleFile(path=shown, bytes_used=0, bytes_total=total, omitted=True)
            continue
        text = content.decode("utf-16" if content.startswith(_UTF_16) else "utf-8", "replace")
        if not text.strip():
            warnings.append(f"{shown} is blank; no other file of its directory is read")
            continue
        left -= len(content)
        if imports := _find_imports(text, Path(real).parent):
            names = list_some(imports)
            warnings.append(f"{shown} imports {names}, which relay does not read: put its rules into {shown}")
        cut = total > len(content)
        if cut:
            warnings.append(f"{shown} is cut to {len(content):,} of {total:,} bytes: {max_bytes:,} are for all rules")
        yield text, RuleFile(path=shown, bytes_used=len(content), bytes_total=total, truncated=cut)


def _find_imports(text: str, folder: Path) -> list[str]:
    """Return the existing files that a file of rules imports, each once; a folder is no import."""
    named = dict.fromkeys(name.rstrip(".") for name in _IMPORT.findall(text))
    found: list[str] = []
    for name in named:
        with suppress(OSError):  # a folder that the user may not enter
            found += [name] if name.startswith("~/") or (folder / name).is_file() else []
    return found


def _read_start(path: str, limit: int) -> tuple[bytes, int] | None:
    """Return the first bytes of a file and its size; None if it is gone or not regular."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            content = stream.read(limit + 1)
        return content[:limit], max(state.st_size, len(content))
    finally:
        os.close(descriptor)


def _read_global(user_dir: Path | None, warnings: list[str]) -> tuple[str, tuple[RuleFile, ...]]:
    """Read the user's own file: the first of the two names that is not blank, stripped."""
    for candidate in [user_dir / name for name in _NAMES] if user_dir else []:
        path = os.path.realpath(candidate)
        try:
            read = _read_start(path, MAX_GLOBAL_BYTES)
        except OSError as exc:
            warnings.append(f"your own rules are not loaded: {path}: {exc.strerror or exc}")
            continue
        text = read[0].decode("utf-8", "replace").strip() if read else ""
        if read and text:
            used, total = len(read[0]), read[1]
            if total > used:
                warnings.append(f"{path} is cut to {used:,} of {total:,} bytes")
            return text, (RuleFile(path=path, bytes_used=used, bytes_total=total, truncated=total > used),)
    return "", ()
