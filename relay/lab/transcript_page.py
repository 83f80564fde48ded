"""Build the page of another agent's transcript: that of `relay report`, and what a relay would have cost."""

from collections.abc import Iterator, Sequence

from relay.base.words import count, list_some, render_tokens, render_usd
from relay.insight.database import Row
from relay.insight.figures import Figures
from relay.insight.report.blocks import Card, Chapter, Ink, Page
from relay.insight.report.contents import make_page
from relay.insight.transcripts.emitter import MAIN, Reading
from relay.insight.transcripts.library import Course, RelayedTally, Transcript


def make_transcript_page(transcript: Transcript, figures: Figures, relayed: RelayedTally, reading: Reading) -> Page:
    """Make the page of another agent's transcript, which has no ticks and no evidence."""
    run, page, totals = figures.runs[0], make_page(figures, None), figures.totals
    sessions = [session for session in run.sessions if session.turns]
    main = [session for session in sessions if session.phase_id == MAIN]
    others = len(sessions) - len(main)
    beside = f" and {count(others, 'further one')} (sub-agents, summaries)" if others else ""
    calls = f"{count(totals.turns, 'turn')} and {count(totals.calls, 'tool call')}"
    lines = [f"{calls} in {count(len(main), 'context')}{beside}"]
    known = totals.turns > totals.unknown_turns
    cards, sections = list[Card](), tuple[Chapter, ...]()
    if known:
        paid = f"{render_usd(totals.cost_usd)} at list prices"
        lines += [*page.answers[2].lines[:1], "cost unknown" if totals.cost_usd is None else paid]
        question = "As a relay, by the same model of prices and cache"
        cards.append(Card(question=question, words="", lines=tuple(_list_courses(relayed, main))))
        sections = tuple(chapter for chapter in (*page.sections, *page.more) if chapter.name != "evidence")
    if totals.unknown_turns:
        lines.append(f"the tokens of {count(totals.unknown_turns, 'turn')} are unknown; no figure includes them")
    if not sessions:
        lines.append("it holds no answer of a model")
    title = " · ".join(filter(None, (run.command, run.run_id, transcript.title)))
    what = Card(question="What it is", words="", lines=tuple(lines), ink=Ink.TEXT if known else Ink.SOFT)
    facts = tuple(fact for fact in page.facts if run.began or fact[0] not in {"Began", "Took"})
    answers = (what, *cards, _say_read(reading, totals))
    return Page(title=f"relay lab inspect: {title}", facts=facts, answers=answers, sections=sections)


def _list_courses(relayed: RelayedTally, main: Sequence[Row]) -> Iterator[str]:
    yield _say_course("as it was", relayed.was)
    costs = [session.cost_usd for session in main]
    paid = sum(cost or 0.0 for cost in costs)
    if relayed.was.usd and paid and None not in costs:
        error = relayed.was.usd / paid - 1
        yield f"at list prices it was {render_usd(paid)}: this model of the cache is {error:+.0%} off"
    if not relayed.most.resets:
        yield f"it never reached the line at {render_tokens(relayed.line_tokens)}: a relay changes nothing"
        return
    yield _say_course("a relay, little read again", relayed.least)
    yield _say_course("a relay, much read again", relayed.most)
    yield f"its line is at {render_tokens(relayed.line_tokens)}"


def _say_course(name: str, way: Course) -> str:
    resets = f", {count(way.resets, 'reset')}" if way.resets else ""
    tokens = f"{render_tokens(way.prompt_tokens)} tokens of prompts, at most {render_tokens(way.peak_tokens)} at a time"
    return f"{name + ':':<28}{'cost unknown' if way.usd is None else render_usd(way.usd)}, {tokens}{resets}"


def _say_read(reading: Reading, totals: Row) -> Card:
    lines = [count(reading.lines, "line")]
    own, ours = reading.own_cost_usd, totals.cost_usd
    if own is not None and ours is not None and own > ours:
        rest = render_usd(own - ours)
        lines.append(f"the agent counted {render_usd(own)}: {rest} for requests in no transcript (summaries, titles)")
    notes = list(reading.notes)
    if reading.torn:
        notes.append(f"skipped {count(reading.torn, 'unreadable line')}")
    if reading.unknown:
        kinds = [f"{kind} ({n})" for kind, n in sorted(reading.unknown.items(), key=lambda pair: -pair[1])]
        notes.append(f"unknown and not counted: {list_some(kinds)}")
    return Card(question="What relay read", words="", lines=(*lines, *notes), ink=Ink.SOFT if notes else Ink.TEXT)
