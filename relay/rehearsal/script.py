r"""Reading a rehearsal script.

A script is YAML. Everything but ``sessions`` is optional::

    model:                      # or models: [ … ]; known ids keep their limits unless changed here
      id: claude-opus-5-5
      window: 1000000           # max_input_tokens
      max_tokens: 128000
      min_cache_tokens: 512
    thinking: always            # always: models with preserved thinking begin every answer with a thinking
                                # block, as they do in reality; scripted: only where a turn has `thinking`
    pace: {first_s: 0.2, event_s: 0.01}     # real time, for demonstrations; default 0
    faults:                     # faults of the other endpoints
      - {on: models, fault: {kind: overloaded, times: 2}}       # on: models or count_tokens

    dialect: ollama             # how it differs from the API: anthropic (the default), ollama, lmstudio, llamacpp,
                                # vllm, sglang, vercel, litellm, fireworks
    refuses: [display]          # fields that this endpoint answers with a 400, as some gateways do: display, thinking,
                                # cache_control (of the request), marks (of its blocks), ttl (of these), system_messages

    sessions:                   # played in this order as new conversations begin
      - name: planner
        when: {system_contains: "planner"}      # optional: chosen by content instead of by order
        repeat: true            # plays for every conversation that comes to it (side requests)
        aside: true             # its one turn answers any request that `when` fits, in whatever conversation, and
                                # moves none of them on (a client that asks for a summary)
        then: next              # when its turns are used up and the conversation goes on: go on with the
                                # next session (default: stop, a 400 with readable words)
        turns:
          - text: I will look around first.
            tools:
              - {name: read, input: {path: app.py}}
          - expect: {last_result_contains: "def main"}
            thinking: What the model thought, shown only to clients that ask for summaries.
            tools:
              - {name: write, input: {path: x.py, content: !file files/x.py}}
          - fault: {kind: status, status: 529, times: 2}
            text: Done.

**Turns.** ``thinking``, ``text`` (one or a list) and ``tools`` become content blocks in this order; ``blocks``
is the list form when the order matters: ``{text: …}``, ``{thinking: …, tokens: N}``, ``{tool: {name, input}}``,
``{raw: {type: …}}``. Further keys: ``expect``, ``fault`` (one or a list), ``stop`` (any stop reason),
``stop_sequence``, ``stop_details``, ``delay_s``, ``repeat`` (a number, or ``forever`` for the last turn; then
``${n}`` in any text stands for 1, 2, 3 …), ``usage: {output_tokens, thinking_tokens, input_padding_tokens}``.
A prompt grows by what an answer claimed to be, so these add up over a conversation.

**Bodies from files.** ``!file path`` is the text of a file beside the script; ``content_file: path`` in a
tool's input is the same for ``content``.

**Conditions** (``when``, ``expect``): ``S_contains`` and ``S_lacks`` with a text or a list, where S is ``model``,
``system``, ``first_message``, ``last_message`` (all that came after the last assistant turn) or ``last_result``
(the tool results in it); ``last_result_is_error: true|false``; ``tools_include: [names]``. A failed ``expect`` is
answered with a 400 and recorded in `Rehearsal.errors`.

**Which turn is played.** A conversation without an assistant turn is new: it gets the first unplayed session
whose ``when`` holds, else the first unplayed session without ``when``, else one with ``repeat``. A conversation
that has an assistant turn goes on where that turn was: found by its tool call ids, else by the messages before
it, else by its content; so conversations interleave, and clients may rewrite what is older. The same request
again is a retry and gets the same turn; but an opening request whose conversation has gone on since is a new
conversation.

**Faults** play ``times`` times (default 1; ``always``) before the turn's answer comes; a list plays in order.
``kind`` and its own keys:

    status           status (500), type, message, error_code, retry_after, headers, body: json|html|empty, after_work
    rate_limit       retry_after (none), resets_in_s (60), limit: requests|tokens|input-tokens|output-tokens
    spend_limit      message
    overloaded       message, retry_after
    overflow         -
    drop             how: rst|fin                           connection ends before the response
    cut              how: rst|fin|end, after_events (3) or after_bytes; `end` is clean, without message_stop
    error_event      after_events (3), type (overloaded_error), message
    stall            after_events (3), seconds (for ever), ping_s (no pings), before_headers: true
    garbage          after_events (3), data
    max_tokens       after_chars: what is left of the last block (half of it)
    window_exceeded  the same with model_context_window_exceeded
    bad_json         -                                      a tool's input that does not parse
    refusal          category, explanation
    unknown_stop     reason
    unknown_block    type
    empty            -                                      end_turn without content
    pause_turn       -
    usage            report: zero|missing|uncached|falling
    no_stream        -                                      the finished message as JSON
    other_model      model                                  the one that the answer names

With ``after_work: true`` the answer was made, and is billed. What is billed is always what was used, whatever is
reported of it.

An answer longer than the request's ``max_tokens``, or than what is left of the window, is cut and stops with
``max_tokens`` or ``model_context_window_exceeded`` by itself (not where ``output_tokens`` is given).
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from relay.base.documents import YamlFault, YamlLimits, YamlTextError, compose, get_line
from relay.base.errors import ConfigError
from relay.base.values import dataclass
from relay.rehearsal.checks import REFUSABLE
from relay.rehearsal.turns import (
    BEFORE,
    DIALECTS,
    SUBJECTS,
    Call,
    Conditions,
    EndpointFault,
    FaultName,
    FaultSpec,
    Part,
    Raw,
    Say,
    Script,
    ScriptSession,
    Think,
    Turn,
    TurnUsage,
)
from relay.rehearsal.wire import CATALOG, ModelCard, find_card

MAX_SCRIPT_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 60
MAX_NODES = 50_000
"""Most values of a script, with its aliases resolved."""
_LIMITS = YamlLimits(chars=MAX_SCRIPT_BYTES, depth=MAX_DEPTH)

_STR, _NULL, _FILE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null", "!file"
_TIME = "tag:yaml.org,2002:timestamp"
_NAMES = {_NULL: "nothing", "tag:yaml.org,2002:map": "a mapping", "tag:yaml.org,2002:seq": "a list"}


@dataclass(slots=True, kw_only=True)
class NodeReader:
    """Turns YAML nodes of one script into checked values. Mutable: counts the values."""

    source: str
    """Name of the script, for messages."""
    base: Path | None = None
    """Directory of files named by ``!file``; None forbids them."""
    budget: int = MAX_NODES

    def compose(self, text: str) -> yaml.Node:
        """Parse a script's text.

        Raises:
            ConfigError: Not YAML, empty, or nested too deeply.
        """
        try:
            root: yaml.Node | None = compose(text, _LIMITS)
        except YamlTextError as error:
            is_deep = error.fault is YamlFault.DEPTH
            words = f"nested more than {MAX_DEPTH} levels deep" if is_deep else f"not YAML: {error.words}"
            raise ConfigError(f"{self.source}:{error.line or 1}: {words}") from None
        if root is None:
            raise ConfigError(f"{self.source}:1: the script is empty")
        return root

    def error(self, node: yaml.Node, message: str) -> ConfigError:
        """Build the error for a node."""
        return ConfigError(f"{self.source}:{get_line(node)}: {message}")

    def mapping(self, node: yaml.Node, what: str, allowed: Iterable[str] | None = None) -> dict[str, yaml.Node]:
        """Read a mapping with text keys; `allowed` None takes any key."""
        self._spend(node)
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} should be a mapping, found {_describe(node)}")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if not name:
                raise self.error(key, f"a key of {what} should be text, found {_describe(key)}")
            if name in found:
                raise self.error(key, f"{what} has the key {name!r} twice")
            if allowed is not None and name not in (known := tuple(allowed)):
                near = _suggest(name, known)
                raise self.error(key, f"{what} has no key {name!r}{near}; allowed: {', '.join(known)}")
            found[name] = value
        return found

    def items(self, node: yaml.Node, what: str) -> list[yaml.Node]:
        """Read a list."""
        self._spend(node)
        if not isinstance(node, yaml.SequenceNode):
            raise self.error(node, f"{what} should be a list, found {_describe(node)}")
        return list(node.value)

    def text(self, node: yaml.Node, what: str) -> str:
        """Read text, possibly from a file."""
        self._spend(node)
        if node.tag == _FILE:
            return self.file(node, str(node.value))
        if not isinstance(node, yaml.ScalarNode) or node.tag != _STR:
            quotes = "; put it in quotes" if isinstance(node, yaml.ScalarNode) and node.tag != _NULL else ""
            raise self.error(node, f"{what} should be text, found {_describe(node)}{quotes}")
        return str(node.value)

    def texts(self, node: yaml.Node, what: str) -> tuple[str, ...]:
        """Read one text or a list of texts."""
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        return tuple(self.text(item, what) for item in nodes)

    def choice(self, node: yaml.Node, what: str, options: Iterable[str]) -> str:
        """Read one of the options."""
        word, known = self.text(node, what), tuple(options)
        if word not in known:
            raise self.error(node, f"{what} {word!r} is not known{_suggest(word, known)}; one of: {', '.join(known)}")
        return word

    def integer(self, node: yaml.Node, what: str, *, low: int = 0) -> int:
        """Read a whole number of at least `low`."""
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise self.error(node, f"{what} should be a whole number ≥ {low}, found {_describe(node)}")
        return value

    def seconds(self, node: yaml.Node, what: str) -> float:
        """Read a duration in seconds."""
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise self.error(node, f"{what} should be seconds ≥ 0, found {_describe(node)}")
        return float(value)

    def flag(self, node: yaml.Node, what: str) -> bool:
        """Read true or false."""
        value = self.value(node)
        if not isinstance(value, bool):
            raise self.error(node, f"{what} should be true or false, found {_describe(node)}")
        return value

    def value(self, node: yaml.Node, depth: int = 0) -> Any:
        """Read any JSON value."""
        self._spend(node)
        if depth > MAX_DEPTH:
            raise self.error(node, f"nested more than {MAX_DEPTH} levels deep")
        if node.tag == _FILE:
            return self.file(node, str(node.value))
        if isinstance(node, yaml.MappingNode):
            return {k: self.value(v, depth + 1) for k, v in self.mapping(node, "a value").items()}
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        if node.tag in {_STR, _TIME}:
            return str(node.value)
        if node.tag == _NULL:
            return None
        try:
            return json.loads(str(node.value))
        except ValueError:
            raise self.error(node, f"{node.value!r} means another value in YAML; put it in quotes") from None

    def file(self, node: yaml.Node, name: str) -> str:
        """Read a file next to the script."""
        if self.base is None:
            raise self.error(node, "files can only be named by a script that is itself a file")
        root = self.base.resolve()
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise self.error(node, f"{name!r} is outside the script's directory")
        try:
            return path.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise self.error(node, f"cannot read {name!r}: {error}") from error

    def _spend(self, node: yaml.Node) -> None:
        self.budget -= 1
        if self.budget < 0:
            raise self.error(node, f"more than {MAX_NODES} values")


def pick(fields: Mapping[str, yaml.Node], name: str, read: Any, default: Any) -> Any:
    """Read an optional key: `read` gets its node and its name."""
    return read(fields[name], name) if name in fields else default


def _describe(node: yaml.Node) -> str:
    if node.tag in _NAMES:
        return _NAMES[node.tag]
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else f"a value tagged {node.tag}"


def _suggest(word: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {str(close[0])!r}?)" if close else ""


_TOP = ("model", "models", "thinking", "pace", "faults", "dialect", "refuses", "sessions")
_MODEL = ("id", "window", "max_tokens", "min_cache_tokens")
_SESSION = ("name", "when", "repeat", "aside", "then", "turns")
_CONTENT = ("thinking", "text", "tools", "blocks")
_TURN = (*_CONTENT, "expect", "fault", "stop", "stop_sequence", "stop_details", "usage", "delay_s", "repeat")
_USAGE = ("output_tokens", "thinking_tokens", "input_padding_tokens")
_ANSWERS_ALONE = frozenset(
    {FaultName.EMPTY, FaultName.REFUSAL, FaultName.UNKNOWN_STOP, FaultName.UNKNOWN_BLOCK, FaultName.PAUSE_TURN}
)
"""Faults that make an answer of their own, so that the turn needs no content."""


def load_script(path: Path) -> Script:
    """Read a script file; ``!file`` is relative to its directory.

    Raises:
        ConfigError: Not readable, not UTF-8, or not a script; the message names file and line.
    """
    try:
        size = path.stat().st_size
        text = path.read_bytes().decode("utf-8-sig") if size <= MAX_SCRIPT_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or "this is not UTF-8"
        raise ConfigError(f"{path}: this rehearsal script cannot be read: {words}") from None
    if size > MAX_SCRIPT_BYTES:
        raise ConfigError(f"{path}: a script has at most {MAX_SCRIPT_BYTES} bytes, this has {size}")
    return parse_script(text, source=str(path), base=path.parent)


def parse_script(text: str, *, source: str = "script.yaml", base: Path | None = None) -> Script:
    """Read a script.

    Args:
        text: The YAML.
        source: Its name in error messages.
        base: Directory for ``!file``; None forbids it.

    Raises:
        ConfigError: Not a script; the message begins with ``source:line:``.
    """
    reader = NodeReader(source=source, base=base)
    root = reader.compose(text)
    fields = reader.mapping(root, "the script", _TOP)
    if "sessions" not in fields:
        raise reader.error(root, "the script has no sessions")
    pace = reader.mapping(fields["pace"], "pace", ("first_s", "event_s")) if "pace" in fields else {}
    modes = ("always", "scripted")
    mode = pick(fields, "thinking", lambda node, what: reader.choice(node, what, modes), "always")
    sessions = reader.items(fields["sessions"], "sessions")
    dialect = DIALECTS[
        pick(fields, "dialect", lambda node, what: reader.choice(node, what, tuple(DIALECTS)), "anthropic")
    ]
    refuses = tuple(reader.choice(node, "refuses", REFUSABLE) for node in pick(fields, "refuses", reader.items, ()))
    return Script(
        source=source,
        cards=_parse_cards(reader, fields),
        sessions=tuple(_parse_session(reader, node, number) for number, node in enumerate(sessions, 1)),
        endpoint_faults=_parse_endpoint_faults(reader, fields["faults"]) if "faults" in fields else (),
        dialect=dialect,
        refuses=(*dialect.refuses, *refuses),
        thinks_always=mode == "always",
        first_byte_s=pick(pace, "first_s", reader.seconds, 0.0),
        event_s=pick(pace, "event_s", reader.seconds, 0.0),
    )


def _parse_cards(reader: NodeReader, fields: dict[str, yaml.Node]) -> tuple[ModelCard, ...]:
    nodes = [fields["model"]] if "model" in fields else []
    nodes += reader.items(fields["models"], "models") if "models" in fields else []
    own = tuple(_parse_card(reader, node) for node in nodes)
    return own + tuple(card for card in CATALOG if card.id not in {mine.id for mine in own})


def _parse_card(reader: NodeReader, node: yaml.Node) -> ModelCard:
    if isinstance(node, yaml.ScalarNode):
        model, fields = reader.text(node, "model"), {}
    else:
        fields = reader.mapping(node, "model", _MODEL)
        if "id" not in fields:
            raise reader.error(node, "model has no id")
        model = reader.text(fields["id"], "id")
    card = find_card(model) or ModelCard(id=model, name=model, system_messages=True)
    return replace(
        card,
        window_tokens=pick(fields, "window", reader.integer, card.window_tokens),
        output_tokens=pick(fields, "max_tokens", reader.integer, card.output_tokens),
        min_cache_tokens=pick(fields, "min_cache_tokens", reader.integer, card.min_cache_tokens),
    )


def _parse_endpoint_faults(reader: NodeReader, node: yaml.Node) -> tuple[EndpointFault, ...]:
    found = []
    for item in reader.items(node, "faults"):
        fields = reader.mapping(item, "an entry of faults", ("on", "fault"))
        if len(fields) < 2:  # noqa: PLR2004  # both keys
            raise reader.error(item, "an entry of faults has the keys on and fault")
        on = reader.choice(fields["on"], "on", ("models", "count_tokens"))
        faults = parse_faults(reader, fields["fault"])
        if any(fault.kind not in {*BEFORE, FaultName.STALL} for fault in faults):
            raise reader.error(fields["fault"], f"on {on}, a fault is one of: {', '.join(sorted(BEFORE))}, stall")
        found += [EndpointFault(on=on, fault=fault) for fault in faults]
    return tuple(found)


def _parse_session(reader: NodeReader, node: yaml.Node, number: int) -> ScriptSession:
    fields = reader.mapping(node, "a session", _SESSION)
    if "turns" not in fields:
        raise reader.error(node, "the session has no turns")
    turns = reader.items(fields["turns"], "turns")
    parsed = tuple(_parse_turn(reader, item, last=item is turns[-1]) for item in turns)
    if not parsed:
        raise reader.error(fields["turns"], "the session has no turns")
    then = pick(fields, "then", lambda n, what: reader.choice(n, what, ("next", "stop")), "stop")
    aside = pick(fields, "aside", reader.flag, default=False)
    if aside and ("when" not in fields or len(parsed) != 1):
        raise reader.error(node, "an aside has a when and one turn")
    return ScriptSession(
        name=pick(fields, "name", reader.text, f"session {number}"),
        line=get_line(node),
        when=parse_conditions(reader, fields["when"], "when") if "when" in fields else Conditions(),
        repeat=pick(fields, "repeat", reader.flag, default=False),
        aside=aside,
        then_next=then == "next",
        turns=parsed,
    )


def _parse_turn(reader: NodeReader, node: yaml.Node, *, last: bool) -> Turn:
    fields = reader.mapping(node, "a turn", _TURN)
    usage = reader.mapping(fields["usage"], "usage", _USAGE) if "usage" in fields else {}
    turn = Turn(
        line=get_line(node),
        parts=_parse_parts(reader, fields, usage),
        expect=parse_conditions(reader, fields["expect"], "expect") if "expect" in fields else Conditions(),
        faults=parse_faults(reader, fields["fault"]) if "fault" in fields else (),
        stop=pick(fields, "stop", reader.text, ""),
        stop_sequence=pick(fields, "stop_sequence", reader.text, None),
        stop_details=reader.value(fields["stop_details"]) if "stop_details" in fields else None,
        usage=TurnUsage(
            output_tokens=pick(usage, "output_tokens", reader.integer, None),
            input_padding_tokens=pick(usage, "input_padding_tokens", reader.integer, 0),
        ),
        delay_s=pick(fields, "delay_s", reader.seconds, 0.0),
        repeat=pick(fields, "repeat", lambda n, what: _parse_repeat(reader, n, what, last=last), 1),
    )
    fault_suffices = any(fault.times is None or fault.kind in _ANSWERS_ALONE for fault in turn.faults)
    if not (turn.parts or turn.stop or fault_suffices):
        raise reader.error(node, f"the turn answers nothing; it needs one of: {', '.join((*_CONTENT, 'stop'))}")
    return turn


def _parse_repeat(reader: NodeReader, node: yaml.Node, what: str, *, last: bool) -> int | None:
    if node.value != "forever":
        return reader.integer(node, what, low=1)
    if not last:
        raise reader.error(node, "only the last turn of a session can repeat forever")
    return None


def _parse_parts(reader: NodeReader, fields: dict[str, yaml.Node], usage: dict[str, yaml.Node]) -> tuple[Part, ...]:
    tokens = pick(usage, "thinking_tokens", reader.integer, None)
    parts: list[Part] = []
    if "thinking" in fields or tokens is not None:
        parts.append(Think(text=pick(fields, "thinking", reader.text, ""), tokens=tokens))
    parts += [Say(text=text) for text in pick(fields, "text", reader.texts, ())]
    parts += [_parse_call(reader, item) for item in pick(fields, "tools", reader.items, ())]
    parts += [_parse_block(reader, item) for item in pick(fields, "blocks", reader.items, ())]
    if any(isinstance(part, Say) and not part.text for part in parts):
        raise reader.error(fields.get("text", fields.get("blocks", next(iter(fields.values())))), "text is empty")
    return tuple(parts)


def _parse_block(reader: NodeReader, node: yaml.Node) -> Part:
    fields = reader.mapping(node, "a block", ("text", "thinking", "tokens", "tool", "raw"))
    if "text" in fields:
        return Say(text=reader.text(fields["text"], "text"))
    if "tool" in fields:
        return _parse_call(reader, fields["tool"])
    if "thinking" in fields:
        tokens = pick(fields, "tokens", reader.integer, None)
        return Think(text=reader.text(fields["thinking"], "thinking"), tokens=tokens)
    body = reader.value(fields["raw"]) if "raw" in fields else None
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise reader.error(node, "a block is one of text, thinking, tool, or raw with a type")
    return Raw(body=body)


def _parse_call(reader: NodeReader, node: yaml.Node) -> Call:
    fields = reader.mapping(node, "a tool call", ("name", "input"))
    if "name" not in fields:
        raise reader.error(node, "a tool call has no name")
    inputs = reader.mapping(fields["input"], "input") if "input" in fields else {}
    return Call(name=reader.text(fields["name"], "name"), input=dict(_parse_inputs(reader, inputs)))


def _parse_inputs(reader: NodeReader, fields: dict[str, yaml.Node]) -> list[tuple[str, Any]]:
    """Read a tool's input; ``content_file`` becomes ``content``."""
    found: list[tuple[str, Any]] = []
    for name, node in fields.items():
        if name == "content_file":
            found.append(("content", reader.file(node, reader.text(node, name))))
        else:
            found.append((name, reader.value(node)))
    return found


