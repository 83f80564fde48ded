"""The gauge over the real SDK: what it counts, what it tells the model, where it stops."""

import json
from dataclasses import replace

from relay.prompts.texts import render_band_notice
from relay.runners.messages.answers import parse_api_usage
from relay.runners.messages.conversation import Conversation
from relay.session.events import GaugeCrossed, Noticed, ResponseReceived, ToolFinished
from relay.session.gauge import parse_reset_at
from relay.session.prices import cost_usd, find_price
from relay.session.usage import Usage
from relay.session.values import SessionEnd

READ, WRITTEN = "cache_read_input_tokens", "cache_creation_input_tokens"


def used(request):
    """What the endpoint says is in the context after a response."""
    return sum(request.usage[key] for key in ("input_tokens", READ, WRITTEN, "output_tokens"))


def test_every_token_is_counted_once(talk, turns):
    """Parallel calls, cache reads and writes, thinking: the fill is what the endpoint reported."""
    for parallel in (1, 6):
        session = talk([{"turns": turns(4, parallel=parallel, thinking="x" * 2_439)}], result=3_000)

        session.advance()

        fills = [response.fill_tokens for response in session.seen(ResponseReceived)]
        assert fills == [used(request) for request in session.requests]
        assert [r.usage.thinking_tokens for r in session.seen(ResponseReceived)][:4] == [700] * 4
        assert len(session.calls) == 4 * parallel


def find_notices(session):
    """(request, role, block) of every soft notice that was sent."""
    return [
        (number, message["role"], place, block["text"])
        for number, request in enumerate(session.requests)
        for message in request.body["messages"][-2:]
        for place, block in enumerate(message["content"])
        if "planned line" in block.get("text", "")
    ]


def test_the_soft_notice_is_told_once_behind_the_results_and_keeps_the_cache(talk, turns):
    """As a system message where the model takes one; the next request still reads all that was there."""
    for model, role in (("claude-opus-5-5", "system"), ("claude-sonnet-4-6", "user")):
        session = talk([{"turns": turns(5)}], result=9_000, model=model, reset_at=parse_reset_at("9k"))

        outcome = session.advance()

        assert outcome.end is SessionEnd.FINISHED
        (number, said_by, place, words), *again = find_notices(session)
        assert [n for n, *_ in again] in ([], [number + 1])
        assert (said_by, place > 0) == (role, role == "user")
        assert "not a request to finish early" in words
        told, before = session.requests[number], session.requests[number - 1]
        assert told.body["messages"][-1]["role"] == role
        assert told.usage[READ] >= sum(before.usage[key] for key in ("input_tokens", READ, WRITTEN))
        assert [c.line for c in session.seen(GaugeCrossed)] == ["soft"]


def test_in_the_consolidate_band_the_model_is_told_once_in_one_sentence(talk, turns):
    """Behind the results, on the same cache; and where one result passes the soft line too, only of that."""
    told: list[tuple[int, int]] = []

    def render(fill, line):
        told.append((fill, line))
        return render_band_notice(fill, line)

    session = talk([{"turns": turns(5)}], result=6_000, reset_at=parse_reset_at("12k"))
    session.renew(callbacks=replace(session.spec.callbacks, render_band_notice=render))
    session.advance()

    [(fill, line)] = told
    assert 7_800 <= fill < line == 12_000
    assert [c.line for c in session.seen(GaugeCrossed)] == ["consolidate", "soft"]
    at = [n for n, r in enumerate(session.requests) if "planned for this session" in json.dumps(r.body["messages"][-1])]
    assert len(at) == 1
    words = session.requests[at[0]].body["messages"][-1]["content"][-1]["text"]
    assert words.count(".") == 1
    assert f"{fill:,} of the 12,000 tokens" in words
    before = session.requests[at[0] - 1]
    assert session.requests[at[0]].usage[READ] >= sum(before.usage[key] for key in ("input_tokens", READ, WRITTEN))

    far = talk([{"turns": turns(3)}], result=30_000, reset_at=parse_reset_at("9k"))
    far.renew(callbacks=replace(far.spec.callbacks, render_band_notice=render))
    far.advance()
    assert next(c.line for c in far.seen(GaugeCrossed)) == "soft"
    assert len(told) == 1


def test_the_hard_line_stops_at_the_boundary_with_every_call_run(talk, turns):
    """Two results pass both lines at once: both calls were answered, nothing more is sent."""
    session = talk([{"turns": turns(9, parallel=2)}], result=36_000, reset_at=parse_reset_at("9k"))

    outcome = session.advance()

    assert outcome.end is SessionEnd.HARD_LINE
    assert len(session.requests) == 1
    assert [done.is_error for done in session.seen(ToolFinished)] == [False, False]
    assert len(session.calls) == 2
    assert [c.line for c in session.seen(GaugeCrossed)] == ["hard"]


