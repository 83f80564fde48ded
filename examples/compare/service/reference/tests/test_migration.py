import sqlite3
import tempfile
import unittest
from pathlib import Path

from stock.store import Store


class Migration(unittest.TestCase):
    def test_items_are_kept(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, "stock.db")
            old = sqlite3.connect(path)
            old.executescript(
                "CREATE TABLE items (name TEXT PRIMARY KEY, quantity INTEGER NOT NULL); PRAGMA user_version = 1;"
                "INSERT INTO items VALUES ('pear', 3), ('apple', 0)"
            )
            old.close()
            for _ in range(2):
                store = Store(path)
                self.assertEqual(store.list_items(), [("apple", 0), ("pear", 3)])
                store.close()
