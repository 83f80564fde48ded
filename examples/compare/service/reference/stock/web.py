"""The routes of the service, without the server."""

from typing import Any
from urllib.parse import unquote

from stock import ConflictError, ShortageError, UnknownError
from stock.store import Reservation, Store

Answer = tuple[int, Any]
_ROUTES = {("items",): {"GET"}, ("items", ""): {"PUT"}, ("reservations",): {"POST"}, ("reservations", ""): {"DELETE"},
           ("reservations", "", "confirm"): {"POST"}}  # fmt: skip


def handle(store: Store, method: str, path: str, body: Any) -> Answer:
    parts = [unquote(part) for part in path.removeprefix("/").split("/")]
    shape = tuple("" if n == 1 else part for n, part in enumerate(parts))
    if shape not in _ROUTES or "" in parts:
        return 404, {"error": "there is nothing here"}
    if method not in _ROUTES[shape]:
        return 405, {"error": f"{method} is not for this path"}
    try:
        return _act(store, shape, parts, body)
    except UnknownError as error:
        return 404, {"error": str(error)}
    except (ConflictError, ShortageError) as error:
        return 409, {"error": str(error)}
    except ValueError as error:
        return 400, {"error": str(error)}


def _act(store: Store, shape: tuple[str, ...], parts: list[str], body: Any) -> Answer:
    match shape:
        case ("items",):
            return 200, [_show_item(store, name) for name, _ in store.list_items()]
        case ("items", ""):
            store.set_quantity(parts[1], _get(body, "quantity", int))
            return 200, _show_item(store, parts[1])
        case ("reservations",):
            key, name = _get(body, "key", str), _get(body, "item", str)
            quantity, seconds = _get(body, "quantity", int), _get(body, "seconds", int, float)
            status = 200 if store.find(key) else 201
            return status, _show(store.reserve(key, name, quantity, seconds))
        case ("reservations", ""):
            return 200, _show(store.release(parts[1]))
        case _:
            return 200, _show(store.confirm(parts[1]))


def _get(body: Any, name: str, *kinds: type) -> Any:
    value = body.get(name) if isinstance(body, dict) else None
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ValueError(f"{name} is missing or not allowed")
    return value


def _show_item(store: Store, name: str) -> dict[str, Any]:
    return {"name": name, "quantity": store.get_quantity(name), "available": store.available(name)}


def _show(one: Reservation) -> dict[str, Any]:
    return {"key": one.key, "item": one.name, "quantity": one.quantity, "expires": one.expires, "state": one.state}
