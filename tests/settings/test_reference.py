"""docs/settings.md and the JSON Schema say what relay reads."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from relay.config.keys import KEYS
from relay.config.schema import render_schema
from tests.settings.reference import render
from tests.settings.test_config import BAD_VALUES

ROOT = Path(__file__).parents[2]
SCHEMA = render_schema()
STRICTER = {"reset_at"}
"""What a schema does not say: a grammar."""


def fits(schema: Any, value: Any) -> bool:
    """Check a value as an editor would, as far as relay's schema goes."""
    schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "anyOf" in schema:
        return any(fits(one, value) for one in schema["anyOf"])
    if words := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return value in words
    kinds: Any = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if isinstance(value, bool) != (names == ["boolean"]) or not any(isinstance(value, kinds[name]) for name in names):
        return False
    match value:
        case str():
            return bool(re.search(schema.get("pattern", "").replace("$", r"\Z"), value))
        case list():
            return all(fits(schema["items"], item) for item in value)
        case dict():
            known = schema.get("properties", {})
            rest = schema["additionalProperties"]
            return set(schema.get("required", ())) <= value.keys() and all(
                fits(known[name], item) if name in known else rest and fits(rest, item) for name, item in value.items()
            )
        case bool():
            return True
        case _:
            return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def test_the_reference_is_made_of_the_code():
    """`make docs` writes it anew."""
    assert (ROOT / "docs/settings.md").read_text(encoding="utf-8") == render()


def test_the_schema_takes_what_the_template_shows():
    schema = json.loads(json.dumps(SCHEMA))
    text = (ROOT / "templates/relay.toml").read_text(encoding="utf-8")
    shown = tomllib.loads(re.sub(r"^# (?=\w+ = |\[)", "", text, flags=re.MULTILINE))
    assert fits(schema, shown)
    assert not fits(schema, {"modle": 1})
    assert all(found["description"] for found in schema["properties"].values())
    assert set(schema["properties"]) == set(KEYS)


@pytest.mark.parametrize(("key", "value"), [pair for pair in BAD_VALUES if pair[0] not in STRICTER])
def test_the_schema_refuses_what_relay_refuses(key, value):
    if value != value or value == float("inf"):  # noqa: PLR0124  # TOML has nan and inf, JSON has not
        return
    assert not fits(SCHEMA, {key: value})
