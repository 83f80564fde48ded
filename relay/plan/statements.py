"""The lines that relay acts on: ``Verify:``, ``After:``, ``Model:``, lists of files, ``Validation Commands``."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from relay.base.values import dataclass
from relay.plan.outline import Entry, EntryKind, Section
from relay.plan.paths import find_paths
from relay.plan.text import find_code_spans

_STATEMENT = re.compile(
    r"[*_]{0,3}(verif(?:y|ication)|after|runner|tools|model|effort|in)[*_]{0,3}[ \t]*:[*_]{0,3}[ \t]*", re.IGNORECASE
)
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
"""Pattern of a runner's name, in a plan and in the settings."""
MODEL_NAME = r"[\w.:/@\[\]-]{1,200}"
"""Pattern of a model's id, in the settings."""
EFFORTS = ("low", "medium", "high", "xhigh", "max")
_PLAIN_MODEL = r"[A-Za-z][\w.:/@\[\]-]*[\d:/-][\w.:/@\[\]-]*|opus|sonnet|haiku|fable"
"""A model's id in a plan, or a word for which `relay check` has a suggestion: ``Model: User`` is about a program."""
_PLAIN_EFFORT = r"(?!(?:xx?s|x?s|m|x{0,2}l|small|tiny|large|huge|big|low-medium)$)[A-Za-z]+"
"""One word: ``Effort: 2 days`` and ``Effort: M`` are about people."""
WISHES = {"runner": RUNNER_NAME, "model": _PLAIN_MODEL, "effort": _PLAIN_EFFORT, "in": r"\S+"}
"""Statements by which a phase chooses what runs it, and where, each with the pattern of its value. A directory in
backticks may have blanks in its name.
"""
_TOOL_NAME = r"[a-z0-9][a-z0-9-]{0,30}"
_MOST_TOOL_CHARS = 500
_SEPARATOR = re.compile(r" ?(?:,|;|&|\band\b) ?|(?<=\d) (?=\#?\d)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One line such as ``Verify: `pytest -q` `` or ``After: 1, 3``."""

    word: str
    """``verify``, ``after``, ``tools``, or one of `WISHES`."""
    line: int
    values: tuple[str, ...] = ()
    """Commands, numbers of phases (none for ``After: none``), names of tool servers, or the one name of a wish."""
    prose: str = ""
    """The words if they name nothing; such a line has no effect."""


def find_statement(text: str) -> str:
    """Return the word, such as ``verify`` or ``runner``, when a line starts with one of relay's words and a colon."""
    found = _STATEMENT.match(text)
    return found[1].lower().replace("verification", "verify") if found else ""


def read_statements(section: Section) -> Iterator[Statement]:
    """Yield the statements of one section; a bare ``After:`` is none, and in a list of files the word names a file."""
    entries, listed = section.entries, _find_listed(section.entries)
    for at, entry in enumerate(entries):
        found = _STATEMENT.match(entry.text) if _is_line(entry) else None
        if found is None:
            continue
        word, rest = find_statement(entry.text), entry.text[found.end() :].strip()
        rest = rest.rstrip("*_").rstrip() if entry.text[0] in "*_" else rest
        if word == "verify" and at not in listed:
            yield Statement(word=word, line=entry.line, values=_read_commands(rest, entries, at))
        elif word == "tools":
            names = (part.strip(" `.").casefold() for part in rest[: _MOST_TOOL_CHARS + 1].split(","))
            known = (name for name in names if re.fullmatch(_TOOL_NAME, name) and len(rest) <= _MOST_TOOL_CHARS)
            yield Statement(word=word, line=entry.line, values=tuple(known))
        elif word == "after" and rest:
            said = " ".join(rest.rstrip(".").split())
            targets = [_TARGET.fullmatch(part) for part in _SEPARATOR.split(said) if part]
            numbers = tuple(target[1] for target in targets if target)
            is_order = said.casefold() in _NOTHING or (bool(numbers) and all(targets))
            values, prose = (numbers, "") if is_order else ((), said)
            yield Statement(word=word, line=entry.line, values=values, prose=prose)
        elif word in WISHES and rest:
            spans = _spans(rest)
            said = spans[0] if spans else rest.rstrip(".") or rest
            name = said if word in {"model", "in"} else said.casefold()
            is_known = re.fullmatch(WISHES[word], name, re.IGNORECASE) is not None or (word == "in" and spans != ())
            values, prose = ((name,), "") if is_known else ((), rest)
            yield Statement(word=word, line=entry.line, values=values, prose=prose)


def read_file_list(section: Section) -> tuple[str, ...]:
    """Return the paths in the lists of a section that follow a label such as ``**Files:**``, each once."""
    named = (find_paths(section.entries[at].text).named for at in sorted(_find_listed(section.entries)))
    return tuple(dict.fromkeys(path for paths in named for path in paths))


def _find_listed(entries: Sequence[Entry]) -> frozenset[int]:
    """Return the indexes of entries in lists of files, labels included; a task ends a list."""
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


def is_validation(section: Section) -> bool:
    """Whether a section is titled ``Validation Commands``."""
    return _VALIDATION.fullmatch(section.title.strip()) is not None


def read_validation_commands(section: Section) -> tuple[str, ...]:
    """Return the commands of a section titled ``Validation Commands``; of any other section, none."""
    if section.boxes or not is_validation(section):
        return ()
    readers = {EntryKind.BULLET: _spans, EntryKind.CODE: _read_script}
    return tuple(c for entry in section.entries if (read := readers.get(entry.kind)) for c in read(entry.text))


def _is_line(entry: Entry) -> bool:
    return entry.kind in {EntryKind.PROSE, EntryKind.BULLET}


def _read_commands(rest: str, entries: Sequence[Entry], at: int) -> tuple[str, ...]:
    """Return the commands of a ``Verify:`` line, or of the code block or the list of code spans below a bare one."""
    if rest:
        return _spans(rest) or (() if rest.casefold() in _NOTHING else (rest,))
    if at + 1 < len(entries) and entries[at + 1].kind is EntryKind.CODE:
        return tuple(_read_script(entries[at + 1].text))
    below = (entries[n] for n in range(at + 1, len(entries)))
    bullets = takewhile(lambda one: one.kind is EntryKind.BULLET and one.depth > entries[at].depth, below)
    return tuple(command for one in bullets if one.text.startswith("`") for command in _spans(one.text))


def _read_script(block: str) -> Iterator[str]:
    joined = re.sub(r"\\\n[ \t]*", "", block)
    for line in joined.split("\n"):
        command = line.strip().removeprefix("$ ").strip()
        if command and not command.startswith("#"):
            yield command


def _spans(text: str) -> tuple[str, ...]:
    return tuple(span.content.strip() for span in find_code_spans(text) if span.content.strip())
