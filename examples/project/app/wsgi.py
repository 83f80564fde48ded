"""The service over HTTP: translates WSGI to `app.web` and back."""

import json
import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from wsgiref.simple_server import make_server

from app.store import Store
from app.web import Request, Response, handle

PORT = 8000


def make_app(store: Store) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Return the WSGI application that answers from this store."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            response = handle(store, _read_request(environ))
        except ValueError:
            response = Response(400, {"error": "the body is not JSON"})
        status = HTTPStatus(response.status)
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
        return [json.dumps(response.body).encode()]

    return app


def _read_request(environ: dict[str, Any]) -> Request:
    raw = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return Request(
        method=environ["REQUEST_METHOD"],
        path=environ["PATH_INFO"],
        body=json.loads(raw) if raw else None,
        headers={
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        },
    )


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else ":memory:"
    with make_server("127.0.0.1", PORT, make_app(Store(path))) as server:
        print(f"orgbook on http://127.0.0.1:{PORT}")
        server.serve_forever()