def test_a_notice_that_the_endpoint_does_not_take_is_said_as_text(talk, turns):
    """The hand-over does not hang on one form of a message; what was refused once is not tried again."""
    session = talk([{"turns": turns(4)}] * 2, result=9_000, reset_at=parse_reset_at("9k"), refuses=["system_messages"])

    assert session.advance().end is SessionEnd.FINISHED

    (number, said_by, place, _), *_ = find_notices(session)
    assert (said_by, place > 0) == ("user", True)
    assert session.requests[number].usage[READ] > 0
    (told,) = session.seen(Noticed)
    assert told.text.startswith("the endpoint does not take system messages in mid-conversation: left out (HTTP 400 ")
    refused = len(session.server.requests) - len(session.requests)
    session.renew()
    assert session.advance().end is SessionEnd.FINISHED
    assert len(session.server.requests) - len(session.requests) == refused


def test_what_an_endpoint_does_not_take_of_a_request_is_left_out(talk, turns):
    """The least that helps, and the cache is used as long as any mark is taken."""
    for refuses, *more in (
        ["display"],
        ["thinking", "display"],
        ["cache_control"],
        ["cache_control", "marks"],
    ):
        lacks = {refuses, *more}
        session = talk([{"turns": turns(3)}], result=9_000, refuses=[refuses, *(set(more) - {"display"})])

        assert session.advance().end is SessionEnd.FINISHED

        body, last = session.requests[-1].body, session.requests[-1].body["messages"][-1]["content"][-1]
        assert ("thinking" in body) == ("thinking" not in lacks), lacks
        assert ("display" in body.get("thinking", {})) == ("display" not in lacks), lacks
        assert ("cache_control" in body) == ("cache_control" not in lacks), lacks
        assert ("cache_control" in last) == ("cache_control" in lacks and "marks" not in lacks), lacks
        assert (session.requests[-1].usage[READ] > 0) == ("marks" not in lacks), lacks
        refused = len(session.server.requests) - len(session.requests) - 1  # and the Models API
        assert len(session.seen(Noticed)) == refused, lacks


def test_an_endpoint_that_counts_a_part_is_not_believed(talk, turns):
    """Only what was not in the cache is reported: the lines, and the most that it can cost, go by relay's own count."""
    sessions = [{"turns": turns(30, fault={"kind": "usage", "report": "uncached", "times": "always"})}]
    session = talk(sessions, result=8_000, reset_at=parse_reset_at("20k"))

    assert session.advance().end is SessionEnd.HARD_LINE

    assert [c.line for c in session.seen(GaugeCrossed)] == ["soft", "hard"]
    assert session.seen(ResponseReceived)[-1].estimated
    billed = sum(cost_usd(parse_api_usage(r.usage) or Usage(), session.spec.price) for r in session.requests)
    assert billed <= sum(r.cost_usd for r in session.seen(ResponseReceived))
    assert len([n for n in session.seen(Noticed) if "uses its own count" in n.text]) == 1


def test_a_session_ends_after_so_many_turns(talk, turns):
    """Whatever is counted: as one that came to its hard line."""
    session = talk([{"turns": turns(9)}], max_turns=4)

    outcome = session.advance()

    assert (outcome.end, outcome.detail) == (SessionEnd.HARD_LINE, "4 turns in one session")
    assert len(session.requests) == 4


def test_a_first_prompt_over_the_lines_is_not_the_phases_fault(talk, turns):
    """Over the hard line nothing is sent, and what to change is said; over the soft line alone it is a warning."""
    session = talk([{"turns": turns(1)}])
    small = replace(session.runner.get_model(session.model), window_tokens=2_000)
    session.session = Conversation(session.runner.connection, session.spec, small)

    outcome = session.advance()

    assert (outcome.end, session.requests) == (SessionEnd.DENIED, [])
    assert "the first prompt of a session has about" in outcome.detail
    session.renew(reset_at=parse_reset_at("1k"))
    assert session.advance().end is SessionEnd.FINISHED
    assert "over the reset line of 1,000: it is asked" in session.seen(Noticed)[0].text


def test_who_answers_is_priced_and_named(talk, turns):
    """Not who was asked; a price that nobody knows is the one that was asked for."""
    for model, known in (("claude-fable-5-2", True), ("acme-1", False)):
        sessions = [{"turns": turns(2, fault={"kind": "other_model", "model": model})}]
        session = talk(sessions, find_price=find_price)

        session.advance()

        counted = find_price(model) or session.spec.price
        answered = [r for r in session.seen(ResponseReceived) if r.model == model]
        assert len(answered) == 2
        assert all(r.cost_usd == cost_usd(r.usage, counted) for r in answered)
        (told,) = session.seen(Noticed)
        assert told.text.startswith(f"{model} answers, not claude-opus-5-5; its price ")
        assert ("not known" in told.text) != known


def test_an_answer_that_is_cut_twice_is_to_come_in_parts_and_nothing_of_it_was_run(talk):
    """The model is told in the result of each call, or in a message where there is none: both can be sent."""
    reads = [{"name": "read", "input": {"path": name}} for name in ("a.py", "b" * 400)]
    for turn, kind in (({"text": "word " * 90}, "text"), ({"tools": reads}, "tool_result")):
        session = talk([{"turns": [{**turn, "fault": {"kind": "max_tokens", "times": 2}}, {"text": "Done."}]}])
        assert session.advance().end is SessionEnd.FINISHED, kind
        told = session.requests[2].body["messages"][-1]["content"]
        assert [block["type"] for block in told] == [kind] * len(turn.get("tools", "1"))
        assert "Write long files in several smaller steps." in str(told)
        assert session.calls == []
        assert session.server.errors == []
