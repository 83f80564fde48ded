"""A real HTTP server that answers as it is told: with a status, with nonsense, without end, or not at all."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Listener:
    """What came to a server, and what it does about it. Mutable: threads write it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int | str] = []
        """One for each request, the last for all further ones: a status, or a name that `_answer` has."""
        self.url = ""

    @property
    def address(self) -> str:
        """Return the URL as Apprise has it."""
        return self.url.replace("http", "json", 1)

    def answer(self) -> int | str:
        """Return what is done about the next request."""
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]) if self.answers else 200


def _answer(handler: BaseHTTPRequestHandler, answer: int | str) -> None:
    match answer:
        case "drop":
            return
        case "nonsense":
            handler.wfile.write(b"\xff\xfe what is this\r\n\r\n" * 9)
            return
        case _:
            pass
    handler.send_response(answer if isinstance(answer, int) else 429 if answer == "later" else 200)
    handler.send_header("Location", "/elsewhere")
    if answer == "later":
        handler.send_header("Retry-After", "1")
    if answer != "endless":
        handler.send_header("Content-Length", "0")
    handler.end_headers()
    with contextlib.suppress(OSError):
        while answer == "endless":
            handler.wfile.write(bytes(1 << 20))


@contextmanager
def listen() -> Iterator[Listener]:
    """Listen on a free port of the loopback."""
    found = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.seen.append((self.path, dict(self.headers), body))
            _answer(self, found.answer())
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/topic"
        yield found
        server.shutdown()
        thread.join()
