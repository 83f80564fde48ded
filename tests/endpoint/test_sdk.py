"""The real SDK, and raw HTTP, against what the real API does beyond playing a script."""

from typing import Any

import pytest

from tests.endpoint.table import answer

OPENING = [{"role": "user", "content": "Begin."}]
SCRIPT = """
sessions:
  - name: one
    turns:
      - thinking: The file first.
        text: I will look around first.
        tools:
          - {name: read, input: {path: app.py, limit: 20}}
          - {name: read, input: {path: b.py}}
      - expect: {last_result_contains: "def main"}
        text: Done.
"""


def test_thinking_can_be_off(play: Any) -> None:
    """Where the model allows it, disabled means no blocks; older models think only on request."""
    table = play("thinking: scripted\n" + SCRIPT)
    for model, config, thinks in [
        ("claude-haiku-5-5", {"type": "disabled"}, False),
        ("claude-haiku-5-5", {"type": "adaptive"}, True),
        ("claude-haiku-4-5", None, False),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 2000}, True),
    ]:
        message = table.ask(OPENING, model=model, **({"thinking": config} if config else {}))
        assert (message.content[0].type == "thinking") is thinks
        table = play("thinking: scripted\n" + SCRIPT)


def test_raw_responses_carry_the_headers_of_the_api(play: Any) -> None:
    """`with_raw_response` shows request id and rate limits."""
    raw = play(SCRIPT).client.messages.with_raw_response.create(
        messages=OPENING, model="claude-opus-5-5", max_tokens=100
    )
    assert raw.headers["request-id"].startswith("req_")
    assert raw.headers["anthropic-ratelimit-requests-limit"]
    assert raw.parse().usage.input_tokens == 5


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"x-api-key": "k", "anthropic-version": "2026-10-21"}, 200, "message"),
        ({"authorization": "Bearer k", "anthropic-version": "2023-06-01"}, 200, "message"),
        ({"anthropic-version": "2026-10-21"}, 401, "authentication_error"),
        ({"authorization": "Bearer ", "anthropic-version": "2026-10-21"}, 401, "authentication_error"),
        ({"x-api-key": "k"}, 400, "invalid_request_error"),
        ({"x-api-key": "k", "anthropic-version": "2024-01-01"}, 400, "invalid_request_error"),
    ],
)
def test_raw_clients_need_a_key_and_a_version(play: Any, headers: Any, status: int, kind: str) -> None:
    """Both ways of sending a key are taken; beta headers and the query string are no obstacle."""
    table = play(SCRIPT)
    body = {
        "model": "claude-opus-5-5",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Begin."}]}],
        "system": [{"type": "text", "text": "s"}],
        "metadata": {"user_id": "u"},
        "context_management": {"edits": []},
        "betas_unknown": 1,
    }
    sent = headers | {"content-type": "application/json", "anthropic-beta": "x-2026-01-01"}
    got, reply, answer = table.send("POST", "/v1/messages?beta=true", body, headers=sent)
    assert got == status
    assert answer["type"] == "message" if status == 200 else answer["error"]["type"] == kind
    assert reply["relay-rehearsal"] == "1"


def test_credentials_are_not_kept(play: Any) -> None:
    """The record of requests can be shown to anybody."""
    table = play(SCRIPT)
    table.ask(OPENING)
    assert table.player.requests[0].headers["authorization"] == "***"
    assert table.player.requests[0].body["max_tokens"] == 4000


def test_thinking_counts_in_every_later_prompt(play: Any) -> None:
    """Its tokens are those of its signature, whatever text is shown."""
    table = play(SCRIPT)
    first = table.ask(OPENING)
    more = OPENING + answer(first, "def main")
    counted = table.client.messages.count_tokens(messages=more, model="claude-opus-5-5")
    second = table.ask(more)
    assert first.usage.output_tokens_details.thinking_tokens > 0
    assert second.usage.input_tokens == counted.input_tokens
    assert second.usage.input_tokens == first.usage.input_tokens + first.usage.output_tokens + 2 * (3 + 3 + 3)
    snapshot = table.client.models.retrieve("claude-haiku-4-5")
    assert (snapshot.id, snapshot.max_input_tokens) == ("claude-haiku-4-5-20251001", 200_000)
