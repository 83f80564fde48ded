"""Hold what commands print with --json against `relay.cli.documents`."""

import json
from typing import Any

from msgspec import ValidationError, convert
from msgspec.json import encode

from relay.cli.documents import (
    CheckDocument,
    DoctorDocument,
    ErrorDocument,
    LedgerDocument,
    StatusDocument,
)
from relay.cli.outcomes import OutcomesDocument
from relay.cli.screen import JSON_VERSION

DOCUMENTS = {
    "relay status": StatusDocument,
    "relay check": CheckDocument,
    "relay doctor": DoctorDocument,
    "relay report --all": OutcomesDocument,
    "relay ledger list": LedgerDocument,
    "any command that ends with 1": ErrorDocument,
}
"""The documents by command. The others with --json print events, or figures that have the names of their page."""


def find_fault(kind: Any, value: Any) -> str:
    """Return where a value has the wrong type, or which part of it is not documented or missing; empty if all fits."""
    try:
        known = json.loads(encode(convert(value, kind)))
    except ValidationError as error:
        return str(error)
    return "" if known == value else f"documented is {known}, found {value}"


def read_document(command: str, text: str) -> Any:
    """Return a command's output, after checking it against its documented form."""
    body = json.loads(text)
    assert body.pop("version") == JSON_VERSION
    assert not find_fault(DOCUMENTS[command], body)
    return body
