"""The wire to Claude by Anthropic's SDK, for a key, a login and every cloud.

The only module that imports the SDK, and that names anything private of it: two names, which
`tests/runners/test_client.py` holds against the installed release. The SDK writes requests, addresses and signatures.
What comes back goes as bytes to the tape and to relay's own reader. The SDK retries nothing, follows nobody, traces
nothing, warns nobody and says nothing of itself. Variables of the process are not asked where relay was given others.

Importing it takes 1 s on a slow machine (whole 2.6 s), so `api.py` does that on a thread.
"""

import inspect
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any, cast

import httpx2

from relay.runners.messages.answers import StreamBrokenError
from relay.runners.messages.credentials import CredentialError, Proof
from relay.runners.messages.endpoint import (
    ANTHROPIC,
    BEDROCK,
    EDITING_BETA,
    FRAMES,
    MANTLE_MODEL,
    Way,
    find_base,
    get_key_name,
    read_custom_headers,
)
from relay.runners.messages.late_names import late_names
from relay.runners.messages.transport import USER_AGENT, BoundedClient, Wire

with late_names("anthropic"):
    import anthropic
    from anthropic.lib.credentials import AccessToken, CredentialResult, TokenCache, default_credentials
    from anthropic.resources.messages import Messages

for _name in ("anthropic", "httpx2"):  # with ANTHROPIC_LOG they would write through the view, and prompts too
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)

_KNOWN = frozenset(inspect.signature(Messages.create).parameters)
"""Fields of a request that this release of the SDK takes by name."""
_OF_ITSELF = ("X-Stainless-Async", "x-stainless-timeout", "x-stainless-read-timeout", "x-stainless-retry-count")
"""Headers by which the SDK tells of itself, besides those of the platform."""
LOGIN_ADVICE = "ant auth login; ANTHROPIC_PROFILE chooses a profile"
_FRAME_BYTES = range(16, 24 * 1024 * 1024 + 1)
"""Sizes of a frame, which stand in its first bytes. Source: botocore.eventstream."""
_SIZE_BYTES = 4
_TOO_MANY, _SERVER_ERROR = 429, 500
_SHOWN_CHARS = 300


class SdkWire(Wire):
    """Requests by a client of the SDK. Mutable: makes another client when the credential's value changes.

    Args:
        environ: The source of the key and the custom headers.
        connect: Given an address: returns the HTTP client, which is closed with the wire.

    Raises:
        RunnerError: No usable key, no certificates, no place to ask.
        httpx2.InvalidURL: The base URL is malformed.
    """

    def __init__(self, environ: Mapping[str, str], way: Way, connect: Callable[[str], BoundedClient]) -> None:
        self._way = way
        self._key = "" if way.credential else environ[get_key_name(environ, (way.family,))]
        self._place = dict(way.find_place())
        if way.family is ANTHROPIC:
            self._place.setdefault("base_url", find_base(environ, ANTHROPIC) or ANTHROPIC.address)
        own = self._place.pop("default_headers", {})
        self._headers = {"User-Agent": USER_AGENT, **own, **read_custom_headers(environ, way.family)}
        address = str(self._place.get("base_url") or ANTHROPIC.address)
        super().__init__(connect(address), way.credential)
        self._made: dict[tuple[Any, bool], Any] = {}
        self._framed: Any = None

    def ask(self, request: Mapping[str, Any]) -> AbstractContextManager[httpx2.Response]:
        """Send a request with ``stream`` set.

        Raises:
            ValueError: It cannot be written as JSON; nothing was sent.
            httpx2.HTTPError: The endpoint was not reached, or broke off.
        """
        known = {name: value for name, value in request.items() if name in _KNOWN}
        others = {name: value for name, value in request.items() if name not in _KNOWN}
        betas = [value for name, value in self._headers.items() if name.lower() == "anthropic-beta"]
        betas += [EDITING_BETA] if "context_management" in request else []
        extra = {"anthropic-beta": ",".join(betas)} if betas else {}

        def send(value: Any, stack: ExitStack) -> httpx2.Response:
            client = self._get_client(value, str(request["model"]))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of models that end some day: relay's own table says that
                manager = client.messages.with_streaming_response.create(
                    **known, extra_body=others, extra_headers=extra
                )
                response: httpx2.Response = stack.enter_context(manager).http_response
                return response

        return self._sending(_unwrapping(send))

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes
    ) -> AbstractContextManager[httpx2.Response]:
        """Send an agent's request, readdressed and signed; its body is written anew only where it names the model."""
        body = json.loads(content) if content and self._way.family.names_model else None

        def send(value: Any, stack: ExitStack) -> httpx2.Response:
            client = self._get_client(value, str(body["model"]) if body else "")
            given: dict[str, Any] = {"cast_to": httpx2.Response, "options": {"headers": dict(headers)}, "stream": True}
            response: httpx2.Response
            if method == "GET":
                response = client.get(path, **given)
            elif body:
                response = client.post(path.partition("?")[0], body=body, **given)
            else:
                response = client.post(path, content=content, **given)
            return stack.enter_context(closing(response))

        return self._sending(_unwrapping(send))

    def read(self, response: httpx2.Response) -> Iterator[bytes]:
        """Return the body of an answer; frames of AWS as server-sent events."""
        if self._framed is None or not response.headers.get("content-type", "").startswith(FRAMES):
            return super().read(response)
        response.headers["content-type"] = "text/event-stream"
        return read_frames(self._framed._make_sse_decoder(), response.iter_bytes())  # noqa: SLF001  # private

    def _get_client(self, value: Any, model: str) -> Any:
        """Return a client for a value of the credential; one run may use models of both of Bedrock's endpoints."""
        is_framed = self._way.family is BEDROCK and not MANTLE_MODEL.fullmatch(model)
        if (value, is_framed) not in self._made:
            client = self._make_client(self._key if value is None else value, is_framed=is_framed)
            silent = dict.fromkeys((*client.platform_headers(), *_OF_ITSELF), anthropic.omit)
            # Private: a client takes headers of the process too, which are not meant here.
            client._custom_headers = {**silent, **self._headers}  # noqa: SLF001
            self._made[value, is_framed] = client
            self.address = str(client.base_url)
            self._framed = client if is_framed else self._framed
        return self._made[value, is_framed]

    def _make_client(self, value: Any, *, is_framed: bool) -> Any:
        """Return a client of the SDK; whatever it would read in the environment is given."""
        given: dict[str, Any] = {"http_client": self.http, "timeout": self.http.timeout, "max_retries": 0}
        given |= {"open_telemetry": False, **self._place}
        runtime = given.pop("runtime_url", None)
        keys = {"api_key": value}
        if not isinstance(value, str):
            keys = {
                "aws_access_key": value.access_key,
                "aws_secret_key": value.secret_key,
                "aws_session_token": value.token,
            }
        match self._way.family.name:
            case "bedrock" if is_framed:
                return anthropic.AnthropicBedrock(**{**given, **keys, "base_url": runtime})
            case "bedrock":
                return anthropic.AnthropicBedrockMantle(**given, **keys)
            case "aws":
                return anthropic.AnthropicAWS(**given, **keys)
            case "vertex":
                return anthropic.AnthropicVertex(**given, access_token=value)
            case "foundry" if self._way.credential:
                return anthropic.AnthropicFoundry(**given, azure_ad_token_provider=lambda: value)
            case "foundry":
                return anthropic.AnthropicFoundry(**given, **keys)
            case _ if self._way.needs_sdk:
                return anthropic.Anthropic(**given, credentials=lambda **_: AccessToken(value))
            case _:
                return anthropic.Anthropic(**given, auth_token=value)


