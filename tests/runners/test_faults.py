"""Whose fault a fault is, and how long to wait."""

from hypothesis import given
from hypothesis import strategies as st

from relay.runners.messages.connection import MAX_BACKOFF_S, Fault, FaultKind, classify_error, find_wait_s, is_overflow

CASES = [
    (529, "overloaded_error", None, "Overloaded", FaultKind.INFRA),
    (500, "api_error", None, "Internal", FaultKind.INFRA),
    (500, None, None, "<html>", FaultKind.INFRA),
    (501, None, None, "", FaultKind.INFRA),
    (504, "timeout_error", None, "", FaultKind.INFRA),
    (408, None, None, "", FaultKind.INFRA),
    (409, "conflict_error", None, "", FaultKind.INFRA),
    (200, "overloaded_error", None, "Overloaded", FaultKind.INFRA),
    (200, "rate_limit_error", None, "Number of request tokens has exceeded your per-minute limit", FaultKind.LIMIT),
    (429, "rate_limit_error", None, "slow down", FaultKind.LIMIT),
    (429, None, None, "", FaultKind.LIMIT),
    (429, "api_error", None, "slow down", FaultKind.LIMIT),
    (429, "rate_limit_error", "enforced_spend_limit_reached", "cap", FaultKind.USER),
    (400, "invalid_request_error", None, "You have reached your specified API usage limits.", FaultKind.USER),
    (429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota", FaultKind.USER),
    (400, None, None, "API key not valid. Please pass a valid API key.", FaultKind.USER),
    (200, None, "rate_limit_exceeded", "Rate limit reached for tokens per min", FaultKind.LIMIT),
    (200, None, "server_error", "", FaultKind.INFRA),
    (401, "authentication_error", None, "bad key", FaultKind.USER),
    (401, None, None, "invalid token", FaultKind.USER),
    (403, "permission_error", None, "no", FaultKind.USER),
    (402, "billing_error", None, "pay", FaultKind.USER),
    (400, "billing_error", None, "Your credit balance is too low", FaultKind.USER),
    (400, "invalid_request_error", None, "Your credit balance is too low to access the API.", FaultKind.USER),
    (402, None, None, "pay", FaultKind.USER),
    (403, None, None, "no", FaultKind.USER),
    (404, None, None, "no", FaultKind.USER),
    (404, "not_found_error", None, "model: x", FaultKind.USER),
    (422, None, None, "unprocessable", FaultKind.REQUEST),
    (400, "invalid_request_error", None, "messages: text is empty", FaultKind.REQUEST),
    (413, "request_too_large", None, "Request too large (max 32MB)", FaultKind.OVERFLOW),
    (413, None, None, "<html>413 Request Entity Too Large</html>", FaultKind.OVERFLOW),
    (413, None, None, "", FaultKind.OVERFLOW),
    (400, None, None, "", FaultKind.OVERFLOW),
    (400, "invalid_request_error", "context_length_exceeded", "", FaultKind.OVERFLOW),
    (200, "invalid_request_error", None, "prompt is too long: 210000 tokens > 200000 maximum", FaultKind.OVERFLOW),
]


def test_classifies():
    """Types and codes decide; texts only tell overflows and spending caps."""
    for status, kind, code, text, expected in CASES:
        found = classify_error(status=status, error_type=kind, error_code=code, text=text)
        assert found is expected, (status, kind, code, text)


OVERFLOWS = {
    "Anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "Anthropic, bytes": "Request too large (max 32MB)",
    "Bedrock": "ValidationException: Input is too long for requested model.",
    "Bedrock, output": "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000",
    "Bedrock, maximum": "The maximum tokens you requested (9000) exceeds the model limit of 4096",
    "Bedrock, total": "The total number of tokens in the request exceeds the limit",
    "gateway": "capability_rejected: prompt_too_long",
    "OpenAI": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "OpenAI, OpenRouter, DeepSeek, vLLM": "This model's maximum context length is 131072 tokens. However, you …",
    "vLLM": "The context length is only 4096 tokens, resulting in …",
    "vLLM, input": "The input length (5000) exceeds the model's context length (4096)",
    "Google": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Groq": "Please reduce the length of the messages or completion.",
    "Copilot": "prompt token count of 129500 exceeds the limit of 128000",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "LM Studio": "the number of tokens to keep from the initial prompt is greater than the context length",
    "Ollama": "prompt too long; exceeded max context length by 400 tokens",
    "Ollama, older": "prompt too long; exceeded context length",
    "MiniMax": "invalid params, context window exceeds limit",
    "Kimi": "Your request exceeded model token limit: 262144",
    "Mistral": "Prompt contains 140000 tokens, too large for model with 131072 maximum context length",
    "z.ai": "model_context_window_exceeded",
    "DashScope": "Range of input length should be [1, 98304]",
    "maximum input": "the prompt exceeds maximum allowed input length of 4096 tokens",
    "longer": "input (9000 tokens) is longer than the model's context length (8192)",
    "requested": "requested input length 9000 exceeds maximum input length 8192",
    "configured": "the configured context size is 4096 tokens",
    "many": "too many tokens in the prompt",
    "limit": "token limit exceeded",
}
NOT_OVERFLOWS = [
    "rate limit: too many tokens per minute",
    "Too many requests, token limit exceeded",
    "Throttling error: Too many tokens, please wait before trying again.",
    "Service unavailable: too many tokens in flight",
    "invalid token in header",
    "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-opus-5-5",
    "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes",
    "messages: a request may have 100,000 messages; this exceeds the maximum",
    "tools.3.name: longer than 128 characters",
    "your plan exceeds the limit of 5 projects",
    "the context of your request is not allowed",
]


def test_knows_an_overflow_by_every_providers_words_and_no_other_error():
    """Whatever the case of the letters; but 429 is never one, and a limit per minute is not the prompt's size."""
    for name, text in OVERFLOWS.items():
        for words in (text, text.upper()):
            assert is_overflow(status=400, text=words), name
            assert not is_overflow(status=429, text=words), name
    assert [text for text in NOT_OVERFLOWS if is_overflow(status=400, text=text)] == []


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_bounded_and_positive(attempt, jitter):
    """Many tries never mean a wait beyond the cap, and never none at all."""
    fault = Fault(kind=FaultKind.INFRA, message="")

    assert 0 < find_wait_s(fault, attempt=attempt, jitter=jitter) <= MAX_BACKOFF_S


def test_what_the_endpoint_asks_for_is_obeyed():
    """retry-after is a floor, never shortened; and one of 0 does not make the waits stay short for ever."""
    assert find_wait_s(Fault(kind=FaultKind.LIMIT, message="", retry_after_s=3600.0), attempt=1, jitter=0.5) >= 3600.0
    at_once = Fault(kind=FaultKind.LIMIT, message="", retry_after_s=0.0)
    assert find_wait_s(at_once, attempt=1, jitter=0.5) == 1.0
    assert find_wait_s(at_once, attempt=9, jitter=0.5) == MAX_BACKOFF_S / 2
