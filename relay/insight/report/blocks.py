"""The values that a page consists of, and functions that write table cells. Every text is plain text, never markup.

A cell says "unknown" for an unknown figure, and has a dash where a figure does not apply.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from operator import attrgetter
from string import Formatter
from typing import Any

from relay.base.values import dataclass
from relay.base.words import UNKNOWN, list_some, render_duration, render_tokens, render_usd
from relay.insight.database import Row
from relay.session.pictures import Picture

NOTHING = "–"
"""The cell of a figure that does not apply."""
ID_CHARS = 9
"""Characters shown of commits, digests and session ids, as git shortens them."""


def render_share(share: float | None) -> str:
    """Write a share, 0 to 1, in per cent."""
    return NOTHING if share is None else f"{share:.0%}"


def render_per_decision(totals: Row) -> str:
    """Write the cost per decision; a dash without a decision."""
    return render_usd(totals.usd_per_decision, estimated=totals.estimated) if totals.decisions else NOTHING


def render_time(at: float) -> str:
    """Write a moment as day and time in UTC, so that the page is the same wherever it is read."""
    return f"{datetime.fromtimestamp(at, tz=UTC):%Y-%m-%d %H:%M:%S}"


def cut_id(name: str) -> str:
    """Shorten an id."""
    return name[:ID_CHARS]


class Ink(StrEnum):
    """A colour; its value is the name of the CSS variable."""

    TEXT = "text"
    GRID = "grid"
    FILL = "fill"
    SOFT = "soft"
    HARD = "hard"
    GOOD = "good"
    BAD = "bad"


MOST_ROWS = 200
"""Rows of one table; the number of further rows is said below it."""
MOST_CHARS = 400
"""Characters of one text; a longer one is cut, and says so."""


class CellKind(StrEnum):
    """How the cells of a column are formatted."""

    TEXT = "text"
    NUMBER = "number"
    CODE = "code"
    FILE = "file"
    """A file beside the page, which it links to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with column names."""

    caption: str
    columns: tuple[tuple[str, CellKind], ...]
    rows: tuple[tuple[str, ...], ...]
    """One text per column; an empty one does not apply."""
    left_out: int = 0
    """Number of rows beyond `MOST_ROWS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawing with a legend and a caption; the template writes it as SVG."""

    label: str
    """Description for readers who cannot see it."""
    size: str
    """Width and height."""
    paths: tuple[tuple[Ink, str, str], ...]
    """Ink, class and numbers of each path; the numbers are relay's own."""
    texts: tuple[tuple[float, float, str, str], ...]
    """Place, anchor and words of each text."""
    legend: tuple[tuple[Ink, str], ...]
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit:
    """A file that a gate left, shown as what it is."""

    name: str
    caption: str
    picture: Picture | None = None
    text: str = ""
    """Several lines, if it is no picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A section of the page, or a part of one that is folded until the reader opens it."""

    name: str = ""
    """The fragment of its link; empty for a folded part."""
    title: str
    lead: str = ""
    """One or two sentences on its content."""
    facts: tuple[tuple[str, str], ...] = ()
    """Names and texts."""
    plots: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    folds: "tuple[Chapter, ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The answer to one of the reader's first questions."""

    question: str
    words: str
    lines: tuple[str, ...] = ()
    command: str = ""
    """The command to type next; empty for none."""
    ink: Ink = Ink.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The whole page."""

    title: str
    facts: tuple[tuple[str, str], ...]
    answers: tuple[Card, ...]
    sections: tuple[Chapter, ...]
    more: tuple[Chapter, ...] = ()
    """Further sections: behind "More" on the page, left out in the terminal."""


def make_table(caption: str, columns: str, rows: Iterable[Sequence[str]]) -> Table:
    """Make a table of at most `MOST_ROWS` rows.

    Args:
        columns: Their names, as in ``Phase, #Turns, `Commit, @Log``: a text, a number, code, a file.
    """
    kinds = {"#": CellKind.NUMBER, "`": CellKind.CODE, "@": CellKind.FILE}
    named = tuple((name.strip("#`@"), kinds.get(name[0], CellKind.TEXT)) for name in columns.split(", "))
    kept = tuple(map(tuple, rows))
    left_out = max(0, len(kept) - MOST_ROWS)
    return Table(caption=caption, columns=named, rows=kept[:MOST_ROWS], left_out=left_out)


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "": str,
    "or": lambda text: text or NOTHING,
    "n": lambda n: NOTHING if n is None else f"{n:,}",
    "tokens": lambda n: render_tokens(None if n is None else round(n)),
    "known": lambda n: UNKNOWN if n is None else f"{n:,}",
    "usd": render_usd,
    "cost": lambda row: render_usd(row.cost_usd, estimated=row.estimated),
    "each": render_per_decision,
    "share": render_share,
    "s": lambda seconds: UNKNOWN if seconds is None else render_duration(seconds),
    "at": render_time,
    "id": cut_id,
    "part": lambda part: NOTHING if part is None else f"{part:.2f}",
    "sources": lambda sources: list_some([f"{name} {render_tokens(n)}" for name, n in sources.items()], 4),
}
"""How a cell is written: of one figure, or of a whole row (`cost`, `each`)."""
_CLAUDE_LAB = "When a Long-Running Agent's Context Quietly Decays"
_SPECTRE = "ContextSpectre, cleaning cadence"
THRESHOLDS: Mapping[str, tuple[float, bool, str]] = {
    "history": (0.8, True, _CLAUDE_LAB),
    "distance": (150_000, True, _CLAUDE_LAB),
    "turns left": (10, False, f"{_SPECTRE}: proximity"),
    "signal": (0.7, False, f"{_SPECTRE}: noise above 30 % is overdue"),
}
"""From where on a person should look at a figure: the value, whether larger ones are worse, the source. It steers no
run. In a cell ``{history_share:!history}`` is its mark."""


def is_crossed(name: str, figure: float | None) -> bool:
    """Return whether a figure is beyond its threshold; an unknown one is not."""
    line, is_most, _ = THRESHOLDS[name]
    return figure is not None and (figure > line if is_most else figure < line)


def list_rows(caption: str, columns: str, rows: Iterable[Row]) -> Table:
    """Make a table of rows of figures.

    Args:
        columns: As in ``Phase {phase_id} | #Turns {turns:n} | #Cost {0:cost}``: each with a text for its cells, where a
            figure stands by its name and one of `FORMATS`, and 0 is the whole row.
    """
    parts = [column.partition(" {") for column in columns.split(" | ")]
    cells = [[*Formatter().parse(f"{{{cell}")] for _, _, cell in parts]

    def write(row: Row, field: str | None, form: str | None) -> str:
        if field is None or form is None:
            return ""
        value: Any = row if field == "0" else attrgetter(field)(row)
        return " !" * is_crossed(form[1:], value) if form.startswith("!") else FORMATS[form](value)

    rendered = (
        ["".join(text + write(row, field, form) for text, field, form, _ in cell) for cell in cells] for row in rows
    )
    return make_table(caption, ", ".join(name for name, _, _ in parts), rendered)
