"""What a session's requests count as, from what the gateway saw of them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from relay.runners.agents.account import MAX_REFUSED, AgentAccount, count_most_tokens
from relay.runners.agents.dialects import MESSAGES, ModelRequest, Tally
from relay.runners.agents.gateway import Passed
from relay.runners.base import Callbacks, ModelInfo, SessionSpec
from relay.runners.messages.connection import Fault, FaultKind
from relay.runners.messages.reading import LEAST_ANSWER_S
from relay.session.events import Noticed, ResponseReceived
from relay.session.gauge import Zone, parse_reset_at
from relay.session.prices import UserPrice
from relay.session.values import SessionEnd, SessionOutcome, ToolResult

OWN, CHEAP, DEAR = (
    UserPrice(input=usd, output=2 * usd).make_price(name) for name, usd in (("own", 5), ("cheap", 1), ("dear", 50))
)
REQUEST = ModelRequest(
    dialect=MESSAGES, model="own", is_main=True, prompt_bytes=3_000, max_output_tokens=6_000, is_streamed=True
)
BROKEN = Fault(kind=FaultKind.INFRA, message="the answer broke off", may_be_billed=True)


MODEL = ModelInfo(id="own", window_tokens=200_000, max_output_tokens=8_000, rehearsed=False, source="")


def make_spec(check=lambda *_: None, *, most=None):
    return SessionSpec(
        session_id="s", model="own", system="", tools=(), price=OWN, reset_at=parse_reset_at("100k"),
        callbacks=Callbacks(run_tool=lambda _: ToolResult(text=""), render_soft_notice=lambda *_: ""),
        check_budget=check, max_output_tokens=most, find_price={"cheap": CHEAP, "dear": DEAR}.get,
    )  # fmt: skip


def open_account(check=lambda *_: None, *, sets_limits=True, most=None):
    told: list[Any] = []
    spec = make_spec(check, most=most)
    return AgentAccount(spec, MODEL, told.append, max_wait_s=600, sets_limits=sets_limits), told


def make_tally(*, model="own", stop="end_turn", **usage):
    tally = Tally(dialect=MESSAGES, streamed=False)
    tally.feed(json.dumps({"type": "message", "model": model, "stop_reason": stop, "usage": usage}).encode())
    tally.close()
    return tally


def list_spent(told):
    found = [event for event in told if isinstance(event, ResponseReceived)]
    return [(use.prompt_tokens, use.output_tokens, event.estimated) for event in found if (use := event.usage)]


def test_a_text_has_a_token_for_each_three_bytes_at_most():
    """An estimate that is too low would let a request pass that crosses the cap."""
    assert [count_most_tokens(size) for size in (0, 1, 3, 4, 3_000)] == [0, 1, 1, 2, 1_000]


def test_an_answer_counts_as_what_the_endpoint_said():
    account, told = open_account()
    account.look_at(REQUEST)
    account.start(REQUEST)
    account.finish(Passed(request=REQUEST, tally=make_tally(input_tokens=900, output_tokens=70), fault=None))
    assert list_spent(told) == [(900, 70, False)]
    assert not account.is_waiting


def test_an_answer_that_has_no_end_is_overdue_after_the_time_that_the_longest_may_take():
    account, _ = open_account()
    account.look_at(REQUEST)
    account.start(REQUEST)
    assert not account.is_overdue
    account._open = {key: (sent, at - LEAST_ANSWER_S - 1) for key, (sent, at) in account._open.items()}
    assert account.is_overdue


def test_a_request_without_an_answer_when_the_session_ends_counts_once_at_its_most():
    account, told = open_account()
    account.look_at(REQUEST)
    account.start(REQUEST)
    account.close()
    account.close()
    ((prompt, output, estimated),) = list_spent(told)
    assert (prompt >= 1_000, output, estimated) == (True, 6_000, True)


def test_a_request_that_was_never_sent_counts_for_nothing():
    account, told = open_account()
    account.start(REQUEST)
    account.finish(Passed(request=REQUEST, tally=None, fault=replace(BROKEN, may_be_billed=False)))
    account.finish(Passed(request=REQUEST, tally=make_tally(input_tokens=1, output_tokens=1), fault=None))
    assert list_spent(told) == []


def test_a_request_that_is_sent_again_is_checked_and_counted_with_its_whole_prompt():
    """What was sent once without an answer is no part of the context that the endpoint has counted."""
    asked: list[int] = []
    account, told = open_account(lambda prompt, _: asked.append(prompt))
    for _ in range(2):
        account.look_at(REQUEST)
        account.check(REQUEST)
        account.start(REQUEST)
        account.finish(Passed(request=REQUEST, tally=None, fault=BROKEN))
    assert asked == [1_000, 1_000]
    assert list_spent(told) == [(1_000, 6_000, True)] * 2


def test_an_endpoint_that_counts_nothing_still_fills_the_context():
    """The lines hold by relay's own count of all that was sent."""
    account, _ = open_account()
    fills = []
    for size in (150_000, 240_000, 360_000):
        request = replace(REQUEST, prompt_bytes=size)
        account.look_at(request)
        fills.append((account.gauge.least_tokens, account.gauge.zone))
        account.start(request)
        account.finish(Passed(request=request, tally=make_tally(), fault=None))
    assert fills == [(50_000, Zone.CLEAR), (80_000, Zone.CONSOLIDATE), (120_000, Zone.HARD)]
    assert account.check_lines() is not None


