"""A log as tables of SQLite: each class of events is a table, one row an event; figures are queries over them.

`figures.sql` beside this module has the queries; each says what it counts and where its definition is from. The log
on disk stays the only record: a database is made for one reader, and ``relay report --db FILE`` keeps one for any SQL
tool.

A column is a field of the class. A value within a value is several columns (``usage_input_tokens``), a list is JSON.
Each row also has ``seq`` (its place in all logs that were read), ``at`` (seconds since the epoch), ``run`` and
``session`` (1 for the first, NULL outside of a session), and ``phase_id`` as the log has it.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from relay.base.values import dataclass
from relay.session.events import Event, RunEnded, RunStarted, SessionEnded, SessionStarted
from relay.session.gauge import find_band
from relay.session.prices import Rates, find_price
from relay.session.records import LoggedEvent

FIGURES = Path(__file__).with_name("figures.sql")
_BATCH_ROWS = 1_000
_CACHE_KIB = 8 * 1024
"""Most memory for pages of tables, and for one sort; what is more goes to temporary files."""


def find_table_rates(model: str) -> Rates | None:
    """Return a model's prices from relay's own table, without tiers; None if unknown."""
    price = find_price(model)
    return price.rates if price else None


def _read_usd(model: str) -> float | None:
    rates = find_table_rates(model) if model else None
    return rates.read / 1_000_000 if rates else None


def _find_band(fill_tokens: int | None, soft_tokens: int) -> str | None:
    band = find_band(fill_tokens, soft_tokens)
    return band.value if band else None


_WORD = re.compile(r"[\w-]+")


def _names(text: str, word: str) -> bool:
    return word in text and word in _WORD.findall(text)


_FUNCTIONS: Mapping[str, Callable[..., float | str | None]] = {
    "read_usd": _read_usd,
    "band_of": _find_band,
    "names": _names,
}
"""Those that `figures.sql` calls."""
_PLACE = ("seq", "at", "run", "session", "phase_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """How an event becomes a row."""

    columns: tuple[str, ...]
    make_row: Callable[[Any], tuple[Any, ...]]
    """Returns the columns behind `_PLACE`."""
    insert: str
    lists: tuple[str, ...]
    flags: tuple[str, ...]


def _make_table(cls: type) -> _Table:
    """Make the table of a class of events: its plain fields, then values within it, then lists as JSON."""
    hints = {name: hint for name, hint in get_type_hints(cls).items() if name not in _PLACE}
    kinds = {n: get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,) for n, hint in hints.items()}
    inner = {n: [f.name for f in fields(kind)] for n, own in kinds.items() for kind in own if is_dataclass(kind)}
    lists = [n for n, own in kinds.items() if any(get_origin(kind) is tuple for kind in own)]
    plain = [name for name in hints if name not in inner and name not in lists]
    get_plain = _make_getter(plain)
    parts = [(attrgetter(name), _make_getter(own), (None,) * len(own)) for name, own in inner.items()]
    get_lists = _make_getter(lists)

    def make_row(event: Any) -> tuple[Any, ...]:
        row = get_plain(event)
        for get, get_inner, nothing in parts:
            row += nothing if (value := get(event)) is None else get_inner(value)
        return row + tuple(map(_render_list, get_lists(event))) if lists else row

    columns = (*_PLACE, *plain, *(f"{name}_{field}" for name, own in inner.items() for field in own), *lists)
    marks = ", ".join("?" * len(columns))
    return _Table(
        columns=columns,
        make_row=make_row,
        insert=f"INSERT INTO {cls.__name__} VALUES ({marks})",  # noqa: S608  # a name of relay's own
        lists=tuple(lists),
        flags=tuple(name for name, hint in hints.items() if hint is bool),
    )


def _make_getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _render_list(found: tuple[Any, ...] | None) -> str | None:
    return None if found is None else json.dumps(found).replace(r"\u0000", r"\ufffd") if found else "[]"


TABLES = {cls: _make_table(cls) for cls in get_args(Event)}
_DERIVED = ("commit_ids", "declared", "left", "texts", "ticked", "touched", "warnings")
_LISTS = frozenset({*_DERIVED, *(name for table in TABLES.values() for name in table.lists)})
_FLAGS = frozenset({"is_done", "first_gate_red", *(name for table in TABLES.values() for name in table.flags)})


class Row(SimpleNamespace):
    """A row: each column is an attribute; NULL is None, a list is a list. Mutable: figures are added to it."""


class Database(AbstractContextManager["Database"]):
    """The tables of one or several logs. Mutable: it grows by records, and is closed by its user.

    Args:
        path: A new file to keep; by default the tables are in memory, and large ones in a temporary file.
    """

    def __init__(self, path: str = "") -> None:
        self._link = sqlite3.connect(path, isolation_level=None)
        self._link.row_factory = sqlite3.Row
        self._link.text_factory = lambda data: data.decode(errors="replace")
        self._seq = self._runs = self._sessions = 0
        self._places: dict[str, tuple[int, int | None]] = {}
        """Run and session that each log is in."""
        self._spans: dict[int, tuple[float, float]] = {}
        """When the first and the last event of each run happened."""
        for name, function in _FUNCTIONS.items():
            self._link.create_function(name, -1, function, deterministic=True)
        for name in ("synchronous = OFF", "journal_mode = OFF", f"cache_size = -{_CACHE_KIB}", "temp_store = FILE"):
            self._link.execute(f"PRAGMA {name}")
        for cls, table in TABLES.items():
            columns = ", ".join(f'"{name}"' for name in table.columns[1:])
            self._link.execute(f"CREATE TABLE {cls.__name__} (seq INTEGER PRIMARY KEY, {columns})")

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._link.close()

    def add(self, records: Iterable[LoggedEvent], log: str = "") -> None:
        """Add records of a log, or of several one after the other.

        Args:
            log: Tells logs apart that grow at the same time.
        """
        self._link.execute("BEGIN")
        waiting: dict[type[Event], list[tuple[Any, ...]]] = {cls: [] for cls in TABLES}
        run, session = self._places.get(log, (0, None))
        for record in records:
            event, at = record.event, record.at
            cls = type(event)
            rows = waiting[cls]
            self._seq += 1
            if cls is RunStarted or not run:  # a log may have lost the beginning of its run
                self._runs += 1
                run = self._runs
                self._spans[run] = at, at
            if cls is RunStarted or cls is RunEnded:
                session = None
            elif cls is SessionStarted:
                self._sessions += 1
                session = self._sessions
            phase_id = getattr(event, "phase_id", record.scope.phase_id)
            if "\0" in phase_id:  # where a text in JSON ends, too
                phase_id = phase_id.replace("\0", "\ufffd")
            rows.append((self._seq, at, run, session, phase_id, *TABLES[cls].make_row(event)))
            if len(rows) == _BATCH_ROWS:
                self._insert(cls, rows)
            if cls is SessionEnded:
                session = None
            self._places[log] = run, session
            self._spans[run] = self._spans[run][0], at
        for cls, rows in waiting.items():
            self._insert(cls, rows)
        self._link.execute("COMMIT")

    def _insert(self, cls: type, rows: list[tuple[Any, ...]]) -> None:
        insert = TABLES[cls].insert
        try:
            self._link.executemany(insert, rows)
        except UnicodeEncodeError:  # half a character, such as in a file's name
            whole = [
                tuple(v.encode(errors="replace").decode() if isinstance(v, str) else v for v in row) for row in rows
            ]
            self._link.execute(f"DELETE FROM {cls.__name__} WHERE seq >= ?", rows[0][:1])  # noqa: S608  # relay's name
            self._link.executemany(insert, whole)
        rows.clear()

    def compute(self) -> None:
        """Make the tables of `figures.sql`, of all records so far."""
        kept = {cls.__name__ for cls in TABLES}
        for row in self.read("SELECT name FROM sqlite_schema WHERE type = 'table'"):
            if row.name not in kept:
                self._link.execute(f"DROP TABLE {row.name}")
        self._link.execute("CREATE TABLE spans (run INTEGER PRIMARY KEY, began, last_at)")
        spans = ((run, *span) for run, span in self._spans.items())
        self._link.executemany("INSERT INTO spans VALUES (?, ?, ?)", spans)
        self._link.executescript(FIGURES.read_text(encoding="utf-8"))

    def read(self, query: str, **given: Any) -> list[Row]:
        """Return the rows of a query."""
        return [Row(**{n: _decode(n, v) for n, v in dict(row).items()}) for row in self._link.execute(query, given)]


def _decode(name: str, value: Any) -> Any:
    if isinstance(value, str) and name in _LISTS:
        return json.loads(value)
    return bool(value) if name in _FLAGS and value is not None else value