def parse_conditions(reader: NodeReader, node: yaml.Node, what: str) -> Conditions:
    """Read a ``when`` or an ``expect``."""
    pairs = [f"{subject}_{verb}" for subject in SUBJECTS for verb in ("contains", "lacks")]
    fields = reader.mapping(node, what, (*pairs, "last_result_is_error", "tools_include"))
    read = {s: fields[f"{s}_contains"] for s in SUBJECTS if f"{s}_contains" in fields}
    lacks = {s: fields[f"{s}_lacks"] for s in SUBJECTS if f"{s}_lacks" in fields}
    return Conditions(
        contains={s: reader.texts(n, f"{s}_contains") for s, n in read.items()},
        lacks={s: reader.texts(n, f"{s}_lacks") for s, n in lacks.items()},
        last_result_is_error=pick(fields, "last_result_is_error", reader.flag, None),
        tools=pick(fields, "tools_include", reader.texts, ()),
    )


_KEYS: Mapping[FaultName, tuple[str, ...]] = {
    FaultName.STATUS: ("status", "type", "message", "error_code", "retry_after", "headers", "body", "after_work"),
    FaultName.RATE_LIMIT: ("retry_after", "resets_in_s", "limit", "message"),
    FaultName.SPEND_LIMIT: ("message",),
    FaultName.OVERLOADED: ("message", "retry_after"),
    FaultName.DROP: ("how",),
    FaultName.CUT: ("after_events", "after_bytes", "how"),
    FaultName.ERROR_EVENT: ("after_events", "type", "message"),
    FaultName.STALL: ("after_events", "seconds", "ping_s", "before_headers"),
    FaultName.GARBAGE: ("after_events", "data"),
    FaultName.MAX_TOKENS: ("after_chars",),
    FaultName.WINDOW_EXCEEDED: ("after_chars",),
    FaultName.REFUSAL: ("category", "explanation"),
    FaultName.UNKNOWN_STOP: ("reason",),
    FaultName.UNKNOWN_BLOCK: ("type",),
    FaultName.USAGE: ("report",),
    FaultName.OTHER_MODEL: ("model",),
}

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "how": ("rst", "fin", "end"),
    "body": ("json", "html", "empty"),
    "limit": ("requests", "tokens", "input-tokens", "output-tokens"),
    "report": ("zero", "missing", "uncached", "falling"),
}
_COUNTS = frozenset({"status", "after_events", "after_bytes", "after_chars"})
_SECONDS = frozenset({"seconds", "ping_s", "resets_in_s"})
_HEADER_NAME = re.compile(r"[A-Za-z0-9_-]+")
_HTTP_ERRORS = range(300, 600)
_FLAGS = frozenset({"before_headers", "after_work"})


