"""`relay report --all`: how the phases of all plans went, by month, model and runner, from commits alone."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from relay.base.errors import ConfigError
from relay.base.words import UNKNOWN, count, render_usd
from relay.cli.boundary import note_place
from relay.cli.documents import Document, fill
from relay.cli.pages import show_page
from relay.cli.screen import complain, say_document
from relay.insight.report.blocks import Card, Chapter, Page, make_table, render_share, render_time
from relay.store.outcomes import GROUPS, OutcomeSums, PhaseOutcome, group_outcomes, read_outcomes, sum_outcomes

_COLUMNS = "{}, #Phases, #First pass, #Sessions, #Red gates, #Taken back, #Cost to done, #Cost"


class OutcomesDocument(Document):
    """With --all: how phases went."""

    phases: tuple[PhaseOutcome, ...]
    """Oldest first."""
    month: tuple[OutcomeSums, ...]
    model: tuple[OutcomeSums, ...]
    runner: tuple[OutcomeSums, ...]


def show_outcomes(rev: str, *, days: int | None, output: str | None, as_text: bool, as_json: bool) -> None:
    """Show how the phases of all plans below a commit went: as page, text or JSON.

    Raises:
        ConfigError: No commit ends a phase.
        RelayError: There is no such commit, or the page cannot be drawn.
    """
    repo = note_place().repo
    outcomes = read_outcomes(repo, rev)
    if (repo.common_dir / "shallow").exists():
        complain(
            "this clone is shallow: phases before its oldest commit are missing; git fetch --unshallow brings them"
        )
    if days is not None:
        since = (datetime.now(UTC) - timedelta(days=days)).timestamp()
        outcomes = tuple(one for one in outcomes if one.time >= since)
    if as_json:
        groups = {by: tuple(group_outcomes(outcomes, by)) for by in GROUPS}
        say_document(fill(OutcomesDocument, None, phases=outcomes, **groups))
        return
    if not outcomes:
        raise ConfigError(f"no commit below {rev} ends a phase" + (f" of the last {days} days" if days else ""))
    show_page(make_page(outcomes), repo.root, "all", output, as_text=as_text)


def make_page(outcomes: Sequence[PhaseOutcome]) -> Page:
    """Make the page of phases that were done; at least one."""
    total, plans = sum_outcomes("all", outcomes), {one.plan for one in outcomes}
    facts = (
        ("phases", f"{len(outcomes):,} of {count(len(plans), 'plan file')}"),
        ("from", f"{render_time(outcomes[0].time)} to {render_time(outcomes[-1].time)}"),
    )
    words = f"{_render_part(total)} without a repair; {total.regressions:,} taken back"
    cost = render_usd(total.spent.cost_usd, estimated=total.spent.estimated)
    cards = (
        Card(question="Passed", words=words),
        Card(question="Cost", words=f"{cost} without planning; {render_usd(total.usd)} a phase in the median"),
    )
    tables = tuple(
        make_table(f"By {by}", _COLUMNS.format(by.capitalize()), map(_list_cells, group_outcomes(outcomes, by)))
        for by in GROUPS
    )
    lead = "A red gate is counted when it goes back to the session for a repair. Sessions and cost to done are medians."
    chapter = Chapter(name="outcomes", title="Outcomes", lead=lead, tables=tables)
    return Page(title="How phases went", facts=facts, answers=cards, sections=(chapter,))


def _list_cells(one: OutcomeSums) -> tuple[str, ...]:
    passed = one.first_pass
    return (
        one.name,
        f"{one.phases:,}",
        f"{_render_part(one)} {render_share(passed.part / passed.of)}" if passed.of else UNKNOWN,
        f"{one.sessions:g}",
        f"{one.repairs:,}" if passed.of else UNKNOWN,
        f"{one.regressions:,}",
        render_usd(one.usd),
        render_usd(one.spent.cost_usd, estimated=one.spent.estimated),
    )


def _render_part(sums: OutcomeSums) -> str:
    passed = sums.first_pass
    return f"{passed.part:,} of {passed.of:,}" if passed.of else UNKNOWN
