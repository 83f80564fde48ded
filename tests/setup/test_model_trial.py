"""`relay doctor --model`: what a trial shows of an endpoint, and the table that it prints."""

import json
import tomllib
from dataclasses import replace

import pytest
from msgspec import structs

from relay.base.errors import RunnerError
from relay.config import ModelSettings, Settings
from relay.runners.registry import list_runners
from relay.session.prices import UserPrice
from relay.setup.preconditions import State
from relay.setup.trials import estimate_trial, try_model
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve

CALL = {"thinking": "hm", "tools": [{"name": "echo", "input": {"word": "relay"}}]}
TURNS = [CALL, {"text": "Relay."}]
OWN = ModelSettings(window_tokens=65_536, max_output_tokens=8_192)


def attempt(turns=TURNS, *, model="glm-4.6", own=OWN, **script):
    """Return the state and the words of each finding by its name, the table, and what the server was asked."""
    played = {"model": model, "sessions": [{"turns": turns, "repeat": True}], **script}
    with serve(parse_script(json.dumps(played))) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url}
        trial = try_model(list_runners(Settings())["api"], Settings(model=model, models={model: own}), environ)
        asked = [request for request in server.requests if request.path == "/v1/messages"]
    found = {finding.name: (finding.state, finding.words) for finding in trial.findings}
    return found, tomllib.loads(trial.table).get("models", {}).get(model), asked


def test_a_model_of_the_provider_is_all_right():
    found, table, asked = attempt(model="claude-opus-5-5", own=ModelSettings())

    assert {name: state for name, (state, _) in found.items()} == {
        "limits": State.OK, "answer": State.OK, "streams": State.OK, "tools": State.OK, "thinking": State.INFO,
        "usage": State.OK, "cache": State.OK,
    }  # fmt: skip
    assert found["thinking"][1] == "shown"
    assert "came from it" in found["cache"][1]
    assert table == {
        "window_tokens": 1_000_000, "max_output_tokens": 128_000,
        "price": {"input": 4, "output": 20, "write_5m": 5, "write_1h": 8, "read": 0.2},
    }  # fmt: skip
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("dialect", "cache"),
    take_each(3, [("ollama", "warning"), ("vllm", "ok"), ("sglang", "warning"), ("vercel", "warning")]),
)
def test_an_endpoint_of_another_maker_is_described(dialect, cache):
    found, table, _ = attempt(dialect=dialect)

    assert found["cache"][0] == cache
    assert {found[name][0] for name in ("limits", "answer", "streams", "tools", "usage")} == {State.OK}
    assert table == {"window_tokens": 65_536, "max_output_tokens": 8_192, "price": {"input": 0, "output": 0}}


def test_a_model_that_nobody_knows_is_tried_and_its_table_is_to_be_put_right():
    """The settings come after the first look, not before."""
    found, table, asked = attempt(own=ModelSettings(), dialect="ollama")

    assert found["limits"][0] is State.MISSING
    assert (found["tools"][0], len(asked)) == (State.OK, 2)
    assert table
    assert table["window_tokens"] == 200_000


def test_what_an_endpoint_refuses_stands_in_the_table():
    found, table, _ = attempt(refuses=["display", "cache_control"], model="claude-opus-5-5", own=ModelSettings())

    assert table
    assert table["compat"] == {"cache": "blocks", "thinking_display": False}
    assert "left out" in found["note"][1]


@pytest.mark.parametrize(
    ("turns", "name", "state", "words"),
    [
        ([{"text": "No."}], "tools", State.MISSING, "called no tool"),
        ([CALL, {"text": "What?"}], "tools", State.WARNING, "did not say"),
        ([CALL | {"fault": {"kind": "no_stream"}}, {"text": "relay"}], "streams", State.WARNING, "whole"),
        ([CALL | {"fault": {"kind": "usage", "report": "missing"}}, {"text": "relay"}], "usage", State.WARNING, "~"),
        ([CALL | {"fault": {"kind": "status", "status": 418, "times": "always"}}], "answer", State.MISSING, "418"),
        ([CALL | {"repeat": 9}], "answer", State.MISSING, "3 "),
    ],
    ids=["no tool", "wrong word", "no stream", "no usage", "refused", "never ends"],
)
def test_what_is_wrong_is_named(turns, name, state, words):
    found, _, asked = attempt(turns)

    assert found[name][0] is state
    assert words in found[name][1]
    assert len(asked) <= 3


def test_what_it_takes_is_said_before():
    glm = Settings(model="glm-4.6", models={"glm-4.6": OWN})
    assert estimate_trial(glm).endswith("its price is not known")
    priced = replace(glm, models={"glm-4.6": structs.replace(OWN, price=UserPrice(input=1, output=1))})
    assert estimate_trial(priced).startswith("glm-4.6: up to 3 requests of about ")
    assert estimate_trial(priced).endswith("at most")


def test_without_a_way_to_the_endpoint_nothing_is_tried():
    environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    with pytest.raises(RunnerError, match="cannot be reached"):
        try_model(list_runners(Settings())["api"], Settings(model="glm-4.6"), environ)
