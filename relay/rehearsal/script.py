r"""A rehearsal script: a YAML file that says what the model answers, decoded by the types below.

`FORMAT` has every key. What it cannot say:

**Which turn is played.** A conversation without an assistant turn is new: it gets the first unplayed session whose
``when`` holds, else the first unplayed session without ``when``, else one with ``repeat``. A conversation that has an
assistant turn goes on where that turn was: found by its tool call ids, else by the messages before it, else by its
content; so conversations interleave, and clients may rewrite what is older. The same request again is a retry and gets
the same turn; but an opening request whose conversation has gone on since is a new conversation.

**Bodies from files.** ``!file path`` is the text of a file beside the script.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import yaml
from msgspec import Meta, Struct, ValidationError, convert, field, structs

from relay.base.documents import YamlLimits, YamlTextError, compose, get_line
from relay.base.errors import ConfigError
from relay.config.decoding import told
from relay.rehearsal.conditions import ALWAYS, Conditions, Texts, list_texts
from relay.rehearsal.wire import CATALOG, ModelCard

Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class Think(Struct, frozen=True):
    """A thinking block; its text is shown only to clients that ask for summaries."""

    text: str


class Call(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call."""

    name: Annotated[str, told("the tool's name")]
    input: Annotated[dict[str, Any], told("a mapping: the tool's arguments")] = {}
    line: int = field(default=0, name="(line)")


Part = str | Think | Call


class TurnUsage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Usage: corrections of what is estimated."""

    output_tokens: Annotated[Count | None, told("tokens of the answer")] = None
    input_padding_tokens: Annotated[Count, told("tokens that the prompt has more, from this request on")] = 0


class Turn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A turn: one answer of the model."""

    text: Annotated[Texts, told("a text, or a list of them")] = ()
    tools: Annotated[tuple[Call, ...], told("calls, each {name: …, input: {…}}")] = ()
    thinking: Annotated[str | None, told("what the model thought before")] = None
    stop: Annotated[str, told("another stop reason than end_turn or tool_use, such as refusal")] = ""
    expect: Annotated[Conditions, told("conditions on the request; a failed one is answered with an error")] = ALWAYS
    repeat: Annotated[
        Annotated[int, Meta(ge=1)] | Literal["forever"],
        told("a number: for how many answers it stands, or `forever` for the last turn"),
    ] = 1
    delay_s: Annotated[Seconds, told("seconds of silence before the answer")] = 0.0
    usage: Annotated[TurnUsage, told("sizes, to fill the context without megabytes of text")] = TurnUsage()
    line: int = field(default=0, name="(line)")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the answer, in order."""
        thought = () if self.thinking is None else (Think(self.thinking),)
        return (*thought, *list_texts(self.text), *self.tools)

    @property
    def answers(self) -> bool:
        """Whether there is anything to answer with."""
        return bool(self.parts or self.stop)

    def __post_init__(self) -> None:
        if "" in list_texts(self.text):
            raise ValueError("the text is empty")
        if not self.answers:
            raise ValueError("the turn answers nothing; it needs one of: text, tools, thinking, stop")


class ScriptSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session: one conversation."""

    turns: Annotated[tuple[Turn, ...], told("the answers, in order")]
    name: Annotated[str, told("a name for messages")] = ""
    when: Annotated[Conditions, told("conditions on the first request; without them sessions are played in order")] = (
        ALWAYS
    )
    repeat: Annotated[bool, told("true: every conversation that fits plays it")] = False
    then: Annotated[
        Literal["next", "stop"],
        told("next: a conversation that goes on after the last turn plays the next session (default: stop)"),
    ] = "stop"
    line: int = field(default=0, name="(line)")

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError("the session has no turns")
        if any(turn.repeat == "forever" for turn in self.turns[:-1]):
            raise ValueError("only the last turn of a session can repeat forever")


class ScriptModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model."""

    id: Annotated[str, told("its name")]
    window: Annotated[Count | None, told("tokens of its context")] = None
    max_tokens: Annotated[Count | None, told("tokens of its longest answer")] = None

    def limit(self, card: ModelCard) -> ModelCard:
        """Give a model its limits."""
        window = card.window_tokens if self.window is None else self.window
        output = card.output_tokens if self.max_tokens is None else self.max_tokens
        return replace(card, window_tokens=window, output_tokens=output)


class Script(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The script: everything that a rehearsal plays."""

    sessions: Annotated[
        tuple[ScriptSession, ...],
        told("the conversations, each with its turns (the only key that must be there)"),
    ]
    model: Annotated[
        str | ScriptModel | None,
        told("a model's id, or its id with limits; the models that relay knows are there without"),
    ] = None
    models: Annotated[tuple[str | ScriptModel, ...], told("a list of the same")] = ()
    delay_s: Annotated[Seconds, told("seconds of silence before each answer, so that a person can follow")] = 0.0
    source: str = field(default="script.yaml", name="(source)")
    catalog: ClassVar[tuple[ModelCard, ...]] = CATALOG

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """All models; the script's own first."""
        given = (*(() if self.model is None else (self.model,)), *self.models)
        named = [ScriptModel(id=model) if isinstance(model, str) else model for model in given]
        own = tuple(model.limit(self.find_known(model.id)) for model in named)
        return own + tuple(card for card in self.catalog if card.id not in {mine.id for mine in own})

    def find_known(self, model: str) -> ModelCard:
        """Return a model that relay knows, or a new one."""
        return next((card for card in self.catalog if card.id == model), ModelCard(id=model))


