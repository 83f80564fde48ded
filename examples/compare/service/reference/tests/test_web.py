import unittest

from stock.store import Store
from stock.web import handle


class Web(unittest.TestCase):
    def test_a_reservation_is_made_and_confirmed(self) -> None:
        store = Store(":memory:")
        self.addCleanup(store.close)
        self.assertEqual(handle(store, "PUT", "/items/pear", {"quantity": 2})[0], 200)
        body = {"key": "k", "item": "pear", "quantity": 1, "seconds": 60}
        self.assertEqual(handle(store, "POST", "/reservations", body)[0], 201)
        self.assertEqual(handle(store, "POST", "/reservations/k/confirm", None)[1]["state"], "confirmed")
        self.assertEqual(handle(store, "GET", "/nothing", None)[0], 404)
