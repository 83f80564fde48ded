"""The vocabulary of relay's trailers: every key with what it holds, and the values that need reading."""

import contextlib
import math
import re
from collections.abc import Iterable

from relay.session.usage import Spent, Usage

PREFIX = "Relay-"
"""Of every key; nobody but relay writes a trailer that begins so."""

# Of commits on the branch, and where they fit of legs and snapshots.
PLAN = "Relay-Plan"
PHASE = "Relay-Phase"
STATUS = "Relay-Status"
LEG_STATUSES = frozenset({"done", "handoff"})
"""Of a commit that a leg made."""
REWOUND = "rewound"
"""Of a revert commit."""
REWOUND_TO = "Relay-Rewound-To"
"""The commit whose tree a revert commit brings back."""
ITEMS = "Relay-Items"
AMENDED = "Relay-Amended"
"""Phases that sessions changed beyond their boxes."""
SESSION = "Relay-Session"
LEG = "Relay-Leg"
"""The number of the session within its phase; one that was cut off and the one after it have the same."""
ATTEMPT = "Relay-Attempt"
"""The same, with every session counted."""
GATE = "Relay-Gate"
REVIEW = "Relay-Review"
"""How many reviews there were, what they found, confirmed and left open, and a digest; or why there was none."""
DOUBT = "Relay-Doubt"
"""A sentence on what speaks against a box that was ticked: nothing was changed, or an item names what is not there."""
SANDBOX = "Relay-Sandbox"
HOOKS = "Relay-Hooks"
"""Which commit hooks were run, where the user had left some out: their names, or ``skip``."""
MERGE = "Relay-Merge"
"""The commit of a phase that this one brings onto what others landed, and the digests of its gate and of this one's."""
AGENT = "Relay-Agent"
"""Name and version of the agent that worked; not there where relay's own loop did."""
METERING = "Relay-Metering"
"""Who counted what it used: ``gateway`` is relay."""
USAGE = "Relay-Usage"
COST = "Relay-Cost"

# Of an open leg.
BASE = "Relay-Base"
BOOT = "Relay-Boot"
PLACE = "Relay-Place"
ENVIRONMENT = "Relay-Environment"
"""The commit that lists what git ignored when its first session began."""
WIP = "Relay-Wip"
NO_PROGRESS = "Relay-Barren"  # the name that repositories have on disk
"""Sessions of the phase in a row that passed the line without ticking anything."""
BASELINE = "Relay-Baseline"
"""The gate as it was before the phase."""
CLAIMED = "Relay-Claimed"
"""How many items were claimed when a session began."""
LEFTOVER = "Relay-Leftover"
"""A path that the baseline gate changed; neither the user's nor the leg's."""
TRIAL = "Relay-Trial"
"""The reset line that a trial gave the phase; of hand-off commits too."""
SAID = "Relay-Said"
"""A text that the user said while the phase was worked on, as JSON; of hand-off commits too."""

UNCHECKED = "Relay-Unchecked"
"""The commit that a landing leg brings there, where it was not made and checked in this work tree."""
REVIEWED = "Relay-Reviewed"
"""A review of the phase: its number, the tree that was reviewed, what was found and confirmed."""
FINDING = "Relay-Finding"
"""The number of a review and one of its findings, as JSON."""
EVIDENCE = "Relay-Evidence"
"""What a session gave as evidence for an item that is not committed yet: the item's text and that, as JSON."""
EVIDENCE_CHARS = 300
CARRIED = frozenset({SAID, REVIEWED, FINDING, MERGE, UNCHECKED, EVIDENCE})
"""What every further snapshot and session of a leg takes along."""
KEPT_MARKS = frozenset({LEG, NO_PROGRESS, CLAIMED, BASELINE, LEFTOVER, ATTEMPT})
"""What a leg that another session takes up keeps, as it was."""

# Of a leg's snapshots.
SKIPPED = "Relay-Skipped"
REPLACED = "Relay-Replaced"
ENDED = "Relay-Ended"
"""Of a session's last snapshot: its `SessionEnd`."""
ERROR = "Relay-Error"
"""The item a session was at and the last error it saw and did not overcome."""
PROPOSED = "Relay-Proposed"
"""The phase is finished but for its commit, which was refused: the subject, or ``-`` for none."""
DISCARDED = "Relay-Discarded"
"""A file of the session's that was taken out of the work tree before the next session."""
WAIT_UNTIL = "Relay-Wait-Until"
"""UTC time at which a limit resets, and the model it is a limit of."""

# Of a plan that waits for its commit.
OPEN = "Relay-Open"
"""Whether the session that plans has begun and not ended."""

UNKNOWN = "unknown"

_USAGE_PART = re.compile(r"([a-z0-9_]+)=([0-9]{1,18})")
_ESTIMATED = "~"
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
    """Undo `render_usage`; None when the value is missing, unknown or not relay's."""
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
    """Return ``0.42 USD`` with two to six decimals; ``unknown`` for None and for what is not an amount."""
    if cost_usd is None or not math.isfinite(cost_usd) or cost_usd < 0:
        return UNKNOWN
    whole, _, decimals = f"{cost_usd:.6f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')} USD"


def parse_cost(text: str) -> float | None:
    """Undo `render_cost`; None when the value is missing, unknown or not relay's."""
    match = _COST.fullmatch(text)
    return float(match[2]) if match else None


def render_hooks(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the trailer that says which hooks were run; nothing where all were."""
    from relay.config.model import COMMIT_HOOKS

    return () if names == COMMIT_HOOKS else ((HOOKS, " ".join(names) or "skip"),)


def render_agent(agent: str, metering: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers of work that an agent did, and of who counted it; nothing for an empty name."""
    return ((AGENT, agent), (METERING, metering)) if agent else ()


def render_said(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return a trailer for each text that the user said."""
    import json

    return tuple((SAID, json.dumps(text, ensure_ascii=False)) for text in texts)


def render_evidence(found: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return a trailer for each item's text and what was given as evidence for it."""
    import json

    return tuple((EVIDENCE, json.dumps(pair)) for pair in found)


def parse_evidence(found: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Undo it: the last evidence for each item's text; a value that is not relay's is left out."""
    import json

    evidence = {}
    for value in (value for key, value in found if key == EVIDENCE):
        with contextlib.suppress(ValueError, RecursionError):
            pair = json.loads(value)
            if isinstance(pair, list) and list(map(type, pair)) == [str, str]:
                evidence[pair[0]] = pair[1]
    return evidence


def parse_said(found: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return what the user said, each text once, in the order it came; a value that is not relay's is left out."""
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
    """Return the trailers of what some work used and cost; ``~`` marks a cost that is at most so high."""
    cost = render_cost(spent.cost_usd)
    mark = _ESTIMATED if spent.estimated and cost != UNKNOWN else ""
    return (USAGE, render_usage(spent.usage)), (COST, f"{mark}{cost}")


def parse_spent(usage: str, cost: str) -> Spent:
    """Undo `render_spent`; a value that is missing or not relay's is unknown."""
    return Spent(usage=parse_usage(usage) or Usage(), cost_usd=parse_cost(cost), estimated=cost.startswith(_ESTIMATED))


def parse_count(text: str, default: int) -> int:
    """Read a counter such as that of `LEG`; the default when the value is missing or not relay's."""
    return int(text) if text.isdecimal() and len(text) < 9 else default  # noqa: PLR2004  # a sane counter
