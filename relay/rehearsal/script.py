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

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from relay.base.errors import ConfigError
from relay.base.yaml_events import get_line
from relay.rehearsal.catalog import CATALOG, ModelCard, find_card
from relay.rehearsal.checks import REFUSABLE
from relay.rehearsal.conditions import MAX_SCRIPT_BYTES, Conditions, NodeReader, parse_conditions, pick
from relay.rehearsal.turns import (
    BEFORE,
    DIALECTS,
    Call,
    EndpointFault,
    FaultName,
    Part,
    Raw,
    Say,
    Script,
    ScriptSession,
    Think,
    Turn,
    TurnUsage,
    parse_faults,
)

_TOP = ("model", "models", "thinking", "pace", "faults", "dialect", "refuses", "sessions")
_MODEL = ("id", "window", "max_tokens", "min_cache_tokens")
_SESSION = ("name", "when", "repeat", "aside", "then", "turns")
_CONTENT = ("thinking", "text", "tools", "blocks")
_TURN = (*_CONTENT, "expect", "fault", "stop", "stop_sequence", "stop_details", "usage", "delay_s", "repeat")
_USAGE = ("output_tokens", "thinking_tokens", "input_padding_tokens")
_ANSWERS_ALONE = frozenset(
    {FaultName.EMPTY, FaultName.REFUSAL, FaultName.UNKNOWN_STOP, FaultName.UNKNOWN_BLOCK, FaultName.PAUSE_TURN}
)
"""Faults that make an answer of their own, so the turn needs no content."""


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
    card = find_card(model) or ModelCard(id=model, name=model, line="", system_messages=True)
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
        repeat="repeat" in fields and reader.flag(fields["repeat"], "repeat"),
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
    if not (turn.parts or turn.stop or _fault_suffices(turn)):
        raise reader.error(node, f"the turn answers nothing; it needs one of: {', '.join((*_CONTENT, 'stop'))}")
    return turn


def _fault_suffices(turn: Turn) -> bool:
    return any(fault.times is None or fault.kind in _ANSWERS_ALONE for fault in turn.faults)


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
    """Read a tool's input; ``content_file`` becomes ``content`` in its place."""
    found: list[tuple[str, Any]] = []
    for name, node in fields.items():
        if name == "content_file":
            found.append(("content", reader.file(node, reader.text(node, name))))
        else:
            found.append((name, reader.value(node)))
    return found
