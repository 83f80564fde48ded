"""The items and their quantities, in SQLite."""

import sqlite3
from pathlib import Path


class Store:
    """One connection to a database; each thread has its own."""

    def __init__(self, path: str | Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("CREATE TABLE IF NOT EXISTS items (name TEXT PRIMARY KEY, quantity INTEGER NOT NULL)")
        self._db.execute("PRAGMA user_version = 1")

    def close(self) -> None:
        self._db.close()

    def set_quantity(self, name: str, quantity: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO items VALUES (?, ?)", (name, quantity))

    def get_quantity(self, name: str) -> int:
        row = self._db.execute("SELECT quantity FROM items WHERE name = ?", (name,)).fetchone()
        return row[0] if row else 0

    def list_items(self) -> list[tuple[str, int]]:
        return self._db.execute("SELECT name, quantity FROM items ORDER BY name").fetchall()
