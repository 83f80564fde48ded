import sqlite3
import tempfile
import unittest
from pathlib import Path

from app.store import MIGRATIONS, Store, UnknownOrg


class SchemaTest(unittest.TestCase):
    def setUp(self) -> None:
        self.store = Store()
        self.addCleanup(self.store.close)
        self.org = self.store.add_org("Acme")

    def test_an_added_key_is_found_by_its_hash(self) -> None:
        key = self.store.add_key(self.org.id, prefix="obk_a1b2", key_hash="hash of a1b2")
        self.assertEqual(self.store.find_key("hash of a1b2"), key)
        self.assertEqual(self.store.list_keys(self.org.id), [key])
        self.assertIsNone(key.last_used_at)

    def test_a_hash_that_was_never_stored_finds_nothing(self) -> None:
        self.assertIsNone(self.store.find_key("hash of nothing"))

    def test_there_is_no_key_without_its_org(self) -> None:
        with self.assertRaises(UnknownOrg):
            self.store.add_key(self.org.id + 1, prefix="obk_a1b2", key_hash="hash of a1b2")

    def test_two_keys_never_share_a_hash(self) -> None:
        self.store.add_key(self.org.id, prefix="obk_a1b2", key_hash="same")
        with self.assertRaises(sqlite3.IntegrityError):
            self.store.add_key(self.org.id, prefix="obk_c3d4", key_hash="same")

    def test_a_database_from_before_keys_is_upgraded_in_place(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = str(Path(directory, "orgs.db"))
            old = sqlite3.connect(path)
            old.executescript(
                f"{MIGRATIONS[0]} PRAGMA user_version = 1; INSERT INTO orgs VALUES (7, 'Acme', '2026-01-01');"
            )
            old.close()
            store = Store(path)
            self.addCleanup(store.close)
            self.assertEqual([org.id for org in store.list_orgs()], [7])
            self.assertEqual(store.add_key(7, prefix="obk_a1b2", key_hash="hash of a1b2").org_id, 7)


if __name__ == "__main__":
    unittest.main()
