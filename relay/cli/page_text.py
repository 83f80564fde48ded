"""The page of `relay report` and `relay inspect` as lines for a terminal: the same words and tables, without plots."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from relay.base.words import shorten
from relay.cli.screen import clean, clean_line
from relay.insight.report.blocks import Card, CellKind, Chapter, Ink, Page, Table

_CELL_CHARS = 60
_LEAD_CHARS = 96
_STYLES = {Ink.GOOD: "green", Ink.SOFT: "yellow", Ink.BAD: "red"}

Styled = tuple[str, str]
"""A line and how it looks."""


def render_text(page: Page) -> Iterator[Styled]:
    """Write a page, the most important first; no text of it can make a line of its own."""
    for text, style in _write_page(page):
        yield clean(text).replace("\n", " ").rstrip(), style


def _write_page(page: Page) -> Iterator[Styled]:
    yield page.title, "bold"
    yield from _write_facts(page.facts)
    for card in page.answers:
        yield "", ""
        yield from _write_card(card)
    for chapter in page.sections:
        yield from _write_chapter(chapter)


def _write_facts(facts: Sequence[tuple[str, str]]) -> Iterator[Styled]:
    width = max((len(name) for name, _ in facts), default=0)
    for name, text in facts:
        yield f"  {name:<{width}}  {text}", ""


def _write_card(card: Card) -> Iterator[Styled]:
    yield f"{card.question}: {card.words}" if card.words else card.question, _STYLES.get(card.ink, "bold")
    if card.command:
        yield f"  {card.command}", "bold"
    for line in card.lines:
        yield f"  {line}", ""


def _write_chapter(chapter: Chapter) -> Iterator[Styled]:
    yield "", ""
    yield chapter.title, "bold"
    for line in textwrap.wrap(clean_line(chapter.lead), _LEAD_CHARS):
        yield f"  {line}", "dim"
    yield from _write_tables(chapter.tables)
    for fold in chapter.folds:
        yield f"  {fold.title}", "bold"
        yield from ((f"  {text}", style) for text, style in _write_facts(fold.facts))
        yield from _write_tables(fold.tables)


def _write_tables(tables: Iterable[Table]) -> Iterator[Styled]:
    for table in tables:
        if not table.rows:
            continue
        yield f"  {table.caption}", "cyan"
        names, kinds = zip(*table.columns, strict=True)
        rows = [names, *(tuple(shorten(clean_line(cell), _CELL_CHARS) for cell in row) for row in table.rows)]
        columns = [_align(cells, kind) for cells, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        for cells in zip(*columns, strict=True):
            yield f"    {'  '.join(cells)}", ""
        if table.left_out:
            yield f"    and {table.left_out:,} more: relay report --json has all of them", "dim"


def _align(cells: Sequence[str], kind: CellKind) -> tuple[str, ...]:
    """Make the cells of a column as wide as the widest; numbers stand to the right."""
    width = max(map(len, cells))
    return tuple(cell.rjust(width) if kind is CellKind.NUMBER else cell.ljust(width) for cell in cells)
