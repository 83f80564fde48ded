"""One request and its response: routes, the turn, the answer on the connection."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from relay.rehearsal.answer import Performer, PlayedAnswer, render_events
from relay.rehearsal.connection import Connection
from relay.rehearsal.other_apis import count_writes_as_input, find_other_api, map_error, render_stream, translate
from relay.rehearsal.stage import Cue, Miss, PlayerState
from relay.rehearsal.wire import (
    ApiError,
    Body,
    ModelCard,
    RefusedError,
    dump,
    encode,
    refuse,
    render_error,
    render_google_model,
    render_model_info,
    render_model_name,
)


class Exchange:
    """One request and its response. Mutable: filled as the request is read."""

    def __init__(self, state: PlayerState, connection: Connection) -> None:
        self.state = state
        self.connection = connection
        self.number = state.count()
        path, _, self.query = connection.path.partition("?")
        self.method, self.path = connection.command, unquote(path)
        self.headers = connection.headers
        self.other = find_other_api(self.method, self.path)
        """Set for a request of another API."""
        self.body: Any = None
        self.asked: Body = {}
        """The request in the Messages API's form."""
        self.bill: Mapping[str, Any] | None = None
        """The usage of the work that was done; None if there was none."""

    @property
    def request_id(self) -> str:
        return f"req_rehearsal_{self.number:06d}"

    def run(self) -> None:
        """Answer the request.

        Raises:
            OSError: Nothing more can be sent, because the client left.
        """
        try:
            raw = self.connection.read_request_body()
            try:
                self.body = json.loads(raw) if raw else None
            except (ValueError, RecursionError):
                raise RefusedError(refuse("The request body is not valid JSON")) from None
            self.route()
        except RefusedError as refusal:
            self.refuse(refusal.error)

    def route(self) -> None:
        """Answer by method and path."""
        match self.method, self.path.strip("/").split("/"):
            case _ if self.other is not None:
                self.answer_message()
            case "POST", ["v1", "messages"]:
                self.answer_message()
            case "POST", ["v1", "messages", "count_tokens"]:
                self.send_found(self.count_tokens())
            case "GET", ["v1", "models"]:
                self.send_found(self.list_models())
            case "GET", ["v1" | "v1beta", "models", model]:
                self.send_found(self.get_model(model))
            case _:
                raise RefusedError(ApiError(status=404, message=f"Not found: {self.method} {self.path}"))

    # messages

    def answer_message(self) -> None:
        """Find the turn that answers, and play it."""
        card = self.read_request()
        with self.state.guard:
            cue = self.state.stage.cue(self.asked)
        if isinstance(cue, Miss):
            self.state.errors.append(cue.words)
            raise RefusedError(refuse(f"rehearsal: {cue.words}"))
        try:
            self.perform(cue, card)
        except OSError:
            self.state.stage.note_broken(cue)
            raise

    def read_request(self) -> ModelCard:
        """Read a request of any API as one of the Messages API; returns its model.

        Raises:
            RefusedError: It is none, or of no known model.
        """
        body = self.body
        if not isinstance(body, Mapping):
            raise RefusedError(refuse("The request body should be a JSON object"))
        model = self.other.model if self.other and self.other.model else body.get("model")
        if not isinstance(model, str):
            raise RefusedError(refuse("model: Field required"))
        card = self.get_card(model)
        try:
            self.asked = translate(self.other.api, body, model, card.output_tokens) if self.other else body
        except (AttributeError, TypeError):  # an object of that API is none
            raise RefusedError(refuse("The request body is malformed")) from None
        if not isinstance(self.asked.get("thinking") or {}, Mapping):
            raise RefusedError(refuse("thinking: Input should be an object"))
        return card

    def find_card(self, model: str) -> ModelCard | None:
        """Find a model by its name."""
        return next((card for card in self.state.script.cards if card.id == model), None)

    def get_card(self, model: str) -> ModelCard:
        """Return a model; RefusedError if there is none of this name."""
        if (card := self.find_card(model)) is None:
            raise RefusedError(ApiError(status=404, message=f"model: {model}"))
        return card

    def perform(self, cue: Cue, card: ModelCard) -> None:
        """Play a turn."""
        with self.state.guard:
            use = self.state.measure(self.asked, cue.turn)
        if use.tokens > card.window_tokens:
            raise RefusedError(refuse(f"prompt is too long: {use.tokens} tokens > {card.window_tokens} maximum"))
        performer = Performer(cue.turn, f"toolu_rehearsal_{cue.cast}_{cue.step}_", self.asked)
        use = count_writes_as_input(use) if self.other else use
        answer = performer.build_answer(f"msg_rehearsal_{self.number:06d}", card.id, use)
        self.hold_back(cue)
        self.state.begin(self.asked, cue, answer)
        self.send_answer(answer)

    def hold_back(self, cue: Cue) -> None:
        """Wait as long as the script says."""
        self.connection.wait(self.state.script.delay_s)
        if cue.turn.delay_s:
            self.state.hold(1)
            try:
                self.connection.wait(cue.turn.delay_s)
            finally:
                self.state.hold(-1)

    def send_answer(self, answer: PlayedAnswer) -> None:
        """Send a message, as the request wants it."""
        self.bill = answer.render_bill(answer.output_tokens, final=True)
        self.record(200, answer.stop_reason)
        if not self.streams:
            self.send_json(200, self.other.api.message(answer, self.body) if self.other else answer.render_message())
            return
        pieces = render_stream(self.other.api, answer, self.body) if self.other else render_events(answer)
        self.connection.start(200, self.make_headers("text/event-stream; charset=utf-8"))
        self.deliver(pieces)

    @property
    def streams(self) -> bool:
        """Whether the client wants a stream."""
        told = self.other.streams if self.other else None
        return bool(self.body.get("stream") if told is None else told)

    def deliver(self, pieces: list[bytes]) -> None:
        """Send the pieces of a stream, at once: each send wakes the client."""
        self.connection.write(b"".join(pieces))
        self.connection.end()

    # the other endpoints

    def count_tokens(self) -> Mapping[str, Any]:
        """Answer ``count_tokens``."""
        self.read_request()
        return {"input_tokens": self.state.measure(self.asked).tokens}

    def list_models(self) -> Mapping[str, Any]:
        """Write all models as one page of ``GET /v1/models``."""
        data = [render_model_info(card) for card in self.state.script.cards]
        return {"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}

    def get_model(self, model: str) -> Mapping[str, Any]:
        """Write a model, in the form of the API that is asked; the Messages API's clients name a version."""
        card = self.get_card(model)
        if "x-goog-api-key" in self.headers:
            return render_google_model(card)
        return render_model_info(card) if "anthropic-version" in self.headers else render_model_name(card)

    # sending

    def send_found(self, found: Mapping[str, Any]) -> None:
        """Send the answer of an endpoint."""
        self.record(200)
        self.send_json(200, found)

    def refuse(self, error: ApiError) -> None:
        """Send an error."""
        body = render_error(error, self.request_id)
        if self.other is not None:
            error = map_error(error)
            body = self.other.api.error(error)
        self.record(error.status)
        self.send_json(error.status, body, error.headers)

    def send_json(self, status: int, value: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Send a whole body."""
        data = encode(dump(value))
        sizes = {"content-length": str(len(data))}
        self.connection.start(status, self.make_headers("application/json") | sizes | dict(headers or {}))
        self.connection.write(data)
        self.connection.end()

    def make_headers(self, kind: str) -> dict[str, str]:
        """Return the headers of every response; the first says that no model answers."""
        named = {"relay-rehearsal": "1", "request-id": self.request_id}
        return named | {"content-type": kind, "cache-control": "no-cache"}

    def record(self, status: int, stop_reason: str = "") -> None:  # noqa: ARG002  # for the subclass
        """Note how a request is answered, just before it is."""
        if self.bill is not None:
            self.state.bills.append(self.bill)
