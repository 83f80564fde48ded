"""A script as values: sessions of turns."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from relay.base.values import dataclass
from relay.rehearsal.catalog import CATALOG, ModelCard
from relay.rehearsal.conditions import Conditions
from relay.rehearsal.dialects import DIALECTS, ServerDialect
from relay.rehearsal.faults import FaultSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """A text block."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Think:
    """A thinking block; its text is shown only to clients that ask for summaries."""

    text: str
    tokens: int | None = None
    """Thinking tokens it stands for; None: estimated from the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call."""

    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A content block exactly as written, of any type."""

    body: Mapping[str, Any]


Part = Say | Think | Call | Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnUsage:
    """Corrections to what the estimator would report."""

    output_tokens: int | None = None
    """All output of the turn; the next prompt counts it, too. None: estimated."""
    input_padding_tokens: int = 0
    """Added to the prompt from this turn on, as if the last message were longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One answer of the model."""

    line: int = 0
    parts: tuple[Part, ...] = ()
    expect: Conditions = field(default_factory=Conditions)
    faults: tuple[FaultSpec, ...] = ()
    stop: str = ""
    """Stop reason; empty: ``tool_use`` after calls, else ``end_turn``."""
    stop_sequence: str | None = None
    stop_details: Mapping[str, Any] | None = None
    usage: TurnUsage = field(default_factory=TurnUsage)
    delay_s: float = 0.0
    repeat: int | None = 1
    """How many turns this stands for; None: for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSession:
    """One conversation."""

    name: str
    line: int = 0
    when: Conditions = field(default_factory=Conditions)
    repeat: bool = False
    """Whether it plays again for every conversation that comes to it."""
    aside: bool = False
    """Whether its one turn answers requests of any conversation without moving it on."""
    then_next: bool = False
    """Whether a conversation that goes on after the last turn continues with the next session."""
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFault:
    """A fault of an endpoint other than ``POST /v1/messages``."""

    on: str
    """``models`` or ``count_tokens``."""
    fault: FaultSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything a rehearsal plays."""

    source: str = "script.yaml"
    cards: tuple[ModelCard, ...] = CATALOG
    """Models that may be asked for; the script's own first."""
    sessions: tuple[ScriptSession, ...] = ()
    endpoint_faults: tuple[EndpointFault, ...] = ()
    dialect: ServerDialect = DIALECTS["anthropic"]
    refuses: tuple[str, ...] = ()
    """What of a request this endpoint does not take; see `relay.rehearsal.checks.check_refused`."""
    thinks_always: bool = True
    """Whether models with preserved thinking think in every turn, as they do in reality."""
    first_byte_s: float = 0.0
    event_s: float = 0.0
    """Time between two events of a stream."""
