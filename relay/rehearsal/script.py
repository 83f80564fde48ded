r"""Reading a rehearsal script: a YAML file that says what the model answers.

`FORMAT` has every key. What it cannot say:

**Which turn is played.** A conversation without an assistant turn is new: it gets the first unplayed session whose
``when`` holds, else the first unplayed session without ``when``, else one with ``repeat``. A conversation that has an
assistant turn goes on where that turn was: found by its tool call ids, else by the messages before it, else by its
content; so conversations interleave, and clients may rewrite what is older. The same request again is a retry and gets
the same turn; but an opening request whose conversation has gone on since is a new conversation.

**Bodies from files.** ``!file path`` is the text of a file beside the script; ``content_file: path`` in a tool's input
is the same for ``content``.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from relay.base.documents import YamlFault, YamlLimits, YamlTextError, compose, get_line
from relay.base.errors import ConfigError
from relay.rehearsal.turns import (
    SUBJECTS,
    Call,
    Conditions,
    Part,
    Say,
    Script,
    ScriptSession,
    Think,
    Turn,
    TurnUsage,
)
from relay.rehearsal.wire import CATALOG, ModelCard

MAX_SCRIPT_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 60
MAX_NODES = 50_000
"""Most values of a script, with its aliases resolved."""
_LIMITS = YamlLimits(chars=MAX_SCRIPT_BYTES, depth=MAX_DEPTH)

_STR, _NULL, _FILE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null", "!file"
_TIME = "tag:yaml.org,2002:timestamp"
_NAMES = {_NULL: "nothing", "tag:yaml.org,2002:map": "a mapping", "tag:yaml.org,2002:seq": "a list"}

Fields = dict[str, yaml.Node]
"""A mapping's values by key."""

CONDITIONS = {
    **{f"{subject}_contains": f"a text or a list: all of it occurs in {words}" for subject, words in SUBJECTS.items()},
    **{f"{subject}_lacks": "the opposite" for subject in SUBJECTS},
    "last_result_is_error": "true or false: whether a result was an error",
    "tools_include": "names of tools that the request offers",
}

FORMAT: Mapping[str, Mapping[str, str]] = {
    "the script": {
        "sessions": "the conversations, each with its turns (the only key that must be there)",
        "model": "a model's id, or its id with limits; the models that relay knows are there without",
        "models": "a list of the same",
        "pace": "real time, so that a person can follow",
    },
    "model": {"id": "its name", "window": "tokens of its context", "max_tokens": "tokens of its longest answer"},
    "pace": {"first_s": "seconds before an answer", "event_s": "seconds between its parts"},
    "a session": {
        "turns": "the answers, in order",
        "name": "a name for messages",
        "when": "conditions on the first request; without them sessions are played in order",
        "repeat": "true: every conversation that fits plays it",
        "then": "next: a conversation that goes on after the last turn plays the next session (default: stop)",
    },
    "a turn": {
        "text": "a text, or a list of them",
        "tools": "calls, each {name: …, input: {…}}",
        "thinking": "what the model thought before",
        "stop": "another stop reason than end_turn or tool_use, such as refusal",
        "expect": "conditions on the request; a failed one is answered with an error, and named at the end",
        "repeat": "a number: for how many answers it stands, or `forever` for the last turn; ${n} is the number",
        "delay_s": "seconds of silence before the answer",
        "usage": "sizes, to fill the context without megabytes of text",
    },
    "usage": {
        "output_tokens": "tokens of the answer",
        "input_padding_tokens": "tokens that the prompt has more, from this request on",
    },
    "when or expect": CONDITIONS,
}
"""The keys of each mapping of a script, and their meaning."""


class NodeReader:
    """Turns YAML nodes of one script into checked values. Mutable: counts the values.

    Args:
        source: Name of the script, for messages.
        base: Directory of files named by ``!file``; None forbids them.
    """

    def __init__(self, source: str, base: Path | None = None) -> None:
        self.source = source
        self.base = base
        self.budget = MAX_NODES

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

    def mapping(self, node: yaml.Node, what: str, allowed: Iterable[str] | None = None) -> "Fields":
        """Read a mapping with text keys; `allowed` None takes any key."""
        self._spend(node)
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} should be a mapping, found {_describe(node)}")
        found: Fields = {}
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


def _describe(node: yaml.Node) -> str:
    if node.tag in _NAMES:
        return _NAMES[node.tag]
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else f"a value tagged {node.tag}"


def _suggest(word: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {str(close[0])!r}?)" if close else ""


