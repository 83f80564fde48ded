"""What stalls does not hold up the end, and the cache has a clock of its own."""

import contextlib
import http.client
import json
import threading
from typing import Any

import pytest

from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.waiting import wait_until

HELLO = "sessions: [{repeat: true, turns: [{text: Hello., repeat: forever}]}]"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("fault", ["stall", "{kind: stall, ping_s: 0.01}", "{kind: stall, before_headers: true}"])
def test_a_stall_does_not_hold_up_the_end(fault: str) -> None:
    """A client that waits is cut off when the server stops."""
    script = parse_script(f"sessions: [{{turns: [{{fault: {fault}, text: x}}]}}]")
    with contextlib.ExitStack() as stack, serve(script) as server:
        connection = http.client.HTTPConnection(server.base_url.removeprefix("http://"), timeout=60)
        stack.enter_context(contextlib.closing(connection))
        messages = [{"role": "user", "content": "Begin."}]
        body = {"model": "claude-opus-5-5", "max_tokens": 99, "messages": messages, "stream": True}
        headers = {"x-api-key": "k", "anthropic-version": "2026-10-21"}
        connection.request("POST", "/v1/messages", json.dumps(body), headers)
        wait_until(lambda: server.unplayed == ())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("relay-rehearsal")]


def test_the_cache_ages_by_the_given_clock(play: Any) -> None:
    """No test has to wait five minutes."""
    now = [0.0]
    table = play(HELLO, clock=lambda: now[0])
    long = [{"role": "user", "content": "x" * 4000}]
    reads = []
    for seconds in (0, 299, 598, 898):
        now[0] = seconds
        reads.append(table.ask(long, cache_control={"type": "ephemeral"}).usage.cache_read_input_tokens)
    assert reads == [0, 1146, 1146, 0]
