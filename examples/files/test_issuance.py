import unittest
from typing import Any

from app.keys import MARK, hash_key, mint_key
from app.store import Store
from app.web import Request, Response, handle


class KeyTest(unittest.TestCase):
    def test_no_two_keys_are_the_same(self) -> None:
        self.assertEqual(len({mint_key().text for _ in range(100)}), 100)

    def test_a_key_is_recognised_by_its_hash(self) -> None:
        key = mint_key()
        self.assertTrue(key.text.startswith(MARK))
        self.assertEqual(key.key_hash, hash_key(key.text))

    def test_a_key_stays_out_of_logs(self) -> None:
        key = mint_key()
        self.assertNotIn(key.text, repr(key))


class IssuanceTest(unittest.TestCase):
    def setUp(self) -> None:
        self.store = Store()
        self.addCleanup(self.store.close)
        self.org = self.store.add_org("Acme")
        self.keys_path = f"/orgs/{self.org.id}/keys"

    def send(self, method: str, path: str, body: Any = None) -> Response:
        return handle(self.store, Request(method, path, body))

    def test_a_key_is_shown_once(self) -> None:
        issued = self.send("POST", self.keys_path)
        self.assertEqual(issued.status, 201)
        self.assertIsNotNone(self.store.find_key(hash_key(issued.body["key"])))
        self.assertNotIn(issued.body["key"], str(self.store.list_keys(self.org.id)))

    def test_a_list_of_keys_tells_no_secret(self) -> None:
        text = self.send("POST", self.keys_path).body["key"]
        response = self.send("GET", self.keys_path)
        self.assertEqual([key["prefix"] for key in response.body["keys"]], [text[:8]])
        for secret in (text, hash_key(text)):
            self.assertNotIn(secret, str(response.body))

    def test_an_unknown_org_gets_no_key(self) -> None:
        for path in ("/orgs/99/keys", "/orgs/acme/keys", f"/orgs/{10**30}/keys"):
            with self.subTest(path=path):
                self.assertEqual(self.send("POST", path).status, 404)

    def test_keys_are_not_deleted_this_way(self) -> None:
        self.assertEqual(self.send("DELETE", self.keys_path).status, 405)


if __name__ == "__main__":
    unittest.main()