def _unwrapping(send: Callable[[Any, ExitStack], httpx2.Response]) -> Callable[[Any, ExitStack], httpx2.Response]:
    """Return the function with the SDK's errors taken off: a response is one, and a cause says more."""

    def unwrapped(value: Any, stack: ExitStack) -> httpx2.Response:
        try:
            return send(value, stack)
        except anthropic.APIStatusError as error:
            return error.response
        except anthropic.APIConnectionError as error:
            cause: BaseException = error.__cause__ or error
        except anthropic.AnthropicError as error:  # it sends no such request
            cause = CredentialError(f"Anthropic's SDK: {' '.join(str(error).split())[:_SHOWN_CHARS]}")
        raise cause

    return unwrapped


def read_frames(decoder: Any, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the frames of AWS as server-sent events, and an empty text behind each chunk: a sign of life.

    Raises:
        StreamBrokenError: They are no frames, or damaged.
    """
    from botocore.eventstream import ParserError

    held = b""
    for chunk in chunks:
        held += chunk
        while len(held) >= _SIZE_BYTES:
            size = int.from_bytes(held[:_SIZE_BYTES])
            if size not in _FRAME_BYTES:
                raise StreamBrokenError(f"a frame of {size:,} bytes")
            if len(held) < size:
                break
            frame, held = held[:size], held[size:]
            try:
                for event in decoder.iter_bytes(iter((frame,))):
                    yield f"event: {event.event}\ndata: {event.data}\n\n".encode()
            except (ParserError, ValueError, KeyError) as error:
                raise StreamBrokenError(f"a damaged frame: {error}") from error
        yield b""


class Login:
    """What the SDK's own chain finds: a profile of `ant auth login`, or a workload's identity. Mutable: keeps a token.

    Args:
        base: The address of the environment; empty for that of the login, else the usual one.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._words = ""
        self._cache = TokenCache(self._provide)

    def find_place(self) -> Mapping[str, Any]:
        """Return the address, and the headers that go with the login.

        Raises:
            CredentialError: As `fetch`.
        """
        with _explaining_login(), self._open() as found:
            base = self._base or found.base_url or ANTHROPIC.address
            return {"base_url": base, "default_headers": found.extra_headers}

    def fetch(self, fresh: bool) -> Proof:  # noqa: FBT001  # as every fetch
        """Return a token; a fresh one is in no file yet.

        Raises:
            CredentialError: The login is over, or the service that renews it does not answer.
        """
        if fresh:
            self._cache.invalidate()
        with _explaining_login():
            token = self._cache.get_token()
        return Proof(value=token, secrets=(token,), words=self._words)

    def _provide(self, *, force_refresh: bool = False) -> AccessToken:
        with self._open() as found:
            provider = cast("Any", found.provider)
            if where := getattr(provider, "config_path", ""):
                self._words = f"profile {provider.profile} of ant auth login ({where})"
            return cast("AccessToken", provider(force_refresh=force_refresh))

    @contextmanager
    def _open(self) -> Iterator[CredentialResult]:
        found = default_credentials(base_url=self._base or ANTHROPIC.address)
        if found is None:
            raise anthropic.AnthropicError("the SDK finds none that it can use")
        with closing(cast("Any", found.provider)):
            yield found


@contextmanager
def _explaining_login() -> Iterator[None]:
    try:
        yield
    except (anthropic.AnthropicError, OSError, ValueError) as error:
        status = getattr(error, "status_code", None) or 0
        passes = status == _TOO_MANY or status >= _SERVER_ERROR or isinstance(error.__cause__, httpx2.HTTPError)
        words = " ".join(str(error).split())[:_SHOWN_CHARS]
        raise CredentialError(f"Anthropic's login: {words}", hint=LOGIN_ADVICE, passes=passes) from None
