"""The repository's instructions for agents (AGENTS.md), found and cut exactly as Codex does.

One file per directory from the project's root down to the working directory, under one byte budget; the
user's own file comes before them, outside the budget. What was cut is reported, because the files nearest to
the work are the first to be lost.

Stricter than the original in one thing: a link that leads out of the project, or to a file that tools hide
from the model, is not followed, because its target would be sent to the provider.

Source: ``core/src/agents_md.rs`` of openai/codex at ba2fb4831.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relay.config import Settings

DEFAULT_MAX_BYTES = 32 * 1024
MAX_GLOBAL_BYTES = 1024 * 1024
"""The user's own file is outside the budget; this only keeps an accident out of memory."""
GLOBAL_SEPARATOR = "\n\n--- project-doc ---\n\n"
_NAMES = ("AGENTS.override.md", "AGENTS.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """One file that was found, and how much of it is in the text."""

    path: str
    """Relative to the project's root with forward slashes; absolute for the user's own file."""
    bytes_used: int
    bytes_total: int
    truncated: bool = False
    omitted: bool = False
    """Nothing of it is in the text, because the budget was used up before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The instructions for one working directory."""

    text: str = ""
    """Joined; empty when there are none."""
    files: tuple[RuleFile, ...] = ()
    """In the order of the text: the user's own, then from the root down."""
    warnings: tuple[str, ...] = ()
    """What was cut, skipped or could not be read, one line each."""
    nearest_cut: bool = False
    """Whether the file nearest to the working directory, the most specific one, is not there in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A candidate that won its directory."""

    shown: str
    real: str
    """Where it is, links resolved."""


def load_repository_rules(root: Path, settings: Settings) -> Rules:
    """Gather the instructions that hold in a repository, as its settings have it."""
    return load_rules(
        root,
        max_bytes=settings.rules_max_bytes,
        fallback_names=settings.rules_fallback_names,
        root_markers=settings.rules_root_markers,
        global_dir=Path(settings.rules_global_dir) if settings.rules_global_dir else None,
    )


def load_rules(
    cwd: Path,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    fallback_names: Sequence[str] = (),
    root_markers: Sequence[str] = (".git",),
    global_dir: Path | None = None,
) -> Rules:
    """Gather the instructions that hold in a directory.

    Args:
        cwd: The working directory of the sessions.
        max_bytes: Of all project files together; 0 leaves them all out.
        fallback_names: File names looked for where a directory has none of Codex's own, such as ``CLAUDE.md``.
        root_markers: Names that mark a project's root; where none is found, only `cwd` itself is looked at.
        global_dir: Where the user's own file is; None: there is none.
    """
    warnings: list[str] = []
    own, own_files = _read_global(global_dir, warnings)
    here = Path(os.path.realpath(cwd))
    root = _find_root(here, root_markers)
    texts: list[str] = []
    files: list[RuleFile] = []
    try:
        found = tuple(_find_files(root, here, fallback_names, warnings)) if max_bytes > 0 else ()
        for text, file in _read_files(found, max_bytes, warnings):
            texts += [text] if text else []
            files.append(file)
    except OSError as exc:
        # As in the original: one file that cannot be read takes the project's rules away, visibly.
        warnings.append(f"no project rules are loaded: {exc.filename or root}: {exc.strerror or exc}")
        texts, files = [], []
    project = "\n\n".join(texts)
    return Rules(
        text=own + GLOBAL_SEPARATOR + project if own and project else own + project,
        files=(*own_files, *files),
        warnings=tuple(warnings),
        nearest_cut=bool(files) and (files[-1].truncated or files[-1].omitted),
    )


def _find_root(here: Path, markers: Sequence[str]) -> Path:
    """Return the nearest directory, upwards, that holds a marker; `here` itself when none does."""
    return next((d for d in (here, *here.parents) if any(os.path.lexists(d / m) for m in markers if m)), here)


def _find_files(root: Path, here: Path, fallback_names: Sequence[str], warnings: list[str]) -> Iterator[_Found]:
    """Yield the one file of each directory, from the root down."""
    names = tuple(dict.fromkeys((*_NAMES, *(name for name in fallback_names if name))))
    above = [d for d in reversed(here.parents) if d.is_relative_to(root)]
    for directory in (*above, here):
        found = next((f for name in names if (f := _probe(root, directory / name, warnings))), None)
        if found:
            yield found


def _probe(root: Path, path: Path, warnings: list[str]) -> _Found | None:
    """Return a candidate that is a regular file, or a link to one inside the project."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
    except FileNotFoundError:
        return None
    real = Path(os.path.realpath(path))
    shown = path.relative_to(root).as_posix()
    if not real.is_relative_to(root) or _is_hidden(real.relative_to(root)):
        warnings.append(f"{shown} is a link to {real}, which is not a rules file of this project; it is left out")
        return None
    return _Found(shown=shown, real=str(real))


def _is_hidden(relative: Path) -> bool:
    """Whether a link's target is where credentials are kept."""
    return ".git" in relative.parts or relative.name.startswith(".env")


def _read_files(found: Sequence[_Found], max_bytes: int, warnings: list[str]) -> Iterator[tuple[str, RuleFile]]:
    """Yield each file's text (empty: omitted) within the budget they share; a blank file costs nothing."""
    left = max_bytes
    for file in found:
        read = _read_start(file.real, left)
        if read is None:
            continue
        content, total = read
        if left == 0 and total:
            warnings.append(f"{file.shown} is left out: the {max_bytes:,} bytes for rules are used up")
            yield "", RuleFile(path=file.shown, bytes_used=0, bytes_total=total, omitted=True)
            continue
        text = content.decode("utf-8", "replace")
        if not text.strip():
            warnings.append(f"{file.shown} is blank; no other file of its directory is read")
            continue
        left -= len(content)
        cut = total > len(content)
        if cut:
            warnings.append(
                f"{file.shown} is cut to {len(content):,} of {total:,} bytes: {max_bytes:,} are for all rules"
            )
        yield text, RuleFile(path=file.shown, bytes_used=len(content), bytes_total=total, truncated=cut)


def _read_start(path: str, limit: int) -> tuple[bytes, int] | None:
    """Read the first bytes of a file, and how many it has; None when it is gone or no file any more."""
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


def _read_global(global_dir: Path | None, warnings: list[str]) -> tuple[str, tuple[RuleFile, ...]]:
    """Read the user's own file: the first of the two names that is not blank, trimmed."""
    for candidate in [global_dir / name for name in _NAMES] if global_dir else []:
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
