"""Claims, later entries about them, and the ledger of all: its values, and its file, parsed and appended to."""

import base64
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from relay.base.documents import YamlFault, YamlLimits, YamlTextError, get_line, read_events
from relay.base.errors import LedgerError
from relay.base.values import dataclass

_ID_CHARS = 6
"""30 bits: of two branches with a thousand claims each, one pair in two thousand gives out the same id, and is told so.
"""


class Kind(StrEnum):
    """The kind of a claim. When claims contradict each other, the earlier kinds are given up last."""

    CONSTRAINT = "constraint"
    WARNING = "warning"
    DECISION = "decision"
    OBSERVATION = "observation"
    DEAD_END = "dead end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place in a file on which a claim is based."""

    path: str
    lines: str = ""
    """``12`` or ``12-40``; empty for the whole file."""
    blob: str = ""
    """Hex id of the file's content then, or its beginning; empty if unknown."""
    text: str = ""
    """The same for the cited lines; empty if unknown, and for the whole file."""
    copies: str = ""
    """Number of times that text stood in the file then; empty for once."""

    def __str__(self) -> str:
        """Write ``path`` or ``path:12-40``."""
        return f"{self.path}:{self.lines}" if self.lines else self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The author and the time of an entry."""

    phase: str = ""
    """Empty outside of a phase."""
    session: str = ""
    """Empty for a person."""
    at: str = ""
    """UTC, such as ``2026-11-20T10:00:00Z``; empty if a person wrote the line without it."""

    @property
    def is_persons(self) -> bool:
        """Whether a person said it, by ``relay ledger``."""
        return bool(self.at) and not self.session


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A finding or a decision, with its reason."""

    id: str
    claim: str
    because: str
    kind: Kind = Kind.DECISION
    rests_on: tuple[str, ...] = ()
    """Ids of the claims that it follows from."""
    replaces: tuple[str, ...] = ()
    """Ids of the claims that it replaces, as long as it is not retracted."""
    sources: tuple[Source, ...] = ()
    stamp: Stamp = field(default_factory=Stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retraction:
    """A claim was taken back."""

    of: str
    because: str
    stamp: Stamp = field(default_factory=Stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A session or person checked that a claim holds; that ends an earlier retraction too."""

    of: str
    because: str
    sources: tuple[Source, ...] = ()
    """With their content at that time."""
    stamp: Stamp = field(default_factory=Stamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nogood:
    """Claims that cannot all hold."""

    id: str
    claims: tuple[str, ...]
    because: str
    stamp: Stamp = field(default_factory=Stamp)


Entry = Claim | Retraction | Confirmation | Nogood


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All entries, in the order of the file; `append_entry` adds to it."""

    text: str = field(default="", compare=False)
    """The file's text; empty when there is no file yet."""
    entries: tuple[Entry, ...] = ()

    @property
    def claims(self) -> dict[str, Claim]:
        return {entry.id: entry for entry in self.entries if isinstance(entry, Claim)}

    @property
    def nogoods(self) -> tuple[Nogood, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Nogood))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every source, each once."""
        return tuple(dict.fromkeys(source for entry in self.entries for source in get_sources(entry)))

    def make_id(self, letter: str, words: Iterable[str]) -> str:
        """Return a new id such as ``c4mzq7a``, a hash of the entry's words."""
        taken = {entry.id for entry in self.entries if isinstance(entry, Claim | Nogood)}
        digest = hashlib.sha256("\0".join(words).encode("utf-8", "replace")).digest()
        name = base64.b32encode(digest).decode().lower().rstrip("=")
        lengths = range(_ID_CHARS, len(name) + 1)
        return next(made for length in lengths if (made := f"{letter}{name[:length]}") not in taken)

    def make_time(self, now: str, of: Iterable[str] = ()) -> str:
        """Return the time of an entry about claims: after all entries about them, whatever the clocks say.

        Args:
            now: In the form of `Stamp.at`.
        """
        about = set(of)
        said = ((e.id if isinstance(e, Claim | Nogood) else e.of, e.stamp.at) for e in self.entries)
        last = max((at for subject, at in said if subject in about), default="")
        if now > last:
            return now
        return render_stamp_time(datetime.fromisoformat(last) + timedelta(seconds=1))


def render_stamp_time(moment: datetime) -> str:
    """Write a moment in the form of `Stamp.at`, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def get_sources(entry: Entry) -> tuple[Source, ...]:
    """Return the sources of an entry."""
    return entry.sources if isinstance(entry, Claim | Confirmation) else ()


_LIMITS = YamlLimits(
    chars=2 * 1024 * 1024,
    depth=4,  # list, entry, list of sources, source
    refused=frozenset({YamlFault.ALIAS, YamlFault.ANCHOR, YamlFault.TAG}),
)
_HINT = "relay only appends to it; git log shows who changed it"
_MERGE_MARK = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
_MERGE_HINT = (
    "keep the lines of both sides, for each is an entry; with the line '*.ledger.yaml merge=union' in .gitattributes "
    "git does so by itself"
)
_WORDS = {
    YamlFault.LENGTH: "{}",
    YamlFault.DEPTH: "nested more deeply than an entry is",
    **dict.fromkeys(_LIMITS.refused, "found an anchor, an alias or a tag; allowed: plain values"),
}


def _parse_entries(text: str) -> Iterator[tuple[int, Any]]:
    if not text:
        return  # most plans have no ledger; the YAML reader need not be loaded
    if mark := _MERGE_MARK.search(text):
        raise fail(text.count("\n", 0, mark.start()) + 1, "a merge left its marks here", hint=_MERGE_HINT)
    try:
        yield from _read_list(read_events(text, _LIMITS))
    except YamlTextError as error:
        raise fail(error.line or 0, _WORDS.get(error.fault, "no YAML: {}").format(error.words)) from None


def _read_list(events: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the items of the file's one list; an empty file and a lone ``---`` are an empty list."""
    import yaml

    documents = 0
    for event in events:
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            raise fail(get_line(event), "found a second document; allowed: one list")
        if isinstance(event, yaml.SequenceStartEvent):
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                yield get_line(item), _read_node(item, events)
        elif isinstance(event, yaml.NodeEvent) and getattr(event, "value", None) != "":
            raise fail(get_line(event), "found something else than a list of entries")


def _read_node(event: Any, events: Iterator[Any]) -> Any:
    import yaml

    if isinstance(event, yaml.ScalarEvent):
        return event.value
    items = []
    while not isinstance(item := next(events), yaml.CollectionEndEvent):
        items.append(_read_node(item, events))
    if isinstance(event, yaml.SequenceStartEvent):
        return items
    keys = items[::2]
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
        raise fail(get_line(event), "found a key twice, or one that is no text")
    return dict(zip(keys, items[1::2], strict=True))


def fail(line: int, message: str, *, hint: str = _HINT) -> LedgerError:
    """Make the error of an unusable ledger; line 0 is the whole file."""
    return LedgerError(message, line=line, hint=hint)


_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LINES = re.compile(r"(?:[1-9]\d{0,8}(?:-[1-9]\d{0,8})?)?", re.ASCII)
_HASH = re.compile(r"(?:[0-9a-f]{7,64})?")
_SOURCE = {
    "path": re.compile(".*", re.DOTALL),
    "lines": _LINES,
    "blob": _HASH,
    "text": _HASH,
    "copies": re.compile(r"(?:[2-9]|[1-9]\d{1,8})?", re.ASCII),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_STAMP = ("phase", "session", "at")
_EVENTS: dict[str, tuple[type[Entry], tuple[str, ...], tuple[str, ...]]] = {
    "claim": (Claim, ("id", "claim", "because"), ("kind", "rests_on", "replaces", "sources")),
    "retract": (Retraction, ("of", "because"), ()),
    "confirm": (Confirmation, ("of", "because"), ("sources",)),
    "nogood": (Nogood, ("id", "because", "claims"), ()),
}
"""An event's class, the keys that it must have and the keys that it may have, besides those of its stamp."""
_ORDER = ("id", "of", "kind", "claim", "because", "rests_on", "replaces", "claims", "sources")
"""Order of the keys in a line, between ``event`` and those of the stamp."""
_IDS = frozenset({"rests_on", "replaces", "claims"})


def parse_ledger(text: str) -> Ledger:
    """Read a ledger; an empty text is an empty ledger. A repeated entry, as after a merge, counts once.

    Raises:
        LedgerError: It does not have the form in the room's docstring. The line is known, the path is not: see
            `errors.within`.
    """
    return Ledger(text=text, entries=parse_following((), text))


def parse_following(known: Iterable[Entry], block: str) -> tuple[Entry, ...]:
    """Read entries that follow known ones; return all of them, each once.

    Raises:
        LedgerError: An entry cannot be read, or two different entries have the same id.
    """
    found = dict.fromkeys(known)
    taken = {entry.id for entry in found if isinstance(entry, Claim | Nogood)}
    for line, raw in _parse_entries(block):
        entry = build_entry(raw, line)
        if isinstance(entry, Claim | Nogood) and entry not in found:
            if entry.id in taken:
                raise fail(line, f"the id {entry.id!r} is that of another entry; allowed: a new one")
            taken.add(entry.id)
        found.setdefault(entry)
    return tuple(found)


def build_entry(raw: Any, line: int) -> Entry:
    """Make an entry from the value in the file."""
    event = raw.get("event") if isinstance(raw, dict) else None
    if not isinstance(event, str) or event not in _EVENTS:
        raise fail(line, f"found an entry of no known kind; allowed: a mapping with event: {', '.join(_EVENTS)}")
    made, needed, optional = _EVENTS[event]
    if unknown := sorted(raw.keys() - {"event", *needed, *optional, *_STAMP}):
        raise fail(line, f"found the key {unknown[0]!r}; allowed: event, {', '.join((*needed, *optional, *_STAMP))}")
    fields = {key: _read_field(raw, key, line) for key in (*needed, *optional) if key in raw or key in needed}
    return made(**fields, stamp=_read_stamp(raw, line))


def _read_field(raw: Mapping[str, Any], key: str, line: int) -> Any:
    value = raw.get(key)
    if key == "sources":
        if not isinstance(value, list):
            raise fail(line, "sources: allowed: a list of sources")
        return tuple(_build_source(source, line) for source in value)
    if key in _IDS:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise fail(line, f"{key}: allowed: a list of ids")
        return tuple(value)
    if not isinstance(value, str) or not value.strip():
        raise fail(line, f"{key} is missing; allowed: a text that is not blank")
    return _require_word(key, value, line)


def _require_word(key: str, value: str, line: int) -> str:
    if key in {"id", "of"} and not _ID.fullmatch(value):
        raise fail(line, f"found the id {value!r}; allowed: letters, digits, - and _, at most 64")
    if key != "kind":
        return value
    if value not in set(Kind):
        raise fail(line, f"found the kind {value!r}; allowed: {', '.join(Kind)}")
    return Kind(value)


def _read_stamp(raw: Mapping[str, Any], line: int) -> Stamp:
    found = {key: raw[key] for key in _STAMP if key in raw}
    if bad := [key for key, value in found.items() if not isinstance(value, str)]:
        raise fail(line, f"{bad[0]}: allowed: a text")
    if not _is_time(found.get("at", "")):
        raise fail(line, f"found the time {found['at']!r}; allowed: UTC such as 2026-11-20T10:00:00Z")
    return Stamp(**found)


def _is_time(text: str) -> bool:
    if not text:
        return True
    try:
        return _TIME.fullmatch(text) is not None and datetime.fromisoformat(text) is not None
    except ValueError:
        return False


def _build_source(raw: Any, line: int) -> Source:
    form = "allowed: {path: text, lines: 12-40, blob: hex id, text: hex id, copies: 2}, all but the path optional"
    if not isinstance(raw, dict) or not raw.keys() <= set(_SOURCE):
        raise fail(line, f"found another form of source; {form}")
    found = {key: raw.get(key, "") for key in _SOURCE}
    if not all(isinstance(value, str) for value in found.values()) or "\0" in found["path"] or not found["path"]:
        raise fail(line, f"found another form of source; {form}")
    if bad := [key for key, allowed in _SOURCE.items() if not allowed.fullmatch(found[key])]:
        raise fail(line, f"found the {bad[0]} {found[bad[0]]!r} of a source; {form}")
    return Source(**found)


_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def append_entry(ledger: Ledger, *entries: Entry) -> Ledger:
    """Return the ledger with more entries, one line each. Every present character stays; the result was read back.

    A lone surrogate, which YAML cannot hold, becomes ``?``.

    Raises:
        LedgerError: The file is not a list that can be appended to, or an entry does not fit it (an id that is taken,
            a reason that is missing).
    """
    text = ledger.text
    newline = "\r\n" if "\r\n" in text else "\n"
    block = "".join(_render_entry(entry) + newline for entry in entries)
    after = text + ("" if not text or text.endswith("\n") else newline) + block
    longer = Ledger(text=after, entries=parse_following(ledger.entries, block))
    # In a list of another form (flow style, indented, ended) the block would be read differently, or not at all.
    try:
        same = parse_ledger(after) == longer
    except LedgerError:
        same = False
    if not same:
        raise LedgerError(
            "the ledger cannot be appended to: an entry at its end would not be read back as it is",
            hint="the file must be one plain list whose entries start with '- ' in the first column",
        )
    return longer


def merge_entries(ledger: Ledger, entries: Iterable[Entry]) -> Ledger:
    """Return the ledger with the entries that it lacks; for a known id its own entry stays.

    Raises:
        LedgerError: The file is not a list that can be appended to.
    """
    known = {_identify(entry) for entry in ledger.entries}
    missing = [entry for entry in entries if _identify(entry) not in known]
    return append_entry(ledger, *missing) if missing else ledger


def _identify(entry: Entry) -> str | Entry:
    return entry.id if isinstance(entry, Claim | Nogood) else entry


def _render_entry(entry: Entry) -> str:
    event = next(name for name, (made, *_) in _EVENTS.items() if isinstance(entry, made))
    fields = {"event": event, **{key: getattr(entry, key, "") for key in _ORDER}}
    stamp = {key: getattr(entry.stamp, key) for key in _STAMP}
    return f"- {_render_fields({**fields, **stamp}, kept={'because', 'claims'} if event == 'nogood' else {'because'})}"


def _render_fields(fields: Mapping[str, Any], *, kept: Collection[str] = ()) -> str:
    """Write the fields that are not empty, and the `kept` ones, as a mapping."""
    pairs = (f"{key}: {_render_value(value)}" for key, value in fields.items() if value or key in kept)
    return f"{{{', '.join(pairs)}}}"


def _render_value(value: Any) -> str:
    if isinstance(value, Source):
        return _render_fields({key: getattr(value, key) for key in _SOURCE})
    return f"[{', '.join(map(_render_value, value))}]" if isinstance(value, tuple) else _quote(value)


def _quote(text: str) -> str:
    """Write a text as a double-quoted scalar of one line; unprintable characters are escaped."""
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return '"' + "".join(_escape(character) for character in clean) + '"'


def _escape(character: str) -> str:
    if character.isprintable() and character not in '"\\':
        return character
    return _ESCAPES.get(character) or f"\\U{ord(character):08x}"
