"""The sections on evidence and beliefs.

Evidence: for each commit that ticked items, its gate and its changes. Beliefs: what decisions cost, which claims were
used again, and which contradict each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from relay.base.values import dataclass
from relay.base.words import count, list_some, render_duration, render_size
from relay.insight.database import Row
from relay.insight.figures import Figures, measure_ledger
from relay.insight.report import blocks
from relay.insight.report.blocks import (
    NOTHING,
    Chapter,
    Details,
    Exhibit,
    cut_id,
    make_table,
    render_number,
    render_per_decision,
    render_time,
)
from relay.ledger.belief import Belief, ClaimStatus, Judgement, find_uses
from relay.ledger.model import Claim, Kind, Ledger
from relay.session.events import ChangedFile, LeftFile
from relay.session.pictures import MAX_SIDE_PIXELS, read_picture


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
    """Show decisions, their cost and where they stand."""
    claims = list(beliefs.ledger.claims.values())
    uses = find_uses(beliefs.ledger)
    held = sum(beliefs.judgement[claim.id].status is ClaimStatus.IN for claim in claims)
    lead = (
        f"{count(len(claims), 'claim')}, {held} of them hold; another session or a person used {len(uses)} of them "
        f"again. {say_worth(measure_ledger([figures]))}"
    ).rstrip()
    sessions = {session.session_id: session for session in figures.sessions}
    decisions = [claim for claim in claims if claim.kind is Kind.DECISION]
    others = [claim for claim in claims if claim.kind is not Kind.DECISION]
    tables = [
        _list_claims("Decisions and their cost", decisions, beliefs, sessions, uses),
        _list_claims("Constraints, warnings, observations, dead ends", others, beliefs, sessions, uses),
        _list_contradictions(beliefs),
    ]
    return Chapter(name="beliefs", title="Claims", lead=lead, tables=tuple(tables))


def say_worth(worth: Row) -> str:
    """Write what sessions used of the ledger; empty if none was shown a claim."""
    if not worth.sessions:
        return ""
    share = f" ({worth.used_tokens / worth.shown_tokens:.0%} of the tokens)" if worth.shown_tokens else ""
    return (
        f"{count(worth.sessions, 'session')} had {count(worth.shown, 'claim')} in the first message, which cost "
        f"{render_number(worth.paid_tokens)} tokens over all prompts. They used {worth.used}{share}: "
        f"named {worth.named}, read a cited file of {worth.read}, changed one of {worth.changed}."
    )


def _count_uses(claim: Claim, sessions: Iterable[Row]) -> str:
    """Write in how many of the sessions that were shown a claim it was used."""
    found = [use for session in sessions for use in session.claims if use.id == claim.id]
    return f"{sum(use.used for use in found)} of {len(found)}" if found else NOTHING


def _list_claims(
    caption: str,
    claims: Sequence[Claim],
    beliefs: Beliefs,
    sessions: Mapping[str, Row],
    uses: Mapping[str, tuple[str, ...]],
) -> blocks.Table:
    columns = "`Id`, Kind, Claim, Because, Status, Phase, #Cost, #Used where shown, Used again by"
    rows = (
        (
            claim.id,
            str(claim.kind),
            claim.claim,
            claim.because,
            _say(beliefs.judgement[claim.id]),
            claim.stamp.phase or NOTHING,
            _cost(claim, sessions),
            _count_uses(claim, sessions.values()),
            list_some([cut_id(user) or "a person" for user in uses.get(claim.id, ())], 4) or NOTHING,
        )
        for claim in claims
    )
    return make_table(caption, columns, rows)


def _say(belief: Belief) -> str:
    return f"{belief.status}: {belief.because}" if belief.because else str(belief.status)


def _cost(claim: Claim, sessions: Mapping[str, Row]) -> str:
    """Write the cost per decision of the claim's session; a dash if this log has no such session."""
    session = sessions.get(claim.stamp.session)
    return NOTHING if session is None else render_per_decision(session)


def _list_contradictions(beliefs: Beliefs) -> blocks.Table:
    rows = ((nogood.id, ", ".join(nogood.claims), nogood.because) for nogood in beliefs.judgement.contradictions)
    return make_table("Open contradictions", "`Id`, `Cannot all hold`, Because", rows)


_COLUMNS = "When (UTC), `Commit`, Boxes, Changed, `Command`, Verdict, #Exit, #Took, `Output`"


