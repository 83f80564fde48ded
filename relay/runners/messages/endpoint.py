"""The way to an endpoint: address, key, headers, sockets, and how it says no.

Everything that goes over the wire is what the provider's SDK sends, without what the SDK says of itself; a test holds
the two against each other. The SDK is not loaded: it takes most of a second and 50 MB, and this is all that is used.
"""

import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from relay import __version__
from relay.base.errors import RunnerError
from relay.base.redaction import MIN_VALUE_CHARS
from relay.base.values import dataclass
from relay.config.extras import advise_extra

if TYPE_CHECKING:
    import httpx2

MAX_ERROR_BYTES = 64 * 1024
"""Of the body of an error: its words are in the first few hundred."""
_LEAST_SECRET_CHARS = 4
"""Of the address; anything shorter is in every second word."""
VERSION = "2026-10-21"
CONNECT_TIMEOUT_S = 10.0
_PROXY_SCHEMES = frozenset({"http", "https", "socks5", "socks5h"})
_KEEP_ALIVE_S = 60
_KEEP_ALIVE_PROBES = 5
_SEGMENT_CHARS = "!$&'()*+,;=:@"
"""What RFC 3986 lets stand in a segment of a path, besides letters, digits and ``-._~``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Whose form the address, the key and the paths of an endpoint have."""

    name: str
    keys: tuple[str, ...]
    """Variables that may hold the key, the stronger first."""
    base: str
    """The variable that holds the address."""
    address: str
    """Where there is none."""
    root: str = ""
    """What a path begins with and the address ends with; empty where the path has all of it."""
    dropped: str = ""
    """What an address may end with that its paths begin with."""
    key_header: tuple[str, str] = ("authorization", "Bearer ")
    """Its name, and what stands before the key."""
    headers: tuple[tuple[str, str], ...] = ()
    """Of every request."""
    models: str = "/v1/models/"
    """The path of the description of models."""


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


class StatusError(Exception):
    """An answer that is an error.

    Args:
        body: As much of it as was read.
    """

    def __init__(self, response: "httpx2.Response", body: bytes) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.status_code = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.request_id: str | None = response.headers.get("request-id")
        try:
            self.body: Any = json.loads(body)
        except (ValueError, RecursionError):
            self.body = body.decode(errors="replace")


def require_success(response: "httpx2.Response") -> "httpx2.Response":
    """Return the response, or raise what it says went wrong; what it says behind `MAX_ERROR_BYTES` is not read.

    Raises:
        StatusError: It is an error, or sends us elsewhere: an endpoint does not, and a prompt goes nowhere else.
    """
    if response.is_success:
        return response
    raise StatusError(response, read_beginning(response))


def read_beginning(response: "httpx2.Response", most_bytes: int = MAX_ERROR_BYTES) -> bytes:
    """Return a body as far as it is looked at; by default that of an error."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) >= most_bytes:
            break
    return bytes(body[:most_bytes])


def find_own_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what of the way to the endpoint must not be shown, whoever says it back: keys, and parts of the address.

    Longest first.
    """
    lines = environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
    keys = {line.partition(":")[2].strip().removeprefix("Bearer ") for line in lines}
    keys |= {environ.get(name, "") for family in FAMILIES for name in family.keys}
    values = {key for key in keys if len(key) >= MIN_VALUE_CHARS}
    for family in FAMILIES:
        with suppress(ValueError):
            address = urlsplit(environ.get(family.base, ""))
            user, at, _ = address.netloc.rpartition("@")
            password = user.partition(":")[2]
            values |= {user if at else "", password, unquote(password), address.query, address.fragment}
            values |= {value for _, value in parse_qsl(address.query)}
    return tuple(sorted((value for value in values if len(value) >= _LEAST_SECRET_CHARS), key=len, reverse=True))


