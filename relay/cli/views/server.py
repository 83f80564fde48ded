"""`relay watch --serve`: serve the board to a browser on this machine.

The standard library's server is enough: four small answers to GET on loopback need no framework, and with a thread per
connection a client that does not read delays only itself. This module adds a limit on connections, a deadline for slow
requests, and answers without any text of the library.

A token in the address admits a client. A page of another origin does not know the token. Headers that a page cannot
choose refuse pages that guess it, and pages that reach this address by DNS rebinding.
"""

import contextlib
import hmac
import io
import json
import secrets
import select
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rich.console import Console
from rich.style import Style
from rich.text import Text

from relay.base.errors import ConfigError
from relay.base.interrupts import Urgency
from relay.cli.views.base import ClockedView
from relay.cli.views.board import Board
from relay.cli.views.draw import draw_run
from relay.cli.views.narrate import LOST, Line, Narrator, Tone, tell_job
from relay.cli.views.shapes import render_line
from relay.session.events import Event
from relay.session.records import LoggedEvent

LEAST_CELLS, MOST_CELLS = 20, 200
_LINES = 44
_LONGEST_LINE_CHARS = 400

STYLE = """\
:root { color-scheme: light dark; --back: #fff; --text: #1a1a1a; --dim: #5c5c5c; --cyan: #0b6478; --green: #1b6b2a;
  --yellow: #7a5600; --red: #b3221b }
@media (prefers-color-scheme: dark) { :root { --back: #14161a; --text: #e6e6e6; --dim: #9b9b9b; --cyan: #5cc8dc;
  --green: #6fce80; --yellow: #e2b84a; --red: #ff8a80 } }
body { margin: 1rem; background: var(--back); color: var(--text) }
pre { font: 14px/1.35 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; margin: 0; overflow-x: auto }
#said { margin-top: 1rem; white-space: pre-wrap; overflow-wrap: anywhere }
.gone #board { opacity: .5 }
.bold, .strong { font-weight: bold } .italic { font-style: italic } .dim, .quiet { color: var(--dim) }
.cyan { color: var(--cyan) } .green, .good { color: var(--green) } .yellow, .warning { color: var(--yellow) }
.red, .bad { color: var(--red) }
"""
SCRIPT = """\
const probe = document.createElement("span");
let source;
function listen() {
  const board = document.getElementById("board");
  probe.textContent = "0".repeat(100);
  board.append(probe);
  const cells = Math.floor(board.clientWidth / (probe.getBoundingClientRect().width / 100)) - 1;
  probe.remove();
  if (source) source.close();
  source = new EventSource("events?cells=" + cells);
  source.onopen = () => document.body.classList.remove("gone");
  source.onerror = () => document.body.classList.add("gone");
  source.onmessage = (told) => { document.getElementById("live").innerHTML = JSON.parse(told.data); };
}
let waiting;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(listen, 300); });
listen();
"""


def render_live(board: Board, lines: Sequence[Line], *, now: float, cells: int) -> str:
    """Return the changing part of the page.

    Args:
        lines: The last events, oldest first.
        cells: Width of the board.
    """
    width = min(MOST_CELLS, max(LEAST_CELLS, cells))
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False, emoji=False, highlight=False)
    frame = "\n".join(_render_text(text, console) for text in draw_run(board, now=now, width=width, height=_LINES))
    said = "\n".join(
        f'<span class="{line.tone}">{escape(render_line(line, _LONGEST_LINE_CHARS))}</span>' for line in lines
    )
    return f'<pre id="board">{frame}</pre><pre id="said">{said}</pre>'


def render_live_page(live: str) -> str:
    """Return the whole page. Its script redraws it; without scripts the page reloads itself every two seconds."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>relay watch</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="board.css"><noscript><meta http-equiv="refresh" content="2"></noscript></head>'
        f'<body><main id="live">{live}</main><script src="board.js"></script></body></html>'
    )


def _render_text(text: Text, console: Console) -> str:
    base = console.get_style(text.style)  # rich leaves the text's own style to the printer
    pieces = ((segment.text.rstrip("\n"), base + segment.style) for segment in text.render(console))
    return "".join(_render_piece(words, _name_classes(style)) for words, style in pieces if words)


def _render_piece(words: str, classes: Iterable[str]) -> str:
    names = " ".join(classes)
    return f'<span class="{names}">{escape(words)}</span>' if names else escape(words)


def _name_classes(style: Style | None) -> Iterable[str]:
    if style is None:
        return
    for name in ("bold", "dim", "italic"):
        if getattr(style, name):
            yield name
    if style.color is not None:
        yield style.color.name


HOST = "127.0.0.1"
MOST_CONNECTIONS = 32
REQUEST_S = 5.0
_FRAME_S = 0.5
_PING_FRAMES = 30
_SAID_LINES = 40
_CELLS = 100
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class ServedView(ClockedView):
    """A `relay.cli.views.base.View` that only answers requests for the present picture. Mutable."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._lock = threading.Lock()
        self._board = Board(started_at=clock())
        self._narrators: dict[str, Narrator] = defaultdict(Narrator)
        self._said: deque[Line] = deque(maxlen=_SAID_LINES)

    def replay(self, at: float, event: Event) -> None:
        """Apply an event of the past."""
        with self._lock:
            self._board.apply(event, at)
            self._said.extend(line for line in self._narrators[""].tell(event) if not line.detail)

    def tell(self, record: LoggedEvent, *, phase_id: str) -> None:
        """Apply an event of a job."""
        with self._lock:
            self._board.apply_job(phase_id, record.event, record.at)
            said = tell_job(self._narrators[phase_id], phase_id, record.event)
            self._said.extend(line for line in said if not line.detail)

    def note_stop(self, urgency: Urgency) -> None:
        """Show that the run was asked to stop."""
        self._board.stopping = urgency

    def note_loss(self) -> None:
        """Show that the run's relay is gone."""
        with self._lock:
            self._board.lost = True
            self._said.append(Line(text=LOST, tone=Tone.WARNING))

    def render(self, cells: int) -> str:
        """Return the present picture."""
        with self._lock:
            return render_live(self._board, tuple(self._said), now=self._clock(), cells=cells)


