"""The Messages API over HTTP: one request in, one `Answer` or one `Fault` out; and the limits of a model.

Retries, the conversation and the tools live elsewhere; `faults.py` says what an error means. The request goes by
Anthropic's SDK, in `client.py`.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from relay.base.errors import RunnerError
from relay.base.interrupts import Interrupted, Interrupts, Urgency
from relay.base.redaction import redact
from relay.config.model import NOTHING_SET, ModelSettings
from relay.config.sources import render_model_table, show_user_file
from relay.runners.base import ModelInfo
from relay.runners.messages.answers import Answer, AnswerBuilder, StreamBrokenError
from relay.runners.messages.connection import Fault, FaultKind
from relay.runners.messages.credentials import CredentialError
from relay.runners.messages.endpoint import (
    PLAIN,
    Way,
    find_base,
    find_own_secrets,
    get_key_name,
    quote_model,
)
from relay.runners.messages.faults import (
    NOT_FOUND,
    TRANSIENT,
    advise,
    find_text,
    get_error,
    judge_event,
    judge_failure,
    judge_status,
    name_cause,
)
from relay.runners.messages.reading import (
    END_S,
    OnBlock,
    OpeningTimeoutError,
    PageError,
    StalledError,
    Watchdog,
    open_within,
    read_answer,
)
from relay.session.gauge import LEAST_WINDOW_TOKENS
from relay.session.prices import PRICES_SEEN, find_limits, suggest_models

if TYPE_CHECKING:
    import httpx2

    from relay.runners.messages.client import SdkWire
    from relay.runners.messages.transport import PlainWire


def read_limits(body: Any) -> ModelSettings:
    """Read window and output limit from Anthropic's, OpenAI's or Google's Models API, as far as it gives them.

    Gateways have formats of their own; they give no limits here.
    """
    if isinstance(body, dict) and isinstance(body.get("data"), dict):
        body = body["data"]
    if not isinstance(body, dict):
        return NOTHING_SET
    names = ("inputTokenLimit", "outputTokenLimit") if "name" in body else ("max_input_tokens", "max_tokens")
    limits = [body.get(name) for name in names]
    window, output = (value if type(value) is int and value > 0 else None for value in limits)
    return ModelSettings(window_tokens=window, max_output_tokens=output)


def choose_limits(
    model: str,
    own: ModelSettings,
    found: ModelSettings,
    *,
    rehearsed: bool = False,
    complaint: str = "the endpoint gives no limits for",
    user_file: str,
) -> ModelInfo:
    """Combine the limits of a model from settings, endpoint and table.

    Args:
        own: The user's settings for it.
        found: The endpoint's limits.
        rehearsed: Whether the endpoint is a rehearsal server.
        complaint: The beginning of the error message, up to the model's name.
        user_file: The user's settings file, for the hint.

    Raises:
        RunnerError: No source has limits, or the window is too small for a session.
    """
    table = find_limits(model)
    window = own.window_tokens or found.window_tokens or (table and table.window_tokens)
    output = own.max_output_tokens or found.max_output_tokens or (table and table.max_output_tokens)
    if not window or not output:
        so_far = structs.replace(own, window_tokens=window or None, max_output_tokens=output or None)
        raise RunnerError(
            f"{complaint} {model!r}{suggest_models(model)}, and relay's table of {PRICES_SEEN} does not know it",
            hint=f"if address and name are right, put what the model can do into {user_file}, "
            "as `relay help endpoints` says:\n"
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


_REHEARSAL_HEADER = "relay-rehearsal"
_MODEL_BYTES = 1024 * 1024
"""Most of a model's description that is read; it has some hundreds of bytes."""
_UNKNOWN_MODEL = frozenset({"not_found_error", "model_not_found", "NOT_FOUND"})
_NO_MODELS_API = frozenset({NOT_FOUND, 405, 501})


