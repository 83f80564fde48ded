"""What a page says: figures in, values out. The page as HTML and the same in a terminal are written from them."""

from dataclasses import replace

from relay.insight.figures.values import Figures
from relay.insight.report.beliefs import Beliefs, show_beliefs
from relay.insight.report.blocks import Page
from relay.insight.report.comparison import compare
from relay.insight.report.evidence import show_evidence, show_reviews
from relay.insight.report.head import answer_all, list_facts
from relay.insight.report.sessions import show_cache, show_context, show_hand_offs, show_phases
from relay.insight.report.spending import show_cost, show_sources
from relay.insight.report.tools import show_reads, show_tools
from relay.insight.report.transcript import answer_transcript
from relay.insight.transcripts.comparison import Relayed
from relay.insight.transcripts.library import Transcript
from relay.insight.transcripts.lines import Reading


def make_page(figures: Figures, beliefs: Beliefs | None) -> Page:
    """Make the page of one plan's runs.

    Args:
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
        *((show_reviews(figures.reviews),) if figures.reviews else ()),
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


def make_transcript_page(transcript: Transcript, figures: Figures, relayed: Relayed, reading: Reading) -> Page:
    """Make the page of a transcript of another agent, which ticks nothing and proves nothing."""
    answers = answer_transcript(transcript, figures, relayed, reading)
    page = make_page(figures, None)
    known = figures.totals.turns > figures.totals.unknown_turns
    sections = tuple(chapter for chapter in page.sections if known and chapter.name != "evidence")
    title = f"relay inspect: {answers[0].question}"
    return Page(title=title, facts=(), answers=answers, sections=sections)