class _Server(ThreadingHTTPServer):
    """The server. Mutable: knows its connections and the deadlines of their requests."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, view: ServedView, request_s: float) -> None:
        super().__init__((HOST, port), _BoardRequest)
        self.view = view
        self.request_s = request_s
        self.token = secrets.token_urlsafe(32)
        self.closing = threading.Event()
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._deadlines: dict[Any, float] = {}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The values of a browser's ``Host`` header for this server."""
        return tuple(f"{name}:{self.server_port}" for name in (HOST, "localhost"))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread, or close it if there are too many."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._deadlines[request] = time.monotonic() + self.request_s
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then free the connection's place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._deadlines.pop(request, None)
            self._places.release()

    def note_read(self, request: Any) -> None:
        """Remove the deadline of a connection whose request has arrived."""
        self._deadlines.pop(request, None)

    def service_actions(self) -> None:
        """Close connections that are past their deadline; called twice a second."""
        now = time.monotonic()
        for request, deadline in list(self._deadlines.items()):
            if now > deadline:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: the client went away or sent nonsense."""


class _BoardRequest(BaseHTTPRequestHandler):
    """One request. Mutable, as in the library."""

    server: _Server
    server_version, sys_version = "relay", ""

    def setup(self) -> None:
        """Set the timeout for a client that neither sends nor reads."""
        super().setup()
        self.connection.settimeout(self.server.request_s)

    def do_GET(self) -> None:  # the library's name
        """Answer."""
        self.server.note_read(self.request)
        address = urlsplit(self.path)
        _, token, *rest = address.path.split("/")
        if not self._is_ours():
            self.send_error(403)
            return
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.send_error(404)
            return
        match rest:
            case [""]:
                self._send("text/html", render_live_page(self.server.view.render(_CELLS)))
            case ["board.css"]:
                self._send("text/css", STYLE)
            case ["board.js"]:
                self._send("text/javascript", SCRIPT)
            case ["events"]:
                asked = parse_qs(address.query[:100]).get("cells", [""])[0]
                self._stream(int(asked) if asked.isascii() and asked.isdigit() else _CELLS)
            case _:
                self.send_error(404)

    def _is_ours(self) -> bool:
        """Return whether a browser asks for this server by its own name, and not on behalf of another page."""
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        site = self.headers.get("Sec-Fetch-Site", "none")
        ours = {f"http://{host}" for host in self.server.hosts}
        named = len(hosts) == 1 and hosts[0] in self.server.hosts
        return named and set(origins) <= ours and site in {"none", "same-origin"}

    def _start(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        for name, value in _HEADERS.items():
            self.send_header(name, value)

    def _send(self, kind: str, text: str, status: int = 200) -> None:
        data = text.encode("utf-8", "replace")
        self._start(status, kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, cells: int) -> None:
        """Send each new picture until the client or the server goes away."""
        self._start(200, "text/event-stream")
        self.end_headers()
        shown, idle = "", 0
        while not (self.server.closing.is_set() or self._is_gone()):
            live = self.server.view.render(cells)
            idle = 0 if live != shown else idle + 1
            if live != shown:
                self.wfile.write(f"data: {json.dumps(live)}\n\n".encode())
                shown = live
            elif idle % _PING_FRAMES == 0:
                self.wfile.write(b":\n\n")
            self.server.closing.wait(_FRAME_S)

    def _is_gone(self) -> bool:
        ready = select.select([self.connection], [], [], 0)[0]
        return bool(ready) and not self.connection.recv(1, socket.MSG_PEEK)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request, with nothing of the request in the answer."""
        del message, explain
        if code == 501:  # noqa: PLR2004  # the library's code for every method but GET
            code = 405
        self.close_connection = True
        with contextlib.suppress(OSError):
            self._send("text/plain", f"{code}\n", code)

    def log_message(self, *_: object) -> None:
        """Print nothing on the terminal."""


@contextlib.contextmanager
def serve_board(view: ServedView, port: int, *, request_s: float = REQUEST_S) -> Iterator[str]:
    """Serve a view on loopback while the block is open; yield its address with the token.

    Args:
        port: 0 for a free one.
        request_s: Seconds for a request to arrive, and for a client to read an answer.

    Raises:
        ConfigError: relay cannot listen on the port.
    """
    try:
        server = _Server(port, view, request_s)
    except OSError as error:
        raise ConfigError(
            f"relay cannot listen on {HOST}:{port}: {error.strerror}", hint="choose another port"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="relay-board", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/{server.token}/"
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
