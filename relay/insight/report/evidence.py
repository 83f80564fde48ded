"""The sections on evidence and beliefs.

Evidence: for each commit that ticked items, its gate and its changes. Beliefs: what decisions cost, which claims were
used again, and which contradict each other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from relay.base.values import dataclass
from relay.base.words import count, list_some, render_duration, render_size
from relay.insight.database import Row
from relay.insight.figures import Figures, measure_ledger
from relay.insight.report.blocks import (
    NOTHING,
    Chapter,
    Exhibit,
    cut_id,
    list_rows,
    render_number,
    render_per_decision,
)
from relay.ledger.belief import ClaimStatus, Judgement, find_uses
from relay.ledger.model import Kind, Ledger
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
        f"{render_number(worth.paid_tokens)} tokens over all prompts. They used {worth.used}{share}: "
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