def test_what_was_measured_is_not_estimated_again():
    """The next request holds the answer before it, which the endpoint has counted."""
    account, _ = open_account()
    account.look_at(REQUEST)
    account.start(REQUEST)
    account.finish(Passed(request=REQUEST, tally=make_tally(input_tokens=900, output_tokens=70), fault=None))
    account.look_at(replace(REQUEST, prompt_bytes=REQUEST.prompt_bytes + 70 * 4 + 300))
    assert account.gauge.least_tokens == 970 + 100


def test_a_model_that_answers_instead_and_a_count_that_cannot_be_are_said_once():
    account, told = open_account()
    for _ in range(2):
        account.look_at(REQUEST)
        account.start(REQUEST)
        tally = make_tally(model="cheap", input_tokens=900_000, output_tokens=70)
        account.finish(Passed(request=REQUEST, tally=tally, fault=None))
    words = [event.text for event in told if isinstance(event, Noticed)]
    assert [text.partition(":")[0] for text in words] == [
        "cheap answers, not own; its price counts",
        "the endpoint reports 900,000 tokens for a prompt of about 1,000",
    ]


def test_an_answer_that_broke_off_counts_at_its_most():
    account, told = open_account()
    account.look_at(REQUEST)
    account.start(REQUEST, 4_000)
    account.finish(Passed(request=REQUEST, tally=make_tally(), fault=BROKEN))
    ((_, output, estimated),) = list_spent(told)
    assert (output, estimated) == (4_000, True)


def test_a_model_that_answers_instead_is_charged_at_its_own_price():
    account, told = open_account()
    for model in ("own", "cheap", "unknown"):
        account.start(REQUEST)
        tally = make_tally(model=model, input_tokens=100_000, output_tokens=1_000)
        account.finish(Passed(request=REQUEST, tally=tally, fault=None))
    costs = [event.cost_usd for event in told if isinstance(event, ResponseReceived)]
    assert costs == pytest.approx([0.51, 0.102, 0.51])


def test_a_model_whose_price_is_not_known_to_be_within_the_sessions_is_not_asked():
    """The cap is checked at the session's own price."""
    account, _ = open_account()
    for model in ("dear", "unknown"):
        refused = account.check(replace(REQUEST, model=model))
        assert isinstance(refused, SessionOutcome)
        assert refused.end is SessionEnd.DENIED
    assert account.check(replace(REQUEST, model="cheap")) is None


def test_a_request_is_checked_with_all_that_wait_beside_it():
    asked: list[tuple[int, int]] = []
    account, _ = open_account(lambda prompt, output: asked.append((prompt, output)))
    title = replace(REQUEST, is_main=False, prompt_bytes=300, max_output_tokens=500)
    account.start(title)
    assert account.check(replace(title, prompt_bytes=600)) is None
    assert asked == [(300, 1_000)]


