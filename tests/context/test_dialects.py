"""Endpoints that are not the provider's: sessions work on each, by what is set, said and refused."""

from msgspec import structs

from relay.config.model import Compat, ModelSettings
from relay.runners.messages.connection import EndpointDialect, Fault, FaultKind
from relay.session.events import Noticed, ResponseReceived
from relay.session.prices import UserPrice
from relay.session.values import SessionEnd
from tests.endpoint.faults import DIALECTS

OWN = ModelSettings(window_tokens=200_000, max_output_tokens=16_000)
PRICE = UserPrice(input=0.6, output=2.2).make_price("glm-4.6")


def test_a_session_works_on_every_dialect(talk, turns):
    """Tools, thinking and results go round, and what is counted is what was sent, whoever reports it how."""
    for dialect, how in DIALECTS.items():
        played = [turn | {"thinking": "The file first."} for turn in turns(4)]
        session = talk([{"turns": played}], dialect=dialect, model="glm-4.6", own=OWN, price=PRICE)

        assert session.advance().end is SessionEnd.FINISHED, dialect

        assert session.server.errors == []
        answers = session.seen(ResponseReceived)
        assert len(answers) == len(session.requests) == len(played), dialect
        assert not any(answer.estimated for answer in answers), dialect
        read = sum(answer.usage.cache_read_tokens for answer in answers)
        assert (read > 0) == (how.report in {"", "reads"}), dialect
        assert [answer.usage.prompt_tokens for answer in answers] == [
            sum(request.usage[name] for name in request.usage if name.endswith("input_tokens"))
            for request in session.requests
        ], dialect
        assert session.seen(Noticed) == [], dialect


DISPLAYED = {"type": "adaptive", "display": "summarized"}


def test_what_is_set_of_a_model_is_what_is_sent_of_thinking():
    for model, compat, thinking in (
        ("claude-opus-5-5", Compat(), DISPLAYED),
        ("claude-opus-5-5", Compat(thinking_display=False), {"type": "adaptive"}),
        ("claude-opus-5-5", Compat(thinking="off"), None),
        ("glm-4.6", Compat(), None),
        ("glm-4.6", Compat(thinking="adaptive"), DISPLAYED),
        ("glm-4.6", Compat(thinking="budget"), {"type": "enabled", "budget_tokens": 8_000}),
    ):
        assert EndpointDialect(compat).choose_thinking(model, 16_000).get("thinking") == thinking, (model, compat)
    assert EndpointDialect(Compat(thinking="budget")).choose_thinking("glm-4.6", 1_000) == {}


def test_what_is_set_of_the_cache_is_what_is_marked(talk, turns):
    for cache, request_marked, block_marked in (
        (None, True, False),
        ("request", True, False),
        ("blocks", False, True),
        ("off", False, False),
    ):
        own = structs.replace(OWN, compat=Compat(cache=cache))
        session = talk([{"turns": turns(2)}], model="glm-4.6", own=own)

        assert session.advance().end is SessionEnd.FINISHED

        body = session.requests[-1].body
        assert ("cache_control" in body) == request_marked, cache
        assert ("cache_control" in body["messages"][-1]["content"][-1]) == block_marked, cache
        assert ("cache_control" in body["system"][0]) == (cache != "off"), cache


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


def test_thinking_is_left_out_where_its_signature_is_refused():
    """From the first refusal on, also behind answers that were taken."""
    refused = Fault(kind=FaultKind.REQUEST, message="HTTP 400: messages.1.content.0: Invalid `signature`")
    dialect = EndpointDialect(answered=True)
    assert dialect.render_messages(UNSIGNED) == UNSIGNED
    assert dialect.learn(refused, {"messages": UNSIGNED}) == "thinking of earlier answers"
    bare = dialect.render_messages(UNSIGNED)
    assert [block["type"] for block in bare[1]["content"]] == ["text"]
    assert dialect.learn(refused, {"messages": bare}) == ""


def test_system_messages_go_where_they_are_known_to_be_taken():
    assert EndpointDialect(Compat()).takes("system_messages", "claude-opus-5-5")
    assert not EndpointDialect(Compat()).takes("system_messages", "glm-4.6")
    assert EndpointDialect(Compat(system_messages=True)).takes("system_messages", "glm-4.6")
    assert not EndpointDialect(Compat(system_messages=False)).takes("system_messages", "claude-opus-5-5")


def test_what_was_set_and_learnt_is_said_as_settings():
    """So that the next process need not learn it; the least important part goes first, and each once."""
    marks = {"type": "ephemeral", "ttl": "1h"}
    request = {"system": [{"cache_control": marks}], "cache_control": marks, "messages": UNSIGNED}
    request |= {"thinking": {"type": "adaptive", "display": "summarized"}}
    rows = [
        ("Unknown field: thinking.display", "thinking.display", Compat(pictures=True, thinking_display=False)),
        ("thinking is not supported", "thinking.display", Compat(pictures=True, thinking_display=False)),
        ("cache_control.ttl: extra", "cache_control.ttl", Compat(pictures=True, cache_hour=False)),
        ("cache_control: extra", "cache_control of the request", Compat(pictures=True, cache="blocks")),
        ("something else", "", Compat(pictures=True)),
    ]
    for words, part, known in rows:
        refused = Fault(kind=FaultKind.REQUEST, message=f"HTTP 400: {words}")
        dialect = EndpointDialect(Compat(pictures=True))
        assert (dialect.learn(refused, request), dialect.compat) == (part, known), words
        assert EndpointDialect(answered=True).learn(refused, request) == "", words
    bare = {"system": [{"cache_control": {}}], "messages": UNSIGNED, "thinking": {"type": "adaptive"}}
    dialect = EndpointDialect()
    assert dialect.learn(Fault(kind=FaultKind.REQUEST, message="thinking: no"), bare) == "thinking"
    assert dialect.compat == Compat(thinking="off")
