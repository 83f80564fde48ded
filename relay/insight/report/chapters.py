"""The sections of the page: phases, context, cache, tokens by source and their cost, tools; evidence, reviews, beliefs.

Evidence: for each commit that ticked items, its gate and its changes. Beliefs: what decisions cost, which claims were
used again, and which contradict each other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from relay.base.values import dataclass
from relay.base.words import count, list_some, render_duration, render_size, render_tokens, render_usd
from relay.insight.database import Row
from relay.insight.figures import DRIFT_WARNING, HEALTHY_CACHE, Figures, measure_ledger, sum_retrieved
from relay.insight.report.blocks import (
    FORMATS,
    NOTHING,
    THRESHOLDS,
    Chapter,
    Exhibit,
    Table,
    cut_id,
    list_rows,
    make_table,
    render_per_decision,
    render_share,
)
from relay.insight.report.plots import draw_contexts
from relay.ledger.belief import ClaimStatus, Judgement, find_uses
from relay.ledger.model import Kind, Ledger
from relay.session.events import ChangedFile, LeftFile
from relay.session.pictures import MAX_SIDE_PIXELS, read_picture
from relay.session.recall import LARGE_TOKENS

MOST_FOLDS = 60
"""Phases with a folded part; further phases have only their row in the table."""


def show_context(figures: Figures) -> Chapter:
    """Show how full the context was, session by session."""
    sessions = figures.sessions
    crossed, peak = figures.totals.crossings, max((session.peak_tokens or 0 for session in sessions), default=0)
    lead = (
        f"{count(len(sessions), 'session')}, each a rising line: a fresh context fills turn by turn until the session "
        f"hands over or ends. {count(crossed, 'session')} crossed the hand-off line; the fullest held "
        f"{render_tokens(peak)} tokens."
    )
    columns = (
        "`Session {session_id:id} | #Turn {turn:n} | #Before {before_tokens:tokens} | #After {after_tokens:tokens} | "
        "Largest losses {dropped:sources}"
    )
    falls = [Row(session_id=one.session_id, **vars(fall)) for one in sessions for fall in one.compactions]
    tables = (list_rows("Compactions", columns, falls),)
    plots = (draw_contexts(sessions),) if sessions else ()
    return Chapter(name="context", title="Context", lead=lead, plots=plots, tables=tables)


_DECAY = (
    "`Session {session_id:id} | #History {history_share:share}{history_share:!history} | "
    "#Distance {distance_tokens:tokens}{distance_tokens:!distance} | #Growth {growth_tokens:tokens} | "
    "#Turns left {turns_left:n}{turns_left:!turns left} | #Superseded {superseded_tokens:tokens} | "
    "#Unused {unused_tokens:tokens} | #Cut off {cut_tokens:tokens} | #Signal {signal:share}{signal:!signal} | "
    "#Decisions {decision_density:part}"
)


def show_decay(figures: Figures) -> Chapter:
    """Show how far each context had decayed at its last answer, its layers, and what of it was used."""
    sessions = figures.sessions
    state = list_rows("State of each context at its last answer", _DECAY, sessions)
    marks = (
        (
            name,
            f"{'above' if is_most else 'below'} {render_share(value) if value < 1 else render_tokens(round(value))}",
            source,
        )
        for name, (value, is_most, source) in THRESHOLDS.items()
    )
    table = make_table("A mark (!) says: look closer. It stops nothing.", "Figure, Mark, Source", marks)
    lead = "What filled each context at its last answer, how much of it was of use, and how far the line was."
    return Chapter(
        name="decay",
        title="State of the contexts",
        lead=lead,
        tables=(state, _list_layers(sessions), _list_retrieved(sessions)),
        folds=(Chapter(title="What these figures say", facts=_DEFINITIONS, tables=(table,)),),
    )


def _list_layers(sessions: Sequence[Row]) -> Table:
    """List the layers of all last contexts, each with the session that has the most of it."""
    rows = []
    whole = sum(layer.tokens for session in sessions for layer in session.layers)
    for found in zip(*(session.layers for session in sessions if session.layers), strict=True):
        largest = max(found, key=lambda layer: layer.tokens)
        cuts, tokens = [layer.cut_tokens for layer in found], sum(layer.tokens for layer in found)
        over = sum(layer.tokens > layer.most_tokens for layer in found)
        sums = {"part": tokens / whole if whole else None, "over": over, "mark": " !" * (over > 0)}
        rows.append(Row(**{**vars(largest), **sums, "cut_tokens": None if None in cuts else sum(cuts)}))
    columns = (
        "Layer {name} | #Share of contexts {part:share} | #Largest {tokens:tokens} | "
        "#Should take {most_tokens:tokens} | #Sessions over it {over:n}{mark} | #Cut {cut_tokens:tokens}"
    )
    return list_rows("Layers of the contexts at their last answers", columns, rows)


def _list_retrieved(sessions: Sequence[Row]) -> Table:
    found = sum_retrieved(sessions)
    rows = [Row(**vars(one), what=_KINDS[one.kind], rate=one.used / one.shown if one.shown else None) for one in found]
    columns = "What {what} | #Shown {shown:n} | #Used {used:n} | #Hit rate {rate:share} | #Tokens {tokens:tokens}"
    return list_rows("What sessions were shown, and used", columns, rows)


_KINDS = {
    "file": "files read",
    "ledger": "claims in the first message",
    "preload": "files in the first message",
}


_DEFINITIONS = (
    ("History", "answers, calls, results and relay's words, as part of the room from the first prompt to the line"),
    ("Distance", "tokens from the end of role, tools and rules to the newest turn"),
    ("Growth, turns left", "tokens of context per turn, and the turns until the line at that growth"),
    ("Superseded", "results of calls made again, and parts of files shown again"),
    ("Unused", f"results over {render_tokens(LARGE_TOKENS)} tokens of which no later call names a path or a line"),
    ("Cut off", "output that the cap on results kept out"),
    ("Signal", "the part of history that is neither superseded nor unused"),
    ("Decisions", "ticks, records, amendments and commits per turn"),
    ("Used", "a later call names or changes it; of a file also a line of it, of a claim also the file that it cites"),
)


_PHASES = (
    "Phase {name} | State {state} | #Sessions {sessions:n} | #Turns {turns:n} | #Tokens in {prompt_tokens:tokens} | "
    "#Cost {0:cost} | #Per decision {0:each} | #Peak {peak} | #Red gates {red_gates} of {gates} | "
    "#Drift {drift:share}{mark}"
)
_SESSIONS = (
    "Session {number} ({session_id:id}) | Began {began:at} | #Took {took_s:s} | #Turns {turns:n} | "
    "#First prompt {first_tokens:tokens} | #Peak {peak_tokens:tokens} | #Cost {0:cost} | #Signal {signal:share} | "
    "Why it began {reason} | How it ended {how}"
)


def show_phases(figures: Figures) -> Chapter:
    """Show each phase as a row, and folded with its sessions."""
    rows, folds = [], []
    for phase in figures.phases:
        sessions = [session for session in figures.sessions if session.phase_id == phase.phase_id]
        if not (phase.sessions or phase.turns):
            continue
        name = f"{phase.phase_id} {phase.title}".strip() or "outside phases"
        peaks = [session.peak_tokens for session in sessions if session.peak_tokens is not None]
        ticked = f"{len(phase.ticked)} of {len(phase.items)}"
        state = "done" if phase.is_done else ticked if phase.items else NOTHING
        peak = render_tokens(max(peaks)) if peaks else NOTHING
        mark = " !" * ((phase.drift or 0) > DRIFT_WARNING)
        rows.append(Row(**vars(phase), name=name, state=state, peak=peak, mark=mark))
        if phase.sessions and len(rows) <= MOST_FOLDS:
            folds.append(_fold_phase(name, ticked, phase, sessions))
    lead = (
        "Drift is the share of changed files that the phase's items do not name; "
        f"look closer above {render_share(DRIFT_WARNING)}."
    )
    tables = (list_rows("Phases", _PHASES, rows),)
    return Chapter(name="phases", title="Phases", lead=lead, tables=tables, folds=tuple(folds))


def _fold_phase(name: str, ticked: str, phase: Row, sessions: Sequence[Row]) -> Chapter:
    facts = {
        "Boxes ticked": ticked,
        "Commits": list_some([cut_id(commit) for commit in phase.commit_ids]),
        "Gates": f"{phase.gates}, {phase.red_gates} red, {count(phase.repairs, 'repair')}",
        "Files": list_some(phase.touched),
        "Not named by items": list_some(phase.strayed),
        "Decisions": f"{count(phase.ticks, 'tick')}, {count(phase.records, 'record')}, "
        f"{count(phase.amendments, 'amendment')}, {count(phase.commits, 'commit')}",
        "Time": f"answers {render_duration(phase.answer_s)}, tools {render_duration(phase.tools_s)}, "
        f"gates {render_duration(phase.gates_s)}",
        "Read again": f"{count(phase.duplicate_reads, 'part')}, {render_tokens(phase.duplicate_tokens)} tokens",
        "Tokens by source": FORMATS["sources"](phase.sources),
        "Edited unseen": count(phase.ghost_edits, "file") if phase.ghost_edits else "",
    }
    rows, notes = [], []
    for session in sessions:
        took = None if session.ended is None else session.ended - session.began
        how = f"{session.result}: {session.detail}" if session.detail else session.result or "cut off"
        rows.append(Row(**vars(session), took_s=took, how=how))
        lines = (line for line in session.handoff_note.splitlines() if line.strip())
        notes += [Row(**vars(session), line=line) for line in lines]
    return Chapter(
        title=name,
        facts=tuple((fact, text) for fact, text in facts.items() if text),
        plots=(draw_contexts(sessions, by_session=True),) if sessions else (),
        tables=(
            list_rows("Sessions", _SESSIONS, rows),
            list_rows("Handoff notes", "To session {number} ({session_id:id}) | Note {line}", notes),
        ),
    )


def show_cache(figures: Figures) -> Chapter:
    """Show the tokens that came from the cache."""
    totals, healthy = figures.totals, render_share(HEALTHY_CACHE)
    lead = (
        f"{render_share(totals.cache_hit)} of all prompt tokens were read from the cache; above {healthy} is "
        "healthy. A session's first prompt is written to the cache."
    )
    amounts: Mapping[str, int] = {
        "read from the cache": totals.cache_read_tokens,
        "written for five minutes": totals.cache_write_5m_tokens,
        "written for an hour": totals.cache_write_1h_tokens,
        "neither": totals.input_tokens,
    }
    rows = [(name, render_tokens(n), render_share(n / totals.prompt_tokens)) for name, n in amounts.items() if n]
    rows.append(("cache misses: less read than expected", f"{totals.cache_breaks:,}", NOTHING))
    table = make_table("Prompt tokens", "What, #Amount, #Share", rows)
    return Chapter(name="cache", title="Cache", lead=lead, tables=(table,))


_COSTLIEST = 20


def show_tools(figures: Figures) -> Chapter:
    """Show how often and how long tools ran, the size of their results, and what was read again."""
    totals = figures.totals
    lead = (
        f"{count(totals.calls, 'call')}, {count(totals.errors, 'error')}. "
        f"{count(totals.duplicate_reads, 'time')} a session saw the same part of an unchanged file again: "
        f"{render_tokens(totals.duplicate_tokens)} tokens. {count(totals.ghost_edits, 'file')} changed by a session "
        "that had not seen the file, while an earlier session had."
    )
    columns = (
        "Tool {name} | #Calls {calls:n} | #Errors {errors:n} | #Time {duration_s:s} | "
        "#Tokens of results {result_tokens:tokens} | #Repeats {duplicates:n} | "
        "#Tokens of repeats {duplicate_tokens:tokens}"
    )
    costliest = sorted((r for tool in figures.tools for r in tool.costliest), key=lambda r: -r.tokens)[:_COSTLIEST]
    results = "Tool {tool} | `Call {summary} | #Tokens {tokens:tokens} | `Session {session_id:id} | #Turn {turn:n}"
    tables = (list_rows("Tools", columns, figures.tools), list_rows("The costliest results", results, costliest))
    return Chapter(name="tools", title="Tools", lead=lead, tables=tables)


def show_sources(figures: Figures) -> Chapter:
    """Show the prompts by source of tokens."""
    whole = figures.totals.prompt_tokens
    rows = [(name, render_tokens(n), render_share(n / whole)) for name, n in figures.totals.sources.items()]
    table = make_table("All prompts", "Source, #Tokens, #Share", rows)
    lead = (
        f"{count(figures.totals.turns, 'turn')} sent {render_tokens(whole)} tokens; every turn sends the whole "
        f"context, so {render_tokens(figures.totals.carried_tokens)} of them had been sent before in the same session. "
        "relay estimates the parts by size and scales them to the endpoint's count; “history” is the rest: answers, "
        "calls and thinking."
    )
    return Chapter(name="sources", title="Tokens by source", lead=lead, tables=(table,))


def show_cost(figures: Figures) -> Chapter:
    """Show the cost of each phase and of a decision."""
    totals = figures.totals
    lead = f"{render_per_decision(totals)} per decision. A decision is a tick, a record, an amendment or a commit."
    rows = [
        ("context carried from turn to turn, at the price of a cache read", totals.carried_tokens, totals.carried_usd),
        ("re-read tax: superseded results, sent again with each turn", totals.tax_tokens, totals.tax_usd),
        ("duplicate reads", totals.duplicate_tokens, NOTHING),
    ]
    if totals.explored_tokens:
        words = f"explorers, which answered {count(totals.explored, 'question')}"
        rows.append((words, totals.explored_tokens, totals.explored_usd))
    cells = ((words, render_tokens(n), usd if usd == NOTHING else render_usd(usd)) for words, n, usd in rows)
    tables = [make_table("Cost of carried context", "What, #Tokens, #Cost", cells)]
    if (forecast := figures.forecast) and forecast.phases:
        low, high = render_usd(forecast.low_usd), render_usd(forecast.high_usd)
        row = Row(**vars(forecast), range=NOTHING if forecast.low_usd is None else f"{low} to {high}")
        columns = "#Phases {phases:n} | #Open items {items:n} | #Cost {usd:usd} | Range {range}"
        tables.append(list_rows("Forecast, at the cost per item so far", columns, [row]))
    return Chapter(name="cost", title="Cost", lead=lead, tables=tuple(tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """The ledger of a plan, judged."""

    ledger: Ledger
    judgement: Judgement


def list_contradictions(beliefs: Beliefs) -> Iterator[str]:
    """Yield the contradictions that a person has to settle; the run itself has warned of stale claims."""
    for nogood in beliefs.judgement.contradictions:
        yield f"{nogood.id}: {' and '.join(nogood.claims)} cannot all hold: {nogood.because}"


def show_beliefs(beliefs: Beliefs, figures: Figures) -> Chapter:
    """Show claims, where they stand, and what decisions cost."""
    claims = list(beliefs.ledger.claims.values())
    uses = find_uses(beliefs.ledger)
    held = sum(beliefs.judgement[claim.id].status is ClaimStatus.IN for claim in claims)
    lead = (
        f"{count(len(claims), 'claim')}, {held} of them hold; another session or a person used {len(uses)} of them "
        f"again. {say_worth(measure_ledger([figures]))}"
    ).rstrip()
    columns = (
        "`Id {id} | Kind {kind} | Claim {claim} | Because {because} | Status {status} | Phase {phase:or} | "
        "#Cost {cost} | #Used where shown {used} | Used again by {again:or}"
    )
    rows = []
    for claim in claims:
        belief, stamp = beliefs.judgement[claim.id], claim.stamp
        shown = [use for session in figures.sessions for use in session.claims if use.id == claim.id]
        by = next((session for session in figures.sessions if session.session_id == stamp.session), None)
        rows.append(
            Row(
                **{name: getattr(claim, name) for name in ("id", "kind", "claim", "because")},
                status=f"{belief.status}: {belief.because}" if belief.because else belief.status,
                phase=stamp.phase,
                cost=NOTHING if by is None or claim.kind is not Kind.DECISION else render_per_decision(by),
                used=f"{sum(use.used for use in shown)} of {len(shown)}" if shown else NOTHING,
                again=list_some([cut_id(user) or "a person" for user in uses.get(claim.id, ())], 4),
            )
        )
    return Chapter(name="beliefs", title="Claims", lead=lead, tables=(list_rows("Claims", columns, rows),))


def say_worth(worth: Row) -> str:
    """Write what sessions used of the ledger; empty if none was shown a claim."""
    if not worth.sessions:
        return ""
    share = f" ({worth.used_tokens / worth.shown_tokens:.0%} of the tokens)" if worth.shown_tokens else ""
    return (
        f"{count(worth.sessions, 'session')} had {count(worth.shown, 'claim')} in the first message, which cost "
        f"{worth.paid_tokens:,} tokens over all prompts. They used {worth.used}{share}: "
        f"named {worth.named}, read a cited file of {worth.read}, changed one of {worth.changed}."
    )


ReadLeftFile = Callable[[str, str], bytes | str | None]
"""Returns a file that a gate left, by name and digest: a text without secrets, other bytes, or None if it is gone."""
MOST_EXHIBITS = 30
"""Files of gates that are looked at, the newest first."""
MOST_PIXELS = 16_000_000
"""Of a picture: a browser takes four bytes for each. A screenshot of a whole page has some ten million."""


_CHECKS = (
    "When (UTC) {at:at} | `Commit {commit:id} | Boxes {boxes} | Changed {changes} | `Command {command} | "
    "Verdict {status} | #Exit {exit_code:n} | #Took {took} | `Output {output_sha256:id}"
)


def show_evidence(figures: Figures, read: ReadLeftFile) -> Chapter:
    """Show the gate behind each tick, and the files that it left."""
    ticks, checks, boxes, left = figures.ticks, list[Row](), list[Row](), list[Row]()
    exhibits = _list_exhibits(ticks, read)
    for tick in ticks:
        changes, ticked = sum_changes(tick.files), ", ".join(tick.items)
        head = {"at": tick.at, "boxes": ticked, "changes": changes, "commit": tick.commit}
        nothing = {"command": "", "status": "no gate", "exit_code": None, "took": NOTHING, "output_sha256": ""}
        ran = [{**nothing, **check, "took": render_duration(check["duration_s"])} for check in tick.checks]
        checks += [Row(**head, **check) for check in ran or [nothing]]
        texts = zip_longest(tick.items, tick.texts, fillvalue="")
        boxes += [Row(commit=tick.commit, subject=tick.subject, item=item, text=text) for item, text in texts]
        left += [Row(**one, commit=tick.commit, kind=_name_kind(one, exhibits)) for one in tick.left]
    lead = (
        "relay ticks a box in the commit with its work, after the phase's commands passed. “Output” begins the SHA-256 "
        "of a command's output."
    )
    if unproven := sum(not tick.checks for tick in ticks):
        lead += f" {count(unproven, 'commit')} ticked boxes without a gate in this log."
    folds = {
        f"Texts of the {count(len(boxes), 'box', 'boxes')}": list_rows(
            "Boxes", "`Commit {commit:id} | Subject {subject} | Box {item} | Text {text}", boxes
        ),
        f"{count(len(left), 'file')} that gates left": list_rows(
            "Kept for a week below .relay/outputs/evidence/, by digest",
            "`Commit {commit:id} | `File {name} | #Bytes {size_bytes:n} | Kind {kind} | `SHA-256 {sha256}",
            left,
        ),
    }
    return Chapter(
        name="evidence",
        title="Evidence",
        lead=lead,
        tables=(list_rows("Ticks and their evidence", _CHECKS, checks),),
        exhibits=tuple(filter(None, exhibits.values())),
        folds=tuple(Chapter(title=title, tables=(table,)) for title, table in folds.items() if table.rows),
    )


def count_findings(reviews: Sequence[Row]) -> tuple[int, int]:
    """Return the numbers of findings and of confirmed ones."""
    return sum(len(review.findings) for review in reviews), sum(review.confirmed for review in reviews)


def show_reviews(reviews: Sequence[Row]) -> Chapter:
    """Show the reviewers' findings with their verdicts."""
    found, confirmed = count_findings(reviews)
    lead = (
        f"{count(len(reviews), 'round')}: {count(found, 'finding')}, {confirmed} confirmed by a second session. The "
        "session repairs confirmed faults before the commit; relay only reports the others."
    )
    columns = (
        "Phase {phase:or} | #Round {round:n} | Verdict {verdict} | About {category}, {severity} | `Place {place} | "
        "Finding {summary} | What goes wrong {failure_scenario} | Verdict because {reason}"
    )
    rows = []
    for review in reviews:
        for one in review.findings:
            place = f"{one['file']}:{one['line']}" if one["line"] else one["file"]
            rows.append(Row(**one, phase=review.phase_id, round=review.round, place=place))
    return Chapter(name="reviews", title="Reviews", lead=lead, tables=(list_rows("Findings", columns, rows),))


