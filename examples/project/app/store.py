"""Organisations in SQLite. The only module that knows SQL."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime, timezone

MIGRATIONS = (
    # 1: organisations
    """
    CREATE TABLE orgs (
        id         INTEGER PRIMARY KEY,
        name       TEXT NOT NULL UNIQUE,
        created_at TEXT NOT NULL
    );
    """,
)
"""One script per schema version. A released script is never edited; a change is a new one at the end."""


class NameTaken(Exception):
    """Another organisation has this name."""


@dataclass(frozen=True)
class Org:
    """An organisation."""

    id: int
    name: str
    created_at: str


class Store:
    """An open database, migrated to the newest schema."""

    def __init__(self, path: str = ":memory:") -> None:
        self._db = sqlite3.connect(path)
        self._migrate()

    @property
    def schema_version(self) -> int:
        """How many migrations the database has seen."""
        return self._db.execute("PRAGMA user_version").fetchone()[0]

    def close(self) -> None:
        """Close the database; the store is of no use afterwards."""
        self._db.close()

    def add_org(self, name: str) -> Org:
        """Add an organisation, or raise `NameTaken`."""
        created_at = _now()
        try:
            with self._db:
                added = self._db.execute("INSERT INTO orgs (name, created_at) VALUES (?, ?)", (name, created_at))
        except sqlite3.IntegrityError as error:
            raise NameTaken(name) from error
        return Org(added.lastrowid, name, created_at)

    def list_orgs(self) -> list[Org]:
        """Return all organisations, by name."""
        rows = self._db.execute("SELECT id, name, created_at FROM orgs ORDER BY name")
        return [Org(*row) for row in rows]

    def _migrate(self) -> None:
        for version, script in enumerate(MIGRATIONS[self.schema_version :], self.schema_version + 1):
            # One transaction per step: a crash leaves the old schema or the new one, nothing between.
            self._db.executescript(f"BEGIN; {script} PRAGMA user_version = {version}; COMMIT;")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