def test_a_request_without_a_limit_gets_one_or_is_checked_at_the_models():
    """Not every agent takes a limit that relay sets."""
    for sets_limits, asked_for, fit in ((True, 5_000, 5_000), (False, 8_000, None)):
        asked: list[int] = []
        account, _ = open_account(lambda _, output: asked.append(output), sets_limits=sets_limits, most=5_000)  # noqa: B023
        assert (account.check(replace(REQUEST, max_output_tokens=None)), asked[-1]) == (fit, asked_for)


def test_a_request_is_not_sent_where_the_cap_has_no_room():
    """Nor is the agent started."""
    account, _ = open_account(lambda *_: "the cap is reached")
    for found in (account.check(REQUEST), account.fit_first(1_000)):
        assert isinstance(found, SessionOutcome)
        assert (found.end, found.detail) == (SessionEnd.BUDGET, "the cap is reached")


def test_under_a_small_cap_answers_are_shorter_and_one_that_is_cut_there_ends_the_session():
    account, _ = open_account(lambda _, output: "too dear" if output > 4_500 else None)
    greedy = replace(REQUEST, max_output_tokens=128_000)
    assert account.fit_first(1_000) == account.check(greedy) == 4_000
    account.start(greedy, 4_000)
    tally = make_tally(stop="max_tokens", input_tokens=900, output_tokens=4_000)
    account.finish(Passed(request=greedy, tally=tally, fault=None))
    cut = account.check_cut()
    assert cut is not None
    assert (cut.end, cut.detail) == (
        SessionEnd.BUDGET, "an answer was cut at 4,000 tokens, the most that the caps leave: too dear"
    )  # fmt: skip


def test_an_endpoint_that_refuses_each_form_of_a_request_ends_the_session():
    account, _ = open_account()
    for refused in range(MAX_REFUSED):
        assert account.ended is None, refused
        account.start(REQUEST)
        fault = Fault(kind=FaultKind.REQUEST, message="bad request")
        account.finish(Passed(request=REQUEST, tally=None, fault=fault))
    assert account.ended is not None
    assert account.ended.end is SessionEnd.API_FAILED
    assert account.check(REQUEST) is account.ended


def test_a_request_of_which_nothing_came_back_or_that_was_begun_counts():
    """Whoever reported usage has worked, whatever the fault says of itself."""
    account, told = open_account()
    for tally, fault in ((None, None), (make_tally(input_tokens=900), replace(BROKEN, may_be_billed=False))):
        account.look_at(REQUEST)
        account.start(REQUEST)
        account.finish(Passed(request=REQUEST, tally=tally, fault=fault))
    assert [(output, estimated) for _, output, estimated in list_spent(told)] == [(6_000, True), (6_000, True)]


def test_an_answer_of_no_tokens_is_known_only_of_a_refusal():
    for stop, output, estimated in (("refusal", 0, False), ("end_turn", 6_000, True)):
        account, told = open_account()
        tally = make_tally(stop=stop, input_tokens=900, output_tokens=0)
        account.start(REQUEST)
        account.finish(Passed(request=REQUEST, tally=tally, fault=None))
        assert list_spent(told) == [(900, output, estimated)], stop


def test_the_conversations_own_answers_alone_are_its_fill_its_turns_and_its_end():
    account, told = open_account()
    title = replace(REQUEST, is_main=False)
    for request, usage in ((REQUEST, 900), (title, 50)):
        account.start(request)
        tally = make_tally(stop="end_turn" if request.is_main else "max_tokens", input_tokens=usage, output_tokens=70)
        account.finish(Passed(request=request, tally=tally, fault=None))
    assert (account.turn, account.gauge.fill_tokens, account.stop_reason) == (1, 970, "end_turn")
    assert [event.turn for event in told if isinstance(event, ResponseReceived)] == [1, 0]


def test_a_fault_is_the_conversations_own_and_what_is_sent_again_is_no_further_turn():
    account, _ = open_account()
    faults = []
    for request in (replace(REQUEST, is_main=False), REQUEST):
        account.start(request)
        account.finish(Passed(request=request, tally=None, fault=BROKEN))
        faults.append(account.fault)
    account.start(REQUEST)
    assert (faults, account.turn) == ([None, BROKEN], 1)
