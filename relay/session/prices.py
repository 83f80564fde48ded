"""What tokens cost, what a request may cost at most, and what models can do: `models.toml`, and pure arithmetic.

The Models API gives windows and limits but no prices, so prices are a table, with the day it was seen. A model that is
not in it is *unknown* (None), never 0. A user's own prices come first.

Sources, as seen on `PRICES_SEEN`: the provider's pricing page and model overviews; for fable-5-2 and the
5.5 family's minimum cacheable length third parties only; fable-5-2's one-hour write is inferred (2 × input).
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from msgspec import Meta, Struct, convert
from msgspec.structs import asdict

from relay.base.values import dataclass
from relay.session.usage import Spent, Usage, add_usd

PRICES_SEEN = date(2026, 11, 20)
"""The day this table was last compared with its sources."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """USD per million tokens of each class."""

    input: float
    output: float
    write_5m: float
    write_1h: float
    read: float

    @property
    def dearest_input(self) -> float:
        """The most that a token of a prompt can cost."""
        return max(self.input, self.write_5m, self.write_1h, self.read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of one model."""

    model: str
    rates: Rates
    long_over_tokens: int | None = None
    """A longer prompt (all classes) is billed, whole, at `long_rates`; None: no such tier."""
    long_rates: Rates | None = None

    def find_rates(self, prompt_tokens: int) -> Rates:
        """Return the rates of a request with a prompt of this size."""
        if self.long_rates and self.long_over_tokens is not None and prompt_tokens > self.long_over_tokens:
            return self.long_rates
        return self.rates


@cache
def load_models() -> Mapping[str, Mapping[str, Any]]:
    """Return the table of models, `models.toml`; it explains its fields."""
    return tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))


def _parse_rates(usd: Sequence[float]) -> Rates:
    return Rates(input=usd[0], output=usd[1], write_5m=usd[2], write_1h=usd[3], read=usd[4])


@cache
def list_prices() -> Mapping[str, Price]:
    """Return the known prices by model, from `models.toml`."""
    return {
        model: Price(
            model=model,
            rates=_parse_rates(row["usd"]),
            long_over_tokens=row.get("long_over"),
            long_rates=_parse_rates(row["long_usd"]) if "long_usd" in row else None,
        )
        for model, row in load_models().items()
    }


_BEDROCK_ID = re.compile(r"(?:arn:\S+/)?(?:[a-z-]{2,6}\.)?anthropic\.(\S+?)(?:-v\d+(?::\d+(?::\d+k)?)?)?")
_GATEWAY_ID = re.compile(r"anthropic/([^:\s]+)(?::[a-z]+)?")
_VERTEX_PATH = "publishers/anthropic/models/"
_VERSION = re.compile(r"[-@](?:\d{8}|default)$")


def normalize_model(model: str) -> str:
    """Return the bare id: no ``[1m]`` window suffix, no ``-20251001`` snapshot date, no additions of a cloud.

    Additions are ``us.anthropic.…-v1:0`` (Bedrock), ``…@default`` (Vertex), ``anthropic/…:online`` (gateways).
    Surcharges of these, such as a tenth for a region, are not known here: a price of the user's own takes precedence.
    """
    bare = model.strip().lower().removesuffix("[1m]").rpartition(_VERTEX_PATH)[2]
    if found := _BEDROCK_ID.fullmatch(bare):
        bare = found[1]
    elif found := _GATEWAY_ID.fullmatch(bare):
        bare = found[1].replace(".", "-")
    return _VERSION.sub("", bare)


def find_price(model: str, *, overrides: Iterable[Price] = ()) -> Price | None:
    """Return the price of a model; None if unknown. An override matches the id as written or its bare form."""
    bare = normalize_model(model)
    own = next((price for price in overrides if price.model in {model, bare}), None)
    return own or list_prices().get(bare)


def cost_usd(usage: Usage, price: Price) -> float:
    """Return the cost of one response. Tiers make costs not additive: price each response, then add up."""
    rates = price.find_rates(usage.prompt_tokens)
    parts = (
        usage.input_tokens * rates.input,
        usage.cache_read_tokens * rates.read,
        usage.cache_write_5m_tokens * rates.write_5m,
        usage.cache_write_1h_tokens * rates.write_1h,
        usage.output_tokens * rates.output,
    )
    return sum(parts) / _MILLION


def worst_cost_usd(prompt_tokens: int, max_output_tokens: int, price: Price) -> float:
    """Return the most a request can cost: its whole prompt in the most expensive class, its whole output allowance.

    `prompt_tokens` must itself be an upper estimate (the gauge's padded fill).
    """
    rates = price.find_rates(prompt_tokens)
    return (prompt_tokens * rates.dearest_input + max_output_tokens * rates.output) / _MILLION


def charge_request(said: Usage | None, price: Price | None, *, worst: Usage, least: Usage, most: Usage) -> Spent:
    """Return what a request counts as: the reported usage, and an upper bound for what was not reported.

    The one rule for money. Prompt and answer are judged separately. A report of 0 means an unfinished answer, whose
    length nobody knows yet, or a prompt that was not counted.

    Args:
        said: What the endpoint reported; None for nothing.
        price: None if unknown.
        worst: Upper bounds of prompt and answer, as input and output.
        least: A prompt or answer below this was not counted.
        most: A prompt or answer above this was counted wrongly.
    """
    found = said or Usage()
    is_prompt_known = max(1, least.input_tokens) <= found.prompt_tokens <= most.input_tokens
    is_answer_known = said is not None and least.output_tokens <= found.output_tokens <= most.output_tokens
    usage = found if is_prompt_known else Usage(input_tokens=worst.input_tokens)
    answer = found if is_answer_known else worst
    usage = replace(usage, output_tokens=answer.output_tokens, thinking_tokens=answer.thinking_tokens)
    if price is None:
        usd = None
    elif is_prompt_known:
        usd = cost_usd(usage, price)
    else:
        usd = worst_cost_usd(usage.prompt_tokens, usage.output_tokens, price)
    return Spent(usage=usage, cost_usd=usd, estimated=not (is_prompt_known and is_answer_known))


