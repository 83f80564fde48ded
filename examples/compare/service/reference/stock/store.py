"""The items, their quantities and what is reserved of them, in SQLite."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from stock import ConflictError, ShortageError, UnknownError, VersionError

VERSION = 2
_WAIT_S = 30.0
_ITEMS = "(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, quantity INTEGER NOT NULL CHECK (quantity >= 0))"
_RESERVATIONS = (
    "(key TEXT PRIMARY KEY, item INTEGER NOT NULL REFERENCES items (id), quantity INTEGER NOT NULL CHECK (quantity > 0), "
    "expires REAL NOT NULL, state TEXT NOT NULL)"
)


@dataclass(frozen=True)
class Reservation:
    key: str
    name: str
    quantity: int
    expires: float
    state: str


class Store:
    """One connection to a database; each thread has its own."""

    def __init__(self, path: str | Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._db = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
        try:
            with self._changing():
                self._migrate()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the database from before the first look: what was seen must still be so at the change."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _migrate(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise VersionError(f"the database has version {version}, and this program knows {VERSION}")
        if version == VERSION:
            return
        has_items = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'items'").fetchone()
        if has_items:
            self._db.execute("ALTER TABLE items RENAME TO old_items")
        self._db.execute(f"CREATE TABLE items {_ITEMS}")
        if has_items:
            self._db.execute("INSERT INTO items (name, quantity) SELECT name, max(quantity, 0) FROM old_items")
            self._db.execute("DROP TABLE old_items")
        self._db.execute(f"CREATE TABLE reservations {_RESERVATIONS}")
        self._db.execute(f"PRAGMA user_version = {VERSION}")

    def set_quantity(self, name: str, quantity: int) -> None:
        if quantity < 0:
            raise ValueError("a quantity is not below 0")
        with self._changing():
            if quantity < self._count_held(name):
                raise ShortageError(f"{name}: more are reserved")
            self._db.execute(
                "INSERT INTO items (name, quantity) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET quantity = excluded.quantity",
                (name, quantity),
            )

    def get_quantity(self, name: str) -> int:
        row = self._db.execute("SELECT quantity FROM items WHERE name = ?", (name,)).fetchone()
        return row[0] if row else 0

    def list_items(self) -> list[tuple[str, int]]:
        return self._db.execute("SELECT name, quantity FROM items ORDER BY name").fetchall()

    def available(self, name: str) -> int:
        item = self._db.execute("SELECT quantity FROM items WHERE name = ?", (name,)).fetchone()
        if item is None:
            raise UnknownError(f"there is no item {name}")
        return int(item[0]) - self._count_held(name)

    def _count_held(self, name: str) -> int:
        row = self._db.execute(
            "SELECT sum(r.quantity) FROM reservations r JOIN items i ON i.id = r.item "
            "WHERE i.name = ? AND r.state = 'active' AND r.expires > ?",
            (name, self._clock()),
        ).fetchone()
        return row[0] or 0

    def find(self, key: str) -> Reservation | None:
        row = self._db.execute(
            "SELECT r.key, i.name, r.quantity, r.expires, r.state FROM reservations r JOIN items i ON i.id = r.item "
            "WHERE r.key = ?",
            (key,),
        ).fetchone()
        if row is None:
            return None
        found = Reservation(*row)
        is_over = found.state == "active" and found.expires <= self._clock()
        return replace(found, state="expired") if is_over else found

    def _get(self, key: str) -> Reservation:
        found = self.find(key)
        if found is None:
            raise UnknownError(f"there is no reservation {key}")
        return found

    def reserve(self, key: str, name: str, quantity: int, seconds: float) -> Reservation:
        if quantity <= 0 or not seconds > 0:
            raise ValueError("quantity and time are positive")
        with self._changing():
            if (found := self.find(key)) is not None:
                if (found.name, found.quantity) != (name, quantity):
                    raise ConflictError(f"{key} is another reservation")
                return found
            if self.available(name) < quantity:
                raise ShortageError(f"{name}: fewer are available")
            expires = self._clock() + seconds
            self._db.execute(
                "INSERT INTO reservations SELECT ?, id, ?, ?, 'active' FROM items WHERE name = ?",
                (key, quantity, expires, name),
            )
        return Reservation(key, name, quantity, expires, "active")

    def release(self, key: str) -> Reservation:
        with self._changing():
            found = self._get(key)
            if found.state == "confirmed":
                raise ConflictError(f"{key} is confirmed")
            if found.state == "active":
                found = self._set_state(found, "released")
        return found

    def confirm(self, key: str) -> Reservation:
        with self._changing():
            found = self._get(key)
            if found.state in {"released", "expired"}:
                raise ConflictError(f"{key} is {found.state}")
            if found.state == "active":
                self._db.execute("UPDATE items SET quantity = quantity - ? WHERE name = ?", (found.quantity, found.name))
                found = self._set_state(found, "confirmed")
        return found

    def _set_state(self, found: Reservation, state: str) -> Reservation:
        self._db.execute("UPDATE reservations SET state = ? WHERE key = ?", (state, found.key))
        return replace(found, state=state)
