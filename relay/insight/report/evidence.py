"""The section on evidence: for every commit that ticked something, what proved it and what it changed."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from relay.base.words import count, render_duration
from relay.insight.figures.evidence import FileChange, ReviewEvidence, TickEvidence
from relay.insight.figures.values import Figures
from relay.insight.report.blocks import Chapter, Details, make_table
from relay.insight.report.wording import NOTHING, cut_id, render_number, render_time

_COLUMNS = "When (UTC), `Commit`, Boxes, Changed, `Command`, Verdict, #Exit, #Took, `Output`"


def show_evidence(figures: Figures) -> Chapter:
    """Show what stands for each tick."""
    rows = [row for tick in figures.ticks for row in _iter_rows(tick)]
    unproven = sum(not tick.checks for tick in figures.ticks)
    lead = (
        "relay ticks a box in the commit that holds its work, after the phase's commands passed. “Output” begins the "
        "SHA-256 of what a command printed."
    )
    if unproven:
        lead += f" {count(unproven, 'commit')} ticked without a gate in this log."
    tables = (make_table("Ticks and what proved them", _COLUMNS, rows),)
    files = (_fold_files(figures.ticks),) if any(tick.files for tick in figures.ticks) else ()
    folds = (_fold_boxes(figures.ticks), *files) if rows else ()
    return Chapter(name="evidence", title="Evidence", lead=lead, tables=tables, folds=folds)


def count_findings(reviews: Sequence[ReviewEvidence]) -> tuple[int, int]:
    """Return how many faults were found, and how many of them confirmed."""
    return sum(len(review.findings) for review in reviews), sum(review.confirmed for review in reviews)


def show_reviews(reviews: Sequence[ReviewEvidence]) -> Chapter:
    """Show what reviewers found, and what became of it."""
    found, confirmed = count_findings(reviews)
    lead = (
        f"{count(len(reviews), 'round')}: {count(found, 'finding')}, {confirmed} confirmed by a second session. What "
        "is confirmed goes back for repair before the commit; the rest is reported only."
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


def _iter_rows(tick: TickEvidence) -> Iterator[tuple[str, ...]]:
    head = (render_time(tick.at), cut_id(tick.commit), ", ".join(tick.items), sum_changes(tick.files))
    if not tick.checks:
        yield (*head, "", "no gate", NOTHING, NOTHING, "")
    for check in tick.checks:
        code = NOTHING if check.exit_code is None else str(check.exit_code)
        yield (*head, check.command, check.status, code, render_duration(check.duration_s), cut_id(check.output_sha256))


def sum_changes(files: Sequence[FileChange]) -> str:
    """Write ``+30 −2 in 2 files``."""
    if not files:
        return NOTHING
    added, deleted = (
        sum(n for n in found if n is not None) for found in zip(*((f.added, f.deleted) for f in files), strict=True)
    )
    return f"+{added} −{deleted} in {count(len(files), 'file')}"


def _fold_boxes(ticks: Sequence[TickEvidence]) -> Details:
    rows = [
        (cut_id(tick.commit), tick.subject, item, text)
        for tick in ticks
        for item, text in zip_longest(tick.items, tick.texts, fillvalue="")
    ]
    columns = "`Commit`, Subject, Box, Text"
    return Details(
        title=f"What the {count(len(rows), 'box', 'boxes')} say", tables=(make_table("Boxes", columns, rows),)
    )


def _fold_files(ticks: Sequence[TickEvidence]) -> Details:
    rows = [
        (
            cut_id(tick.commit),
            change.path,
            "binary" if change.added is None else f"+{render_number(change.added)}",
            "" if change.deleted is None else f"−{render_number(change.deleted)}",
        )
        for tick in ticks
        for change in tick.files
    ]
    columns = "`Commit`, `File`, #Added, #Deleted"
    paths = len({change.path for tick in ticks for change in tick.files})
    return Details(title=f"What changed in {count(paths, 'file')}", tables=(make_table("Files", columns, rows),))