def get_key_name(environ: Mapping[str, str], families: Sequence[Family] = (ANTHROPIC,)) -> str:
    """Return the variable that holds the key, before anything starts; costs nothing and imports nothing.

    Args:
        environ: Where it is looked for.
        families: Whose keys would do.

    Raises:
        RunnerError: None of their variables is set, or it cannot be a key.
    """
    names = [name for family in families for name in family.keys]
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        unset = f"neither {' nor '.join(names)} is set" if len(names) > 1 else f"{names[0]} is not set"
        raise RunnerError(
            f"no API key: {unset}",
            hint=f"export {names[0]}=…; to see relay work without one, run `relay demo`",
        )
    # An HTTP client would refuse it too, and print the key while doing so.
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
    family: Family = ANTHROPIC,
) -> "httpx2.Client":
    """Open a pool of connections to the endpoint; nothing is sent.

    Args:
        environ: Where the key, the base URL and the custom headers come from. Proxies and certificates come from the
            process's own environment.
        idle_timeout_s: Longest silence.
        transport: How requests travel; None for the network.
        family: What kind of endpoint it is.

    Raises:
        RunnerError: No key, or one that cannot be one; no certificates.
        httpx2.InvalidURL: The base URL is none.
    """
    import ssl
    from urllib.request import getproxies

    import httpx2

    key_name = get_key_name(environ, (family,))
    address = environ.get(family.base, "").rstrip("/").removesuffix(family.dropped) or family.address
    # What is on this machine is asked without a proxy, which may be on another.
    proxies = {} if _is_loopback(address) else getproxies()
    proxied = not {"http", "https", "all"}.isdisjoint(proxies)
    for kind, proxy in proxies.items():
        _require_proxy(kind, proxy)
    with _explaining_certificates(), _explaining_socks():
        # Reading all certificates takes 20 ms. Without TLS nobody shows one; if one did, none would be believed.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.startswith("http://") else True
        return httpx2.Client(
            base_url=address,
            headers=_build_headers(environ, environ[key_name], family),
            timeout=httpx2.Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            # A client that is given a transport does not look for proxies.
            transport=transport
            or (None if proxied else httpx2.HTTPTransport(verify=verify, socket_options=_keep_alive())),
        )


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
    # Without its scheme, and the password in front of the @.
    return f"{kind.upper()}_PROXY={proxies[kind].rpartition('//')[2].rpartition('@')[2]}"


@contextmanager
def _explaining_certificates() -> Iterator[None]:
    """Say where the certificates should be: they are all that a client reads when it is made."""
    try:
        yield
    except OSError as error:  # an SSL error too
        names = [f"{name}={os.environ[name]}" for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)]
        where = f" ({', '.join(names)})" if names else ""
        raise RunnerError(
            f"the certificates that tell the endpoint from others cannot be read{where}: {error.strerror or error}",
            hint="unset the variable, or let it name what is there" if names else "reinstall relay",
        ) from None


@contextmanager
def _explaining_socks() -> Iterator[None]:
    """Say what a client lacks for a SOCKS proxy: it is not installed with relay."""
    try:
        yield
    except ImportError:
        raise RunnerError(
            "a SOCKS proxy is set (ALL_PROXY or HTTPS_PROXY), and the package socksio is not installed beside relay",
            hint=f"{advise_extra('socks')}, set an http:// proxy, or unset it",
        ) from None


def _require_proxy(kind: str, proxy: str) -> None:
    """Refuse what cannot be a proxy; the HTTP client would blame the endpoint.

    Raises:
        RunnerError: It names no host, or no such kind of proxy.
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
    """Return what every request says; a custom header, a ``Name: value`` on each line, replaces any other."""
    import httpx2

    headers = httpx2.Headers(
        {
            "accept": "application/json",
            "user-agent": f"relay/{__version__}",
            **dict(family.headers),
            family.key_header[0]: f"{family.key_header[1]}{key}",
        },
        encoding="utf-8",
    )
    for line in environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n"):
        name, colon, value = line.partition(":")
        if colon and family is ANTHROPIC:
            headers[name.strip()] = value.strip()
    return headers


def _keep_alive() -> list[tuple[int, int, int]]:
    """Return the options that let the kernel notice a peer that is gone, and keep a silent connection's way open."""
    named = (("TCP_KEEPIDLE", _KEEP_ALIVE_S), ("TCP_KEEPINTVL", _KEEP_ALIVE_S), ("TCP_KEEPCNT", _KEEP_ALIVE_PROBES))
    options = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in named if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *options]
