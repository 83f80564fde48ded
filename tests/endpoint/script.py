"""Scripts of this endpoint: the player's, with what goes wrong.

Models with preserved thinking begin every answer with a thinking block, as they do in reality.

More keys: at the top ``models_fault`` (one or a list, of the Models API), ``dialect`` and ``refuses``
(fields that are answered with a 400, as some gateways do); of a model ``min_cache_tokens``; of a session
``aside: true`` (its one turn answers any request that `when` fits, in whatever conversation, and moves none of them on:
a client that asks for a summary); of a turn ``fault`` (one or a list).

**Faults** play ``times`` times (default 1; ``always``) before the turn's answer comes; a list plays in order.
`OPTIONS` has each kind with its own keys. With ``after_work: true`` the answer was made, and is billed. What is billed
is always what was used, whatever is reported of it.

An answer longer than the request's ``max_tokens``, or than what is left of the window, is cut and stops with
``max_tokens`` or ``model_context_window_exceeded`` by itself (not where ``output_tokens`` is given).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from relay.rehearsal.script import Count, Script, ScriptModel, ScriptSession, Turn, decode_script
from relay.rehearsal.wire import ModelCard
from tests.endpoint.checks import REFUSABLE
from tests.endpoint.faults import (
    CATALOG,
    DIALECTS,
    FaultName,
    Faults,
    FaultSpec,
    ServerDialect,
    StrictCard,
    find_card,
    list_faults,
)

_ANSWERS_ALONE = frozenset(
    {FaultName.EMPTY, FaultName.REFUSAL, FaultName.UNKNOWN_STOP, FaultName.UNKNOWN_BLOCK, FaultName.PAUSE_TURN}
)
"""Faults that make an answer of their own, so that the turn needs no content."""


class FaultyTurn(Turn, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A turn: one answer of the model, and what goes wrong before it comes."""

    fault: Faults = ()

    @property
    def faults(self) -> tuple[FaultSpec, ...]:
        return list_faults(self.fault)

    @property
    def answers(self) -> bool:
        return super().answers or any(fault.times == "always" or fault.kind in _ANSWERS_ALONE for fault in self.faults)


class SideSession(ScriptSession, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session: one conversation, or an answer beside all of them."""

    turns: tuple[FaultyTurn, ...]
    aside: bool = False
    """Whether its one turn answers requests of any conversation, without advancing it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aside and (not self.when or len(self.turns) != 1):
            raise ValueError("an aside has a when and one turn")


class StrictModel(ScriptModel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model."""

    min_cache_tokens: Count | None = None
    binds_thinking: bool | None = None

    def limit(self, card: ModelCard) -> ModelCard:
        given: dict[str, Any] = {"min_cache_tokens": self.min_cache_tokens, "binds_thinking": self.binds_thinking}
        return replace(super().limit(card), **{name: value for name, value in given.items() if value is not None})


class EndpointScript(Script, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The script: everything that this endpoint plays."""

    sessions: tuple[SideSession, ...]
    model: str | StrictModel | None = None
    models: tuple[str | StrictModel, ...] = ()
    models_fault: Faults = ()
    dialect: str = "anthropic"
    refuses: tuple[str, ...] = ()
    catalog: ClassVar[tuple[ModelCard, ...]] = CATALOG

    def __post_init__(self) -> None:
        if self.dialect not in DIALECTS or not {*self.refuses} <= {*REFUSABLE}:
            raise ValueError(f"dialect is one of {', '.join(DIALECTS)}; refuses: some of {', '.join(REFUSABLE)}")

    @property
    def server(self) -> ServerDialect:
        """How it differs from Anthropic's."""
        return DIALECTS[self.dialect]

    def find_known(self, model: str) -> ModelCard:
        return find_card(model) or StrictCard(id=model)


def parse_script(text: str, *, source: str = "script.yaml", base: Path | None = None) -> EndpointScript:
    """Read a script; as `relay.rehearsal.script.parse_script`."""
    return decode_script(text, EndpointScript, source=source, base=base)
