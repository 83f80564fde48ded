"""The arms of an experiment: what each changes in a run. Pure."""

import re
from collections.abc import Mapping
from contextlib import suppress

from relay.base.values import dataclass
from relay.config.model import CONTEXTS
from relay.config.sources import ARM
from relay.session.gauge import parse_reset_at

MOST_ARMS = 12
_OPTIONS = {"model": "--model", "runner": "--runner", "reset_at": "--reset-at"}
ALLOWED = (
    f"a reset line as in 60k, {', '.join(CONTEXTS)} (each with @LINE, as in none@60k), model=ID, runner=NAME, "
    "effort=LEVEL, ablate=FEATURE, or several of these joined by +"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to work through the plan."""

    name: str
    options: tuple[tuple[str, str], ...]
    """Options for `relay run`, with their values."""
    environ: Mapping[str, str]
    """Its effort, and what it changes beside settings."""


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Read a list of arms, separated by commas; a comma in parentheses belongs to a reset line.

    Raises:
        ValueError: An arm is none, or there are too few, too many or two of the same name.
    """
    arms = tuple(parse_arm(name.strip()) for name in re.split(r",(?![^(]*\))", text))
    if not 2 <= len(arms) <= MOST_ARMS:  # noqa: PLR2004  # a comparison
        raise ValueError(f"found {len(arms)} arms; allowed: 2 to {MOST_ARMS}")
    if len({(arm.options, *arm.environ.items()) for arm in arms}) < len(arms):
        raise ValueError(f"two arms of {text!r} are the same")
    return arms


def parse_arm(name: str) -> Arm:
    """Read one arm.

    Raises:
        ValueError: A part of it is none.
    """
    found: dict[str, str] = {}
    for part in name.split("+"):
        for key, value in _read_part(part, name):
            if key in found and key != "ablate":
                raise ValueError(f"{name}: {key} is there twice")
            found[key] = f"{found[key]}+ablate={value}" if key in found else value
    options = tuple((option, found[key]) for key, option in _OPTIONS.items() if key in found)
    environ = {"RELAY_EFFORT": found["effort"]} if "effort" in found else {}
    own = [form + found[key] for key, form in (("context", ""), ("ablate", "ablate=")) if key in found]
    environ |= {ARM: "+".join(own)} if own else {}
    return Arm(name=name, options=options, environ=environ)


def _read_part(part: str, name: str) -> tuple[tuple[str, str], ...]:
    strategy, at, line = part.partition("@")
    if strategy in CONTEXTS and bool(at) == bool(line):
        return (("context", strategy), *([("reset_at", line)] if line else []))
    with suppress(ValueError):
        return (("reset_at", str(parse_reset_at(part))),)
    key, _, value = part.partition("=")
    if value and key in {"effort", "model", "runner", "ablate"}:
        return ((key, value),)
    raise ValueError(f"{name!r}: {part!r} is no part of an arm; allowed: {ALLOWED}")
