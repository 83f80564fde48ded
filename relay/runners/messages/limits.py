"""What a model can do: the user's word, then the endpoint's, then the dated table's. Pure."""

from dataclasses import replace
from typing import Any

from relay.base.errors import RunnerError
from relay.config.model import NOTHING_SET, ModelSettings
from relay.config.model_table import render_model_table
from relay.runners.base import ModelInfo
from relay.session.gauge import LEAST_WINDOW_TOKENS
from relay.session.prices import PRICES_SEEN, find_limits, suggest_models


def read_limits(body: Any) -> ModelSettings:
    """Read what Anthropic's, OpenAI's or Google's Models API says: window and output limit, as far as it gives them.

    Gateways have forms of their own, which say nothing here.
    """
    if isinstance(body, dict) and isinstance(body.get("data"), dict):
        body = body["data"]
    if not isinstance(body, dict):
        return NOTHING_SET
    names = ("inputTokenLimit", "outputTokenLimit") if "name" in body else ("max_input_tokens", "max_tokens")
    limits = [body.get(name) for name in names]
    window, output = (value if type(value) is int and value > 0 else None for value in limits)
    return ModelSettings(window_tokens=window, max_output_tokens=output)


def settle_limits(
    model: str,
    own: ModelSettings,
    found: ModelSettings,
    *,
    rehearsed: bool = False,
    complaint: str = "the endpoint gives no limits for",
    user_file: str,
) -> ModelInfo:
    """Put a model's limits together.

    Args:
        own: What the user's settings say of it.
        found: What the endpoint says.
        rehearsed: The endpoint is a rehearsal server.
        complaint: What an error says of the endpoint, up to the model's name.
        user_file: Where the user's own settings are, for the hint.

    Raises:
        RunnerError: Nobody gives them, or the window holds no session.
    """
    table = find_limits(model)
    window = own.window_tokens or found.window_tokens or (table and table.window_tokens)
    output = own.max_output_tokens or found.max_output_tokens or (table and table.max_output_tokens)
    if not window or not output:
        so_far = replace(own, window_tokens=window or None, max_output_tokens=output or None)
        raise RunnerError(
            f"{complaint} {model!r}{suggest_models(model)}, and relay's table of {PRICES_SEEN} does not know it",
            hint=f"if address and name are right, put what the model can do into {user_file}:\n"
            f"{render_model_table(model, so_far)}",
        )
    if window < LEAST_WINDOW_TOKENS:
        raise RunnerError(
            f"{model} has a context window of {window} tokens, which holds no session",
            hint=f'choose another model, or set window_tokens of [models."{model}"] in {user_file}',
        )
    settled = bool(own.window_tokens or own.max_output_tokens)
    listed = bool(found.window_tokens and found.max_output_tokens)
    return ModelInfo(
        id=model,
        window_tokens=window,
        max_output_tokens=output,
        rehearsed=rehearsed,
        source="settings" if settled else "models api" if listed else f"table {PRICES_SEEN}",
    )
