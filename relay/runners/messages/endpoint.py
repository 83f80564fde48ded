"""The way to an endpoint: address, key, headers, sockets, and its error responses.

A request equals that of the provider's SDK, without the SDK's headers about itself; a test compares the two. The SDK is
not loaded: it takes most of a second and 50 MB, and relay would use no more of it than this module has.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from relay import __version__
from relay.base.errors import RunnerError
from relay.base.hints import advise_extra
from relay.base.redaction import MIN_VALUE_CHARS
from relay.base.values import dataclass
from relay.runners.messages.credentials import Credential

if TYPE_CHECKING:
    import httpx2

FRAMES = "application/vnd.amazon.eventstream"
"""Content type of an answer in frames of AWS."""
MAX_ERROR_BYTES = 64 * 1024
"""Most of an error's body that is read: its message is in the first few hundred bytes."""
_LEAST_SECRET_CHARS = 4
"""Shortest part of the address that is hidden; shorter strings occur in ordinary words."""
VERSION = "2026-10-21"
EDITING_BETA = "context-management-2025-06-27"
"""The beta by which the API edits a context. Source: anthropic 2.12.0, `types/anthropic_beta_param.py`."""
CONNECT_TIMEOUT_S = 10.0
_PROXY_SCHEMES = frozenset({"http", "https", "socks5", "socks5h"})
_KEEP_ALIVE_S = 60
_KEEP_ALIVE_PROBES = 5
_SEGMENT_CHARS = "!$&'()*+,;=:@"
"""Characters that RFC 3986 allows in a path segment, besides letters, digits and ``-._~``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of endpoint: the form of its address, key and paths."""

    name: str
    keys: tuple[str, ...]
    """Variables that may hold the key, the preferred first."""
    base: str
    """The variable that holds the address."""
    address: str
    """Default address."""
    root: str = ""
    """Prefix of paths that the address ends with; empty if paths have all of it."""
    dropped: str = ""
    """Ending that an address may have although its paths begin with it."""
    key_header: tuple[str, str] = ("authorization", "Bearer ")
    """Name of the header, and what stands before the key."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of every request."""
    models: str = "/v1/models/"
    """Path of the descriptions of models."""


ANTHROPIC = Family(
    name="anthropic",
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    base="ANTHROPIC_BASE_URL",
    address="https://api.anthropic.com",
    dropped="/v1",
    headers=(("anthropic-version", VERSION),),
)
OPENAI = Family(
    name="openai", keys=("OPENAI_API_KEY",), base="OPENAI_BASE_URL", address="https://api.openai.com/v1", root="/v1"
)
GEMINI = Family(
    name="gemini",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    base="GOOGLE_GEMINI_BASE_URL",
    address="https://generativelanguage.googleapis.com",
    key_header=("x-goog-api-key", ""),
    models="/v1beta/models/",
)
FAMILIES = (ANTHROPIC, OPENAI, GEMINI)
_SPOKEN = (("anthropic-version", VERSION),)
BEDROCK = Family(
    name="bedrock",
    keys=("AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_AWS_API_KEY"),
    base="ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
    address="",
    dropped="/v1",
    headers=_SPOKEN,
)
AWS = Family(
    name="aws",
    keys=("ANTHROPIC_AWS_API_KEY",),
    base="ANTHROPIC_AWS_BASE_URL",
    address="",
    dropped="/v1",
    headers=_SPOKEN,
)
VERTEX = Family(name="vertex", keys=(), base="ANTHROPIC_VERTEX_BASE_URL", address="")
FOUNDRY = Family(
    name="foundry",
    keys=("ANTHROPIC_FOUNDRY_API_KEY",),
    base="ANTHROPIC_FOUNDRY_BASE_URL",
    address="",
    dropped="/v1",
    key_header=("x-api-key", ""),
    headers=_SPOKEN,
)
CLOUDS = (BEDROCK, AWS, VERTEX, FOUNDRY)
"""Kinds of endpoints with Claude whose address has a region, a resource or a project in it."""


