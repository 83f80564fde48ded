"""The Messages API through its SDK: the only module that imports `anthropic`.

One request in, one `Answer` or one `Fault` out. Retries, the conversation and the tools live elsewhere. The SDK gives
authentication, base URL, proxies, TLS and the error taxonomy; its own retries are off and its stream helper is not
used, because it re-parses tool input on every delta and hands on truncated input without an error.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from relay.errors import RunnerError
from relay.interrupts import Interrupted, Interrupts
from relay.pricing import PRICES_SEEN, find_limits
from relay.runners.answers import Answer, AnswerBuilder, StreamBrokenError, parse_usage
from relay.runners.base import ModelInfo
from relay.runners.faults import Fault, FaultKind, classify_error
from relay.runners.sse import parse_events

if TYPE_CHECKING:
    import anthropic
    import httpx2

CONNECT_TIMEOUT_S = 10.0
_REHEARSAL_HEADER = "relay-rehearsal"


class MessagesApi:
    """A connection to one endpoint.

    Args:
        environ: Where the key and the base URL come from; nothing else of it is read.
        interrupts: Lets a blocking read end at once.
        idle_timeout_s: Longest time without progress in a stream; pings are not progress.
    """

    def __init__(self, *, environ: Mapping[str, str], interrupts: Interrupts, idle_timeout_s: float) -> None:
        self._environ = environ
        self._interrupts = interrupts
        self._idle_timeout_s = idle_timeout_s
        self._client: anthropic.Anthropic | None = None

    def get_model(self, model: str) -> ModelInfo:
        """Ask the endpoint for window and limits; fall back to the dated table where it gives none.

        Raises:
            RunnerError: No key, key refused, unknown model, or endpoint unreachable.
        """
        import anthropic
        import httpx2

        try:
            response = self._get_client().models.with_raw_response.retrieve(model)
            info = response.parse()
        except anthropic.NotFoundError as error:
            if _error_type(error) == "not_found_error":
                raise RunnerError(
                    f"the endpoint does not know the model {model!r}",
                    hint="name another with --model or in relay.toml",
                ) from error
            return _info_from_table(model, rehearsed=False)  # a gateway without the Models API
        except anthropic.APIStatusError as error:
            raise RunnerError(f"the endpoint refused: {_describe(error)}", hint=_hint(error.status_code)) from error
        except (anthropic.APIError, httpx2.HTTPError) as error:
            raise RunnerError(
                f"the endpoint {self._get_client().base_url} cannot be reached: {error}",
                hint="check ANTHROPIC_BASE_URL and the network; `relay demo` needs neither",
            ) from error
        rehearsed = _REHEARSAL_HEADER in response.headers
        if not info.max_input_tokens or not info.max_tokens:
            return _info_from_table(model, rehearsed=rehearsed)
        return ModelInfo(
            id=model,
            window_tokens=info.max_input_tokens,
            max_output_tokens=info.max_tokens,
            rehearsed=rehearsed,
            source="models api",
        )

    def send(self, request: Mapping[str, Any], *, on_block: Callable[[Mapping[str, Any]], None]) -> Answer | Fault:
        """Send one streaming request and wait for its end.

        Args:
            request: Keyword arguments of ``messages.create`` without ``stream``.
            on_block: Called with each finished content block, for the view only.

        Raises:
            Interrupted: The user asked to stop now.
        """
        import anthropic
        import httpx2

        builder = AnswerBuilder()
        try:
            with self._interrupts.interruptible():
                return self._receive(request, builder, on_block)
        except anthropic.APIStatusError as error:
            return _fault_from_status(error)
        except (anthropic.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
            return _infra(f"{type(error).__name__}: {error}", builder)
        except (StreamBrokenError, ValueError, KeyError, TypeError) as error:
            return _infra(f"the stream was not a well-formed answer: {error}", builder)

    def close(self) -> None:
        """Close the connection pool."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _receive(
        self,
        request: Mapping[str, Any],
        builder: AnswerBuilder,
        on_block: Callable[[Mapping[str, Any]], None],
    ) -> Answer | Fault:
        messages = self._get_client().messages
        with messages.with_streaming_response.create(**request, stream=True) as response:
            for name, data in _iter_json(response.iter_bytes(), self._idle_timeout_s):
                if name == "error":
                    return _fault_from_event(data, builder)
                if block := builder.feed(data):
                    on_block(block)
                if builder.complete:
                    break
        return builder.build()

    def _get_client(self) -> "anthropic.Anthropic":
        if self._client is None:
            self._client = _open_client(self._environ, self._idle_timeout_s)
        return self._client


def check_key(environ: Mapping[str, str]) -> None:
    """Make sure that there is a key before anything starts; costs nothing and imports nothing.

    Raises:
        RunnerError: Neither ``ANTHROPIC_API_KEY`` nor ``ANTHROPIC_AUTH_TOKEN`` is set.
    """
    if not (environ.get("ANTHROPIC_API_KEY") or environ.get("ANTHROPIC_AUTH_TOKEN")):
        raise RunnerError(
            "no API key: neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set",
            hint="export ANTHROPIC_API_KEY=…; to see relay work without one, run `relay demo`",
        )


