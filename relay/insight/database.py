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
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

from relay.base.values import dataclass
from relay.session.events import Event, RunEnded, RunStarted, SessionEnded, SessionStarted
from relay.session.gauge import find_band
from relay.session.prices import Rates, find_price
from relay.session.records import LoggedEvent

FIGURES = Path(__file__).with_name("figures.sql")
_BATCH_ROWS = 5_000
_CACHE_KIB = 64 * 1024
"""Most memory for pages of tables; what is more goes to a temporary file."""


def find_table_rates(model: str, at: float) -> Rates | None:
    """Return a model's prices from relay's own table, `at` seconds since the epoch; without tiers."""
    price = find_price(model, at=datetime.fromtimestamp(at, tz=UTC).date())
    return price.rates if price else None


def _read_usd(model: str, at: float) -> float | None:
    rates = find_table_rates(model, at) if model else None
    return rates.read / 1_000_000 if rates else None


def _find_band(fill_tokens: int | None, soft_tokens: int) -> str | None:
    band = find_band(fill_tokens, soft_tokens)
    return band.value if band else None


_WORD = re.compile(r"[\w-]+")


def _names(text: str, word: str) -> bool:
    return word in text and word in _WORD.findall(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """How an event becomes a row."""

    columns: tuple[str, ...]
    get_all: Callable[[Any], tuple[Any, ...]]
    insert: str


def _list_columns(cls: type) -> dict[str, Callable[[Any], Any]]:
    """Return the columns of a class of values, and how each is read from one."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name, hint in get_type_hints(cls).items():
        kinds = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
        inner = next((kind for kind in kinds if is_dataclass(kind)), None)
        if inner is None:
            is_list = any(get_origin(kind) is tuple for kind in kinds)
            found[name] = _read_json(name) if is_list else attrgetter(name)
            continue
        for field in fields(inner):
            found[f"{name}_{field.name}"] = _read_inner(name, field.name)
    return found


def _read_json(name: str) -> Callable[[Any], str | None]:
    def read(value: Any) -> str | None:
        found = getattr(value, name)
        return None if found is None else json.dumps(found).replace(r"\u0000", r"\ufffd") if found else "[]"

    return read


def _read_inner(name: str, field: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        inner = getattr(value, name)
        return None if inner is None else getattr(inner, field)

    return read


_PLACE = ("seq", "at", "run", "session", "phase_id")


def _make_table(cls: type) -> _Table:
    readers = {name: read for name, read in _list_columns(cls).items() if name not in _PLACE}
    getters = tuple(readers.values())
    columns = (*_PLACE, *readers)
    marks = ", ".join("?" * len(columns))
    return _Table(
        columns=columns,
        get_all=lambda event: tuple(get(event) for get in getters),
        insert=f"INSERT INTO {cls.__name__} VALUES ({marks})",  # noqa: S608  # a name of relay's own
    )


TABLES = {cls: _make_table(cls) for cls in get_args(Event)}


class Database:
    """The tables of one or several logs. Mutable: it grows by records, and is closed by its user.

    Args:
        path: A new file to keep; by default the tables are in memory, and large ones in a temporary file.
    """

    def __init__(self, path: str = "") -> None:
        self._link = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False
        )  # one at a time, says the user
        self._link.row_factory = sqlite3.Row
        self._link.text_factory = lambda data: data.decode(errors="replace")
        self._seq = self._runs = self._sessions = 0
        self._places: dict[str, tuple[int, int | None]] = {}
        """Run and session that each log is in."""
        self.spans: dict[int, tuple[float, float]] = {}
        """When the first and the last event of each run happened."""
        for name, function in (("read_usd", _read_usd), ("band_of", _find_band), ("names", _names)):
            self._link.create_function(name, 2, function, deterministic=True)
        for name in ("synchronous = OFF", "journal_mode = OFF", f"cache_size = -{_CACHE_KIB}", "temp_store = FILE"):
            self._link.execute(f"PRAGMA {name}")
        for cls, table in TABLES.items():
            columns = ", ".join(f'"{name}"' for name in table.columns[1:])
            self._link.execute(f"CREATE TABLE {cls.__name__} (seq INTEGER PRIMARY KEY, {columns})")

    def __enter__(self) -> Self:
        """Return the database, which `with` closes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._link.close()

    def add(self, records: Iterable[LoggedEvent], log: str = "") -> None:
        """Add records of a log, or of several one after the other.

        Args:
            log: Tells logs apart that grow at the same time.
        """
        self._link.execute("BEGIN")
        waiting: dict[type, list[tuple[Any, ...]]] = {}
        for record in records:
            event = record.event
            run, session = self._move(event, *self._places.get(log, (0, None)))
            self._places[log] = run, None if isinstance(event, SessionEnded) else session
            self.spans[run] = self.spans.get(run, (record.at,))[0], record.at
            rows = waiting.setdefault(type(event), [])
            phase_id = getattr(event, "phase_id", record.scope.phase_id).replace("\0", "\ufffd")  # where JSON ends, too
            place = (self._seq, record.at, run, session, phase_id)
            rows.append((*place, *TABLES[type(event)].get_all(event)))
            if len(rows) == _BATCH_ROWS:
                self._insert(type(event), rows)
        for cls, rows in waiting.items():
            self._insert(cls, rows)
        self._link.execute("COMMIT")

    def _move(self, event: Event, run: int, session: int | None) -> tuple[int, int | None]:
        """Return run and session of the next event of a log, which may have lost the beginning of its run."""
        self._seq += 1
        if isinstance(event, RunStarted) or not run:
            self._runs += 1
            run = self._runs
        if isinstance(event, RunStarted | RunEnded):
            session = None
        if isinstance(event, SessionStarted):
            self._sessions += 1
            session = self._sessions
        return run, session

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
            if row["name"] not in kept:
                self._link.execute(f"DROP TABLE {row['name']}")
        self._link.executescript(FIGURES.read_text(encoding="utf-8"))

    def read(self, query: str, *given: Any) -> list[dict[str, Any]]:
        """Return the rows of a query by name of column."""
        return [dict(row) for row in self._link.execute(query, given)]