def list_keys(kind: type[Struct]) -> dict[str, str]:
    """Return the keys of a mapping, with their meaning."""
    fields = (own for own in structs.fields(kind) if own.encode_name == own.name)
    return {own.encode_name: _find_words(own.type) for own in fields}


def _find_words(kind: Any) -> str:
    found = (one.description for one in get_args(kind) if isinstance(one, Meta) and one.description)
    return next(found, "")


def _name(kind: type[Struct]) -> str:
    words = (kind.__doc__ or "").partition(":")[0].strip(".\n")
    return words[:1].lower() + words[1:]


FORMAT: Mapping[str, Mapping[str, str]] = {
    _name(kind): list_keys(kind) for kind in (Script, ScriptModel, ScriptSession, Turn, TurnUsage, Conditions)
}
"""The keys of each mapping of a script, and their meaning."""

MAX_SCRIPT_BYTES = 8 * 1024 * 1024
_LIMITS = YamlLimits(chars=MAX_SCRIPT_BYTES, depth=60, tags=True)
_STR, _NULL, _FILE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null", "!file"
_TIME = "tag:yaml.org,2002:timestamp"
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class _FaultError(Exception):
    """A node of the script is wrong; the message says how."""

    def __init__(self, node: yaml.Node, words: str) -> None:
        super().__init__(words)
        self.line = get_line(node)


def _read(node: yaml.Node, base: Path | None) -> Any:
    """Return the plain value of a node: JSON's, with the texts of files."""
    if node.tag == _FILE:
        return _read_file(node, base)
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if not name or name in found:
                raise _FaultError(key, f"the key {name!r} is there twice" if name else "a key should be text")
            found[name] = _read(value, base)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_read(item, base) for item in node.value]
    if node.tag in {_STR, _TIME}:
        return str(node.value)
    if node.tag == _NULL:
        return None
    try:
        return json.loads(str(node.value))
    except ValueError:
        raise _FaultError(node, f"{node.value!r} means another value in YAML; put it in quotes") from None


def _read_file(node: yaml.Node, base: Path | None) -> str:
    if base is None:
        raise _FaultError(node, "files can only be named by a script that is itself a file")
    root, name = base.resolve(), str(node.value)
    path = (root / name).resolve()
    if not path.is_relative_to(root):
        raise _FaultError(node, f"{name!r} is outside the script's directory")
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise _FaultError(node, f"cannot read {name!r}: {error}") from error


def _explain(root: yaml.Node, error: ValidationError) -> _FaultError:
    """Say what is wrong with a script, and where."""
    said, _, place = str(error).partition(" - at ")
    node, name = root, ""
    for key, index in _STEP.findall(place):
        node, name = (node.value[int(index)], "") if index else (_get_child(node, key), f"{key}: ")
    return _FaultError(node, f"{name}{said}")


def _get_child(node: yaml.Node, name: str) -> yaml.Node:
    """Return the value of a mapping's key; the mapping itself where it has no such key."""
    return next((value for key, value in node.value if key.value == name), node)


_S = TypeVar("_S", bound=Script)


def decode_script(text: str, kind: type[_S], *, source: str, base: Path | None) -> _S:
    """Read a script of this kind; as `parse_script`."""
    hint = "`relay demo --check` lists the keys and what they take"
    try:
        root: yaml.Node | None = compose(text, _LIMITS)
        if root is None:
            raise ConfigError(f"{source}:1: the script is empty")
        try:
            script = convert(_read(root, base), kind)
        except ValidationError as error:
            raise _explain(root, error) from None
    except YamlTextError as error:
        raise ConfigError(f"{source}:{error.line or 1}: the script {error}") from None
    except _FaultError as error:
        raise ConfigError(f"{source}:{error.line}: {error}", hint=hint) from None
    structs.force_setattr(script, "source", source)
    sessions = zip(script.sessions, _get_child(root, "sessions").value, strict=True)
    for number, (session, place) in enumerate(sessions, 1):
        structs.force_setattr(session, "line", get_line(place))
        structs.force_setattr(session, "name", session.name or f"session {number}")
        for turn, at in zip(session.turns, _get_child(place, "turns").value, strict=True):
            structs.force_setattr(turn, "line", get_line(at))
            for call, own in zip(turn.tools, _get_child(at, "tools").value, strict=False):
                structs.force_setattr(call, "line", get_line(own))
    return script


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
    return decode_script(text, Script, source=source, base=base)
