"""Write figures and lists for people: one wording everywhere. An unknown figure is "unknown", never 0."""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

HIDING = "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"
"""Characters that reorder text or have no width, for the brackets of a pattern; a reader would see another text.

The two joiners are not among them: emoji and scripts need these.
"""
BoxState = Literal["open", "optional", "yours", "claimed", "done"]
"""The state of an item; ``yours``: open, and for a person."""
BOXES: Mapping[BoxState, str] = {
    "open": "[ ]", "optional": "[ ]*", "yours": "[@]", "claimed": "[~]", "done": "[x]",
}  # fmt: skip
_NOT_NEEDED = frozenset({"optional", "yours"})
UNKNOWN = "unknown"
_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S
_SHORT_TOKENS = 10_000


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")


def fill_variables(text: str, environ: Mapping[str, str]) -> str:
    """Replace each ``${NAME}`` by the variable's value.

    Raises:
        KeyError: The variable with this name is not set.
    """
    return _VARIABLE.sub(lambda found: environ[found[1]], text)


def count(n: int, noun: str, plural: str = "") -> str:
    """Write ``1 phase``, ``2 phases``."""
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"


def count_questions(questions: Collection[str]) -> str:
    """Write how many questions of sessions were answered by assumption."""
    return f"{count(len(questions), 'question')} {'was' if len(questions) == 1 else 'were'} answered by assumption"


def count_plan(states: Sequence[Sequence[BoxState]]) -> str:
    """Write the progress of a plan, from the states of each phase's boxes."""
    needed = [[state for state in phase if state not in _NOT_NEEDED] for phase in states]
    done = sum(all(state == "done" for state in phase) for phase in needed)
    ticked = sum(state == "done" for phase in needed for state in phase)
    boxes = sum(len(phase) for phase in needed)
    return f"{done} of {count(len(states), 'phase')} done, {ticked} of {count(boxes, 'box', 'boxes')} ticked"


def count_boxes(states: Sequence[BoxState]) -> str:
    """Write a phase's ticked boxes, and its session's claims: ``1/4, 2 claimed``."""
    claimed = states.count("claimed")
    ticked = f"{states.count('done')}/{sum(state not in _NOT_NEEDED for state in states)}"
    return f"{ticked}, {claimed} claimed" if claimed else ticked


def sum_up(states: Sequence[BoxState]) -> BoxState:
    """Return the state of a phase from those of its boxes; optional ones and those for a person do not count."""
    return "open" if "open" in states else "claimed" if "claimed" in states else "done"


def name_item(item_id: str, text: str) -> str:
    """Write an item's id and text; the id once if the text begins with it."""
    begins = text.startswith(item_id) and not text[len(item_id) :][:1].isalnum()
    return text if begins else f"{item_id} {text}"


def render_size(size_bytes: int) -> str:
    """Write the size of a file, such as ``2.5 MB``."""
    size, unit = float(size_bytes), "bytes"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004  # the units' own step
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


def render_tokens(n: int | None) -> str:
    """Write tokens short: ``950``, ``4.2k``, ``41k``, ``1M``."""
    if n is None:
        return UNKNOWN
    if n < 1_000:  # noqa: PLR2004  # where k begins
        return str(n)
    if n < _SHORT_TOKENS:
        return f"{n / 1_000:.1f}k".replace(".0k", "k")
    if n < 1_000_000:  # noqa: PLR2004  # where M begins
        return f"{n / 1_000:.0f}k"
    return f"{n / 1_000_000:.1f}M".replace(".0M", "M")


def render_usd(amount: float | None, *, estimated: bool = False) -> str:
    """Write dollars; amounts below a cent keep four places so that they are not shown as nothing.

    Args:
        amount: None when unknown.
        estimated: Not all usage was reported: ``~$0.42``.
    """
    if amount is None:
        return UNKNOWN
    written = f"${amount:.4f}" if 0 < amount < 0.01 else f"${amount:,.2f}"  # noqa: PLR2004  # one cent
    return f"~{written}" if estimated else written


def render_duration(seconds: float) -> str:
    """Write a duration: ``0.4 s``, ``12 s``, ``3 m 05 s``, ``2 h 10 m``."""
    tenths = seconds < 9.95  # noqa: PLR2004  # where a tenth stops to matter
    return f"{max(0.0, seconds):.1f} s" if tenths else render_clock(seconds)


def render_clock(seconds: float) -> str:
    """Write a running time in whole seconds: ``4 s``, ``3 m 05 s``, ``2 h 10 m``."""
    whole = max(0, round(seconds))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} m {whole % _MINUTE_S:02d} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} m"


def render_span(seconds: float) -> str:
    """Write a duration in its two largest units: ``45 s``, ``12 min``, ``3 h 12 min``, ``2 d 5 h``."""
    whole = max(0, round(seconds))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"


def render_moment(at: float, *, now: float) -> str:
    """Write local time, ``05:10``, with the day unless it is today."""
    local, today = _read_clock(at), _read_clock(now)
    day = "" if local.date() == today.date() else f"{local:%a} {local.day} {local:%b} "
    return f"{day}{local:%H:%M}"


def _read_clock(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC).astimezone()


def list_some(words: Sequence[str], shown: int = 10, *, joint: str = ", ") -> str:
    """Join the first of `words`, and say how many more there are."""
    space = joint if "\n" in joint else " "
    more = f"{space}and {len(words) - shown} more" if len(words) > shown else ""
    return joint.join(words[:shown]) + more


def shorten(text: str, most_chars: int) -> str:
    """Cut a text to `most_chars`; the last of them is "…" then."""
    return text if len(text) <= most_chars else f"{text[: most_chars - 1]}…"


_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def render_output(data: bytes) -> str:
    """Return a command's output as text, without escape sequences and control characters except tabs and line feeds.

    Bytes that are not UTF-8 become U+FFFD. Of a line that was overwritten with carriage returns (progress bars) only
    the last state is kept.
    """
    text = _ESCAPES.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROLS.sub("", text)
