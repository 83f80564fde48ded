"""Who may: an organisation's routes are opened by its keys."""

from dataclasses import dataclass

from app.keys import hash_key
from app.store import Store


@dataclass(frozen=True)
class Denied:
    """Why a caller may not; `status` is 401 or 403."""

    status: int
    error: str


def check_key(store: Store, authorization: str, org_id: int) -> Denied | None:
    """Check an `Authorization` header against an organisation; None means: come in."""
    if not store.list_keys(org_id):
        return None  # nobody can hold a key yet; the first one is issued through this gap
    scheme, _, text = authorization.partition(" ")
    key = store.find_key(hash_key(text.strip())) if scheme.lower() == "bearer" else None
    if key is None:
        return Denied(401, "send one of the organisation's keys as 'Authorization: Bearer <key>'")
    store.touch_key(key.id)
    return None
