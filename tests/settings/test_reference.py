"""The JSON Schema says what relay reads."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

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


def test_the_schema_refuses_what_relay_refuses():
    of_json = [(key, value) for key, value in BAD_VALUES if key not in STRICTER and str(value) not in {"nan", "inf"}]
    assert [(key, value) for key, value in of_json if fits(SCHEMA, {key: value})] == []
