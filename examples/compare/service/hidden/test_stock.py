"""What the specification says, as tests that no session has seen."""

import sqlite3
import tempfile
import threading
import time
import unittest
from pathlib import Path

import stock
from stock.store import Store
from stock.web import handle


class Case(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.path, self.now = Path(place.name, "stock.db"), 1_000.0

    def open(self):
        store = Store(self.path, clock=lambda: self.now)
        self.addCleanup(store.close)
        return store

    def make_old(self, version, rows=(("pear", 3), ("fig", -2), ("plum", 0))):
        db = sqlite3.connect(self.path)
        db.execute("CREATE TABLE items (name TEXT PRIMARY KEY, quantity INTEGER NOT NULL)")
        db.executemany("INSERT INTO items VALUES (?, ?)", rows)
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()
        db.close()

    def ask(self, text):
        db = sqlite3.connect(self.path)
        try:
            return db.execute(text).fetchall()
        finally:
            db.close()


class Migration(Case):
    def test_every_item_is_kept(self):
        for version in (0, 1):
            with self.subTest(version=version):
                self.path.unlink(missing_ok=True)
                self.make_old(version, [(f"item {n}", n) for n in range(500)])
                self.assertEqual(dict(self.open().list_items()), {f"item {n}": n for n in range(500)})
                self.assertEqual(self.ask("PRAGMA user_version"), [(2,)])

    def test_a_quantity_below_zero_becomes_zero(self):
        self.make_old(1)
        self.assertEqual(self.open().list_items(), [("fig", 0), ("pear", 3), ("plum", 0)])

    def test_the_tables_are_those_of_the_specification(self):
        self.make_old(1)
        self.open()
        self.assertEqual([row[1] for row in self.ask("PRAGMA table_info(items)")], ["id", "name", "quantity"])
        with self.assertRaises(sqlite3.IntegrityError):
            self.ask("INSERT INTO items (name, quantity) VALUES ('x', -1)")

    def test_a_second_opening_changes_nothing(self):
        self.make_old(1)
        self.open().reserve("k", "pear", 2, 60)
        self.assertEqual(self.open().available("pear"), 1)

    def test_a_migration_that_fails_leaves_the_old_database(self):
        self.make_old(1)
        db = sqlite3.connect(self.path)
        db.execute("CREATE TABLE reservations (something TEXT)")
        db.close()
        with self.assertRaises(Exception):
            self.open()
        self.assertEqual(sorted(self.ask("SELECT * FROM items")), [("fig", -2), ("pear", 3), ("plum", 0)])
        self.assertEqual(self.ask("PRAGMA user_version"), [(1,)])
        self.ask("DROP TABLE reservations")
        self.assertEqual(self.open().available("pear"), 3)

    def test_a_later_version_is_refused(self):
        self.make_old(3)
        with self.assertRaises(stock.VersionError):
            self.open()
        self.assertEqual(self.ask("PRAGMA user_version"), [(3,)])


class Reservations(Case):
    def setUp(self):
        super().setUp()
        self.store = self.open()
        self.store.set_quantity("pear", 5)

    def test_a_key_makes_repeating_harmless(self):
        one = self.store.reserve("k", "pear", 2, 60)
        self.now += 10
        self.assertEqual(self.store.reserve("k", "pear", 2, 60), one)
        self.assertEqual(self.store.available("pear"), 3)
        for other in (("k", "pear", 3, 60),):
            with self.assertRaises(stock.ConflictError):
                self.store.reserve(*other)
        self.store.confirm("k")
        self.assertEqual(self.store.reserve("k", "pear", 2, 60).state, "confirmed")
        self.assertEqual(self.store.get_quantity("pear"), 3)

    def test_a_shortage_uses_no_key_up(self):
        with self.assertRaises(stock.ShortageError):
            self.store.reserve("k", "pear", 6, 60)
        self.assertEqual(self.store.reserve("k", "pear", 5, 60).state, "active")

    def test_what_expires_is_available_again(self):
        self.store.reserve("k", "pear", 5, 60)
        self.now += 59.9
        self.assertEqual(self.store.available("pear"), 0)
        self.now = 1_060.0
        self.assertEqual(self.store.available("pear"), 5)
        with self.assertRaises(stock.ConflictError):
            self.store.confirm("k")
        self.assertEqual(self.store.release("k").state, "expired")
        self.store.reserve("l", "pear", 5, 60)

    def test_release_and_confirm_may_be_repeated(self):
        self.store.reserve("k", "pear", 2, 60)
        self.assertEqual([self.store.confirm("k").state, self.store.confirm("k").state], ["confirmed"] * 2)
        self.assertEqual(self.store.get_quantity("pear"), 3)
        with self.assertRaises(stock.ConflictError):
            self.store.release("k")
        self.store.reserve("l", "pear", 2, 60)
        self.assertEqual([self.store.release("l").state, self.store.release("l").state], ["released"] * 2)
        self.assertEqual(self.store.available("pear"), 3)

    def test_what_is_not_allowed(self):
        for quantity, seconds in ((0, 60), (-1, 60), (1, 0), (1, -1)):
            with self.assertRaises(ValueError):
                self.store.reserve("k", "pear", quantity, seconds)
        for act in (lambda: self.store.reserve("k", "kiwi", 1, 60), lambda: self.store.release("no"), lambda: self.store.confirm("no"), lambda: self.store.available("kiwi")):
            with self.assertRaises(stock.UnknownError):
                act()

    def test_a_quantity_does_not_fall_below_what_is_held(self):
        self.store.reserve("k", "pear", 3, 60)
        with self.assertRaises(stock.ShortageError):
            self.store.set_quantity("pear", 2)
        self.store.set_quantity("pear", 3)
        self.assertEqual(self.store.available("pear"), 0)

    def hurry(self, act, clients):
        """Let clients act at the same time, on a clock that takes its time; return what they got and what went wrong."""
        won, failed, together = [], [], threading.Barrier(clients)

        def slow():
            time.sleep(0.004)  # whoever has looked and does not hold the database is overtaken here
            return self.now

        def work(client):
            store = Store(self.path, clock=slow)
            together.wait()
            try:
                act(store, client, won)
            except Exception as error:
                failed.append(error)
            store.close()

        threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return won, failed

    def test_many_clients_never_reserve_an_item_twice(self):
        self.store.set_quantity("pear", 20)

        def take(store, client, won):
            for n in range(10):
                try:
                    won.append(store.reserve(f"{client}-{n}", "pear", 1, 600))
                except stock.ShortageError:
                    pass

        won, failed = self.hurry(take, 4)
        self.assertEqual((len(won), failed), (20, []))

    def test_many_clients_with_the_same_key_make_one_reservation(self):
        won, failed = self.hurry(lambda store, _client, won: won.append(store.reserve("same", "pear", 1, 600)), 6)
        self.assertEqual((len(set(won)), len(won), failed), (1, 6, []))


class Web(Case):
    def setUp(self):
        super().setUp()
        self.store = self.open()

    def send(self, method, path, body=None):
        return handle(self.store, method, path, body)

    def test_items(self):
        self.assertEqual(self.send("PUT", "/items/a%20b%2Fc", {"quantity": 2}), (200, {"name": "a b/c", "quantity": 2, "available": 2}))
        self.send("PUT", "/items/A", {"quantity": 1})
        self.assertEqual([one["name"] for one in self.send("GET", "/items")[1]], ["A", "a b/c"])

    def test_reservations(self):
        self.send("PUT", "/items/pear", {"quantity": 2})
        body = {"key": "k/1", "item": "pear", "quantity": 2, "seconds": 60}
        made = {"key": "k/1", "item": "pear", "quantity": 2, "expires": 1060.0, "state": "active"}
        self.assertEqual([self.send("POST", "/reservations", body) for _ in range(2)], [(201, made), (200, made)])
        self.assertEqual(self.send("POST", "/reservations", {**body, "key": "l"})[0], 409)
        self.assertEqual(self.send("DELETE", "/reservations/k%2F1"), (200, {**made, "state": "released"}))
        self.assertEqual(self.send("POST", "/reservations/k%2F1/confirm")[0], 409)

    def test_errors(self):
        self.send("PUT", "/items/pear", {"quantity": 2})
        good = {"key": "k", "item": "pear", "quantity": 1, "seconds": 60}
        for method, path, body, status in (
            ("GET", "/", None, 404), ("GET", "/items/pear/x", None, 404), ("PATCH", "/items", None, 405), ("GET", "/reservations/k", None, 405),
            ("PUT", "/items/pear", None, 400), ("PUT", "/items/pear", {"quantity": -1}, 400), ("PUT", "/items/pear", {"quantity": True}, 400),
            ("PUT", "/items/pear", {"quantity": "2"}, 400), ("POST", "/reservations", {**good, "quantity": 1.5}, 400), ("POST", "/reservations", [], 400),
            ("POST", "/reservations", {**good, "quantity": 0}, 400), ("POST", "/reservations", {**good, "item": "kiwi"}, 404),
            ("DELETE", "/reservations/no", None, 404), ("POST", "/reservations/no/confirm", None, 404),
        ):
            with self.subTest(method=method, path=path, body=body):
                found, answer = self.send(method, path, body)
                self.assertEqual(found, status)
                self.assertEqual(list(answer), ["error"])


if __name__ == "__main__":
    unittest.main()