def locate_message(request: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return path and body of a request to the Messages API itself."""
    return "/v1/messages", request


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The way to an endpoint."""

    family: Family = ANTHROPIC
    credential: Credential | None = None
    """Signs each request; None for a key of the environment."""
    find_address: Callable[[], str] | None = None
    """Loads what is slow, and returns the address; None for that of the environment, or the family's own."""
    locate: Callable[[Mapping[str, Any]], tuple[str, Mapping[str, Any]]] = locate_message
    """Given a request of the Messages API: returns its path, or whole address, and its body."""
    lists_models: bool = True
    """Whether it has the Models API."""


PLAIN = Way()


class StatusError(Exception):
    """An error response.

    Args:
        body: The part of it that was read.
    """

    def __init__(self, response: "httpx2.Response", body: bytes) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.status_code = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.request_id: str | None = response.headers.get("request-id") or response.headers.get("x-amzn-requestid")
        try:
            self.body: Any = json.loads(body)
        except (ValueError, RecursionError):
            self.body = body.decode(errors="replace")


def require_success(response: "httpx2.Response") -> "httpx2.Response":
    """Return the response, or raise its error; at most `MAX_ERROR_BYTES` of the error are read.

    Raises:
        StatusError: An error or a redirect: endpoints do not redirect, and a prompt is sent nowhere else.
    """
    if response.is_success:
        return response
    raise StatusError(response, read_beginning(response))


def read_beginning(response: "httpx2.Response", most_bytes: int = MAX_ERROR_BYTES) -> bytes:
    """Return the first `most_bytes` of a body."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) >= most_bytes:
            break
    return bytes(body[:most_bytes])


def find_own_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets of the way to the endpoint, longest first: keys, and parts of the address."""
    lines = environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
    keys = {line.partition(":")[2].strip().removeprefix("Bearer ") for line in lines}
    keys |= {environ.get(name, "") for family in (*FAMILIES, *CLOUDS) for name in family.keys}
    values = {key for key in keys if len(key) >= MIN_VALUE_CHARS}
    for family in (*FAMILIES, *CLOUDS):
        with suppress(ValueError):
            address = urlsplit(environ.get(family.base, ""))
            user, at, _ = address.netloc.rpartition("@")
            password = user.partition(":")[2]
            values |= {user if at else "", password, unquote(password), address.query, address.fragment}
            values |= {value for _, value in parse_qsl(address.query)}
    return tuple(sorted((value for value in values if len(value) >= _LEAST_SECRET_CHARS), key=len, reverse=True))


def get_key_name(environ: Mapping[str, str], families: Sequence[Family] = (ANTHROPIC,)) -> str:
    """Return the variable that holds the key, before anything starts; cheap, and imports nothing.

    Args:
        environ: The environment.
        families: The kinds of endpoints whose keys are accepted.

    Raises:
        RunnerError: None of their variables is set, or its value cannot be a key.
    """
    names = [name for family in families for name in family.keys]
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        unset = f"neither {' nor '.join(names)} is set" if len(names) > 1 else f"{names[0]} is not set"
        raise RunnerError(
            f"no API key: {unset}",
            hint=f"export {names[0]}=…; to see relay work without one, run `relay demo`",
        )
    # An HTTP client would refuse such a key too, and print it.
    if not environ[name].isascii() or not environ[name].isprintable() or " " in environ[name]:
        raise RunnerError(
            f"{name} holds characters that no key has: a blank, a line break, a quotation mark from another alphabet",
            hint=f"export {name}=… again, without anything around it",
        )
    return name


def open_client(
    environ: Mapping[str, str],
    idle_timeout_s: float,
    transport: "httpx2.BaseTransport | None" = None,
    way: Way = PLAIN,
) -> "httpx2.Client":
    """Open a pool of connections to the endpoint; nothing is sent.

    Args:
        environ: The source of the key, the base URL and the custom headers. Proxies and certificates come from the
            process's own environment.
        idle_timeout_s: Longest silence.
        transport: How requests travel; None for the network.
        way: The kind of endpoint, and what signs its requests.

    Raises:
        RunnerError: No usable key, or no certificates.
        httpx2.InvalidURL: The base URL is malformed.
    """
    import ssl
    from urllib.request import getproxies

    import httpx2

    from relay.runners.messages.signing import SigningClient

    family = way.family
    key = "" if way.credential else environ[get_key_name(environ, (family,))]
    address = way.find_address() if way.find_address else find_base(environ, family) or family.address
    # This machine is reached without a proxy, which may be elsewhere.
    proxies = {} if _is_loopback(address) else getproxies()
    proxied = not {"http", "https", "all"}.isdisjoint(proxies)
    for kind, proxy in proxies.items():
        _require_proxy(kind, proxy)
    with _explaining_certificates(), _explaining_socks():
        # Reading all certificates takes 20 ms. Without TLS no certificate is shown; it would not be trusted.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.startswith("http://") else True
        return SigningClient(
            way.credential,
            base_url=address,
            headers=_build_headers(environ, key, family),
            timeout=httpx2.Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            # A client with a transport of its own does not look for proxies.
            transport=transport
            or (None if proxied else httpx2.HTTPTransport(verify=verify, socket_options=_keep_alive())),
        )


def find_base(environ: Mapping[str, str], family: Family) -> str:
    """Return the address that the environment names; empty if it names none."""
    return environ.get(family.base, "").rstrip("/").removesuffix(family.dropped)


def _is_loopback(address: str) -> bool:
    from ipaddress import ip_address

    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def find_proxy(address: str) -> str:
    """Return the proxy on the way to an address, as ``HTTPS_PROXY=host:port``; empty without one."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    try:
        scheme, host = urlsplit(address).scheme, urlsplit(address).hostname or ""
    except ValueError:
        return ""
    kind = next((kind for kind in (scheme, "all") if kind in proxies), "")
    if not kind or _is_loopback(address) or proxy_bypass(host):
        return ""
    # without the scheme, and without the password in front of the @
    return f"{kind.upper()}_PROXY={proxies[kind].rpartition('//')[2].rpartition('@')[2]}"


@contextmanager
def _explaining_certificates() -> Iterator[None]:
    """Explain a failure to read the certificates: they are all that a client reads when it is made."""
    try:
        yield
    except OSError as error:  # also an SSL error
        names = [f"{name}={os.environ[name]}" for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)]
        where = f" ({', '.join(names)})" if names else ""
        raise RunnerError(
            f"the certificates that verify the endpoint cannot be read{where}: {error.strerror or error}",
            hint="unset the variable, or let it name what is there" if names else "reinstall relay",
        ) from None


@contextmanager
def _explaining_socks() -> Iterator[None]:
    """Explain the missing package for a SOCKS proxy: it is not installed with relay."""
    try:
        yield
    except ImportError:
        raise RunnerError(
            "a SOCKS proxy is set (ALL_PROXY or HTTPS_PROXY), and the package socksio is not installed beside relay",
            hint=f"{advise_extra('socks')}, set an http:// proxy, or unset it",
        ) from None


def _require_proxy(kind: str, proxy: str) -> None:
    """Refuse a malformed proxy; the HTTP client would blame the endpoint.

    Raises:
        RunnerError: It names no host, or an unknown kind of proxy.
    """
    if kind not in {"http", "https", "all"}:
        return
    try:
        address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        fit = address.scheme in _PROXY_SCHEMES and address.hostname and (address.port or 1) > 0
    except ValueError:
        fit = False
    if not fit or not proxy.isprintable() or " " in proxy:
        raise RunnerError(
            f"{kind.upper()}_PROXY is no address of a proxy", hint="set it to http://host:port, or unset it"
        )


def quote_model(model: str, family: Family = ANTHROPIC) -> str:
    """Return the path of a model's description."""
    return f"{family.models.removeprefix(family.root)}{quote(model, safe=_SEGMENT_CHARS)}"


def _build_headers(environ: Mapping[str, str], key: str, family: Family) -> "httpx2.Headers":
    """Return the headers of every request; a custom header, a ``Name: value`` on each line, replaces any other."""
    import httpx2

    headers = httpx2.Headers(
        {
            "accept": "application/json",
            "user-agent": f"relay/{__version__}",
            **dict(family.headers),
            **({family.key_header[0]: f"{family.key_header[1]}{key}"} if key else {}),
        },
        encoding="utf-8",
    )
    for line in environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n"):
        name, colon, value = line.partition(":")
        if colon and (family is ANTHROPIC or family in CLOUDS):
            headers[name.strip()] = value.strip()
    return headers


def _keep_alive() -> list[tuple[int, int, int]]:
    """Return socket options that let the kernel notice a dead peer, and keep a silent connection open in between."""
    named = (("TCP_KEEPIDLE", _KEEP_ALIVE_S), ("TCP_KEEPINTVL", _KEEP_ALIVE_S), ("TCP_KEEPCNT", _KEEP_ALIVE_PROBES))
    options = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in named if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *options]