_UserUsd = Annotated[float, Meta(ge=0, le=_MILLION - 1)]


class UserPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's price of a model: USD per million tokens. None: 1.25, 2 and 0.1 times the price of input, as usual."""

    input: _UserUsd
    output: _UserUsd
    write_5m: _UserUsd | None = None
    write_1h: _UserUsd | None = None
    read: _UserUsd | None = None

    def make_price(self, model: str) -> Price:
        """Return the price of a model."""
        base = self.input
        usual = {"write_5m": base * 1.25, "write_1h": base * 2, "read": base * 0.1}
        rates = {name: usd for name, usd in asdict(self).items() if usd is not None}
        return Price(model=model, rates=Rates(**{**usual, **rates}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The caps of a run and what counts against them; None as a cap means no cap."""

    run_cap_usd: float | None
    phase_cap_usd: float | None = None
    token_cap: int | None = None
    """All tokens of all classes of the run; this cap also holds where prices are unknown."""
    run_usd: float | None = 0.0
    """Spent so far; None if some of it is unknown."""
    phase_usd: float | None = 0.0
    tokens: int = 0

    def charge(self, usd: float | None, tokens: int) -> Self:
        """Add one response; None makes the sum of money unknown."""
        return replace(
            self,
            run_usd=add_usd(self.run_usd, usd),
            phase_usd=add_usd(self.phase_usd, usd),
            tokens=self.tokens + tokens,
        )

    def open_phase(self, spent_usd: float | None = 0.0) -> Self:
        """Start counting a phase, with what its earlier sessions have cost."""
        return replace(self, phase_usd=spent_usd)

    def check(self, worst_usd: float | None, worst_tokens: int) -> str | None:
        """Return why the next request must not be sent; None if every cap holds whatever it costs.

        Args:
            worst_usd: The most it can cost; None if the model's price is unknown.
            worst_tokens: The most tokens it can use, prompt and output.
        """
        if self.token_cap is not None and self.tokens + worst_tokens > self.token_cap:
            return (
                f"the next request may use {worst_tokens:,} tokens; {self.tokens:,} of the cap of "
                f"{self.token_cap:,} are used; RELAY_MAX_TOKENS_TOTAL raises it"
            )
        return self._check_usd("run", self.run_cap_usd, self.run_usd, worst_usd) or self._check_usd(
            "phase", self.phase_cap_usd, self.phase_usd, worst_usd
        )

    def _check_usd(self, what: str, cap: float | None, spent: float | None, worst: float | None) -> str | None:
        """Check one money cap; unknown cost is only allowed where a token cap bounds it."""
        name = "--max-cost" if what == "run" else "RELAY_MAX_PHASE_COST_USD"
        if cap is None:
            return None
        if spent is None or worst is None:
            if self.token_cap is not None:
                return None
            unknown, way = (f"what the {what} has cost so far", "")
            if worst is None:
                unknown, way = "the model's price", "its price (price in [models]), "
            return (
                f"{unknown} is unknown, so the {what}'s cap of {cap:.2f} USD cannot be kept; "
                f"set {way}a cap in tokens (max_tokens_total), or no cap ({name} none)"
            )
        if spent + worst > cap:
            return (
                f"the next request may cost {worst:.2f} USD; {spent:.2f} of the {what}'s cap of {cap:.2f} USD are "
                f"spent; {name} raises it"
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What a model can do, for when the Models API does not say; as seen on `PRICES_SEEN`."""

    window_tokens: int = 1_000_000
    max_output_tokens: int = 128_000
    min_cacheable_tokens: int
    """A shorter prefix is silently not cached."""
    system_messages: bool = False
    """Whether ``{"role": "system"}`` is accepted in the middle of a conversation; user text always is."""
    adaptive_thinking: bool = True
    """Whether ``{"type": "adaptive"}`` thinking is accepted; the 4.5 generation takes budgets only."""
    pictures: bool = True
    """Whether it takes pictures."""


@cache
def list_limits() -> Mapping[str, ModelLimits]:
    """Return the known limits by model, from `models.toml`."""
    return convert(load_models(), dict[str, ModelLimits])


def find_limits(model: str) -> ModelLimits | None:
    """Return what is known about a model without asking the Models API; None if nothing is."""
    return list_limits().get(normalize_model(model))


def suggest_models(model: str, own: Iterable[str] = ()) -> str:
    """Return " (did you mean …?)" with known models that an unknown name may mean; empty if there are none.

    Args:
        own: Models of the user's settings.
    """
    import difflib  # slow to import, and needed only here

    bare, names = normalize_model(model), [*own, *list_limits()]
    near = [name for name in names if bare and bare in name] or difflib.get_close_matches(bare, names, cutoff=0.8)
    return f" (did you mean {' or '.join(near[:3])}?)" if near and bare not in names else ""
