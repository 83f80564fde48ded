"""Show a page of `relay.insight.report`: as lines in the terminal, or as a file of HTML whose path is printed."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from relay.base.words import shorten
from relay.cli.screen import clean, clean_line, say
from relay.insight.report.blocks import MOST_ROWS, CellKind, Ink, Page, Table


def show_page(page: Page, root: Path, name: str, output: str | None, *, as_text: bool) -> None:
    """Print a page as text, or write it below ``.relay/reports/`` or to `output`, and print its path.

    Raises:
        RelayError: The page cannot be written.
    """
    if as_text:
        for text, style in _write_page(page):
            say(clean(text).replace("\n", " ").rstrip(), style=style)  # a line break in a text starts no line
        return
    from relay.insight.report.page import render_page, save_page, save_page_as

    html = render_page(page, clean=clean_line)
    say(str(save_page(root, name, html) if output is None else save_page_as(Path(output), html)))


_CELL_CHARS = 60
_SHORT_ROWS = 12
_INK_STYLES = {Ink.GOOD: "green", Ink.SOFT: "yellow", Ink.BAD: "red"}

Styled = tuple[str, str]
"""A line and its style."""


def _write_page(page: Page) -> Iterator[Styled]:
    yield page.title, "bold"
    yield from _write_facts(page.facts)
    for card in page.answers:
        yield "", ""
        yield f"{card.question}: {card.words}" if card.words else card.question, _INK_STYLES.get(card.ink, "bold")
        yield from [(f"  {card.command}", "bold")] if card.command else ()
        yield from ((f"  {line}", "") for line in card.lines)
    for chapter in page.sections:
        yield "", ""
        yield chapter.title, "bold"
        yield from [(f"  {clean_line(chapter.lead)}", "dim")] if chapter.lead else ()
        yield from _write_tables(chapter.tables, most_rows=_SHORT_ROWS if page.more else MOST_ROWS)
        for fold in () if page.more else chapter.folds:
            yield f"  {fold.title}", "bold"
            yield from ((f"  {text}", style) for text, style in _write_facts(fold.facts))
            yield from _write_tables(fold.tables)
    if page.more:
        yield "", ""
        yield "relay report writes the page, which has more; --json has all figures", "dim"


def _write_facts(facts: Sequence[tuple[str, str]]) -> Iterator[Styled]:
    width = max((len(name) for name, _ in facts), default=0)
    yield from ((f"  {name:<{width}}  {text}", "") for name, text in facts)


def _write_tables(tables: Iterable[Table], most_rows: int = MOST_ROWS) -> Iterator[Styled]:
    for table in tables:
        if not table.rows:
            continue
        yield f"  {table.caption}", "cyan"
        names, kinds = zip(*table.columns, strict=True)
        shown = [tuple(shorten(clean_line(cell), _CELL_CHARS) for cell in row) for row in table.rows[:most_rows]]
        columns = zip(names, *shown, strict=True)
        widths = [max(map(len, cells)) for cells in columns]
        marks = [">" if kind is CellKind.NUMBER else "<" for kind in kinds]
        for row in (names, *shown):
            cells = (f"{cell:{mark}{width}}" for cell, mark, width in zip(row, marks, widths, strict=True))
            yield f"    {'  '.join(cells)}", ""
        if left_out := table.left_out + len(table.rows) - len(shown):
            yield f"    and {left_out:,} more: relay report --json has all", "dim"
