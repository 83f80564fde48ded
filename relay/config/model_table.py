"""What is known of one model, as the table that a user pastes into the own settings. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from relay.config.model import ModelSettings
from relay.config.sources import find_user_dir
from relay.session.prices import Rates, parse_price

_UNKNOWN = {
    "window_tokens": (200_000, "its context window"),
    "max_output_tokens": (32_000, "its longest answer"),
    "price": ({"input": 0, "output": 0}, "USD per million tokens; 0 on a machine of your own"),
}
"""What a model cannot be used without, with a value to put right and what it is."""


def render_model_table(model: str, known: ModelSettings) -> str:
    """Write the table of a model; what has to be known and is not is marked to be put right."""
    width = max(len(line) for line, _ in _iter_lines(known))
    lines = [f"{line:<{width}}  # {remark}" if remark else line for line, remark in _iter_lines(known)]
    return "\n".join((f"[models.{json.dumps(model)}]", *lines))


def _iter_lines(known: ModelSettings) -> Iterator[tuple[str, str]]:
    """Yield each line, and what is to be said beside it."""
    if known.reset_at is not None:
        yield f'reset_at = "{known.reset_at.text}"', ""
    price = known.price and _list_rates(known.price.rates)
    for name, value in (
        ("window_tokens", known.window_tokens), ("max_output_tokens", known.max_output_tokens), ("price", price)
    ):  # fmt: skip
        assumed, words = _UNKNOWN[name]
        if value is None:
            yield f"{name} = {_render(assumed)}", f"put this right: {words}"
        else:
            yield f"{name} = {_render(value)}", words
    said = {f.name: getattr(known.compat, f.name) for f in fields(known.compat)}
    if compat := {name: value for name, value in said.items() if value is not None}:
        yield f"compat = {_render(compat)}", ""


def _list_rates(rates: Rates) -> dict[str, float]:
    """Return what has to be said of a price: what is left out follows from the price of input."""
    usual = parse_price("", {"input": rates.input, "output": rates.output}).rates
    said = {f.name: getattr(rates, f.name) for f in fields(rates)}
    return {name: usd for name, usd in said.items() if name in {"input", "output"} or usd != getattr(usual, name)}


def _render(value: Any) -> str:
    """Write a value as TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {_render(item)}" for name, item in value.items()) + "}"
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value)


def show_user_file(environ: Mapping[str, str]) -> str:
    """Return the path of the user's own settings, from the home directory on where it is in there."""
    path = (find_user_dir(environ) or Path("~/.config/relay")) / "config.toml"
    home = environ.get("HOME", "")
    return f"~/{path.relative_to(home)}" if home.startswith("/") and path.is_relative_to(home) else str(path)
