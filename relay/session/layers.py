"""The layers of a context: what fills it, and the most that each should take. Pure.

The most is a part of the reset line. Source: the target shares of *When a Long-Running Agent's Context Quietly Decays*
(fixed 5-10 %, working 15-25 %, knowledge 20-30 %, history 40-50 %), their upper ends. Plan, phase and handoff note
share the working layer; ledger and preloaded files, which have sizes of their own, belong to knowledge.

A layer that is too large is said to be so, and stops nothing. Rules and phase are never cut to fit their layer.
"""

from collections.abc import Iterable, Mapping

from relay.base.values import dataclass
from relay.session.usage import estimate_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A part of the context."""

    name: str
    sources: tuple[str, ...]
    """Of `relay.session.events.SizedPart`, or of tokens in a prompt; ``tool`` stands for the results of every tool."""
    share: float = 0.0
    """The most, as a part of the reset line; 0 for a layer with a size of its own."""
    least_tokens: int = 0
    """The most is never less than this, however low the line is."""

    def find_most(self, line_tokens: int) -> int:
        """Return the most tokens of this layer."""
        return max(self.least_tokens, int(self.share * line_tokens))


PLAN = Layer(name="plan", sources=("plan", "environment", "review", "steering"), share=0.07, least_tokens=2_000)
PHASE = Layer(name="phase", sources=("phase",), share=0.13, least_tokens=4_000)
NOTE = Layer(name="handoff note", sources=("handoff_note",), share=0.05, least_tokens=2_000)
LAYERS = (
    Layer(name="rules", sources=("system", "tools", "rules", "skills"), share=0.10, least_tokens=2_000),
    PLAN,
    PHASE,
    NOTE,
    Layer(name="ledger", sources=("ledger",), least_tokens=1_500),
    Layer(name="preload", sources=("preload",), least_tokens=4_000),
    Layer(name="results", sources=("tool",), share=0.30),
    Layer(name="history", sources=("assistant", "thinking", "relay", "other"), share=0.50),
)


def sum_layers(tokens: Mapping[str, int] | Iterable[tuple[str, int]]) -> Mapping[str, int]:
    """Return the tokens of each layer, given those of each source; an unknown source counts as history."""
    owners = {source: layer.name for layer in LAYERS for source in layer.sources}
    found = dict.fromkeys((layer.name for layer in LAYERS), 0)
    for source, size in tokens.items() if isinstance(tokens, Mapping) else tokens:
        found[owners.get(source.partition(" ")[0], "history")] += size
    return found


def describe_note(phase_id: str, text: str, line_tokens: int) -> str:
    """Return what to do about a handoff note that is too large for its layer; empty if it is not."""
    tokens, most = estimate_tokens(text), NOTE.find_most(line_tokens)
    if tokens <= most:
        return ""
    words = f"the handoff note for phase {phase_id} takes about {tokens:,} tokens, and should take {most:,}"
    return f"{words}: the next session gets it without its middle; `relay say` tells it what it must not miss"