def sum_changes(files: Sequence[ChangedFile]) -> str:
    """Write ``+30 −2 in 2 files``."""
    if not files:
        return NOTHING
    added, deleted = (sum(file[name] or 0 for file in files) for name in ("added", "deleted"))
    return f"+{added} −{deleted} in {count(len(files), 'file')}"


def _list_exhibits(ticks: Sequence[Row], read: ReadLeftFile) -> dict[str, Exhibit | None]:
    """Return the newest files that gates left, by digest; None for a file that is gone."""
    found: dict[str, Exhibit | None] = {}
    for tick in reversed(ticks):
        for one in tick.left:
            if one["sha256"] and one["sha256"] not in found and len(found) < MOST_EXHIBITS:
                data = read(one["name"], one["sha256"])
                found[one["sha256"]] = None if data is None else _make_exhibit(tick, one, data)
    return found


def _make_exhibit(tick: Row, one: LeftFile, data: bytes | str) -> Exhibit:
    caption = f"commit {cut_id(tick.commit)}, {render_size(one['size_bytes'])}, SHA-256 {one['sha256']}"
    if isinstance(data, str):
        return Exhibit(name=one["name"], caption=caption, text=data)
    picture = read_picture(data)
    if picture is None:
        return Exhibit(name=one["name"], caption=caption)
    size = f"{picture.width} × {picture.height} pixels"
    fits = max(picture.width, picture.height) <= MAX_SIDE_PIXELS and picture.width * picture.height <= MOST_PIXELS
    return Exhibit(name=one["name"], caption=f"{size}, {caption}", picture=picture if fits else None)


def _name_kind(one: LeftFile, exhibits: Mapping[str, Exhibit | None]) -> str:
    if not one["sha256"]:
        return f"not kept: {one['why']}" if one.get("why") else "not kept"
    if one["sha256"] not in exhibits:
        return f"not read: only the newest {MOST_EXHIBITS} are"
    if not one["size_bytes"]:
        return "empty"
    exhibit = exhibits[one["sha256"]]
    if exhibit is None:
        return "gone"
    return "picture" if exhibit.picture else "text" if exhibit.text else "neither text nor a picture that is shown here"
