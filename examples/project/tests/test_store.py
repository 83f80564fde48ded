import tempfile
import unittest
from pathlib import Path

from app.store import MIGRATIONS, NameTaken, Store


class StoreTest(unittest.TestCase):
    def setUp(self) -> None:
        self.store = Store()
        self.addCleanup(self.store.close)

    def test_an_added_org_is_listed(self) -> None:
        org = self.store.add_org("Acme")
        self.assertEqual(self.store.list_orgs(), [org])

    def test_orgs_are_listed_by_name(self) -> None:
        for name in ("Zenith", "Acme"):
            self.store.add_org(name)
        self.assertEqual([org.name for org in self.store.list_orgs()], ["Acme", "Zenith"])

    def test_a_name_is_given_once(self) -> None:
        self.store.add_org("Acme")
        with self.assertRaises(NameTaken):
            self.store.add_org("Acme")

    def test_a_new_database_has_the_newest_schema(self) -> None:
        self.assertEqual(self.store.schema_version, len(MIGRATIONS))

    def test_opening_a_database_again_keeps_what_is_in_it(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = str(Path(directory, "orgs.db"))
            first = Store(path)
            org = first.add_org("Acme")
            first.close()
            second = Store(path)
            self.addCleanup(second.close)
            self.assertEqual(second.list_orgs(), [org])


if __name__ == "__main__":
    unittest.main()
