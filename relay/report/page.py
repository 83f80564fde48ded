"""The page as HTML: values in, one text out, whose size has a bound whatever a log holds."""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from relay.figures.values import Figures
from relay.report.beliefs import Beliefs, show_beliefs
from relay.report.blocks import MOST_CHARS, MOST_ROWS, Page
from relay.report.comparison import compare
from relay.report.evidence import show_evidence
from relay.report.head import answer_all, list_facts
from relay.report.sessions import show_cache, show_context, show_hand_offs, show_phases
from relay.report.spending import show_cost, show_sources
from relay.report.tools import show_reads, show_tools
from relay.values import dataclass

MOST_BYTES = 4 * 1024 * 1024
"""Of a page. What would be larger shows fewer rows, shorter texts and fewer folds, and says so."""
MARK = "<!doctype html><!-- made by relay report -->"
"""How each page begins; a file that does not is never written over."""
_HERE = Path(__file__).parent

Clean = Callable[[str], str]
"""Makes control characters and marks that turn text around visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is shown of a page."""

    rows: int = MOST_ROWS
    """Of a table."""
    chars: int = MOST_CHARS
    """Of a text."""
    folds: int = MOST_ROWS
    """Of a section."""

    @property
    def halved(self) -> "Bounds":
        """Half as much of everything."""
        return Bounds(rows=self.rows // 2, chars=max(40, self.chars // 2), folds=self.folds // 2)


def make_page(figures: Figures, beliefs: Beliefs | None) -> Page:
    """Make the page of one plan's runs.

    Args:
        figures: Of the runs.
        beliefs: None when the plan has no ledger, or it cannot be read.
    """
    sections = (
        show_context(figures),
        show_phases(figures),
        show_sources(figures),
        show_cost(figures),
        show_cache(figures),
        show_hand_offs(figures.hand_offs),
        show_evidence(figures),
        *((show_beliefs(beliefs, figures),) if beliefs else ()),
        show_tools(figures),
        show_reads(figures),
    )
    names = dict.fromkeys(run.plan_path or run.run_id for run in figures.runs)
    return Page(
        title=f"relay: {', '.join(names)}",
        facts=list_facts(figures),
        answers=answer_all(figures, beliefs),
        sections=sections,
    )


def make_comparison(one: Figures, other: Figures) -> Page:
    """Make the page of two runs side by side."""
    answers = tuple(
        replace(answer, question=f"{letter}: {answer.question}")
        for both in zip(answer_all(one, None)[:3], answer_all(other, None)[:3], strict=True)
        for letter, answer in zip("AB", both, strict=True)
    )
    title = " against ".join(", ".join(run.run_id for run in figures.runs) for figures in (one, other))
    return Page(title=f"relay: {title}", facts=(), answers=answers, sections=compare(one, other))


def render_page(page: Page, *, clean: Clean, most_bytes: int = MOST_BYTES) -> str:
    """Write a page as HTML; it is at most so large.

    Args:
        page: What it shows.
        clean: Applied to every text before it is escaped.
        most_bytes: Its bound, as UTF-8; a page without any row is what it is.
    """
    limits = Bounds()
    while True:
        html = _render(page, clean, limits)
        if len(html.encode()) <= most_bytes or not limits.rows:
            return html
        limits = limits.halved


def _render(page: Page, clean: Clean, limits: Bounds) -> str:
    def finish(value: Any) -> Any:
        """Make any value safe that the template shows; the library escapes what is no markup of relay's own."""
        if isinstance(value, Markup):
            return value
        text = str(value)
        more = len(text) - limits.chars
        return clean(text if more <= 0 else f"{text[: limits.chars]}… (+{more:,} characters)")

    style = _load_style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    jinja = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finish,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = jinja.get_template("page.html")
    shown = {"page": page, "limits": limits, "cut": limits != Bounds()}
    html: str = template.render(mark=Markup(MARK), style=Markup(style), digest=digest, **shown)  # noqa: S704  # own text
    return html


def _load_style() -> str:
    return (_HERE / "page.css").read_text("utf-8")
