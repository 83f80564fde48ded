"""The page of `relay watch --serve`, attacked by whoever reaches the port: without the token it tells nothing."""

import http.client
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from relay.cli.page_server import MOST_CONNECTIONS, serve_page
from tests.waiting import wait_until

PAGE = "<!doctype html><title>a run</title>"


@pytest.fixture(scope="module")
def board():
    with serve_page(lambda: PAGE, 0) as address:
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
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_with_the_token_there_is_the_page_and_no_other_page_may_frame_it(board):
    _, token = split(board)
    status, headers, page = ask(board, f"/{token}/")
    assert (status, page) == (200, PAGE)
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")


def test_without_the_token_there_is_nothing(board):
    _, token = split(board)
    for path in ("/", "//", f"/{token[:-1]}/", f"/{token[:-1]}x/", "/board.css", f"/x/{token}/", f"/?{token}"):
        status, _, body = ask(board, path)
        assert (status, body) == (404, "404\n")


def test_paths_lead_nowhere(board):
    _, token = split(board)
    for path in ("../" * 8 + "etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "board.css/../x", "..", "board.css%00", "a/b"):
        assert ask(board, f"/{token}/{path}")[0] == 404


def test_another_hosts_name_is_refused(board):
    """DNS that answers with our address gives a page of somebody else's no way in."""
    port, token = split(board)
    for name in ("evil.example", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example", "[::1]", ""):
        for host in {name, f"{name}:{port}"} - {f"127.0.0.1:{port}"}:
            assert ask(board, f"/{token}/", host=host)[0] == 403, host


def test_another_origin_is_refused(board):
    port, token = split(board)
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        assert ask(board, f"/{token}/", **headers)[0] == 403
    assert ask(board, f"/{token}/", Origin=f"http://127.0.0.1:{port}", Sec_Fetch_Site="same-origin")[0] == 200


def test_nothing_but_get_is_answered_and_nothing_asked_comes_back(board):
    _, token = split(board)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "<script>"):
        status, headers, body = ask(board, f"/{token}/", method=method)
        assert (status, body in {"501\n", ""}) == (501, True), method
        assert "Access-Control-Allow-Origin" not in headers


def test_a_request_without_end_is_ended():
    """One byte now and then keeps no place: the server ends it, and a usual request is answered meanwhile."""
    with serve_page(lambda: PAGE, 0, request_s=0.3) as address:
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


def test_a_hundred_clients_leave_room_again():
    """Those that are too many are closed at once; when the others are answered, the next is served."""
    release = threading.Event()
    with serve_page(lambda: PAGE if release.wait(20) else "", 0) as address:
        port, token = split(address)

        def connect(_number):
            client = socket.create_connection(("127.0.0.1", port), timeout=20)
            client.sendall(f"GET /{token}/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            try:
                begun = client.recv(8)
            except OSError:
                begun = b""
            client.close()
            closed.append(begun)
            return begun

        closed: list[bytes] = []
        with ThreadPoolExecutor(100) as pool:
            begun = pool.map(connect, range(100))
            wait_until(lambda: len(closed) == 100 - MOST_CONNECTIONS)
            assert set(closed) == {b""}
            release.set()
            assert sorted(begun)[100 - MOST_CONNECTIONS :] == [b"HTTP/1.0"] * MOST_CONNECTIONS
        wait_until(lambda: ask(address, f"/{token}/")[0] == 200)
