"""Endpoints that are not the provider's: sessions work on each, by what is set, said and refused."""

import pytest

from relay.config.model import Compat, ModelSettings
from relay.runners.messages.connection import EndpointDialect, Fault, FaultKind, RequestPart, make_dialect
from relay.session.events import Noticed, ResponseReceived
from relay.session.prices import UserPrice
from relay.session.values import SessionEnd
from tests.endpoint.faults import DIALECTS

OWN = ModelSettings(window_tokens=200_000, max_output_tokens=16_000)
PRICE = UserPrice(input=0.6, output=2.2).make_price("glm-4.6")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_session_works_on_every_dialect(talk, turns, dialect):
    """Tools, thinking and results go round, and what is counted is what was sent, whoever reports it how."""
    played = [turn | {"thinking": "The file first."} for turn in turns(4)]
    session = talk([{"turns": played}], dialect=dialect, model="glm-4.6", own=OWN, price=PRICE)

    assert session.advance().end is SessionEnd.FINISHED

    assert session.server.errors == []
    answers = session.seen(ResponseReceived)
    assert len(answers) == len(session.requests) == len(played)
    assert not any(answer.estimated for answer in answers)
    billed = [request.usage for request in session.requests]
    read = sum(answer.usage.cache_read_tokens for answer in answers)
    assert (read > 0) == (DIALECTS[dialect].report in {"", "reads"})
    assert [answer.usage.prompt_tokens for answer in answers] == [
        sum(usage[name] for name in usage if name.endswith("input_tokens")) for usage in billed
    ]
    assert session.seen(Noticed) == []


def test_the_hour_is_left_out_before_the_cache_is(talk, turns):
    """Who does not take a lifetime takes the marks without."""
    session = talk(
        [{"turns": turns(3)}], dialect="fireworks", model="glm-4.6", own=OWN, slowest_turn_s=301.0, result=9_000
    )

    assert session.advance().end is SessionEnd.FINISHED

    assert session.requests[-1].body["cache_control"] == {"type": "ephemeral"}
    assert "cache_control.ttl" in session.seen(Noticed)[0].text


@pytest.mark.parametrize(
    ("model", "compat", "thinking"),
    [
        ("claude-opus-5-5", Compat(), {"type": "adaptive", "display": "summarized"}),
        ("claude-opus-5-5", Compat(thinking_display=False), {"type": "adaptive"}),
        ("claude-opus-5-5", Compat(thinking="off"), None),
        ("glm-4.6", Compat(), None),
        ("glm-4.6", Compat(thinking="adaptive"), {"type": "adaptive", "display": "summarized"}),
        ("glm-4.6", Compat(thinking="budget"), {"type": "enabled", "budget_tokens": 8_000}),
    ],
)
def test_what_is_set_of_a_model_is_what_is_sent_of_thinking(model, compat, thinking):
    assert make_dialect(compat).choose_thinking(model, 16_000).get("thinking") == thinking
    assert make_dialect(Compat(thinking="budget")).choose_thinking(model, 1_000) == {}


@pytest.mark.parametrize(
    ("cache", "request_marked", "block_marked"),
    [(None, True, False), ("request", True, False), ("blocks", False, True), ("off", False, False)],
)
def test_what_is_set_of_the_cache_is_what_is_marked(talk, turns, cache, request_marked, block_marked):
    own = ModelSettings(window_tokens=200_000, max_output_tokens=16_000, compat=Compat(cache=cache))
    session = talk([{"turns": turns(2)}], model="glm-4.6", own=own)

    assert session.advance().end is SessionEnd.FINISHED

    body = session.requests[-1].body
    assert ("cache_control" in body) == request_marked
    assert ("cache_control" in body["messages"][-1]["content"][-1]) == block_marked
    assert ("cache_control" in body["system"][0]) == (cache != "off")


UNSIGNED = [
    {"role": "user", "content": [{"type": "text", "text": "go"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "x"},
        ],
    },
]


def test_thinking_that_nobody_signed_is_left_out_where_a_signature_is_wanted():
    """Known from the settings, or from the first refusal, also behind answers that were taken."""
    refused = Fault(kind=FaultKind.REQUEST, message="HTTP 400: messages.1.content.0: Invalid `signature`")
    dialect = EndpointDialect(answered=True)
    assert dialect.render_messages(UNSIGNED) == UNSIGNED
    assert dialect.learn(refused, {"messages": UNSIGNED}) is RequestPart.UNSIGNED
    kept = dialect.render_messages(UNSIGNED)
    assert [block.get("signature") for block in kept[1]["content"]] == ["s", None]
    assert kept[0] == UNSIGNED[0]
    assert make_dialect(Compat(unsigned_thinking=False)).render_messages(UNSIGNED) == kept
    # What another has signed is nothing that this one takes.
    assert dialect.learn(refused, {"messages": kept}) is RequestPart.EARLIER
    bare = dialect.render_messages(UNSIGNED)
    assert [block["type"] for block in bare[1]["content"]] == ["text"]
    assert dialect.learn(refused, {"messages": bare}) is None


def test_system_messages_go_where_they_are_known_to_be_taken():
    assert make_dialect(Compat()).takes_system("claude-opus-5-5")
    assert not make_dialect(Compat()).takes_system("glm-4.6")
    assert make_dialect(Compat(system_messages=True)).takes_system("glm-4.6")
    assert not make_dialect(Compat(system_messages=False)).takes_system("claude-opus-5-5")


def test_what_was_set_and_learnt_is_said_as_settings():
    """So that the next process need not learn it."""
    for compat in (
        Compat(),
        Compat(cache="blocks", thinking_display=False),
        Compat(cache="off", thinking="off", cache_hour=False, unsigned_thinking=False, system_messages=False),
        Compat(thinking="budget", system_messages=True),
    ):
        assert make_dialect(compat).say_learnt() == compat
