"""What one endpoint does not take of a request, learnt from its refusals: gateways know the API of some earlier day."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from relay.runners.messages.faults import Fault, FaultKind


class Part(StrEnum):
    """A part of a request that relay can do without."""

    SYSTEM_MESSAGE = "system messages in mid-conversation"
    """The notice is text of the user's then, which every endpoint takes."""
    DISPLAY = "thinking.display"
    THINKING = "thinking"
    AUTOMATIC_CACHE = "cache_control of the request"
    """The last block is marked instead."""
    MARKS = "cache_control"


_NAMED = (
    ("display", Part.DISPLAY),
    ("thinking", Part.DISPLAY),
    ("thinking", Part.THINKING),
    ("cache_control", Part.AUTOMATIC_CACHE),
    ("cache_control", Part.MARKS),
)
"""Words of a refusal, and what is left out for them, the least first."""


@dataclass(slots=True)
class Dialect:
    """What an endpoint has refused so far. Mutable: learns."""

    left_out: frozenset[Part] = frozenset()
    answered: bool = False
    """It has taken a request of this process: whatever it refuses now is not the form that all of them have."""

    def takes(self, part: Part) -> bool:
        """Say whether a request may have a part."""
        return part not in self.left_out

    def learn(self, fault: Fault, request: Mapping[str, Any]) -> Part | None:
        """Return what is to be left out from here on, because it may be what was refused; None where nothing is."""
        if fault.kind is not FaultKind.REQUEST:
            return None
        part = self._find_part(fault.message.lower(), request)
        if part is not None:
            self.left_out |= {part}
        return part

    def _find_part(self, words: str, request: Mapping[str, Any]) -> Part | None:
        if request["messages"][-1]["role"] == "system":
            return Part.SYSTEM_MESSAGE
        if self.answered:
            return None
        sent = _list_parts(request)
        return next((part for word, part in _NAMED if word in words and part in sent), None)


def _list_parts(request: Mapping[str, Any]) -> frozenset[Part]:
    """Return what a request has of the parts that it could do without."""
    thinking = request.get("thinking") or {}
    has = {
        Part.DISPLAY: "display" in thinking,
        Part.THINKING: bool(thinking),
        Part.AUTOMATIC_CACHE: "cache_control" in request,
        Part.MARKS: "cache_control" in request["system"][0],
    }
    return frozenset(part for part, there in has.items() if there)
