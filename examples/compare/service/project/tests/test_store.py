import tempfile
import unittest
from pathlib import Path

from stock.store import Store


class Items(unittest.TestCase):
    def test_items_have_quantities(self) -> None:
        with tempfile.TemporaryDirectory() as place:
            store = Store(Path(place, "stock.db"))
            self.addCleanup(store.close)
            store.set_quantity("pear", 3)
            store.set_quantity("apple", 5)
            store.set_quantity("pear", 4)
            self.assertEqual(store.get_quantity("pear"), 4)
            self.assertEqual(store.list_items(), [("apple", 5), ("pear", 4)])
