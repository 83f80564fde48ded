"""Claims, later entries about them, and the ledger of all: its values, and its file, parsed and appended to."""

import base64
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Struct, structs

from relay.base.documents import YamlLimits, YamlTextError, compose, get_line
from relay.base.errors import LedgerError
from relay.base.values import dataclass
from relay.config.decoding import decode, matching, told

_ID_CHARS = 6
"""30 bits: of two branches with a thousand claims each, one pair in two thousand gives out the same id, and is told so.
"""


class Kind(StrEnum):
    """One of constraint, warning, decision, observation and dead end, the order in which claims are shown."""

    CONSTRAINT = "constraint"
    WARNING = "warning"
    DECISION = "decision"
    OBSERVATION = "observation"
    DEAD_END = "dead end"


Id = Annotated[str, matching("letters, digits, - and _", r"[A-Za-z0-9_-]{1,64}")]
Ids = Annotated[tuple[Id, ...], told("a list of ids")]
Words = Annotated[str, matching("a text that is not blank", r"\s*\S[\s\S]*")]
Hash = Annotated[str, matching("a hex id", r"(?:[0-9a-f]{7,64})?")]
Lines = Annotated[str, matching("12 or 12-40", r"(?:[1-9]\d{0,8}(?:-[1-9]\d{0,8})?)?")]
_TIME = r"(?:\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ)?"
Time = Annotated[str, matching("UTC such as 2026-11-20T10:00:00Z", _TIME)]


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place in a file on which a claim is based."""

    path: Annotated[str, matching("a path", r"[^\0]+")]
    lines: Lines = ""
    """``12`` or ``12-40``; empty for the whole file."""
    blob: Hash = ""
    """Hex id of the file's content then, or its beginning; empty if unknown."""
    text: Hash = ""
    """The same for the cited lines; empty if the whole file counts, or unknown."""

    def __str__(self) -> str:
        """Write ``path`` or ``path:12-40``."""
        return f"{self.path}:{self.lines}" if self.lines else self.path