class MessagesApi:
    """A connection to one endpoint. Mutable.

    Args:
        environ: The source of the key and the base URL; nothing else of it is read.
        interrupts: Lets a blocking read end at once.
        idle_timeout_s: Longest time without an event in a stream.
        transport: How requests travel; None for the network.
        clock: Steady seconds for the watchdogs.
        way: The kind of endpoint, of which only Anthropic's is sent requests, and what signs them.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        interrupts: Interrupts,
        idle_timeout_s: float,
        way: Way = PLAIN,
        transport: "httpx2.BaseTransport | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environ = environ
        self._way = way
        self._family, self._credential = way.family, way.credential
        self._interrupts = interrupts
        self._idle_timeout_s = idle_timeout_s
        self._transport = transport
        self._clock = clock
        self._own_secrets = find_own_secrets(environ)
        self._user_file = show_user_file(environ)
        self._wire: PlainWire | SdkWire | None = None
        self._sdk: SdkWire | None = None
        self._opening = threading.Lock()
        self._loading = threading.Lock()
        self.loads_sdk = False
        """Whether the next question for a model also begins to load the SDK."""

    def find_model(self, model: str, own: ModelSettings = NOTHING_SET) -> ModelInfo | Fault:
        """Ask the endpoint once for window and limits; fall back to the dated table.

        Limits that the user has set take precedence over both, and need neither. An overload or a usage limit, which
        may pass by itself, is returned as a fault.

        Raises:
            RunnerError: No key, key refused, unknown model, or the endpoint does not answer like a Messages API.
        """
        try:
            found = self._find_model(model, own)
        except CredentialError as error:
            if not error.passes:
                raise
            found = Fault(kind=FaultKind.INFRA, message=error.message)
        except RunnerError as error:
            raise RunnerError(redact(error.message, environ_values=self._secrets), hint=error.hint) from None
        if isinstance(found, Fault):
            return self._clean(found)
        return replace(found, credential=self._credential.words if self._credential else "")

    def _find_model(self, model: str, own: ModelSettings) -> ModelInfo | Fault:
        import httpx2

        from relay.runners.messages.transport import read_beginning

        choose = partial(choose_limits, model, own, user_file=self._user_file)
        try:
            wire = self.open_wire() if self._family.lists_models else None
            if wire is None:
                # The endpoint is not asked; prove that requests can be signed.
                if self._credential:
                    with self._interrupts.interruptible(Urgency.FINISH_TURN):
                        self._credential.use()
                complaint = f"provider = {self._family.name} lists no models; it has no limits for"
                return choose(NOTHING_SET, complaint=complaint)
            if self.loads_sdk:
                self.loads_sdk = False
                _load_in_background(self._get_sdk)
            with (
                self._interrupts.interruptible(Urgency.FINISH_TURN),
                open_within(self._opening_s),
                wire.forward("GET", quote_model(model, self._family), {}, b"") as response,
            ):
                body = read_beginning(response, _MODEL_BYTES) if response.is_success else b""
            if body or response.is_success:
                rehearsed = _REHEARSAL_HEADER in response.headers
                complaint = f"the endpoint {self._address} gives no limits for"
                return choose(read_limits(json.loads(body)), rehearsed=rehearsed, complaint=complaint)
        except Interrupted:
            return Fault(kind=FaultKind.INTERRUPTED, message="stopped while asking for the model")
        except (httpx2.HTTPError, httpx2.InvalidURL, OpeningTimeoutError) as error:
            raise RunnerError(
                f"the endpoint {self._address} cannot be reached: {self._name_cause(error)}",
                hint=f"check {self._family.base} and the network; `relay demo` needs neither",
            ) from error
        except (ValueError, RecursionError) as error:
            raise RunnerError(
                f"the endpoint {self._address} does not answer like a Messages API: {error}",
                hint=f"check {self._family.base}, and whether a proxy or a login page is in between",
            ) from error
        if response.status_code in _NO_MODELS_API:
            # A gateway without a Models API, or with another name for the model there: the first request will show.
            said = get_error(response)
            known = _UNKNOWN_MODEL.isdisjoint(find_text(said, name) for name in ("type", "code", "status"))
            what = "gives no limits for" if known else "does not know the model"
            return choose(NOTHING_SET, complaint=f"the endpoint {self._address} {what}")
        fault = judge_status(response, self._family, self._credential)
        if fault.kind in TRANSIENT:
            return fault
        hint = advise(response.status_code, self._family, self._credential)
        raise RunnerError(f"the endpoint refused: {fault.message}", hint=hint)

    def send(self, request: Mapping[str, Any], *, on_block: OnBlock) -> Answer | Fault:
        """Send one streaming request and wait for its end; never raises for what an endpoint does.

        Args:
            request: Body of ``POST /v1/messages`` without ``stream``.
            on_block: Called with each finished content block, for the view only.
        """
        found = self._send({**request, "stream": True}, on_block)
        return self._clean(found) if isinstance(found, Fault) else found

    @property
    def _secrets(self) -> tuple[str, ...]:
        return (*self._own_secrets, *(self._credential.secrets if self._credential else ()))

    def _clean(self, fault: Fault) -> Fault:
        """Remove secrets from the endpoint's words."""
        return replace(fault, message=redact(fault.message, environ_values=self._secrets))

    def _send(self, request: Mapping[str, Any], on_block: OnBlock) -> Answer | Fault:
        import httpx2

        builder = AnswerBuilder()
        try:
            with self._interrupts.interruptible():
                return self._receive(request, builder, on_block)
        except Interrupted:
            words = "stopped while waiting for an answer"
            return Fault(kind=FaultKind.INTERRUPTED, message=words, usage=builder.usage, may_be_billed=True)
        except (CredentialError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OpeningTimeoutError) as error:
            return judge_failure(error, self._name_cause(error), builder.usage)
        except (StreamBrokenError, ValueError, RecursionError) as error:
            fault = judge_failure(error, f"the stream was not a well-formed answer: {error}", builder.usage)
            return replace(
                fault, lasting=not isinstance(error, StalledError), may_be_billed=not isinstance(error, PageError)
            )

    def close(self) -> None:
        """Close the connections."""
        if self._wire is not None:
            self._wire.close()
        self._wire = self._sdk = None

    @property
    def _opening_s(self) -> float:
        """Longest time until headers, or a whole error, arrive: connecting, sending and silence, each in full."""
        return 3 * self._idle_timeout_s

    def _receive(self, request: Mapping[str, Any], builder: AnswerBuilder, on_block: OnBlock) -> Answer | Fault:
        import httpx2

        sdk = self._get_sdk()
        watchdog = Watchdog(self._clock, idle_s=self._idle_timeout_s, output_tokens=int(request["max_tokens"]))
        with ExitStack() as stack:
            try:
                with open_within(self._opening_s):
                    response = stack.enter_context(sdk.ask(request))
            except (ValueError, RecursionError) as unfit:  # nothing has been sent, so nothing is paid for
                return Fault(kind=FaultKind.REQUEST, message=f"relay cannot write this request as JSON: {unfit}")
            if not response.is_success:
                return judge_status(response, self._family, self._credential)
            chunks = sdk.read(response)
            if (error := read_answer(chunks, watchdog, builder, on_block)) is not None:
                return judge_event(error, builder.usage, has_begun=builder.has_begun)
            # The answer counts whatever happens here: it is paid for.
            broken = (OpeningTimeoutError, StreamBrokenError, httpx2.HTTPError, httpx2.StreamError)
            with suppress(Interrupted, *broken), open_within(END_S):
                deque(watchdog.watch(chunks), maxlen=0)
        return builder.build()

    @property
    def _address(self) -> str:
        return self._wire.address if self._wire else self._environ.get(self._family.base, "")

    def _name_cause(self, error: Exception) -> str:
        """Name what went wrong on the way, and the proxy on it."""
        from relay.runners.messages.transport import find_proxy

        proxy = find_proxy(self._address)
        return f"{name_cause(error)}{f' (through the proxy of {proxy})' if proxy else ''}"

    def open_wire(self) -> "PlainWire | SdkWire":
        """Return the wire for everything but messages, which is there before the SDK is loaded."""
        with self._opening:  # the loading thread and the first request may both get here
            self._wire = self._wire or open_wire(self._environ, self._idle_timeout_s, self._way, self._transport)
            return self._wire

    def _get_sdk(self) -> "SdkWire":
        wire = self.open_wire()
        with self._loading:
            from relay.runners.messages.client import SdkWire

            if isinstance(wire, SdkWire):
                return wire
            self._sdk = self._sdk or SdkWire(self._environ, self._way, lambda _: wire.http)
            return self._sdk


