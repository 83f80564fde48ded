"""Scripts of this endpoint: the player's, with what goes wrong.

More keys: at the top ``thinking`` (``always``: models with preserved thinking begin every answer with a thinking block,
as they do in reality; ``scripted``), ``faults`` (of the other endpoints), ``dialect`` and ``refuses`` (fields that are
answered with a 400, as some gateways do); of a model ``min_cache_tokens``; of a session ``aside: true`` (its one turn
answers any request that `when` fits, in whatever conversation, and moves none of them on: a client that asks for a
summary); of a turn ``fault`` (one or a list).

**Faults** play ``times`` times (default 1; ``always``) before the turn's answer comes; a list plays in order.
`OPTIONS` has each kind with its own keys. With ``after_work: true`` the answer was made, and is billed. What is billed
is always what was used, whatever is reported of it.

An answer longer than the request's ``max_tokens``, or than what is left of the window, is cut and stops with
``max_tokens`` or ``model_context_window_exceeded`` by itself (not where ``output_tokens`` is given).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields as list_fields
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from relay.base.documents import get_line
from relay.rehearsal.script import FORMAT, Fields, ScriptReader, pick
from relay.rehearsal.turns import ScriptSession, Turn
from relay.rehearsal.wire import ModelCard
from tests.endpoint.checks import REFUSABLE
from tests.endpoint.faults import (
    BEFORE,
    CATALOG,
    DIALECTS,
    EndpointFault,
    EndpointScript,
    FaultName,
    FaultSpec,
    FaultyTurn,
    SideSession,
    StrictCard,
    find_card,
)

_ANSWERS_ALONE = frozenset(
    {FaultName.EMPTY, FaultName.REFUSAL, FaultName.UNKNOWN_STOP, FaultName.UNKNOWN_BLOCK, FaultName.PAUSE_TURN}
)
"""Faults that make an answer of their own, so that the turn needs no content."""
_MORE = {
    "the script": ("thinking", "faults", "dialect", "refuses"),
    "model": ("min_cache_tokens",),
    "a session": ("aside",),
    "a turn": ("fault",),
}

OPTIONS: Mapping[FaultName, tuple[str, ...]] = {
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


class EndpointReader(ScriptReader):
    """Reads one script."""

    format = MappingProxyType(
        {what: {**keys, **dict.fromkeys(_MORE.get(what, ()), "")} for what, keys in FORMAT.items()}
    )
    catalog = CATALOG

    def script(self, root: yaml.Node) -> EndpointScript:
        """Read the whole script."""
        read, fields = super().script(root), self.fields(root, "the script")
        dialect = DIALECTS[pick(fields, "dialect", self._one_of(DIALECTS), "anthropic")]
        refuses = [self.choice(node, "refuses", REFUSABLE) for node in pick(fields, "refuses", self.items, ())]
        return EndpointScript(
            **_copy(read),
            endpoint_faults=tuple(self._endpoint_faults(fields)),
            dialect=dialect,
            refuses=(*dialect.refuses, *refuses),
            thinks_always=pick(fields, "thinking", self._one_of(("always", "scripted")), "always") == "always",
        )

    def _one_of(self, options: Any) -> Any:
        return lambda node, what: self.choice(node, what, tuple(options))

    def find_card(self, model: str) -> ModelCard:
        """Find a known model, or make one."""
        return find_card(model) or StrictCard(id=model)

    def limit_card(self, card: ModelCard, fields: Fields) -> ModelCard:
        """Give a model its limits."""
        card = super().limit_card(card, fields)
        tokens = pick(fields, "min_cache_tokens", self.integer, None)
        return card if tokens is None else replace(card, min_cache_tokens=tokens)  # type: ignore[call-arg]

    def _endpoint_faults(self, fields: Fields) -> Iterator[EndpointFault]:
        for item in pick(fields, "faults", self.items, ()):
            entry = self.mapping(item, "an entry of faults", ("on", "fault"))
            if len(entry) < 2:  # both keys
                raise self.error(item, "an entry of faults has the keys on and fault")
            on = self.choice(entry["on"], "on", ("models", "count_tokens"))
            for fault in self._faults(entry["fault"]):
                if fault.kind not in {*BEFORE, FaultName.STALL}:
                    known = ", ".join(sorted(BEFORE))
                    raise self.error(entry["fault"], f"on {on}, a fault is one of: {known}, stall")
                yield EndpointFault(on=on, fault=fault)

    def session(self, node: yaml.Node, number: int) -> ScriptSession:
        """Read a session."""
        read, fields = super().session(node, number), self.fields(node, "a session")
        aside = pick(fields, "aside", self.flag, default=False)
        if aside and (not read.when or len(read.turns) != 1):
            raise self.error(node, "an aside has a when and one turn")
        return SideSession(**_copy(read), aside=aside)

    def turn(self, node: yaml.Node, *, last: bool) -> Turn:
        """Read a turn."""
        read, fields = super().turn(node, last=last), self.fields(node, "a turn")
        return FaultyTurn(**_copy(read), faults=tuple(self._faults(fields["fault"])) if "fault" in fields else ())

    def answers_alone(self, fields: Fields) -> bool:
        """Return whether a fault is answer enough."""
        faults = self._faults(fields["fault"]) if "fault" in fields else ()
        return any(fault.times is None or fault.kind in _ANSWERS_ALONE for fault in faults)

    def _faults(self, node: yaml.Node) -> Iterator[FaultSpec]:
        """Read one fault, or a list of faults that play in order."""
        return map(self._fault, node.value if isinstance(node, yaml.SequenceNode) else [node])

    def _fault(self, node: yaml.Node) -> FaultSpec:
        if isinstance(node, yaml.ScalarNode):
            return FaultSpec(kind=FaultName(self.choice(node, "fault", FaultName)), line=get_line(node))
        fields = self.mapping(node, "fault")
        if "kind" not in fields:
            raise self.error(node, "fault has no kind")
        kind = FaultName(self.choice(fields["kind"], "kind", FaultName))
        own = OPTIONS.get(kind, ())
        self.mapping(node, f"fault {kind}", ("kind", "times", *own))
        options = {name: self._option(fields[name], name) for name in own if name in fields}
        if options.get("status", 400) not in _HTTP_ERRORS:
            raise self.error(fields["status"], f"status should be 300–599, found {options['status']}")
        if kind is FaultName.DROP and options.get("how") == "end":
            raise self.error(fields["how"], "a drop is rst or fin: nothing was sent that could end cleanly")
        times = pick(fields, "times", self._times, 1)
        return FaultSpec(kind=kind, line=get_line(node), times=times, options=options)

    def _times(self, node: yaml.Node, what: str) -> int | None:
        return None if node.value == "always" else self.integer(node, what, low=1)

    def _option(self, node: yaml.Node, name: str) -> Any:
        if name in _CHOICES:
            return self.choice(node, name, _CHOICES[name])
        if name in _COUNTS:
            return self.integer(node, name)
        if name in _SECONDS:
            return self.seconds(node, name)
        if name in _FLAGS:
            return self.flag(node, name)
        if name == "retry_after":
            return self._header(node)
        if name == "headers":
            return dict(self._headers(node))
        return self.text(node, name)

    def _headers(self, node: yaml.Node) -> Iterator[tuple[str, str]]:
        for name, value in self.mapping(node, "headers").items():
            if not _HEADER_NAME.fullmatch(name):
                raise self.error(value, f"a header name has letters, digits and dashes, found {name!r}")
            yield name.lower(), self._header(value)

    def _header(self, node: yaml.Node) -> str:
        value = str(self.value(node))
        if not value.isprintable() or not value.isascii():
            raise self.error(node, f"a header value is printable ASCII, found {value!r}")
        return value


def _copy(value: Any) -> dict[str, Any]:
    """Return a value's fields, to make one of a subclass."""
    return {field.name: getattr(value, field.name) for field in list_fields(value)}


def parse_script(text: str, *, source: str = "script.yaml", base: Path | None = None) -> EndpointScript:
    """Read a script.

    Args:
        text: The YAML.
        source: Its name in error messages.
        base: Directory for ``!file``; None forbids it.

    Raises:
        ConfigError: Not a script; the message begins with ``source:line:``.
    """
    reader = EndpointReader(source, base)
    return reader.script(reader.compose(text))
