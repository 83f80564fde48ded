"""The board in a browser, attacked by whoever can reach the port: without the token it tells nothing."""

import contextlib
import http.client
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser

import pytest

from relay.cli.views.server import MOST_CONNECTIONS, ServedView, serve_board
from relay.session.events import (
    Noticed,
    PlanShown,
    RunStarted,
    SessionStarted,
    ShownItem,
    ShownPhase,
    TextShown,
    ToolStarted,
)
from tests.waiting import wait_until

HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\x1b]0;x\x07\u202e&amp;'\"" + "y" * 5_000


def make_view():
    view = ServedView(clock=lambda: 100.0)
    view.observe(
        RunStarted(
            run_id="r1", command="run", model=HOSTILE, plan_path=HOSTILE, branch=HOSTILE, sandbox="bwrap",
            cap_usd=1.0, spent_usd=0.5, rehearsed=True,
        )
    )  # fmt: skip
    items = [ShownItem(id="1.1", text=HOSTILE, state="open")]
    view.observe(PlanShown(phases=(ShownPhase(id="1", title=HOSTILE, items=items),)))
    view.observe(SessionStarted(session_id="s", phase_id="1", title=HOSTILE, number=1, reason=HOSTILE))
    view.observe(TextShown(text=HOSTILE))
    view.observe(ToolStarted(call_id="c", name=HOSTILE, summary=HOSTILE))
    view.observe(Noticed(text=HOSTILE))
    return view


@pytest.fixture
def board():
    with serve_board(make_view(), 0) as address:
        yield address


def split(address):
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{43})/", address)
    assert found is not None
    return int(found[1]), found[2]


def ask(address, path, *, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", split(address)[0], timeout=20)
    try:
        connection.putrequest(method, path, skip_host="host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), "" if "/events" in path else answer.read().decode()
    finally:
        connection.close()


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def list_tags(text):
    tags = Tags()
    tags.feed(text)
    return tags.found


def test_the_page_shows_hostile_text_as_text_and_takes_nothing_from_elsewhere(board):
    """No element and no attribute comes from a run; the policy lets nothing in but the two files of its own."""
    _, token = split(board)
    status, headers, page = ask(board, f"/{token}/")
    assert status == 200
    kinds = {tag for tag, _ in list_tags(page)}
    assert kinds == {"html", "head", "meta", "title", "link", "noscript", "body", "main", "pre", "span", "script"}
    assert [attrs for tag, attrs in list_tags(page) if tag == "script"] == [{"src": "board.js"}]
    assert all(set(attrs) <= {"class", "id"} for tag, attrs in list_tags(page) if tag in {"pre", "span", "main"})
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "spend" in page
    assert '<span class="yellow">rehearsed: a script plays the model</span>' in page
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
    for name in ("board.css", "board.js"):
        assert ask(board, f"/{token}/{name}")[0] == 200


def test_without_the_token_there_is_nothing(board):
    _, token = split(board)
    for path in ("/", "//", f"/{token[:-1]}/", f"/{token[:-1]}x/", "/board.css", f"/x/{token}/", f"/?{token}"):
        status, _, body = ask(board, path)
        assert (status, body) == (404, "404\n")


def test_paths_lead_nowhere(board):
    _, token = split(board)
    for path in ("../" * 8 + "etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "board.css/../x", "..", "board.css%00", "a/b"):
        assert ask(board, f"/{token}/{path}")[0] == 404


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example", "[::1]", ""])
def test_another_hosts_name_is_refused(board, name):
    """DNS that answers with our address gives a page of somebody else's no way in."""
    port, token = split(board)
    for host in {name, f"{name}:{port}"} - {f"127.0.0.1:{port}"}:
        assert ask(board, f"/{token}/", host=host)[0] == 403


def test_another_origin_is_refused(board):
    port, token = split(board)
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert ask(board, f"/{token}/events", **headers)[0] == 403
    assert ask(board, f"/{token}/events", Origin=f"http://127.0.0.1:{port}", Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "<script>"])
def test_nothing_but_get_is_answered_and_nothing_asked_comes_back(board, method):
    _, token = split(board)
    status, headers, body = ask(board, f"/{token}/", method=method)
    assert status == 405
    assert body in {"405\n", ""}
    assert "Access-Control-Allow-Origin" not in headers


def test_a_request_without_end_is_ended():
    """One byte now and then keeps no place: the server ends it, and a usual request is answered meanwhile."""
    with serve_board(make_view(), 0, request_s=0.3) as address:
        port, token = split(address)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
            slow.settimeout(0.05)
            slow.sendall(b"GET / HTTP/1.1\r\nX: ")
            assert ask(address, f"/{token}/")[0] == 200
            answer = None
            while answer is None:
                try:
                    slow.sendall(b"y")
                    answer = slow.recv(100)
                except TimeoutError:
                    continue
                except OSError:
                    answer = b""
    assert answer == b""


def test_a_hundred_clients_leave_room_again(board):
    """Those that are too many are closed at once; when they go, the next is served."""
    port, token = split(board)

    def connect(_number):
        client = socket.create_connection(("127.0.0.1", port), timeout=20)
        client.sendall(f"GET /{token}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        try:
            return client, client.recv(8)
        except OSError:
            return client, b""

    with ThreadPoolExecutor(100) as pool:
        clients = list(pool.map(connect, range(100)))
    assert sum(begun == b"HTTP/1.0" for _, begun in clients) == MOST_CONNECTIONS
    for client, _ in clients:
        client.close()
    wait_until(lambda: has_place(board))


def has_place(board):
    """Say whether there is room: the threads notice with the next picture that nobody is there."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return ask(board, f"/{split(board)[1]}/")[0] == 200
    return False


def test_the_picture_comes_as_it_changes(board):
    port, token = split(board)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(f"GET /{token}/events?cells=60 HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        with client.makefile("rb") as lines:
            data = next(line for line in lines if line.startswith(b"data: "))
    live = json.loads(data.removeprefix(b"data: "))
    assert {tag for tag, _ in list_tags(live)} == {"pre", "span"}
    assert 'id="board"' in live
    for cells in ("9" * 90, "-1", "1;2", "x", "%D9%A3"):
        assert ask(board, f"/{token}/events?cells={cells}")[0] == 200
