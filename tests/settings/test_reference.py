"""The JSON Schema says what relay reads."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from relay.config.keys import KEYS
from relay.config.schema import render_schema
from tests import fitting
from tests.settings.test_config import BAD_VALUES

ROOT = Path(__file__).parents[2]
SCHEMA = render_schema()
STRICTER = {"reset_at"}
"""What a schema does not say: a grammar."""


def fits(schema: Any, value: Any) -> bool:
    return fitting.fits(schema, value, SCHEMA["$defs"])


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