def parse_faults(reader: NodeReader, node: yaml.Node) -> tuple[FaultSpec, ...]:
    """Read one fault, or a list of faults that play in order."""
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return tuple(_parse_fault(reader, item) for item in nodes)


def _parse_fault(reader: NodeReader, node: yaml.Node) -> FaultSpec:
    if isinstance(node, yaml.ScalarNode):
        return FaultSpec(kind=FaultName(reader.choice(node, "fault", FaultName)), line=get_line(node))
    fields = reader.mapping(node, "fault")
    if "kind" not in fields:
        raise reader.error(node, "fault has no kind")
    kind = FaultName(reader.choice(fields["kind"], "kind", FaultName))
    own = _KEYS.get(kind, ())
    reader.mapping(node, f"fault {kind}", ("kind", "times", *own))
    options = {name: _parse_option(reader, fields[name], name) for name in own if name in fields}
    if options.get("status", 400) not in _HTTP_ERRORS:
        raise reader.error(fields["status"], f"status should be 300–599, found {options['status']}")
    if kind is FaultName.DROP and options.get("how") == "end":
        raise reader.error(fields["how"], "a drop is rst or fin: nothing was sent that could end cleanly")
    times = pick(fields, "times", lambda n, what: _parse_times(reader, n, what), 1)
    return FaultSpec(kind=kind, line=get_line(node), times=times, options=options)


