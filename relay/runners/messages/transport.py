"""relay's own HTTP client, and the wire to an endpoint that needs no SDK.

The client follows no redirect: a prompt is sent nowhere else. It reads the beginning of an error alone, whoever asks
through it, because an endpoint may send one without end and Anthropic's SDK reads it whole. This machine is reached
without a proxy.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2

from relay import __version__
from relay.base.errors import RunnerError
from relay.base.hints import advise_extra
from relay.runners.messages.credentials import REFUSED, Credential
from relay.runners.messages.endpoint import Way, read_custom_headers

MAX_ERROR_BYTES = 64 * 1024
"""Most of an error's body that is read: its message is in the first few hundred bytes."""
CONNECT_TIMEOUT_S = 10.0
USER_AGENT = f"relay/{__version__}"
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
)
"""Socket options that let the kernel notice a dead peer, and keep a silent connection open in between."""
_FRAMING = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class BoundedClient(httpx2.Client):
    """A client that reads no more than `MAX_ERROR_BYTES` of an error. Mutable, as every client."""

    def send(self, request: httpx2.Request, *, stream: bool = False, **given: Any) -> httpx2.Response:
        """Send a request; the body of an error, or of a redirect, is there when this returns."""
        response = super().send(request, stream=True, **given)
        if response.is_success:
            if not stream:
                response.read()
            return response
        with closing(response):
            content = read_beginning(response, MAX_ERROR_BYTES)
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _FRAMING]
        return httpx2.Response(
            response.status_code, headers=headers, content=content, request=request, extensions=response.extensions
        )


def read_beginning(response: httpx2.Response, most_bytes: int) -> bytes:
    """Return the first `most_bytes` of a body."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) >= most_bytes:
            break
    return bytes(body[:most_bytes])


def open_http(address: str, idle_timeout_s: float, transport: httpx2.BaseTransport | None = None) -> BoundedClient:
    """Open a pool of connections; nothing is sent. Proxies and certificates come from the process's own environment.

    Args:
        address: Where the endpoint is; paths are below it.
        idle_timeout_s: Longest silence.
        transport: How requests travel; None for the network.

    Raises:
        RunnerError: The certificates or the proxy cannot be used.
        httpx2.InvalidURL: The address is malformed.
    """
    import ssl
    from urllib.request import getproxies

    # This machine is reached without a proxy, which may be elsewhere.
    proxies = {} if _is_loopback(address) else getproxies()
    proxied = not {"http", "https", "all"}.isdisjoint(proxies)
    with _explaining():
        # Reading all certificates takes 20 ms. Without TLS no certificate is shown; it would not be trusted.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.startswith("http://") else True
        return BoundedClient(
            base_url=address,
            timeout=httpx2.Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            # A client with a transport of its own does not look for proxies.
            transport=transport
            or (None if proxied else httpx2.HTTPTransport(verify=verify, socket_options=_KEEP_ALIVE)),
        )


class Wire:
    """Requests to one endpoint. Several threads may use it.

    Args:
        http: Closed with the wire.
        credential: Asked before each request, and once more after a refusal; None for a key that stays.
    """

    def __init__(self, http: BoundedClient, credential: Credential | None) -> None:
        self.http = http
        self.address = str(http.base_url)
        self._credential = credential

    def close(self) -> None:
        """Close all connections."""
        self.http.close()

    def read(self, response: httpx2.Response) -> Iterator[bytes]:
        """Return the body of an answer."""
        return response.iter_bytes()

    @contextmanager
    def _sending(self, send: Callable[[Any, ExitStack], httpx2.Response]) -> Iterator[httpx2.Response]:
        """Yield the response; where the value of the credential is refused, that of the next one.

        Args:
            send: Given the value and a stack that closes the response: sends a request.
        """
        with ExitStack() as stack:
            if self._credential is None:
                yield send(None, stack)
                return
            used = self._credential.use()
            response = send(used, stack)
            if response.status_code in REFUSED and self._credential.renew(used):
                response = send(self._credential.use(), stack)
            yield response


class PlainWire(Wire):
    """Requests with a fixed key, or a printed one, to an endpoint of any family.

    Args:
        http: Knows the address.
        key: Empty where a credential, or the login of an agent, is in its place.
    """

    def __init__(self, http: BoundedClient, way: Way, environ: Mapping[str, str], key: str) -> None:
        super().__init__(http, way.credential)
        self._family = way.family
        self._key = key
        self._custom = read_custom_headers(environ, way.family)

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], content: bytes
    ) -> AbstractContextManager[httpx2.Response]:
        """Send a request with these headers above relay's own; an ``x-api-key`` among them takes the key's place."""

        def send(value: Any, stack: ExitStack) -> httpx2.Response:
            key = value or ("" if "x-api-key" in headers else self._key)
            made = httpx2.Headers(
                {
                    "accept": "application/json",
                    "user-agent": USER_AGENT,
                    **dict(self._family.headers),
                    **({self._family.key_header[0]: f"{self._family.key_header[1]}{key}"} if key else {}),
                },
                encoding="utf-8",
            )
            for name, text in (*self._custom.items(), *headers.items()):
                made[name] = text
            request = self.http.build_request(method, path, headers=made, content=content or None)
            return stack.enter_context(closing(self.http.send(request, stream=True)))

        return self._sending(send)


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
def _explaining() -> Iterator[None]:
    """Explain why no client can be made: it reads the certificates, and a SOCKS proxy needs a package of its own."""
    try:
        yield
    except ImportError:
        raise RunnerError(
            "a SOCKS proxy is set (ALL_PROXY or HTTPS_PROXY), and the package socksio is not installed beside relay",
            hint=f"{advise_extra('socks')}, set an http:// proxy, or unset it",
        ) from None
    except OSError as error:  # also an SSL error
        names = [f"{name}={os.environ[name]}" for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)]
        where = f" ({', '.join(names)})" if names else ""
        raise RunnerError(
            f"the certificates that verify the endpoint cannot be read{where}: {error.strerror or error}",
            hint="unset the variable, or let it name what is there" if names else "reinstall relay",
        ) from None