class ScriptReader(NodeReader):
    """Reads one script; the tests' endpoint has a subclass that knows more keys."""

    format: Mapping[str, Mapping[str, str]] = FORMAT
    catalog: tuple[ModelCard, ...] = CATALOG

    def fields(self, node: yaml.Node, what: str) -> Fields:
        """Read a mapping of `format`."""
        return self.mapping(node, what, self.format[what])

    def script(self, root: yaml.Node) -> Script:
        """Read the whole script."""
        fields = self.fields(root, "the script")
        if "sessions" not in fields:
            raise self.error(root, "the script has no sessions")
        pace = self.fields(fields["pace"], "pace") if "pace" in fields else {}
        nodes = [fields["model"]] if "model" in fields else []
        own = tuple(map(self.card, (*nodes, *pick(fields, "models", self.items, ()))))
        sessions = self.items(fields["sessions"], "sessions")
        return Script(
            source=self.source,
            cards=own + tuple(card for card in self.catalog if card.id not in {mine.id for mine in own}),
            sessions=tuple(self.session(node, number) for number, node in enumerate(sessions, 1)),
            first_byte_s=pick(pace, "first_s", self.seconds, 0.0),
            event_s=pick(pace, "event_s", self.seconds, 0.0),
        )

    def card(self, node: yaml.Node) -> ModelCard:
        """Read a model: its id, or a mapping."""
        fields: Fields = {"id": node} if isinstance(node, yaml.ScalarNode) else self.fields(node, "model")
        if "id" not in fields:
            raise self.error(node, "model has no id")
        model = self.text(fields["id"], "model")
        return self.limit_card(self.find_card(model), fields)

    def find_card(self, model: str) -> ModelCard:
        """Find a known model, or make one."""
        return next((card for card in self.catalog if card.id == model), ModelCard(id=model))

    def limit_card(self, card: ModelCard, fields: Fields) -> ModelCard:
        """Give a model its limits."""
        return replace(
            card,
            window_tokens=pick(fields, "window", self.integer, card.window_tokens),
            output_tokens=pick(fields, "max_tokens", self.integer, card.output_tokens),
        )

    def session(self, node: yaml.Node, number: int) -> ScriptSession:
        """Read a session."""
        fields = self.fields(node, "a session")
        turns = self.items(fields["turns"], "turns") if "turns" in fields else []
        if not turns:
            raise self.error(fields.get("turns", node), "the session has no turns")
        return ScriptSession(
            name=pick(fields, "name", self.text, f"session {number}"),
            line=get_line(node),
            when=pick(fields, "when", self.conditions, Conditions()),
            repeat=pick(fields, "repeat", self.flag, default=False),
            then_next=pick(fields, "then", lambda n, what: self.choice(n, what, ("next", "stop")), "stop") == "next",
            turns=tuple(self.turn(item, last=item is turns[-1]) for item in turns),
        )

    def turn(self, node: yaml.Node, *, last: bool) -> Turn:
        """Read a turn; `last` of its session."""
        fields = self.fields(node, "a turn")
        usage = self.fields(fields["usage"], "usage") if "usage" in fields else {}
        turn = Turn(
            line=get_line(node),
            parts=tuple(self._parts(fields)),
            expect=pick(fields, "expect", self.conditions, Conditions()),
            stop=pick(fields, "stop", self.text, ""),
            usage=TurnUsage(
                output_tokens=pick(usage, "output_tokens", self.integer, None),
                input_padding_tokens=pick(usage, "input_padding_tokens", self.integer, 0),
            ),
            delay_s=pick(fields, "delay_s", self.seconds, 0.0),
            repeat=self._repeat(fields["repeat"], last=last) if "repeat" in fields else 1,
        )
        if not (turn.parts or turn.stop or self.answers_alone(fields)):
            raise self.error(node, "the turn answers nothing; it needs one of: text, tools, thinking, stop")
        return turn

    def answers_alone(self, fields: Fields) -> bool:  # noqa: ARG002  # for the subclass
        """Return whether a turn answers without content."""
        return False

    def _repeat(self, node: yaml.Node, *, last: bool) -> int | None:
        if node.value != "forever":
            return self.integer(node, "repeat", low=1)
        if not last:
            raise self.error(node, "only the last turn of a session can repeat forever")
        return None

    def _parts(self, fields: Fields) -> Iterator[Part]:
        if "thinking" in fields:
            yield Think(text=self.text(fields["thinking"], "thinking"))
        for text in pick(fields, "text", self.texts, ()):
            if not text:
                raise self.error(fields["text"], "text is empty")
            yield Say(text=text)
        for item in pick(fields, "tools", self.items, ()):
            yield self._call(item)

    def _call(self, node: yaml.Node) -> Call:
        fields = self.mapping(node, "a tool call", ("name", "input"))
        if "name" not in fields:
            raise self.error(node, "a tool call has no name")
        inputs = self.mapping(fields["input"], "input") if "input" in fields else {}
        return Call(line=get_line(node), name=self.text(fields["name"], "name"), input=dict(self._inputs(inputs)))

    def _inputs(self, fields: Fields) -> Iterator[tuple[str, Any]]:
        """Read a tool's input; ``content_file`` becomes ``content``."""
        for name, node in fields.items():
            if name == "content_file":
                yield "content", self.file(node, self.text(node, name))
            else:
                yield name, self.value(node)

    def conditions(self, node: yaml.Node, what: str) -> Conditions:
        """Read a ``when`` or an ``expect``."""
        fields = self.mapping(node, what, self.format["when or expect"])

        def read(verb: str) -> dict[str, tuple[str, ...]]:
            found = {subject: f"{subject}_{verb}" for subject in SUBJECTS}
            return {subject: self.texts(fields[key], key) for subject, key in found.items() if key in fields}

        return Conditions(
            contains=read("contains"),
            lacks=read("lacks"),
            last_result_is_error=pick(fields, "last_result_is_error", self.flag, None),
            tools=pick(fields, "tools_include", self.texts, ()),
        )


def pick(fields: Fields, name: str, read: Any, default: Any) -> Any:
    """Read an optional key: `read` gets its node and its name."""
    return read(fields[name], name) if name in fields else default


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
    reader = ScriptReader(source, base)
    return reader.script(reader.compose(text))
