"""Limits and errors in the other APIs, as the vendors' own SDKs understand them."""

from contextlib import contextmanager

import pytest

from tests.endpoint.clients import APIS, SCRIPT
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.sdks import errors, openai

EVERY = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


@contextmanager
def opened(api, script=SCRIPT):
    with serve(parse_script(script)) as server:
        client = api(server)
        with client.client:
            yield server, client


FAULTS = [
    ("{kind: status, status: 401, type: authentication_error}", 401),
    ("{kind: overloaded}", 503),
    ("{kind: rate_limit, retry_after: 7}", 429),
    ("{kind: overflow}", 400),
]


@EVERY
def test_an_answer_is_cut_at_its_limit(api):
    with opened(api) as (_, client):
        assert client.ask(stream=False, most=5).reason in {"max_output_tokens", "length", "MAX_TOKENS"}


@pytest.mark.parametrize(("fault", "status"), FAULTS)
@EVERY
def test_an_error_is_one_to_the_sdk(api, fault, status):
    script = SCRIPT.replace('{text: "I look', f'{{fault: {fault}, text: "I look')
    with opened(api, script) as (_, client), pytest.raises((openai.APIStatusError, errors.APIError)) as raised:
        client.ask(stream=True)
    assert getattr(raised.value, "status_code", getattr(raised.value, "code", 0)) == status


@EVERY
def test_an_error_in_mid_stream_ends_the_answer(api):
    script = SCRIPT.replace('{text: "I look', '{fault: {kind: error_event, after_events: 1}, text: "I look')
    with opened(api, script) as (server, client), pytest.raises((openai.OpenAIError, errors.APIError, RuntimeError)):
        client.ask(stream=True)
    assert server.requests[0].fault == "error_event"
