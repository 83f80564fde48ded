"""Requests in, responses out: the routes of the service, without any HTTP."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from app.store import NameTaken, Store


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    method: str
    path: str
    body: Any = None
    """The decoded JSON body; None when there is none."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Header names in lower case."""


@dataclass(frozen=True)
class Response:
    """What the client gets: a status and a JSON body."""

    status: int
    body: Any


Handler = Callable[[Store, Request], Response]


def health(store: Store, request: Request) -> Response:
    """Say that the service is up, and on which schema."""
    return Response(200, {"status": "ok", "schema": store.schema_version})


def create_org(store: Store, request: Request) -> Response:
    """Add an organisation."""
    name = request.body.get("name") if isinstance(request.body, dict) else None
    if not isinstance(name, str) or not name.strip():
        return Response(400, {"error": "name must be a text that is not empty"})
    try:
        return Response(201, asdict(store.add_org(name.strip())))
    except NameTaken:
        return Response(409, {"error": f"{name.strip()} exists already"})


def list_orgs(store: Store, request: Request) -> Response:
    """List all organisations."""
    return Response(200, {"orgs": [asdict(org) for org in store.list_orgs()]})


ROUTES: dict[tuple[str, str], Handler] = {
    ("GET", "/health"): health,
    ("POST", "/orgs"): create_org,
    ("GET", "/orgs"): list_orgs,
}


def handle(store: Store, request: Request) -> Response:
    """Answer a request."""
    if handler := ROUTES.get((request.method, request.path)):
        return handler(store, request)
    if any(path == request.path for _, path in ROUTES):
        return Response(405, {"error": f"{request.path} does not take {request.method}"})
    return Response(404, {"error": f"there is nothing at {request.path}"})
