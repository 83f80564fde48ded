"""The other APIs of the rehearsal, as the vendors' own SDKs understand them."""

from types import SimpleNamespace
from typing import Any

import pytest

from relay.rehearsal.script import parse_script
from relay.rehearsal.server import serve
from tests.effort import NIGHTLY
from tests.endpoint.script import parse_script as parse_faulty
from tests.endpoint.server import serve as serve_faulty
from tests.sdks import errors, genai, openai, types

MODEL = "gpt-rehearsed"
SCRIPT = """
model: {id: gpt-rehearsed, window: 100000, max_tokens: 20000}
sessions:
  - turns:
      - {text: "I look äround.", tools: [{name: look, input: {path: "a b"}}, {name: look, input: {path: c}}]}
      - {text: "Done.", expect: {last_result_contains: [one, two]}}
"""
ASK = "look, please; " * 20
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


class Responses:
    """One conversation by the Responses API."""

    name = "responses"

    def __init__(self, server):
        self.client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="k", max_retries=0)
        self.history: list[Any] = [{"role": "user", "content": ASK}]

    def ask(self, *, stream, most=None):
        tools = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
        given: Any = {"model": MODEL, "input": self.history, "tools": tools, "instructions": "Be brief."}
        given |= {"max_output_tokens": most} if most else {}
        if stream:
            with self.client.responses.stream(**given) as events:
                for _ in events:
                    pass
                found = events.get_final_response()
        else:
            found = self.client.responses.create(**given)
        self.history += [item.model_dump(exclude_none=True) for item in found.output]
        calls = [(item.call_id, item.arguments) for item in found.output if item.type == "function_call"]
        used: Any = found.usage
        reason = found.incomplete_details.reason if found.incomplete_details else found.status
        counted = used.input_tokens, used.input_tokens_details.cached_tokens, used.output_tokens
        return SimpleNamespace(text=found.output_text, calls=calls, reason=reason, counted=counted)

    def answer(self, *results):
        pairs = zip(self.calls, results, strict=True)
        self.history += [{"type": "function_call_output", "call_id": i, "output": text} for (i, _), text in pairs]

    calls: Any = ()


class Chat(Responses):
    """One conversation by Chat Completions."""

    name = "chat"

    def ask(self, *, stream, most=None):
        tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
        given: Any = {"model": MODEL, "messages": self.history, "tools": tools}
        given |= {"max_completion_tokens": most} if most else {}
        if stream:
            with self.client.chat.completions.stream(**given, stream_options={"include_usage": True}) as events:
                for _ in events:
                    pass
                found: Any = events.get_final_completion()
        else:
            found = self.client.chat.completions.create(**given)
        message, used = found.choices[0].message, found.usage
        self.history.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        for call in self.history[-1].get("tool_calls", ()):
            call["function"] = {name: call["function"][name] for name in ("name", "arguments")}
        calls = [(call.id, call.function.arguments) for call in message.tool_calls or ()]
        counted = used.prompt_tokens, used.prompt_tokens_details.cached_tokens, used.completion_tokens
        return SimpleNamespace(
            text=message.content, calls=calls, reason=found.choices[0].finish_reason, counted=counted
        )

    def answer(self, *results):
        pairs = zip(self.calls, results, strict=True)
        self.history += [{"role": "tool", "tool_call_id": i, "content": text} for (i, _), text in pairs]