def _parse_times(reader: NodeReader, node: yaml.Node, what: str) -> int | None:
    return None if node.value == "always" else reader.integer(node, what, low=1)


def _parse_option(reader: NodeReader, node: yaml.Node, name: str) -> Any:
    if name in _CHOICES:
        return reader.choice(node, name, _CHOICES[name])
    if name in _COUNTS:
        return reader.integer(node, name)
    if name in _SECONDS:
        return reader.seconds(node, name)
    if name in _FLAGS:
        return reader.flag(node, name)
    if name == "retry_after":
        return _parse_header(reader, node)
    if name == "headers":
        return dict(_parse_headers(reader, node))
    return reader.text(node, name)


def _parse_headers(reader: NodeReader, node: yaml.Node) -> Iterator[tuple[str, str]]:
    for name, value in reader.mapping(node, "headers").items():
        if not _HEADER_NAME.fullmatch(name):
            raise reader.error(value, f"a header name has letters, digits and dashes, found {name!r}")
        yield name.lower(), _parse_header(reader, value)


def _parse_header(reader: NodeReader, node: yaml.Node) -> str:
    value = str(reader.value(node))
    if not value.isprintable() or not value.isascii():
        raise reader.error(node, f"a header value is printable ASCII, found {value!r}")
    return value
