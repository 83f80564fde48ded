import tempfile
import unittest
from pathlib import Path

from stock import ShortageError
from stock.store import Store


class Reservations(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.store = Store(Path(place.name, "stock.db"))
        self.addCleanup(self.store.close)
        self.store.set_quantity("pear", 2)

    def test_what_is_reserved_is_not_available(self) -> None:
        self.store.reserve("k", "pear", 2, 60)
        self.assertEqual(self.store.available("pear"), 0)
        with self.assertRaises(ShortageError):
            self.store.reserve("l", "pear", 1, 60)
        self.store.release("k")
        self.assertEqual(self.store.available("pear"), 2)

    def test_confirmed_items_are_gone(self) -> None:
        self.store.reserve("k", "pear", 1, 60)
        self.store.confirm("k")
        self.assertEqual(self.store.get_quantity("pear"), 1)