class Gemini:
    """One conversation by Google's API."""

    name = "gemini"
    calls: Any = ()

    def __init__(self, server):
        self.client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=server.base_url))
        self.history: list[Any] = [types.Content(role="user", parts=[types.Part(text=ASK)])]

    def ask(self, *, stream, most=None):
        look: Any = types.FunctionDeclaration(name="look", parameters_json_schema=SCHEMA)
        config: Any = types.GenerateContentConfig(
            tools=[types.Tool(function_declarations=[look])], max_output_tokens=most, system_instruction="Be brief.",
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        )  # fmt: skip
        given: Any = {"model": MODEL, "contents": self.history, "config": config}
        models = self.client.models
        parts = list(models.generate_content_stream(**given)) if stream else [models.generate_content(**given)]
        contents: Any = [(answer.candidates or [])[0].content for answer in parts]
        found = [part for content in contents for part in content.parts or ()]
        self.history.append(
            types.Content(role="model", parts=[part for part in found if part.text or part.function_call])
        )
        last: Any = parts[-1]
        used, reason = last.usage_metadata, last.candidates[0].finish_reason.value
        counted = used.prompt_token_count, used.cached_content_token_count, used.candidates_token_count
        calls = [(part.function_call.id, str(part.function_call.args)) for part in found if part.function_call]
        return SimpleNamespace(
            text="".join(part.text or "" for part in found), calls=calls, reason=reason, counted=counted
        )

    def answer(self, *results):
        made = [types.Part.from_function_response(name="look", response={"output": text}) for text in results]
        self.history.append(types.Content(role="user", parts=made))


APIS = (Responses, Chat, Gemini) if NIGHTLY else (Responses, Chat)
"""By day not Google's SDK, whose import takes longer than all else here; `agents/test_gateway.py` asks its API."""


FAULTS = {
    "{kind: status, status: 401}": 401,
    "overloaded": 503,
    "rate_limit": 429,
    "overflow": 400,
    "{kind: error_event, after_events: 1}": 0,
}


def test_each_sdk_reads_conversation_bill_limits_and_errors() -> None:
    """One test: whichever worker runs it imports SDKs of thousands of models."""
    for api in APIS:
        for stream in (True, False):
            with serve(parse_script(SCRIPT)) as server:
                client = api(server)
                with client.client:
                    check_conversation(client, server, stream=stream)
        with serve(parse_script(SCRIPT)) as server:
            client = api(server)  # which is closed with its last reference
            models = client.client.models
            found: Any = models.get(model=MODEL) if api is Gemini else models.retrieve(MODEL)
        assert MODEL in (found.name if api is Gemini else found.id), api.name
        assert api is not Gemini or found.input_token_limit == 100_000
        with serve_faulty(parse_faulty(SCRIPT)) as server:
            cut = api(server).ask(stream=False, most=5)
            assert cut.reason in {"max_output_tokens", "length", "MAX_TOKENS"}, api.name
        for fault, status in FAULTS.items():
            played = SCRIPT.replace('{text: "I look', f'{{fault: {fault}, text: "I look')
            known = errors.APIError if api is Gemini else openai.OpenAIError
            expected = (known, *(() if status else (RuntimeError,)))
            with serve_faulty(parse_faulty(played)) as server, pytest.raises(expected) as raised:
                api(server).ask(stream=True)
            code = getattr(raised.value, "status_code", getattr(raised.value, "code", 0))
            assert not status or code == status, (api.name, fault)


def check_conversation(client: Any, server: Any, *, stream: bool) -> None:
    first = client.ask(stream=stream)
    client.calls = first.calls
    assert first.text == "I look äround.", (client.name, stream)
    given = [text.replace("'", '"').replace(" ", "") for _, text in first.calls]
    assert given == ['{"path":"ab"}', '{"path":"c"}']
    client.answer("one", "two")
    second = client.ask(stream=stream)
    assert second.text == "Done.", (client.name, stream)
    assert second.reason in {"completed", "stop", "STOP"}
    for answer, bill in zip((first, second), server.state.bills, strict=True):
        read = bill["cache_read_input_tokens"]
        assert answer.counted == (bill["input_tokens"] + read, read or answer.counted[1], bill["output_tokens"])
        assert bill["cache_creation_input_tokens"] == 0
    assert second.counted[1] >= first.counted[0]
    assert (server.errors, server.unplayed) == ([], ())
