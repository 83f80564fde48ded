"""`relay inspect --html`: a transcript's figures as the page that runs have."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from relay.cli.inspection import Styled
from relay.cli.text import clean_line
from relay.figures.values import Figures

_OF_RUNS = frozenset({"evidence"})
"""Chapters that say nothing of a transcript."""


def write_page(figures: Figures, lines: Iterable[Styled], output: Path) -> Path:
    """Make the page and put it where the user says; return where.

    Args:
        figures: Of the transcript.
        lines: What the terminal is shown; at the head of the page they stand as cards, one for each heading.
        output: The file.

    Raises:
        RelayError: It cannot be drawn or written.
    """
    from relay.report.blocks import Card
    from relay.report.destination import save_page_as
    from relay.report.page import make_page, render_page

    blocks: list[list[str]] = [[]]
    for text, _ in lines:
        if text:
            blocks[-1].append(text.strip())
        else:
            blocks.append([])
    cards = tuple(Card(question=head, words=first, lines=tuple(rest)) for head, first, *rest in blocks)
    page = make_page(figures, None)
    sections = tuple(chapter for chapter in page.sections if chapter.name not in _OF_RUNS)
    title = f"relay inspect: {cards[0].question}"
    page = replace(page, title=title, facts=(), answers=cards, sections=sections)
    return save_page_as(output, render_page(page, clean=clean_line))
