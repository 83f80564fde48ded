"""A real HTTP server that answers as it is told: with a status, too late, with nonsense, or not at all."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Listener:
    """What came to a server, and what it does about it. Mutable: threads write it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int | str] = []
        """One for each request, the last for all further ones; a status, ``nonsense``, ``drop`` or ``late``."""
        self.released = threading.Event()
        self.url = ""

    def answer(self) -> int | str:
        """Return what is done about the next request."""
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]) if self.answers else 200


@contextmanager
def listen() -> Iterator[Listener]:
    """Listen on a free port of the loopback."""
    found = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.seen.append((self.path, dict(self.headers), body))
            answer = found.answer()
            if answer == "late":
                found.released.wait(60)
            if answer == "nonsense":
                self.wfile.write(b"\xff\xfe what is this\r\n\r\n" * 9)
            elif answer != "drop":
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_port}/topic"
        yield found
        found.released.set()
        server.shutdown()
        thread.join()