ReadLeftFile = Callable[[str, str], bytes | str | None]
"""Returns a file that a gate left, by name and digest: a text without secrets, other bytes, or None if it is gone."""
MOST_EXHIBITS = 30
"""Files of gates that are looked at, the newest first."""
MOST_PIXELS = 16_000_000
"""Of a picture: a browser takes four bytes for each. A screenshot of a whole page has some ten million."""


def show_evidence(figures: Figures, read: ReadLeftFile) -> Chapter:
    """Show the gate behind each tick, and the files that it left."""
    rows = [row for tick in figures.ticks for row in _iter_rows(tick)]
    unproven = sum(not tick.checks for tick in figures.ticks)
    lead = (
        "relay ticks a box in the commit with its work, after the phase's commands passed. “Output” begins the SHA-256 "
        "of a command's output."
    )
    if unproven:
        lead += f" {count(unproven, 'commit')} ticked boxes without a gate in this log."
    tables = (make_table("Ticks and their evidence", _COLUMNS, rows),)
    files = (_fold_files(figures.ticks),) if any(tick.files for tick in figures.ticks) else ()
    exhibits = _list_exhibits(figures.ticks, read)
    left = (_fold_left(figures.ticks, exhibits),) if any(tick.left for tick in figures.ticks) else ()
    folds = (_fold_boxes(figures.ticks), *files, *left) if rows else ()
    return Chapter(
        name="evidence",
        title="Evidence",
        lead=lead,
        tables=tables,
        exhibits=tuple(filter(None, exhibits.values())),
        folds=folds,
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
    columns = "Phase, #Round, Verdict, About, `Place`, Finding, What goes wrong, Verdict because"
    rows = (
        (
            review.phase_id or NOTHING,
            render_number(review.round),
            one["verdict"],
            f"{one['category']}, {one['severity']}",
            f"{one['file']}:{one['line']}" if one["line"] else one["file"],
            one["summary"],
            one["failure_scenario"],
            one["reason"],
        )
        for review in reviews
        for one in review.findings
    )
    return Chapter(name="reviews", title="Reviews", lead=lead, tables=(make_table("Findings", columns, rows),))


def _iter_rows(tick: Row) -> Iterator[tuple[str, ...]]:
    head = (render_time(tick.at), cut_id(tick.commit), ", ".join(tick.items), sum_changes(tick.files))
    if not tick.checks:
        yield (*head, "", "no gate", NOTHING, NOTHING, "")
    for check in tick.checks:
        code = NOTHING if check["exit_code"] is None else str(check["exit_code"])
        took, output = render_duration(check["duration_s"]), cut_id(check.get("output_sha256", ""))
        yield (*head, check["command"], check["status"], code, took, output)


def sum_changes(files: Sequence[ChangedFile]) -> str:
    """Write ``+30 −2 in 2 files``."""
    if not files:
        return NOTHING
    added, deleted = (sum(file[name] or 0 for file in files) for name in ("added", "deleted"))
    return f"+{added} −{deleted} in {count(len(files), 'file')}"


def _fold_boxes(ticks: Sequence[Row]) -> Details:
    rows = [
        (cut_id(tick.commit), tick.subject, item, text)
        for tick in ticks
        for item, text in zip_longest(tick.items, tick.texts, fillvalue="")
    ]
    columns = "`Commit`, Subject, Box, Text"
    return Details(
        title=f"Texts of the {count(len(rows), 'box', 'boxes')}", tables=(make_table("Boxes", columns, rows),)
    )


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


def _fold_left(ticks: Sequence[Row], exhibits: Mapping[str, Exhibit | None]) -> Details:
    rows = [
        (cut_id(tick.commit), one["name"], render_number(one["size_bytes"]), _name_kind(one, exhibits), one["sha256"])
        for tick in ticks
        for one in tick.left
    ]
    table = make_table(
        "Kept for a week below .relay/outputs/evidence/, by digest", "`Commit`, `File`, #Bytes, Kind, `SHA-256`", rows
    )
    return Details(title=f"{count(len(rows), 'file')} that gates left", tables=(table,))


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


def _fold_files(ticks: Sequence[Row]) -> Details:
    rows = [
        (
            cut_id(tick.commit),
            change["path"],
            "binary" if change["added"] is None else f"+{render_number(change['added'])}",
            "" if change["deleted"] is None else f"−{render_number(change['deleted'])}",
        )
        for tick in ticks
        for change in tick.files
    ]
    columns = "`Commit`, `File`, #Added, #Deleted"
    paths = len({change["path"] for tick in ticks for change in tick.files})
    return Details(title=f"Changes in {count(paths, 'file')}", tables=(make_table("Files", columns, rows),))
