"""Fold the events of one run or many into figures in one pass: runs, phases, the cost of fresh starts, totals."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import PurePosixPath
from typing import Any

from relay.insight.figures.decay import Decay
from relay.insight.figures.sessions import FindRates, SessionTally, find_table_rates
from relay.insight.figures.tallies import (
    KEPT_WARNINGS,
    PhaseTally,
    Sum,
    TokenSource,
    ToolTally,
    add_sources,
    add_totals,
)
from relay.insight.figures.values import (
    READ_SHARE,
    RUN_POINTS,
    WRITE_SHARE,
    Figures,
    Forecast,
    FreshStart,
    PhaseFigures,
    ReviewEvidence,
    RunFigures,
    SessionFigures,
    TickEvidence,
    Totals,
    find_break_even,
    thin,
)
from relay.session.events import (
    Committed,
    Event,
    GateFinished,
    Noticed,
    PlanShown,
    RequestStarted,
    ResponseReceived,
    RetryScheduled,
    ReviewFinished,
    RunEnded,
    RunStarted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
)
from relay.session.prices import Rates
from relay.session.records import LoggedEvent
from relay.session.usage import add_usd


def render_document(figures: Figures, *, skipped_lines: int = 0) -> Mapping[str, Any]:
    """Return all figures as JSON; derived figures stand beside their sources.

    Args:
        skipped_lines: Lines of the logs that could not be read.
    """
    return {
        "totals": _render_totals(figures.totals),
        "runs": [_render_run(run) for run in figures.runs],
        "phases": [_render_phase(phase) for phase in figures.phases],
        "tools": [asdict(tool) for tool in figures.tools],
        "ticks": [asdict(tick) for tick in figures.ticks],
        "reviews": [asdict(review) for review in figures.reviews],
        "hand_offs": [asdict(step) for step in figures.hand_offs],
        "forecast": asdict(figures.forecast) if figures.forecast else None,
        "log": {"skipped_lines": skipped_lines},
    }


def _render_totals(totals: Totals) -> Mapping[str, Any]:
    return {
        **asdict(totals),
        "sources": dict(totals.sources),
        "prompt_tokens": totals.spent.usage.prompt_tokens,
        "cache_hit": totals.cache_hit,
        "decisions": totals.decisions,
        "usd_per_decision": totals.usd_per_decision,
        "decision_density": totals.decision_density,
    }


def _render_run(run: RunFigures) -> Mapping[str, Any]:
    return {
        **{name: getattr(run, name) for name in RunFigures.__dataclass_fields__},
        "totals": _render_totals(run.totals),
        "sessions": [
            {**asdict(session), "totals": _render_totals(session.totals), "held": dict(session.held)}
            for session in run.sessions
        ],
    }


def _render_phase(phase: PhaseFigures) -> Mapping[str, Any]:
    work = {**asdict(phase.work), "drift": phase.work.drift}
    return {**asdict(phase), "totals": _render_totals(phase.totals), "work": work}


MOST_SESSIONS = 1_000
"""Sessions of a run that are kept; older ones are in its totals only."""


class RunTally:
    """Growing figures of one run. Mutable.

    Args:
        started: None if the log has lost it.
    """

    def __init__(self, run_id: str, began: float, started: RunStarted | None) -> None:
        self.run_id = run_id
        self.last_at = began
        self.sum = Sum()
        self._began = began
        self._started = started
        self._ended: tuple[float, RunEnded] | None = None
        self._sessions: deque[SessionFigures] = deque(maxlen=MOST_SESSIONS)
        self._left_out = 0
        self._points = 0
        self._warnings: list[str] = []

    def end(self, at: float, event: RunEnded) -> None:
        """Add the end of the run."""
        self._ended = at, event

    def warn(self, text: str) -> None:
        """Keep a warning."""
        if len(self._warnings) < KEPT_WARNINGS and text not in self._warnings:
            self._warnings.append(text)

    def take_outside(self, record: LoggedEvent) -> None:
        """Add an event outside of any session: a planner's trial, or a log that lost a session's beginning."""
        match record.event:
            case ResponseReceived() as event:
                self.sum.answer(event)
                if event.usage is not None and event.usage.prompt_tokens:
                    add_sources(self.sum.sources, [(TokenSource.OTHER, event.usage.prompt_tokens)])
            case RetryScheduled() as event:
                self.sum.retry(event)
            case _:
                pass

    def add_session(self, session: SessionFigures) -> None:
        """Add a finished session."""
        self.sum.add(session.totals)
        self._left_out += len(self._sessions) == MOST_SESSIONS
        self._sessions.append(session)
        self._points += len(session.series) + len(session.spans)
        if self._points > RUN_POINTS:
            self._thin()

    def _thin(self) -> None:
        sessions = [
            replace(
                session,
                series=thin(session.series, lambda point: point.fill_tokens or 0),
                spans=thin(session.spans, lambda span: span.duration_s),
            )
            for session in self._sessions
        ]
        self._sessions = deque(sessions, maxlen=MOST_SESSIONS)
        self._points = sum(len(session.series) + len(session.spans) for session in sessions)

    def render(self, working: SessionFigures | None) -> RunFigures:
        """Return the figures so far.

        Args:
            working: The present session.
        """
        started, (ended_at, ended) = self._started, self._ended or (None, None)
        sessions = (*self._sessions, *([working] if working else []))
        return RunFigures(
            run_id=self.run_id,
            command=started.command if started else "",
            model=started.model if started else "",
            plan_path=started.plan_path if started else "",
            branch=started.branch if started else "",
            sandbox=started.sandbox if started else "",
            context=started.context if started else "",
            rehearsed=bool(started and started.rehearsed),
            cap_usd=started.cap_usd if started else None,
            spent_before_usd=started.spent_usd if started else None,
            began=self._began,
            ended=ended_at,
            last_at=self.last_at,
            exit_code=ended.exit_code if ended else None,
            reason=ended.reason if ended else "",
            next_command=ended.next_command if ended else "",
            questions=ended.questions if ended else (),
            totals=add_totals(self.sum.totals, *([working.totals] if working else [])),
            sessions=sessions,
            sessions_left_out=self._left_out,
            warnings=tuple(self._warnings),
        )


_MILLION = 1_000_000


def make_hand_off(
    before: SessionFigures, after: SessionFigures, orientation_tokens: int, rates: Rates | None
) -> FreshStart | None:
    """Return the cost and saving of the step between two sessions; None if one of them never answered."""
    if before.last_tokens is None or after.first_tokens is None:
        return None
    context, prefix, turns = before.last_tokens, after.first_tokens, after.totals.turns
    read, write = (rates.read, rates.write_5m) if rates else (READ_SHARE, WRITE_SHARE)
    fresh = prefix + orientation_tokens
    saved = (context - fresh) * turns
    return FreshStart(
        phase_id=after.phase_id,
        from_session=before.session_id,
        to_session=after.session_id,
        within_phase=before.phase_id == after.phase_id,
        context_tokens=context,
        prefix_tokens=prefix,
        orientation_tokens=orientation_tokens,
        turns=turns,
        break_even_turns=find_break_even(context, fresh, read=read, write=write),
        saved_tokens=saved,
        saved_usd=None if rates is None else (saved * read - fresh * write) / _MILLION,
    )


def find_forecast(phases: Iterable[PhaseTally]) -> Forecast:
    """Forecast the cost of a plan's open items from the cost of ticked ones in these events.

    The cost of an item is that of its phase by the number of its items; the range is that of finished phases.
    """
    to_go = items = ticked = 0
    cost: float | None = 0.0
    each: list[float] = []
    for phase in phases:
        spent, done = phase.sum.spent.cost_usd, len(phase.figures.work.ticked)
        if phase.open_items:
            to_go += 1
            items += len(phase.open_items)
        if done:
            ticked += done
            cost = add_usd(cost, spent)
            each += [spent / done] if spent is not None and not phase.open_items else []
    known = cost is not None and ticked
    return Forecast(
        phases=to_go,
        items=items,
        usd=cost / ticked * items if cost is not None and ticked else None,
        low_usd=min(each) * items if known and each else None,
        high_usd=max(each) * items if known and each else None,
    )


MOST_PHASES = 2_000
MOST_TICKS = 5_000
MOST_HAND_OFFS = 5_000
MOST_REVIEWS = 1_000
MOST_FINDINGS = 100
"""Of one round."""
MOST_SEEN = 50_000
"""Files shown to earlier sessions; beyond these, orientation and ghost edits are not counted."""


class Fold:
    """Growing figures of a stream of events. Mutable.

    Its memory is bounded: sessions of a run (`MOST_SESSIONS`), points of a session (`values.SESSION_POINTS`), phases,
    commits,
    and files by name.

    Args:
        find_rates: Returns a model's prices at a time.
    """

    def __init__(self, find_rates: FindRates = find_table_rates) -> None:
        self._find_rates = find_rates
        self._turns = self._claimed = 0
        """Of all sessions that are over."""
        self._runs: list[RunTally] = []
        self._phases: dict[str, PhaseTally] = {}
        self._tools = ToolTally()
        self._ticks: deque[TickEvidence] = deque(maxlen=MOST_TICKS)
        self._reviews: deque[ReviewEvidence] = deque(maxlen=MOST_REVIEWS)
        self._hand_offs: deque[FreshStart] = deque(maxlen=MOST_HAND_OFFS)
        self._seen: set[str] = set()
        self._own_files: frozenset[str] = frozenset()
        self._session: SessionTally | None = None
        self._before: SessionFigures | None = None
        self._shown: tuple[str, ...] = ()
        self._handlers: Mapping[type[Event], Callable[[LoggedEvent, Any], None]] = {
            RunStarted: self._begin_run,
            PlanShown: self._show_plan,
            SessionStarted: self._begin_session,
            RequestStarted: self._ask,
            ToolFinished: self._end_tool,
            GateFinished: self._end_gate,
            Committed: self._commit,
            ReviewFinished: self._review,
            Noticed: self._notice,
            RunEnded: self._end_run,
        }

    def take(self, record: LoggedEvent) -> None:
        """Take the next event."""
        handle = self._handlers.get(type(record.event))
        if handle is not None:
            handle(record, record.event)
        if self._runs:
            self._runs[-1].last_at = record.at
        if self._session is not None:
            self._session.take(record)
        elif not isinstance(record.event, SessionEnded):
            self._get_run(record).take_outside(record)
        if isinstance(record.event, SessionEnded):
            self._close_session(record.event.result)

    @property
    def session(self) -> SessionFigures | None:
        """The present session; None between sessions."""
        return self._session.figures if self._session else None

    @property
    def decay(self) -> Decay | None:
        """The state of the present session's context; None between sessions."""
        return self._session.decay if self._session else None

    @property
    def figures(self) -> Figures:
        """The figures so far, with the present session."""
        runs = [run.render(None) for run in self._runs]
        if self._session is not None and self._runs:
            runs[-1] = self._runs[-1].render(self._session.figures)
        phases = [self._render_phase(phase) for phase in self._phases.values()]
        shown = [self._phases[phase_id] for phase_id in self._shown if phase_id in self._phases]
        return Figures(
            runs=tuple(runs),
            phases=tuple(phases),
            tools=self._tools.figures,
            totals=add_totals(*(run.totals for run in runs)),
            ticks=tuple(self._ticks),
            reviews=tuple(self._reviews),
            hand_offs=tuple(self._hand_offs),
            forecast=find_forecast(shown) if self._shown else None,
        )

    def _get_run(self, record: LoggedEvent) -> RunTally:
        """Return the run of an event; a log that has lost its beginning gets one."""
        if not self._runs:
            self._runs.append(RunTally(record.scope.run_id, record.at, None))
        return self._runs[-1]

    def _get_phase(self, phase_id: str) -> PhaseTally:
        found = self._phases.get(phase_id)
        if found is None:
            phase_id = phase_id if len(self._phases) < MOST_PHASES else ""
            found = self._phases.setdefault(phase_id, PhaseTally(phase_id))
        return found

    def _begin_run(self, record: LoggedEvent, event: RunStarted) -> None:
        self._close_session("")
        self._before = None
        self._runs.append(RunTally(event.run_id, record.at, event))
        name = PurePosixPath(event.plan_path)
        self._own_files = frozenset({name.name, f"{name.stem}.ledger.yaml", f"{name.stem}.ledger.jsonl"})

    def _end_run(self, record: LoggedEvent, event: RunEnded) -> None:
        self._close_session("")
        self._get_run(record).end(record.at, event)

    def _notice(self, record: LoggedEvent, event: Noticed) -> None:
        if event.warning:
            self._get_run(record).warn(event.text)

    def _review(self, record: LoggedEvent, event: ReviewFinished) -> None:
        self._reviews.append(
            ReviewEvidence(
                at=record.at,
                phase_id=event.phase_id,
                round=event.round,
                findings=event.findings[:MOST_FINDINGS],
                confirmed=event.confirmed,
            )
        )

    def _show_plan(self, _: LoggedEvent, event: PlanShown) -> None:
        if not event.changed_only:
            self._shown = tuple(phase["id"] for phase in event.phases)
        for phase in event.phases:
            self._get_phase(phase["id"]).show(phase)

    def _begin_session(self, record: LoggedEvent, event: SessionStarted) -> None:
        self._close_session("")
        self._get_run(record)
        phase = self._get_phase(event.phase_id)
        phase.title = phase.title or event.title
        phase.sessions += 1
        pace = self._turns / self._claimed if self._claimed else None
        run_id, rates = self._get_run(record).run_id, self._find_rates
        self._session = SessionTally(run_id, record.at, event, self._seen, phase, pace=pace, find_rates=rates)

    def _close_session(self, result: str) -> None:
        session = self._session
        if session is None:
            return
        self._session = None
        self._turns, self._claimed = self._turns + session.turns, self._claimed + session.claimed
        figures = session.figures
        self._runs[-1].add_session(figures)
        phase = self._get_phase(figures.phase_id)
        phase.sum.add(figures.totals)
        phase.end_session()
        phase.hand_offs += result == "handoff"
        for tool in figures.tools:
            self._tools.add(tool)
        rates = self._find_rates(figures.model, figures.began) if figures.model else None
        before = self._before
        if before is not None and (hand_off := make_hand_off(before, figures, session.orientation_tokens, rates)):
            self._hand_offs.append(hand_off)
        self._before = figures
        if len(self._seen) < MOST_SEEN:
            self._seen = self._seen | session.seen

    def _ask(self, record: LoggedEvent, _: RequestStarted) -> None:
        if self._session is not None:
            self._get_phase(record.scope.phase_id).go_on()

    def _end_tool(self, record: LoggedEvent, event: ToolFinished) -> None:
        if event.changed_paths:
            self._get_phase(record.scope.phase_id).touch(event.changed_paths, self._own_files)

    def _end_gate(self, record: LoggedEvent, event: GateFinished) -> None:
        self._get_phase(event.phase_id).end_gate(event)
        if self._session is not None and not event.baseline:
            self._session.end_gate(red=not event.passed and not event.expected)
        self._get_run(record).sum.count("gates_s", event.duration_s)

    def _commit(self, record: LoggedEvent, event: Committed) -> None:
        phase = self._get_phase(event.phase_id) if event.phase_id else None
        if phase:
            phase.commit(event)
            phase.touch((change["path"] for change in event.files), self._own_files)
        sums = [self._session.sum] if self._session else [self._get_run(record).sum, *([phase.sum] if phase else [])]
        for found in sums:
            found.count("ticks", len(event.items))
            found.count("commits", phase is not None)
        if event.items:
            self._ticks.append(
                TickEvidence(
                    at=record.at,
                    commit=event.commit,
                    subject=event.subject,
                    status=event.status,
                    phase_id=event.phase_id,
                    session_id=record.scope.session_id,
                    run_id=record.scope.run_id,
                    items=event.items,
                    texts=tuple(phase.items.get(item, "") for item in event.items) if phase else (),
                    checks=phase.checks if phase else (),
                    left=phase.left if phase else (),
                    files=tuple(event.files) if phase else (),
                )
            )

    def _render_phase(self, phase: PhaseTally) -> PhaseFigures:
        figures = phase.figures
        session = self._session
        if session is not None and session.started.phase_id == phase.phase_id:
            return replace(figures, totals=add_totals(figures.totals, session.sum.totals))
        return figures


def fold_records(records: Iterable[LoggedEvent]) -> Figures:
    """Read a stream of events, of one run or of several one after the other, to its end."""
    fold = Fold()
    for record in records:
        fold.take(record)
    return fold.figures
