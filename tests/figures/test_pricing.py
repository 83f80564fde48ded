"""Prices, costs, caps and the fallback table of model limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.session.prices import (
    Budget,
    Price,
    UserPrice,
    charge_request,
    cost_usd,
    find_limits,
    find_price,
    list_limits,
    list_prices,
    suggest_models,
    worst_cost_usd,
)
from relay.session.usage import Spent, Usage

WORST = Usage(input_tokens=500, output_tokens=32_000)
MOST = Usage(input_tokens=200_000, output_tokens=64_000)


CHARGED = (
    (Usage(cache_read_tokens=400, output_tokens=10, thinking_tokens=4), None),
    (Usage(input_tokens=400, output_tokens=64_000), None),
    (None, WORST),
    (Usage(), WORST),
    (Usage(cache_read_tokens=400), Usage(cache_read_tokens=400, output_tokens=32_000)),
    (Usage(output_tokens=5, thinking_tokens=4), Usage(input_tokens=500, output_tokens=5, thinking_tokens=4)),
    (Usage(input_tokens=99, output_tokens=10), Usage(input_tokens=500, output_tokens=10)),
    (Usage(input_tokens=400, output_tokens=2), Usage(input_tokens=400, output_tokens=32_000)),
    (Usage(input_tokens=10**15, output_tokens=10), Usage(input_tokens=500, output_tokens=10)),
    (Usage(input_tokens=400, output_tokens=10**15), Usage(input_tokens=400, output_tokens=32_000)),
)


def test_what_is_not_said_or_cannot_be_counts_as_the_most_that_it_can_be() -> None:
    """Prompt and answer each for itself; of a prompt that nobody counted the dearest class is charged."""
    price, least = get_price("claude-opus-4-8"), Usage(input_tokens=100, output_tokens=3)
    for said, counted in CHARGED:
        found = charge_request(said, price, worst=WORST, least=least, most=MOST)
        assert (found.usage, found.estimated) == (counted or said, counted is not None), said
        is_guess = found.usage.input_tokens == WORST.input_tokens
        own = worst_cost_usd(500, found.usage.output_tokens, price) if is_guess else cost_usd(found.usage, price)
        assert found.cost_usd == own, said
        assert charge_request(said, None, worst=WORST, least=least, most=MOST).cost_usd is None, said


def test_an_answer_of_which_nothing_is_said_is_charged_whole_also_where_it_may_be_empty() -> None:
    found = charge_request(None, None, worst=WORST, least=Usage(), most=MOST)
    assert found == Spent(usage=WORST, cost_usd=None, estimated=True)


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    pairs: tuple[tuple[float | None, float | None], ...] = ((None, 1.0), (1.0, None), (None, None))
    assert [(Spent(cost_usd=one) + Spent(cost_usd=other)).cost_usd for one, other in pairs] == [None] * 3


TOKENS = st.integers(0, 3_000_000)
USAGES = st.builds(
    Usage,
    input_tokens=TOKENS,
    cache_read_tokens=TOKENS,
    cache_write_5m_tokens=TOKENS,
    cache_write_1h_tokens=TOKENS,
    output_tokens=TOKENS,
)


def get_price(model: str) -> Price:
    price = find_price(model)
    assert price
    return price


def test_the_table_holds_the_published_prices() -> None:
    rows = {
        "claude-opus-5-5": (4, 20, 5, 8, 0.20),
        "claude-sonnet-5-5": (2, 10, 2.5, 4, 0.10),
        "claude-fable-5-1": (10, 50, 12.5, 20, 0.25),
        "claude-haiku-4-5": (1, 5, 1.25, 2, 0.10),
        "claude-opus-5": (5, 25, 6.25, 10, 0.50),
    }
    found = {model: get_price(model).rates for model in rows}
    assert {n: (one.input, one.output, one.write_5m, one.write_1h, one.read) for n, one in found.items()} == rows


def test_every_row_follows_the_provider_s_write_multiples_and_has_limits() -> None:
    for price in list_prices().values():
        for rates in filter(None, (price.rates, price.long_rates)):
            assert rates.write_5m == pytest.approx(1.25 * rates.input), price
            assert rates.write_1h == pytest.approx(2 * rates.input), price
            assert 0 < rates.read <= 0.1 * rates.input + 1e-9, price
    assert set(list_prices()) == set(list_limits())


ALIASES = """\
claude-haiku-4-5 claude-haiku-4-5-20251001 claude-haiku-4-5@20251001 anthropic/claude-haiku-4.5 claude-haiku-4-5[1m]
anthropic/claude-haiku-4-5-20251001 Claude-Haiku-4-5-20251001[1m] us.anthropic.claude-haiku-4-5-20251001-v1:0
global.anthropic.claude-haiku-4-5-20251001-v1:0[1m] us-gov.anthropic.claude-haiku-4-5-v1 claude-haiku-4-5@default
anthropic.claude-haiku-4-5-v1:0:200k anthropic.claude-haiku-4-5 anthropic/claude-haiku-4.5:online
arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-haiku-4-5-20251001-v1:0
projects/p/locations/global/publishers/anthropic/models/claude-haiku-4-5@20251001
"""
UNKNOWN = (
    *("", "gpt-5", "claude-mythos-5-2", "claude-opus-5-5-turbo", "other/claude-opus-5-5", "claude-opus-5-5:online"),
    *("amazon.nova-pro-v1:0", "meta.anthropic.claude", "x@default"),
)


def test_other_spellings_of_a_model_have_its_price_and_limits_and_an_unknown_model_has_none() -> None:
    limits = list_limits()["claude-haiku-4-5"]
    for alias in ALIASES.split():
        assert (get_price(alias).model, find_limits(alias)) == ("claude-haiku-4-5", limits), alias
    assert [model for model in UNKNOWN if find_price(model) is not None] == []


def test_every_class_is_billed_at_its_own_rate() -> None:
    usage = Usage(
        input_tokens=1_000_000, cache_read_tokens=1_000_000, cache_write_5m_tokens=1_000_000,
        cache_write_1h_tokens=1_000_000, output_tokens=1_000_000, thinking_tokens=900_000,
    )  # fmt: skip
    assert cost_usd(usage, get_price("claude-opus-5-5")) == pytest.approx(4 + 0.2 + 5 + 8 + 20)


def test_a_long_prompt_is_billed_whole_at_the_long_rate() -> None:
    price = get_price("claude-haiku-5-5")
    edge = Usage(input_tokens=20_000, cache_read_tokens=80_000, output_tokens=1_000)
    over = Usage(input_tokens=20_001, cache_read_tokens=80_000, output_tokens=1_000)
    assert cost_usd(edge, price) == pytest.approx(0.002 + 0.0008 + 0.0005)
    assert cost_usd(over, price) == pytest.approx(0.0100005 + 0.004 + 0.0025)


@given(USAGES, st.sampled_from([*list_prices().values()]), st.integers(0, 10_000), st.integers(0, 10_000))
def test_no_response_costs_more_than_its_worst_case(usage: Usage, price: Price, more: int, room: int) -> None:
    worst = worst_cost_usd(usage.prompt_tokens + more, usage.output_tokens + room, price)
    assert cost_usd(usage, price) <= worst + 1e-9


def test_a_user_s_price_wins_and_follows_the_usual_multiples() -> None:
    own = (
        UserPrice(input=1, output=2).make_price("house-model"),
        UserPrice(input=1, output=1, read=1).make_price("claude-opus-5"),
    )
    price = find_price("house-model", overrides=own)
    assert price
    assert (price.rates.write_5m, price.rates.write_1h) == (1.25, 2)
    assert price.rates.read == pytest.approx(0.1)
    other = find_price("anthropic/claude-opus-5", overrides=own)
    assert other
    assert other.rates.read == 1


def test_a_request_that_could_cross_the_cap_is_stopped_before_it_is_sent() -> None:
    budget = Budget(run_cap_usd=20.0).charge(19.5, 1_000)
    assert budget.check(0.5, 10) is None
    assert budget.check(0.51, 10) == (
        "the next request may cost 0.51 USD; 19.50 of the run's cap of 20.00 USD are spent; --max-cost raises it"
    )


def test_a_phase_has_its_own_cap_and_starts_anew() -> None:
    budget = Budget(run_cap_usd=20.0, phase_cap_usd=2.0).charge(1.9, 10)
    assert "phase's cap of 2.00" in str(budget.check(0.2, 10))
    assert budget.open_phase().check(0.2, 10) is None
    assert "phase's cap" in str(budget.open_phase(1.95).check(0.2, 10))


def test_a_token_cap_counts_prompt_and_output() -> None:
    budget = Budget(run_cap_usd=None, token_cap=1_000).charge(None, 900)
    assert budget.check(None, 100) is None
    assert (
        budget.check(None, 101)
        == "the next request may use 101 tokens; 900 of the cap of 1,000 are used; RELAY_MAX_TOKENS_TOTAL raises it"
    )


def test_an_unknown_price_stops_a_run_that_only_has_a_money_cap() -> None:
    budget = Budget(run_cap_usd=20.0)
    assert "the model's price is unknown" in str(budget.check(None, 1))
    assert "what the run has cost so far is unknown" in str(budget.charge(None, 5).check(0.1, 1))
    assert Budget(run_cap_usd=20.0, token_cap=10).check(None, 1) is None
    assert Budget(run_cap_usd=None).check(None, 10**9) is None


@given(st.lists(st.floats(0, 5)), st.floats(0, 5), st.floats(0.1, 20))
def test_what_passes_the_check_never_crosses_the_cap(spent: list[float], worst: float, cap: float) -> None:
    budget = Budget(run_cap_usd=cap)
    for usd in spent:
        if budget.check(usd, 0) is None:
            budget = budget.charge(usd, 0)
    assert budget.run_usd is not None
    assert budget.run_usd <= cap
    assert (budget.check(worst, 0) is None) == (budget.run_usd + worst <= cap)


def test_who_may_be_meant_by_a_name_that_nobody_knows() -> None:
    rows = {
        "claude-opus-55": "claude-opus-5-5 or claude-opus-5 or",
        "opus": "claude-opus-5-5 or claude-opus-5 or claude-opus-4-8?",
        "anthropic/claude-haiku-5.6": "claude-haiku-5-5 or",
        "my-mdel": "my-model?",
        **dict.fromkeys(("gpt-5", "", "claude-opus-5-5"), ""),
    }
    for model, near in rows.items():
        words = suggest_models(model, ["my-model"])
        assert words.startswith(f" (did you mean {near}" if near else ""), model
        assert bool(words) == bool(near), model
