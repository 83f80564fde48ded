"""The lines of a plan that relay acts on: ``Verify:``, ``After:``, ``Runner:``, ralphex's `Validation Commands`."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from relay.base.values import dataclass
from relay.plan.outline import Entry, EntryKind, Section
from relay.plan.paths import find_paths
from relay.plan.spans import find_code_spans

_STATEMENT = re.compile(r"[*_]{0,3}(verify|verification|after|runner)[*_]{0,3}[ \t]*:[*_]{0,3}[ \t]*", re.IGNORECASE)
_VALIDATION = re.compile(r"(?:validation|verification|verify) commands?:?", re.IGNORECASE)
_FILES = re.compile(
    r"[*_]{0,3}(?:(?:key|affected|relevant|related|changed|modified|new)\s+)?files?"
    r"(?:\s+to\s+(?:create|modify|change|touch|edit|update)|\s+(?:affected|changed|modified|touched|involved))?"
    r"[*_]{0,3}[ \t]*:[*_]{0,3}",
    re.IGNORECASE,
)
_NOTHING = frozenset({"none", "nothing", "n/a", "-", "—", "–"})
_TARGET = re.compile(
    r"(?:(?:phase|task|step|iteration|milestone|stage|part|sprint|wave)s?\s*)?\#?(\d{1,9}(?:\.\d{1,9})*[a-z]?)",
    re.IGNORECASE,
)
RUNNER_NAME = r"[a-z][a-z0-9_-]{0,40}"
"""What a runner may be called, in a plan and in the settings."""
_TOOLS = re.compile(r"[*_]{0,3}tools[*_]{0,3}[ \t]*:[*_]{0,3}(.{0,500})", re.IGNORECASE)
_TOOL_NAME = r"[a-z0-9][a-z0-9-]{0,30}"
_SEPARATOR = re.compile(r" ?(?:,|;|&|\band\b) ?|(?<=\d) (?=\#?\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyLine:
    """What one ``Verify:`` line says."""

    line: int
    commands: tuple[str, ...]
    plain: bool
    """The command is the rest of the line as it is, not a code span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterLine:
    """What one ``After:`` line says."""

    line: int
    numbers: tuple[str, ...]
    """The phases named; empty for ``After: none``."""
    prose: str
    """The words, when they name no phase by number; such a line is not acted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLine:
    """What one ``Runner:`` line says."""

    line: int
    name: str
    """Who runs the phase; empty when the words are no name, and the line is not acted on."""
    prose: str
    """The words then."""


def find_statement(text: str) -> str | None:
    """Return ``verify``, ``after`` or ``runner`` when a line starts with that word and a colon."""
    found = _STATEMENT.match(text)
    return None if found is None else {"verification": "verify"}.get(word := found[1].lower(), word)


def read_verify_lines(section: Section) -> tuple[VerifyLine, ...]:
    """Return the ``Verify:`` lines of one section; in a list of files that word names a file."""
    listed = _find_listed(section.entries)
    return tuple(
        _read_verify(section.entries, at)
        for at, entry in enumerate(section.entries)
        if _is_line(entry) and find_statement(entry.text) == "verify" and at not in listed
    )


def read_file_list(section: Section) -> tuple[str, ...]:
    """Return the paths in the lists of a section that follow a label such as ``**Files:**``, each once."""
    named = (find_paths(section.entries[at].text).named for at in sorted(_find_listed(section.entries)))
    return tuple(dict.fromkeys(path for paths in named for path in paths))


def _find_listed(entries: Sequence[Entry]) -> frozenset[int]:
    """Return which entries are lists of files, labels included; a task ends one."""
    listed: set[int] = set()
    label: int | None = None
    for at, entry in enumerate(entries):
        if _is_line(entry) and _FILES.match(entry.text):
            label = entry.depth
        elif label is not None and not (_is_line(entry) and entry.depth > label):
            label = None
        if label is not None:
            listed.add(at)
    return frozenset(listed)


def read_after_lines(section: Section) -> tuple[AfterLine, ...]:
    """Return the ``After:`` lines of one section; ``After:`` above an example is not one."""
    found = (entry for entry in section.entries if _is_line(entry) and find_statement(entry.text) == "after")
    return tuple(_read_after(entry) for entry in found if _rest(entry.text))


def read_runner_lines(section: Section) -> tuple[RunnerLine, ...]:
    """Return the ``Runner:`` lines of one section."""
    found = (entry for entry in section.entries if _is_line(entry) and find_statement(entry.text) == "runner")
    return tuple(_read_runner(entry) for entry in found if _rest(entry.text))


def read_tools(section: Section) -> tuple[tuple[str, int], ...]:
    """Return the names in the ``Tools:`` lines of one section, of tool servers, with the line of each."""
    found: dict[str, int] = {}
    for entry in section.entries:
        line = _TOOLS.fullmatch(entry.text) if _is_line(entry) else None
        for name in (part.strip(" `.").casefold() for part in line[1].split(",")) if line else ():
            if re.fullmatch(_TOOL_NAME, name):
                found.setdefault(name, entry.line)
    return tuple(found.items())


def is_validation(section: Section) -> bool:
    """Whether a section is titled ``Validation Commands``."""
    return _VALIDATION.fullmatch(section.title.strip()) is not None


def read_validation_commands(section: Section) -> tuple[str, ...]:
    """Return the commands of a section titled ``Validation Commands``; of any other section, none."""
    if section.boxes or not is_validation(section):
        return ()
    return tuple(command for entry in section.entries for command in _read_listed(entry))


def _read_listed(entry: Entry) -> Iterator[str]:
    if entry.kind is EntryKind.BULLET:
        yield from _spans(entry.text)
    elif entry.kind is EntryKind.CODE:
        yield from _read_script(entry.text)


def _is_line(entry: Entry) -> bool:
    return entry.kind in {EntryKind.PROSE, EntryKind.BULLET}


def _rest(text: str) -> str:
    found = _STATEMENT.match(text)
    rest = text[found.end() :] if found else text
    return rest.strip() if text[:1] not in {"*", "_"} else rest.strip().rstrip("*_").rstrip()


def _read_verify(entries: Sequence[Entry], at: int) -> VerifyLine:
    entry = entries[at]
    rest = _rest(entry.text)
    spans = _spans(rest)
    if spans or not rest:
        return VerifyLine(line=entry.line, commands=spans or _read_below(entries, at), plain=False)
    commands = () if rest.casefold() in _NOTHING else (rest,)
    return VerifyLine(line=entry.line, commands=commands, plain=True)


def _read_below(entries: Sequence[Entry], at: int) -> tuple[str, ...]:
    """Return the commands of the code block or the list of code spans that follows a bare ``Verify:``."""
    below = entries[at + 1 :] if at + 1 < len(entries) else ()
    if below and below[0].kind is EntryKind.CODE:
        return tuple(_read_script(below[0].text))
    depth = entries[at].depth
    bullets = takewhile(lambda entry: entry.kind is EntryKind.BULLET and entry.depth > depth, below)
    return tuple(command for entry in bullets if entry.text.startswith("`") for command in _spans(entry.text))


def _read_script(block: str) -> Iterator[str]:
    joined = re.sub(r"\\\n[ \t]*", "", block)
    for line in joined.split("\n"):
        command = line.strip().removeprefix("$ ").strip()
        if command and not command.startswith("#"):
            yield command


def _spans(text: str) -> tuple[str, ...]:
    return tuple(span.content.strip() for span in find_code_spans(text) if span.content.strip())


def _read_after(entry: Entry) -> AfterLine:
    rest = " ".join(_rest(entry.text).rstrip(".").split())
    if rest.casefold() in _NOTHING:
        return AfterLine(line=entry.line, numbers=(), prose="")
    targets = [_TARGET.fullmatch(part) for part in _SEPARATOR.split(rest) if part]
    if not targets or None in targets:
        return AfterLine(line=entry.line, numbers=(), prose=rest)
    return AfterLine(line=entry.line, numbers=tuple(t[1] for t in targets if t), prose="")


def _read_runner(entry: Entry) -> RunnerLine:
    rest = _rest(entry.text)
    spans = _spans(rest)
    name = (spans[0] if spans else rest.rstrip(".")).casefold()
    known = re.fullmatch(RUNNER_NAME, name) is not None
    return RunnerLine(line=entry.line, name=name if known else "", prose="" if known else rest)
