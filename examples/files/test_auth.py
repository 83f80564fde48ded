import unittest

from app.store import Store
from app.web import Request, Response, handle


class AuthTest(unittest.TestCase):
    def setUp(self) -> None:
        self.store = Store()
        self.addCleanup(self.store.close)
        self.acme = self.store.add_org("Acme")
        self.zenith = self.store.add_org("Zenith")

    def send(self, method: str, org_id: int, authorization: str = "") -> Response:
        headers = {"authorization": authorization} if authorization else {}
        return handle(self.store, Request(method, f"/orgs/{org_id}/keys", headers=headers))

    def issue_first(self, org_id: int) -> str:
        return self.send("POST", org_id).body["key"]

    def test_the_first_key_is_free_and_the_second_is_not(self) -> None:
        self.assertEqual(self.send("POST", self.acme.id).status, 201)
        self.assertEqual(self.send("POST", self.acme.id).status, 401)

    def test_a_key_opens_the_routes_of_its_org(self) -> None:
        bearer = f"Bearer {self.issue_first(self.acme.id)}"
        self.assertEqual(self.send("POST", self.acme.id, bearer).status, 201)
        self.assertEqual(len(self.send("GET", self.acme.id, bearer).body["keys"]), 2)

    def test_a_key_does_not_open_the_routes_of_another_org(self) -> None:
        bearer = f"Bearer {self.issue_first(self.acme.id)}"
        self.issue_first(self.zenith.id)
        self.assertEqual(self.send("GET", self.zenith.id, bearer).status, 403)

    def test_what_is_not_a_known_key_is_refused(self) -> None:
        key = self.issue_first(self.acme.id)
        for header in ("", "Bearer", "Bearer ", f"Basic {key}", f"Bearer {key}x", key):
            with self.subTest(header=header):
                self.assertEqual(self.send("GET", self.acme.id, header).status, 401)

    def test_the_last_use_of_a_key_is_kept(self) -> None:
        bearer = f"Bearer {self.issue_first(self.acme.id)}"
        self.assertIsNone(self.store.list_keys(self.acme.id)[0].last_used_at)
        self.send("GET", self.acme.id, bearer)
        self.assertIsNotNone(self.store.list_keys(self.acme.id)[0].last_used_at)

    def test_a_denial_does_not_repeat_the_key(self) -> None:
        key = self.issue_first(self.acme.id)
        self.issue_first(self.zenith.id)
        self.assertNotIn(key, str(self.send("GET", self.zenith.id, f"Bearer {key}").body))


if __name__ == "__main__":
    unittest.main()