Sources = Annotated[tuple[Source, ...], told("a list of sources")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The author and the time of an entry."""

    phase: str = ""
    """Empty outside of a phase."""
    session: str = ""
    """Empty for a person."""
    at: Time = ""
    """UTC, such as ``2026-11-20T10:00:00Z``; empty if a person wrote the line without it."""

    @property
    def is_persons(self) -> bool:
        """Whether a person said it, by ``relay ledger``."""
        return bool(self.at) and not self.session


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding or a decision, with its reason."""

    id: Id
    kind: Kind = Kind.DECISION
    claim: Words
    because: Words
    rests_on: Ids = ()
    """Ids of the claims that it follows from."""
    replaces: Ids = ()
    """Ids of the claims that it replaces, and of the contradictions that it settles, for good."""
    sources: Sources = ()
    stamp: Stamp = Stamp()


class Retraction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claim or a contradiction was taken back."""

    of: Id
    because: Words
    stamp: Stamp = Stamp()


class Confirmation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session or person looked again, and the claim holds; that ends an earlier retraction too."""

    of: Id
    because: Words
    sources: Sources = ()
    """With their content at that time; they take the place of the claim's own."""
    stamp: Stamp = Stamp()


class Nogood(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Claims that cannot all hold: a contradiction."""

    id: Id
    because: Words
    claims: Ids
    stamp: Stamp = Stamp()


Entry = Claim | Retraction | Confirmation | Nogood


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What a session or a person says for later sessions. Links are ids of the ledger; `make_entries` writes it."""

    claim: str
    """Empty if it only confirms others, or says that others contradict each other."""
    because: str
    kind: Kind = Kind.DECISION
    rests_on: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()
    """Each cannot hold together with the claim; without a claim they cannot all hold."""
    confirms: tuple[str, ...] = ()
    """They hold, with these sources."""
    sources: tuple[Source, ...]
    """Relative to the root; each existed when it was recorded."""


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
    def nogoods(self) -> dict[str, Nogood]:
        return {entry.id: entry for entry in self.entries if isinstance(entry, Nogood)}

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

    def make_time(self, now: str, of: Collection[str]) -> str:
        """Return the time of an entry about others: after all entries about them, whatever the clocks say.

        Args:
            now: In the form of `Stamp.at`.
        """
        said = ((e.id if isinstance(e, Claim | Nogood) else e.of, e.stamp.at) for e in self.entries)
        last = max((at for subject, at in said if subject in of), default="")
        if now > last:
            return now
        try:
            return render_stamp_time(datetime.fromisoformat(last) + timedelta(seconds=1))
        except (ValueError, OverflowError):  # there is no such day, or none after it
            return last


def render_stamp_time(moment: datetime) -> str:
    """Write a moment in the form of `Stamp.at`, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def get_sources(entry: Entry) -> tuple[Source, ...]:
    """Return the sources of an entry."""
    return entry.sources if isinstance(entry, Claim | Confirmation) else ()


def make_entries(ledger: Ledger, record: Record, stamp: Stamp) -> tuple[Entry, ...]:
    """Return what a record adds to a ledger: its claim and what that contradicts, or its confirmations.

    Args:
        stamp: Its time is now; the entries' time is later than that of all that they name.
    """
    at = ledger.make_time(stamp.at, {*record.replaces, *record.contradicts, *record.confirms})
    stamp = Stamp(phase=stamp.phase, session=stamp.session, at=at)
    because, sources = record.because, record.sources
    if record.confirms:
        return tuple(Confirmation(of=name, because=because, sources=sources, stamp=stamp) for name in record.confirms)
    made: list[Entry] = []
    clashes = [record.contradicts] if record.contradicts else []
    if record.claim:
        name = ledger.make_id("c", (stamp.session, at, record.claim, because))
        clashes = [(name, other) for other in record.contradicts]
        links = {"rests_on": record.rests_on, "replaces": record.replaces}
        claim, kind = record.claim, record.kind
        made += [Claim(id=name, claim=claim, because=because, kind=kind, sources=sources, stamp=stamp, **links)]
    for names in clashes:
        made += [Nogood(id=ledger.make_id("n", (at, *names, because)), claims=names, because=because, stamp=stamp)]
    return tuple(made)


_LIMITS = YamlLimits(
    chars=8 * 1024 * 1024,  # some twenty thousand entries
    depth=4,  # list, entry, list of sources, source
)
_HINT = "relay only appends to it; git log shows who changed it"
_MERGE_MARK = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
_MERGE_HINT = (
    "keep the lines of both sides, for each is an entry; with the line '*.ledger.yaml merge=union' in .gitattributes "
    "git does so by itself"
)
_EVENTS: dict[str, type[Entry]] = {
    "claim": Claim, "retract": Retraction, "confirm": Confirmation, "nogood": Nogood,
}  # fmt: skip
_STAMP = ("phase", "session", "at")
"""Keys of an entry's line that are of its stamp."""


def parse_ledger(text: str) -> Ledger:
    """Read a ledger; an empty text is an empty ledger. A repeated entry, as after a merge, counts once.

    Raises:
        LedgerError: It does not have the form in the room's docstring, or two entries have the same id. The line is
            known, the path is not: see `errors.within`.
    """
    found: dict[str | Entry, Entry] = {}
    for line, raw in _parse_list(text):
        entry = _build_entry(raw, line)
        if found.setdefault(_identify(entry), entry) != entry:
            raise fail(line, f"the id {raw['id']} is that of another entry; allowed: a new one")
    return Ledger(text=text, entries=tuple(found.values()))


def _identify(entry: Entry) -> str | Entry:
    """Return what tells an entry from others."""
    return entry.id if isinstance(entry, Claim | Nogood) else entry


def _parse_list(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the items of the file's one list, each with its line; an empty file and a lone ``---`` are empty lists."""
    if not text:
        return  # most plans have no ledger; the YAML reader need not be loaded
    import yaml

    if mark := _MERGE_MARK.search(text):
        raise fail(text.count("\n", 0, mark.start()) + 1, "a merge left its marks here", hint=_MERGE_HINT)
    try:
        root = compose(text, _LIMITS)
    except YamlTextError as error:
        raise fail(error.line or 0, f"the ledger {error}") from None
    if isinstance(root, yaml.SequenceNode):
        yield from ((get_line(item), _read_node(item)) for item in root.value)
    elif root is not None and root.value != "":
        raise fail(get_line(root), "found something else than a list of entries")


def _read_node(node: Any) -> Any:
    """Return a text, or a list or mapping of texts: nothing becomes a date or a number."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        return [_read_node(item) for item in node.value]
    if not isinstance(node, yaml.MappingNode):
        return node.value
    found = {
        _read_node(key) if isinstance(key, yaml.ScalarNode) else "": _read_node(value) for key, value in node.value
    }
    if len(found) < len(node.value) or "" in found:
        raise fail(get_line(node), "found a key twice, or one that is no text")
    return found


def fail(line: int, message: str, *, hint: str = _HINT) -> LedgerError:
    """Make the error of an unusable ledger; line 0 is the whole file."""
    return LedgerError(message, line=line, hint=hint)


def _build_entry(raw: Any, line: int) -> Entry:
    fields = raw if isinstance(raw, dict) else {}
    event = fields.get("event")
    if not isinstance(event, str) or event not in _EVENTS:
        raise fail(line, f"found an entry of no known kind; allowed: a mapping with event: {', '.join(_EVENTS)}")
    stamp = {key: fields[key] for key in _STAMP if key in fields}
    rest = {key: value for key, value in fields.items() if key not in {"event", *_STAMP}}
    try:
        entry: Entry = decode({**rest, "stamp": stamp}, _EVENTS[event])
    except ValueError as error:
        allowed = str(error).replace("stamp.", "").replace("stamp", ", ".join(_STAMP))
        raise fail(line, f"this {event} does not fit; allowed: {allowed}") from None
    return entry


_ESCAPES = {"\n": "\\n", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def append_entry(ledger: Ledger, *entries: Entry) -> Ledger:
    """Return the ledger with more entries, one line each. Every present character stays; the result was read back.

    An entry that says what one before it says, in the same second, is not written again: it is read once. A lone
    surrogate, which YAML cannot hold, becomes ``?``.

    Raises:
        LedgerError: The file is not a list that can be appended to, or an entry does not fit it (an id that is taken,
            a reason that is missing).
    """
    text, known = ledger.text, len(ledger.entries)
    newline = "\r\n" if "\r\n" in text else "\n"
    written = set(map(_render_entry, ledger.entries))
    lines = [line for line in dict.fromkeys(map(_render_entry, entries)) if line not in written]
    if not lines:
        return ledger
    after = text + ("" if not text or text.endswith("\n") else newline) + "".join(line + newline for line in lines)
    # In a list of another form (flow style, indented, ended) the block would be read differently, or not at all.
    why = "an entry at its end would not be read back as it is"
    try:
        longer = parse_ledger(after)
        if longer.entries[:known] == ledger.entries and [*map(_render_entry, longer.entries[known:])] == lines:
            return longer
    except LedgerError as error:
        why = error.message
    raise LedgerError(
        f"the ledger cannot be appended to: {why}",
        hint="the file must be one plain list whose entries start with '- ' in the first column",
    )


def merge_entries(ledger: Ledger, entries: Iterable[Entry]) -> Ledger:
    """Return the ledger with the entries that it lacks; for a known id its own entry stays.

    Raises:
        LedgerError: The file is not a list that can be appended to.
    """
    known = {_identify(entry) for entry in ledger.entries}
    missing = [entry for entry in entries if _identify(entry) not in known]
    return append_entry(ledger, *missing) if missing else ledger


def _render_entry(entry: Entry) -> str:
    event = next(name for name, made in _EVENTS.items() if isinstance(entry, made))
    fields = {"event": event, **structs.asdict(entry), **asdict(entry.stamp)}
    del fields["stamp"]
    return f"- {_render_fields(fields, {one.name for one in structs.fields(entry) if one.required})}"


def _render_fields(fields: Mapping[str, Any], needed: Collection[str] = ()) -> str:
    """Write the fields that are not empty, and the `needed` ones, as a mapping."""
    pairs = (f"{key}: {_render_value(value)}" for key, value in fields.items() if value or key in needed)
    return f"{{{', '.join(pairs)}}}"


def _render_value(value: Any) -> str:
    if isinstance(value, Source):
        return _render_fields(structs.asdict(value))
    if isinstance(value, tuple):
        return f"[{', '.join(map(_render_value, value))}]"
    clean = value.encode("utf-8", "replace").decode("utf-8")
    return (
        '"'
        + "".join(c if c.isprintable() and c not in _ESCAPES else _ESCAPES.get(c) or f"\\U{ord(c):08x}" for c in clean)
        + '"'
    )