def open_wire(
    environ: Mapping[str, str],
    idle_timeout_s: float,
    way: Way = PLAIN,
    transport: "httpx2.BaseTransport | None" = None,
    *,
    is_lent: bool = False,
) -> "PlainWire | SdkWire":
    """Open the lightest wire that goes this way; nothing is sent.

    Args:
        environ: The source of the key, the base URL and the custom headers.
        idle_timeout_s: Longest silence.
        transport: How requests travel; None for the network.
        is_lent: Whether the login of an agent goes with its requests, in place of a key.

    Raises:
        RunnerError: No usable key, or no certificates.
        httpx2.InvalidURL: The base URL is malformed.
    """
    from relay.runners.messages.transport import PlainWire, open_http

    if way.needs_sdk:
        from relay.runners.messages.client import SdkWire

        return SdkWire(environ, way, lambda address: open_http(address, idle_timeout_s, transport))
    key = "" if way.credential or is_lent else environ[get_key_name(environ, (way.family,))]
    http = open_http(find_base(environ, way.family) or way.family.address, idle_timeout_s, transport)
    return PlainWire(http, way, environ, key)


@contextmanager
def open_api(
    *,
    environ: Mapping[str, str],
    interrupts: Interrupts,
    idle_timeout_s: float,
    way: Way = PLAIN,
    for_models_only: bool = False,
) -> Iterator[MessagesApi]:
    """Open an endpoint; close its connections at the end.

    A thread loads the HTTP client, and for a cloud the SDK, meanwhile: open the endpoint before waiting for other
    programs. The SDK for a key is loaded from the first question for a model on, when preconditions and sandbox have
    held: it slows the thread that checks them, and a command that they refuse pays nothing. Nobody waits for what is
    still being loaded when the block ends.

    Args:
        for_models_only: Whether no message will be sent.
    """
    api = MessagesApi(environ=environ, interrupts=interrupts, idle_timeout_s=idle_timeout_s, way=way)
    api.loads_sdk = not for_models_only
    _load_in_background(api.open_wire)
    try:
        yield api
    finally:
        api.close()


def _load_in_background(load: Callable[[], object]) -> None:
    """Load libraries on a thread that no process waits for when it ends. The first request reports what fails here."""

    def work() -> None:
        import httpx2

        with suppress(RunnerError, OSError, ValueError, ImportError, httpx2.InvalidURL):
            load()

    threading.Thread(target=work, name="relay-sdk").start()  # `__main__` knows the name
