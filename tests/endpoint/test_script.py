"""Scripts of the endpoint: what the player's do not know, and what is said about faults that cannot be."""

import pytest

from relay.base.errors import ConfigError
from relay.rehearsal.script import parse_script as parse_players
from tests.endpoint.script import FaultyTurn, parse_script

TURN = "sessions:\n  - turns:\n      - "
WRONG = {
    "fault and nothing": (TURN + "fault: overloaded\n", "3: the turn answers nothing"),
    "unknown fault": (TURN + "fault: overload\n", "3: fault: found 'overload'; allowed: a fault, or"),
    "no kind": (TURN + "fault: {times: 2}\n", "3: fault has no kind"),
    "foreign option": (TURN + "fault: {kind: empty, status: 500}\n", "3: fault empty has no key 'status'"),
    "bad status": (
        TURN + "fault: {kind: status, status: 200, times: always}\n",
        "status should be a whole number >= 300, found '200'",
    ),
    "bad times": (TURN + "text: a\n        fault: {kind: cut, times: 0}\n", "4: times should be a whole number"),
    "bad how": (TURN + "fault: {kind: cut, how: hard}\n", "how: found 'hard'; allowed: rst, fin, end"),
    "clean drop": (TURN + "text: a\n        fault: {kind: drop, how: end}\n", "4: a drop is rst or fin"),
    "header injection": (
        TURN + 'text: a\n        fault: {kind: status, headers: {x: "a\\r\\nb"}}\n',
        "4: headers should be text matching regex '^(?:[ -~]*)",
    ),
    "header name": (
        TURN + 'text: a\n        fault: {kind: status, headers: {"x y": a}}\n',
        "4: headers should be text matching regex '^(?:[A-Za-z0-9_-]+)",
    ),
    "endpoint": (
        "faults: [{on: files, fault: drop}]\n" + TURN + "text: a\n",
        "1: on: found 'files'; allowed: models, count_tokens",
    ),
    "stream fault of an endpoint": (
        "faults: [{on: models, fault: garbage}]\n" + TURN + "text: a\n",
        "1: on models, a fault is one of",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_line(name: str) -> None:
    """Found, allowed, and where."""
    text, words = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        parse_script(text, source="my.yaml")
    assert words in caught.value.message
    assert caught.value.message.startswith("my.yaml:")


def test_faults_play_as_often_as_they_say() -> None:
    fault = "[overloaded, {kind: cut, how: rst, after_events: 2, times: always}]"
    (turn,) = parse_script(f"{TURN}text: a\n        fault: {fault}").sessions[0].turns
    assert isinstance(turn, FaultyTurn)
    assert [(fault.kind.value, fault.times) for fault in turn.faults] == [("overloaded", 1), ("cut", "always")]
    assert turn.faults[1].options == {"how": "rst", "after_events": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("thinking: always\n" + TURN + "text: a\n", "1: the script has no key 'thinking'"),
        ("dialect: ollama\n" + TURN + "text: a\n", "1: the script has no key 'dialect'"),
        ("refuses: [ttl]\n" + TURN + "text: a\n", "1: the script has no key 'refuses'"),
        ("faults: []\n" + TURN + "text: a\n", "1: the script has no key 'faults'"),
        (TURN + "text: a\n        fault: drop\n", "4: a turn has no key 'fault'"),
        ("sessions:\n  - aside: false\n    turns: [{text: a}]\n", "2: a session has no key 'aside'"),
        ("model: {id: a, min_cache_tokens: 5}\n" + TURN + "text: a\n", "1: a model has no key 'min_cache_tokens'"),
    ],
)
def test_the_player_does_not_know_these_keys(text: str, words: str) -> None:
    assert parse_script(text).sessions
    with pytest.raises(ConfigError, match=f"{words}.*; allowed: "):
        parse_players(text)
