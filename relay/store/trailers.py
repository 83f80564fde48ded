"""The vocabulary of the trailers of relay's commits on a branch: each key with its meaning, and values to be parsed."""

import math
import re
from collections.abc import Iterable

from relay.session.usage import Spent, Usage

PREFIX = "Relay-"
"""Begins every key; nobody but relay writes a trailer with it."""

PLAN = "Relay-Plan"
PLAN_TREE = "Relay-Plan-Tree"
"""The tree that has a loose plan and its ledger as the commit leaves them (`relay.store.loose`)."""
PHASE = "Relay-Phase"
STATUS = "Relay-Status"
ATTEMPT_STATUSES = frozenset({"done", "handoff"})
"""Statuses of a commit that an attempt made."""
ITEMS = "Relay-Items"
AMENDED = "Relay-Amended"
"""Phases that sessions changed beyond their boxes."""
SESSION = "Relay-Session"
LEG = "Relay-Leg"
"""The number of the session within its phase; an interrupted session and the one after it have the same."""
GATE = "Relay-Gate"
REVIEW = "Relay-Review"
"""Number of reviews, findings, confirmed and open ones, and a digest; or why there was no review."""
DOUBT = "Relay-Doubt"
"""A sentence that speaks against a ticked box: nothing was changed, an item names a missing file, or the phase put a
claim in doubt and left it so."""
SANDBOX = "Relay-Sandbox"
REPAIRS = "Relay-Repairs"
"""How often relay gave the work back to its session for a repair."""
RUNG = "Relay-Rung"
"""A change of model or effort in mid-phase: ``effort=high``, ``model=ID``; ``fallback=ID`` if the model was out of
reach. A phase has one for each, in order."""
HOOKS = "Relay-Hooks"
"""The commit hooks that ran, if the user had left some out: their names, or ``skip``."""
MERGE = "Relay-Merge"
"""The commit of a phase that this one merges onto what others landed, and the digests of both gates."""
AGENT = "Relay-Agent"
"""Name and version of the agent that worked; missing where relay's own loop did."""
MODEL = "Relay-Model"
"""The models that answered since the last commit."""
METERING = "Relay-Metering"
"""Who counted the usage: ``gateway`` is relay."""
USAGE = "Relay-Usage"
COST = "Relay-Cost"

SAID = "Relay-Said"
"""A text from the user during the phase, as JSON; in hand-off commits."""
EVIDENCE_CHARS = 300

UNKNOWN = "unknown"

_USAGE_PART = re.compile(r"([a-z0-9_]+)=([0-9]{1,18})")
_ESTIMATED = "~"
_MODEL = re.compile(r"[\w.:/@+\[\]-]{1,100}", re.ASCII)
MOST_MODELS = 5
_COST = re.compile(r"(~?)([0-9]{1,12}(?:\.[0-9]{1,9})?) USD")


def render_usage(usage: Usage | None) -> str:
    """Return ``input=… output=… cache_read=… cache_write=…`` in tokens; ``unknown`` for None.

    ``cache_write`` counts both lifetimes, ``cache_write_1h`` the part of it that lives an hour.
    """
    if usage is None:
        return UNKNOWN
    parts = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
    }
    parts |= {"cache_write_1h": usage.cache_write_1h_tokens} if usage.cache_write_1h_tokens else {}
    parts |= {"thinking": usage.thinking_tokens} if usage.thinking_tokens else {}
    return " ".join(f"{name}={count}" for name, count in parts.items())


def parse_usage(text: str) -> Usage | None:
    """Undo `render_usage`; None if the value is missing, unknown or not relay's."""
    parts = {name: int(count) for name, count in _USAGE_PART.findall(text)}
    if not {"input", "output"} <= parts.keys():
        return None
    one_hour = min(parts.get("cache_write_1h", 0), parts.get("cache_write", 0))
    return Usage(
        input_tokens=parts["input"],
        output_tokens=parts["output"],
        cache_read_tokens=parts.get("cache_read", 0),
        cache_write_5m_tokens=parts.get("cache_write", 0) - one_hour,
        cache_write_1h_tokens=one_hour,
        thinking_tokens=parts.get("thinking", 0),
    )


def render_cost(cost_usd: float | None) -> str:
    """Return ``0.42 USD`` with two to six decimals; ``unknown`` for None and for other values than amounts."""
    if cost_usd is None or not math.isfinite(cost_usd) or cost_usd < 0:
        return UNKNOWN
    whole, _, decimals = f"{cost_usd:.6f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')} USD"


def parse_cost(text: str) -> float | None:
    """Undo `render_cost`; None if the value is missing, unknown or not relay's."""
    match = _COST.fullmatch(text)
    return float(match[2]) if match else None


def render_hooks(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the trailer that lists the hooks which ran; nothing if all did."""
    from relay.config.model import COMMIT_HOOKS

    return () if names == COMMIT_HOOKS else ((HOOKS, " ".join(names) or "skip"),)


def render_agent(agent: str, metering: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers of an agent's work, and of who counted its usage; nothing for an empty name."""
    return ((AGENT, agent), (METERING, metering)) if agent else ()


def render_said(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return a trailer for each text from the user."""
    import json

    return tuple((SAID, json.dumps(text, ensure_ascii=False)) for text in texts)


def render_models(models: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the trailer of the models that answered, without names that an endpoint made up; empty without any."""
    names = [name for name in models if _MODEL.fullmatch(name)][:MOST_MODELS]
    return ((MODEL, ", ".join(names)),) if names else ()


def parse_said(found: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the user's texts, each once, in order. Values that are not relay's are left out."""
    texts = (_parse_text(value) for key, value in found if key == SAID)
    return tuple(dict.fromkeys(text for text in texts if text))


def _parse_text(value: str) -> str:
    import json

    try:
        text = json.loads(value)
    except (ValueError, RecursionError):
        return ""
    return text if isinstance(text, str) else ""


def render_spent(spent: Spent) -> tuple[tuple[str, str], ...]:
    """Return the trailers of usage and cost; ``~`` marks a cost that is an upper bound."""
    cost = render_cost(spent.cost_usd)
    mark = _ESTIMATED if spent.estimated and cost != UNKNOWN else ""
    return (USAGE, render_usage(spent.usage)), (COST, f"{mark}{cost}")


def parse_spent(usage: str, cost: str) -> Spent:
    """Undo `render_spent`; a value that is missing or not relay's is unknown."""
    return Spent(usage=parse_usage(usage) or Usage(), cost_usd=parse_cost(cost), estimated=cost.startswith(_ESTIMATED))


def parse_count(text: str, default: int) -> int:
    """Read a counter such as that of `LEG`; the default if the value is missing or not relay's."""
    return int(text) if text.isdecimal() and len(text) < 9 else default  # noqa: PLR2004  # a sane counter
