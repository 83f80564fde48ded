"""The other APIs of the rehearsal, as the vendors' own SDKs understand them."""

from typing import Any

from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve
from tests.endpoint.clients import APIS, MODEL, SCRIPT, Gemini


def test_a_conversation_is_played_and_counted_as_each_sdk_reads_it(subtests: Any) -> None:
    for api in APIS:
        for stream in (True, False):
            with subtests.test(api=api.name, stream=stream), serve(parse_script(SCRIPT)) as server:
                client = api(server)
                with client.client:
                    check_conversation(client, server, stream=stream)


def check_conversation(client: Any, server: Any, *, stream: bool) -> None:
    first = client.ask(stream=stream)
    client.calls = first.calls
    assert first.text == "I look äround."
    given = [text.replace("'", '"').replace(" ", "") for _, text in first.calls]
    assert given == ['{"path":"ab"}', '{"path":"c"}']
    client.answer("one", "two")
    second = client.ask(stream=stream)
    assert second.text == "Done."
    assert second.reason in {"completed", "stop", "STOP"}
    for answer, bill in zip((first, second), server.state.bills, strict=True):
        read = bill["cache_read_input_tokens"]
        assert answer.counted == (bill["input_tokens"] + read, read or answer.counted[1], bill["output_tokens"])
        assert bill["cache_creation_input_tokens"] == 0
    assert second.counted[1] >= first.counted[0]
    assert (server.errors, server.unplayed) == ([], ())


def test_the_endpoint_says_of_a_model_what_it_says() -> None:
    for api in APIS:
        with serve(parse_script(SCRIPT)) as server:
            client = api(server)  # which is closed with its last reference
            models = client.client.models
            found: Any = models.get(model=MODEL) if api is Gemini else models.retrieve(MODEL)
        assert MODEL in (found.name if api is Gemini else found.id), api.name
        assert api is not Gemini or found.input_token_limit == 100_000