def _open_client(environ: Mapping[str, str], idle_timeout_s: float) -> "anthropic.Anthropic":
    check_key(environ)
    import anthropic
    import httpx2

    base_url = environ.get("ANTHROPIC_BASE_URL", "").rstrip("/").removesuffix("/v1") or None
    key = environ.get("ANTHROPIC_API_KEY") or None
    return anthropic.Anthropic(
        api_key=key,
        auth_token=None if key else environ["ANTHROPIC_AUTH_TOKEN"],
        base_url=base_url,
        max_retries=0,
        timeout=httpx2.Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S),
        open_telemetry=False,
    )


def _iter_json(chunks: Iterator[bytes], idle_timeout_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield event name and parsed data; pings only for too long count as a stall."""
    progress = time.monotonic()
    for event in parse_events(chunks):
        now = time.monotonic()
        if event.name != "ping":
            progress = now
        elif now - progress > idle_timeout_s:
            raise StreamBrokenError(f"no progress for {idle_timeout_s:g} s, only pings")
        data = json.loads(event.data)
        if not isinstance(data, dict):
            raise StreamBrokenError("event data is not an object")
        yield event.name, data


def _infra(message: str, builder: AnswerBuilder) -> Fault:
    return Fault(kind=FaultKind.INFRA, message=message, usage=parse_usage(builder.usage))


def _fault_from_event(data: Mapping[str, Any], builder: AnswerBuilder) -> Fault:
    error = data.get("error") or {}
    text = str(error.get("message", ""))
    kind = classify_error(status=200, error_type=error.get("type"), error_code=error.get("error_code"), text=text)
    if kind is FaultKind.REQUEST:
        kind = FaultKind.INFRA  # a request that had begun to be answered was well-formed
    return Fault(kind=kind, message=f"{error.get('type')} in mid-stream: {text}", usage=parse_usage(builder.usage))


def _fault_from_status(error: "anthropic.APIStatusError") -> Fault:
    kind = classify_error(
        status=error.status_code,
        error_type=_error_type(error),
        error_code=getattr(error, "error_code", None),
        text=_error_text(error),
    )
    return Fault(kind=kind, message=_describe(error), retry_after_s=_find_retry_after(error.response))


def _error_type(error: "anthropic.APIStatusError") -> str | None:
    kind = getattr(error, "type", None)
    return kind if isinstance(kind, str) else None


def _error_text(error: "anthropic.APIStatusError") -> str:
    body = error.body
    if isinstance(body, dict) and isinstance(inner := body.get("error"), dict):
        return str(inner.get("message", ""))
    return error.message


def _describe(error: "anthropic.APIStatusError") -> str:
    kind = _error_type(error)
    words = f"HTTP {error.status_code}{f' {kind}' if kind else ''}: {_error_text(error)[:500]}"
    return f"{words} (request {error.request_id})" if error.request_id else words


def _hint(status: int) -> str:
    if status in {401, 403}:
        return "check ANTHROPIC_API_KEY"
    return "see the endpoint's words above; `relay doctor` tries it again"


def _find_retry_after(response: "httpx2.Response") -> float | None:
    """Seconds the endpoint asks to wait: retry-after, else the latest reset among exhausted limits."""
    headers = response.headers
    if (wait_ms := _parse_seconds(headers.get("retry-after-ms", ""))) is not None:
        return wait_ms / 1000
    if (wait_s := _parse_seconds(headers.get("retry-after", ""))) is not None:
        return wait_s
    resets = [
        _seconds_until(headers.get(f"anthropic-ratelimit-{kind}-reset", ""))
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
        if headers.get(f"anthropic-ratelimit-{kind}-remaining") == "0"
    ]
    return max((reset for reset in resets if reset is not None), default=None)


def _parse_seconds(value: str) -> float | None:
    """Read seconds or an HTTP date; None when it is neither."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _seconds_until(moment: str) -> float | None:
    """Seconds until an RFC 3339 time; None when it is not one."""
    try:
        return max(0.0, (datetime.fromisoformat(moment) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _info_from_table(model: str, *, rehearsed: bool) -> ModelInfo:
    limits = find_limits(model)
    if limits is None:
        raise RunnerError(
            f"the endpoint gives no limits for {model!r} and relay's table of {PRICES_SEEN} does not know it",
            hint="set window_tokens and max_output_tokens in relay.toml, or choose a known model",
        )
    return ModelInfo(
        id=model,
        window_tokens=limits.window_tokens,
        max_output_tokens=limits.max_output_tokens,
        rehearsed=rehearsed,
        source=f"table {PRICES_SEEN}",
    )


@contextmanager
def open_api(*, environ: Mapping[str, str], interrupts: Interrupts, idle_timeout_s: float) -> Iterator[MessagesApi]:
    """Open an endpoint and close its connections at the end."""
    api = MessagesApi(environ=environ, interrupts=interrupts, idle_timeout_s=idle_timeout_s)
    try:
        yield api
    finally:
        api.close()


__all__ = ["Interrupted", "MessagesApi", "check_key", "open_api"]
