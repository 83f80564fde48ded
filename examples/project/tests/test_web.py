import io
import json
import unittest
from typing import Any
from wsgiref.util import setup_testing_defaults

from app.store import Store
from app.web import Request, Response, handle
from app.wsgi import make_app


class WebTest(unittest.TestCase):
    def setUp(self) -> None:
        self.store = Store()
        self.addCleanup(self.store.close)

    def send(self, method: str, path: str, body: Any = None) -> Response:
        return handle(self.store, Request(method, path, body))

    def test_health_names_the_schema(self) -> None:
        response = self.send("GET", "/health")
        self.assertEqual(response, Response(200, {"status": "ok", "schema": self.store.schema_version}))

    def test_a_created_org_is_listed(self) -> None:
        created = self.send("POST", "/orgs", {"name": " Acme "})
        self.assertEqual((created.status, created.body["name"]), (201, "Acme"))
        self.assertEqual(self.send("GET", "/orgs").body, {"orgs": [created.body]})

    def test_a_taken_name_is_a_conflict(self) -> None:
        self.send("POST", "/orgs", {"name": "Acme"})
        self.assertEqual(self.send("POST", "/orgs", {"name": "Acme"}).status, 409)

    def test_an_org_needs_a_name(self) -> None:
        for body in (None, [], {}, {"name": " "}, {"name": 7}):
            with self.subTest(body=body):
                self.assertEqual(self.send("POST", "/orgs", body).status, 400)

    def test_unknown_paths_and_methods_are_refused(self) -> None:
        self.assertEqual(self.send("GET", "/nowhere").status, 404)
        self.assertEqual(self.send("DELETE", "/orgs").status, 405)


class WsgiTest(unittest.TestCase):
    def send(self, body: bytes) -> tuple[str, Any]:
        store = Store()
        self.addCleanup(store.close)
        environ: dict[str, Any] = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/orgs",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }
        setup_testing_defaults(environ)
        statuses: list[str] = []
        chunks = make_app(store)(environ, lambda status, headers: statuses.append(status))
        return statuses[0], json.loads(b"".join(chunks))

    def test_json_goes_in_and_out(self) -> None:
        status, body = self.send(b'{"name": "Acme"}')
        self.assertEqual((status, body["name"]), ("201 Created", "Acme"))

    def test_a_broken_body_is_a_bad_request(self) -> None:
        status, _ = self.send(b"{")
        self.assertEqual(status, "400 Bad Request")


if __name__ == "__main__":
    unittest.main()
