"""The other APIs of the rehearsal, as the vendors' own SDKs understand them."""

from contextlib import contextmanager
from typing import Any

import pytest

from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve
from tests.endpoint.clients import APIS, MODEL, SCRIPT, Gemini

EVERY = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


@contextmanager
def opened(api, script=SCRIPT):
    with serve(parse_script(script)) as server:
        client = api(server)
        with client.client:
            yield server, client


@pytest.mark.parametrize("stream", [True, False])
@EVERY
def test_a_conversation_is_played_and_counted_as_the_sdk_reads_it(api, stream):
    with opened(api) as (server, client):
        first = client.ask(stream=stream)
        client.calls = first.calls
        assert first.text == "I look äround."
        assert [given.replace(chr(39), chr(34)).replace(" ", "") for _, given in first.calls] == [
            '{"path":"ab"}',
            '{"path":"c"}',
        ]
        client.answer("one", "two")
        second = client.ask(stream=stream)
        assert second.text == "Done."
        assert second.reason in {"completed", "stop", "STOP"}
        for answer, bill in zip((first, second), server.state.bills, strict=True):
            read = bill["cache_read_input_tokens"]
            assert answer.counted == (bill["input_tokens"] + read, read or answer.counted[1], bill["output_tokens"])
            assert bill["cache_creation_input_tokens"] == 0
        assert second.counted[1] >= first.counted[0]
        assert server.errors == []
        assert server.unplayed == ()


@EVERY
def test_the_endpoint_says_of_a_model_what_it_says(api):
    with opened(api) as (_, client):
        found: Any = client.client.models.get(model=MODEL) if api is Gemini else client.client.models.retrieve(MODEL)
        assert MODEL in (found.name if api is Gemini else found.id)
        assert api is not Gemini or found.input_token_limit == 100_000
