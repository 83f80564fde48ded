"""The figures of one session, updated event by event, with the file parts that it was shown more than once."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from relay.base.values import dataclass
from relay.insight.figures.claims import ClaimTally
from relay.insight.figures.decay import (
    Decay,
    LayerFigures,
    Retrieved,
    TurnsLeft,
    find_history_share,
    find_signal,
    find_turns_left,
    find_turns_to_go,
)
from relay.insight.figures.tallies import (
    MOST_PARTS,
    MOST_PATHS,
    SUMMARY_CHARS,
    Composition,
    PhaseTally,
    Results,
    Sum,
    TokenSource,
    ToolTally,
    add_sources,
    has_fallen,
    name_tool_source,
)
from relay.insight.figures.values import (
    BandCounts,
    Compaction,
    CostlyResult,
    PromptPart,
    Series,
    SessionFigures,
    ToolSpan,
    TurnFigures,
    rank,
)
from relay.session.events import (
    CacheBroken,
    Event,
    GaugeCrossed,
    RelaySpoke,
    ResponseReceived,
    RetryScheduled,
    SessionEnded,
    SessionStarted,
    TextShown,
    ToolFinished,
    ToolStarted,
)
from relay.session.gauge import Band, find_band
from relay.session.layers import LAYERS, sum_layers
from relay.session.prices import Rates, find_price
from relay.session.records import LoggedEvent
from relay.session.usage import Usage, estimate_size_tokens

MOST_HANDOFF_NOTE_CHARS = 4_000
MOST_OPEN_CALLS = 1_000
"""Simultaneous calls; a log with more has lost their ends."""
_MILLION = 1_000_000


def find_table_rates(model: str, at: float) -> Rates | None:
    """Return a model's prices from relay's own table, `at` seconds since the epoch; without tiers."""
    price = find_price(model, at=datetime.fromtimestamp(at, tz=UTC).date())
    return price.rates if price else None


FindRates = Callable[[str, float], Rates | None]
"""Returns a model's prices at a time in seconds since the epoch; None if they are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """A tool result that no prompt holds yet."""

    number: int
    """1-based within the session."""
    call: ToolFinished
    summary: str
    turn: int
    duplicate: bool
    band: Band | None
    """Of the fill at its call."""


class SessionTally:
    """Growing figures of one session. Mutable.

    Args:
        known: Files that earlier sessions were shown or changed.
        phase: Its phase, which the caller keeps up to date.
        pace: Turns per claimed item of earlier sessions; None if unknown.
        find_rates: Returns a model's prices at a time.
    """

    def __init__(  # noqa: PLR0913  # one caller
        self,
        run_id: str,
        began: float,
        started: SessionStarted,
        known: Collection[str],
        phase: PhaseTally,
        *,
        pace: float | None = None,
        find_rates: FindRates = find_table_rates,
    ) -> None:
        self._run_id = run_id
        self._phase, self._claimed_before = phase, phase.claimed
        self._pace, self._find_rates = pace, find_rates
        self.started, self._began, self._known = started, began, known
        self.sum, self.tools = Sum(), ToolTally()
        self.orientation_tokens = 0
        """Tokens of what it was shown of files that earlier sessions were shown."""
        self._results = Results()
        self._numbers: dict[str, tuple[int, str]] = {}
        """Number of a call's result by the call's id, and the file that it shows."""
        self._started_files: int | None = None
        """Tokens of files that it was shown before its first change; None before that."""
        self._knows_cuts = True
        self._cut_bytes = 0
        self._composition = Composition()
        self._pending: list[_Result | None] = []
        self._claims = ClaimTally(started.claims)
        self._calls: dict[str, tuple[float, str]] = {}
        self._answers: dict[str, str] = {}
        self._explorer: tuple[int, int] | None = None
        """First and largest context of the present explorer."""
        self._spared_tokens = 0
        self._changed: set[str] = set()
        self._compactions: list[Compaction] = []
        self._turns = Series[TurnFigures](lambda point: point.fill_tokens or 0)
        self._spans = Series[ToolSpan](lambda span: span.duration_s)
        self._last: ResponseReceived | None = None
        self._last_at = began
        self._turn = self._measured = 0
        self._first_tokens: int | None = None
        self._last_tokens: int | None = None
        self._peak_tokens: int | None = None
        self._band: Band | None = None
        self._bands: dict[Band, dict[str, int]] = {}
        self._ended: tuple[float, SessionEnded] | None = None
        self._parts = tuple(PromptPart(source=part["source"], tokens=part["tokens"]) for part in started.prompt)
        self._cuts = sum_layers((part["source"], part.get("cut_tokens", 0)) for part in started.prompt)
        for part in self._parts:
            self._append(part.source, part.tokens)

    @property
    def seen(self) -> set[str]:
        """Files that it was shown or changed by name."""
        return self._results.files.keys() | self._changed

    @property
    def turns(self) -> int:
        """Turns so far."""
        return self._turn

    def take(self, record: LoggedEvent) -> None:
        """Add an event of the session."""
        handle = self._HANDLERS.get(type(record.event))
        if handle is not None:
            handle(self, record.at, record.event)

    def _take_words(self, _: float, event: RelaySpoke) -> None:
        self._append(TokenSource.RELAY, estimate_size_tokens(event.size_bytes))

    def end_gate(self, *, red: bool) -> None:
        """Add a finished gate on the session's work."""
        self._count_in_band("gates")
        self._count_in_band("red_gates", red)

    def _count_in_band(self, name: str, by: int = 1, band: Band | None = None) -> None:
        at = band or self._band
        if at is not None:
            counts = self._bands.setdefault(at, {})
            counts[name] = counts.get(name, 0) + by

    def _append(self, source: str, tokens: int, result: _Result | None = None) -> None:
        self._composition.append(source, tokens)
        self._pending.append(result)

    def _hear(self, _: float, event: TextShown) -> None:
        self._claims.hear(event.text)

    def _start_tool(self, at: float, event: ToolStarted) -> None:
        self._claims.hear(event.summary)
        if len(self._calls) < MOST_OPEN_CALLS:
            self._calls[event.call_id] = at, event.summary[:SUMMARY_CHARS]

    def _end_tool(self, at: float, event: ToolFinished) -> None:
        began, summary = self._calls.pop(event.call_id, (at - event.duration_s, ""))
        name = self.tools.name(event.name)
        self.tools.end(name, is_error=event.is_error, duration_s=event.duration_s)
        self.sum.count("calls")
        self.sum.count("errors", event.is_error)
        self._count_in_band("calls")
        self._count_in_band("errors", event.is_error)
        self.sum.count("tools_s", event.duration_s)
        if not event.is_error and event.name in _DECIDING:
            self.sum.count(_DECIDING[event.name])
        self._spans.add(
            ToolSpan(at=began, duration_s=event.duration_s, name=name, is_error=event.is_error, turn=self._turn)
        )
        number = self._note_uses(event)
        self._note_changes(event.changed_paths or ())
        self._claims.touch((event.shown.path,) if event.shown else (), event.changed_paths or ())
        duplicate = self._answers.get(event.call_sha256) == event.result_sha256
        if len(self._answers) < MOST_OPEN_CALLS:
            self._answers[event.call_sha256] = event.result_sha256
        tokens = estimate_size_tokens(event.result_bytes)
        if event.name == _EXPLORE:
            self._end_exploration(at, tokens, is_error=event.is_error)
        self._append(
            name_tool_source(name),
            tokens,
            _Result(
                number=number,
                call=event,
                summary=summary,
                turn=self._turn,
                duplicate=duplicate,
                band=self._band,
            ),
        )

    def _note_uses(self, event: ToolFinished) -> int:
        """Note what a call names of earlier results; return the number of its own."""
        self._knows_cuts = self._knows_cuts and event.cut_bytes is not None
        self._cut_bytes += event.cut_bytes or 0
        for name in event.uses:
            number, path = self._numbers.get(name, (0, name))
            self._results.name(number)
            self._results.used.add(path)
        number = int(self.sum.numbers["calls"])
        if len(self._numbers) < MOST_PARTS:
            self._numbers[event.call_id] = number, event.shown.path if event.shown else ""
        return number

    def _note_changes(self, paths: Collection[str]) -> None:
        if paths and self._started_files is None:
            self._started_files = sum(self._results.files.values())
        for path in paths:
            self._results.used.add(path)
            if path not in self._changed and len(self._changed) < MOST_PATHS:
                ghost = path in self._known and path not in self._results.files
                self.sum.count("ghost_edits", ghost)
                self._count_in_band("changed")
                self._count_in_band("ghosts", ghost)
                self._changed.add(path)

    def _answer(self, at: float, event: ResponseReceived) -> None:
        self.sum.answer(event)
        if not event.turn:
            self._answer_beside(event)
            return
        self._turn, self._last, self._last_at = event.turn, event, at
        self._band = find_band(event.fill_tokens, event.soft_tokens) or self._band
        self._count_in_band("turns")
        if event.usage is None:
            return
        rates = self._find_rates(event.model, at)
        carried = min(event.usage.prompt_tokens, self._composition.tokens)
        self.sum.count("carried_tokens", carried)
        self.sum.pay("carried_usd", None if rates is None else carried * rates.read / _MILLION)
        if spared := self._spared_tokens:
            self.sum.pay("spared_usd", None if rates is None else spared * rates.read / _MILLION)
        if event.estimated or event.stop_reason in _NOT_ANSWERED:
            add_sources(self.sum.sources, self._composition.divide(event.usage.prompt_tokens))
        else:
            self._measure(event.usage)
        noise = self._results.superseded_tokens
        self.sum.count("tax_tokens", noise)
        self.sum.pay("tax_usd", None if rates is None else noise * rates.read / _MILLION)
        self._draw(at, event, event.usage)

    def _answer_beside(self, event: ResponseReceived) -> None:
        """Count an answer that is no part of the conversation."""
        usage = event.usage or Usage()
        source = TokenSource.EXPLORE if event.query else TokenSource.OTHER
        add_sources(self.sum.sources, [(source, usage.prompt_tokens)] if event.usage else [])
        if event.query:
            self.sum.count("explored_tokens", usage.context_tokens)
            self.sum.pay("explored_usd", event.cost_usd)
            fill = event.fill_tokens or 0
            first, most = self._explorer or (fill, fill)
            self._explorer = first, max(most, fill)

    def _end_exploration(self, at: float, answer_tokens: int, *, is_error: bool) -> None:
        first, most = self._explorer or (0, 0)
        self._explorer = None
        if is_error:
            return
        self.sum.count("explored")
        if spared := max(0, most - first - answer_tokens):
            rates = self._find_rates(self._last.model, at) if self._last else None
            self._spared_tokens += spared
            # The next turn would have written it, and is charged a read below.
            self.sum.pay("spared_usd", None if rates is None else spared * (rates.write_5m - rates.read) / _MILLION)

    def _measure(self, usage: Usage) -> None:
        """Divide a prompt that the endpoint counted among its sources, and add the answer to the context."""
        before, prompt = self._composition.tokens, usage.prompt_tokens
        held = dict(self._composition.held)
        taken = self._composition.measure(prompt)
        add_sources(self.sum.sources, self._composition.held)
        if has_fallen(before, prompt):
            self._compact(held, before, prompt)
        for result, tokens in zip(self._pending, taken, strict=True):
            if result is not None:
                self._place(result, tokens)
        self._pending.clear()
        self._measured += 1
        if self._first_tokens is None:
            self._first_tokens = prompt
        self._composition.answer(usage.output_tokens, usage.thinking_tokens)
        self._last_tokens = self._composition.tokens
        self._peak_tokens = max(self._peak_tokens or 0, self._last_tokens)

    def _place(self, result: _Result, tokens: int) -> None:
        """Count a result, whose tokens the first prompt with it tells."""
        call, name = result.call, self.tools.name(result.call.name)
        self.tools.weigh(
            CostlyResult(
                tool=name, summary=result.summary, tokens=tokens, session_id=self.started.session_id, turn=result.turn
            ),
            duplicate=result.duplicate,
        )
        results = self._results
        results.place(result.number, tokens, self._turn)
        results.answer(result.number, call.call_sha256, tokens)
        if call.shown is None:
            return
        if call.shown.path in self._known and call.shown.path not in results.files:
            self.orientation_tokens += tokens
        before = results.duplicates, results.duplicate_tokens
        results.show(result.number, call.shown, call.result_sha256, tokens)
        self.sum.count("duplicate_reads", results.duplicates - before[0])
        self.sum.count("duplicate_tokens", results.duplicate_tokens - before[1])
        self._count_in_band("shown", band=result.band)
        self._count_in_band("duplicates", results.duplicates - before[0], band=result.band)

    def _compact(self, held: Mapping[str, int], before: int, after: int) -> None:
        now = self._composition.held
        dropped = {source: max(0, tokens - now.get(source, 0)) for source, tokens in held.items()}
        self._compactions.append(
            Compaction(turn=self._turn, before_tokens=before, after_tokens=after, dropped=rank(dropped))
        )
        self._results.drop()

    def _draw(self, at: float, event: ResponseReceived, usage: Usage) -> None:
        self._turns.add(
            TurnFigures(
                at=at,
                turn=event.turn,
                prompt_tokens=usage.prompt_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                output_tokens=usage.output_tokens,
                fill_tokens=event.fill_tokens,
                soft_tokens=event.soft_tokens,
                hard_tokens=event.hard_tokens,
                band=find_band(event.fill_tokens, event.soft_tokens),
                cost_usd=event.cost_usd,
            )
        )

    def _cross(self, _: float, event: GaugeCrossed) -> None:
        self.sum.count("crossings", event.line == "soft")

    def _retry(self, _: float, event: RetryScheduled) -> None:
        self.sum.retry(event)

    def _break_cache(self, _: float, __: CacheBroken) -> None:
        self.sum.count("cache_breaks")

    def _end(self, at: float, event: SessionEnded) -> None:
        self._ended = at, event

    @property
    def figures(self) -> SessionFigures:
        """The figures so far."""
        started, last = self.started, self._last
        ended_at, ended = self._ended or (None, None)
        return SessionFigures(
            run_id=self._run_id,
            session_id=started.session_id,
            phase_id=started.phase_id,
            title=started.title,
            number=started.number,
            tries=started.tries,
            reason=started.reason,
            model=last.model if last else "",
            runner=started.runner,
            began=self._began,
            ended=ended_at,
            end=ended.end.value if ended else "",
            result=ended.result if ended else "",
            detail=ended.detail if ended else "",
            totals=self.sum.totals,
            parts=self._parts,
            handoff_note=started.handoff_note[:MOST_HANDOFF_NOTE_CHARS],
            first_tokens=self._first_tokens,
            last_tokens=self._last_tokens,
            peak_tokens=self._peak_tokens,
            soft_tokens=last.soft_tokens if last else None,
            hard_tokens=last.hard_tokens if last else None,
            window_tokens=last.window_tokens if last else None,
            held=rank(self._composition.held) if self._measured else (),
            decay=self.decay,
            layers=self._list_layers() if self._measured else (),
            compactions=tuple(self._compactions),
            series=self._turns.points,
            spans=self._spans.points,
            tools=self.tools.figures,
            bands=tuple(BandCounts(band=band, **counts) for band, counts in self._bands.items()),
            trial=started.trial,
            rungs=started.rungs,
            seen_paths=len(self.seen),
            claims=self._claims.uses,
        )

    @property
    def claimed(self) -> int:
        """Items that it claimed."""
        return len(self._phase.claimed - self._claimed_before)

    @property
    def decay(self) -> Decay:
        """The state of its context at its last answer."""
        context, first = self._last_tokens, self._first_tokens
        line = self._last.soft_tokens if self._last else 0
        history = None if context is None or first is None else max(0, context - first)
        unused = self._results.find_unused_tokens(self._turn + (self._ended is not None))
        superseded, growth, course = self._results.superseded_tokens, self._find_growth(), self._find_course()
        fresh = (first or 0) + (
            sum(self._results.files.values()) if self._started_files is None else self._started_files
        )
        to_go = self._find_turns_to_go()
        return Decay(
            history_tokens=history,
            history_share=None if history is None or first is None else find_history_share(history, first, line),
            distance_tokens=None
            if context is None
            else context - sum(self._composition.held.get(source, 0) for source in _IN_FRONT),
            growth_tokens=growth,
            turns_left=None if context is None else find_turns_left(context, line, growth),
            superseded_tokens=superseded,
            unused_tokens=unused,
            cut_tokens=self._find_cut_tokens(),
            signal=None if history is None else find_signal(history, superseded + unused),
            retrieved=self._list_retrieved(),
            turns_to_go=to_go,
            go_on_usd=course.cost_usd(context) if course and context is not None else None,
            hand_over_usd=course.restart_usd(fresh) if course else None,
        )

    def _find_turns_to_go(self) -> int | None:
        claimed, open_items = self.claimed, self._phase.open_items
        if not self._phase.items:
            return None
        return find_turns_to_go(len(open_items - self._phase.claimed), self._turn / claimed if claimed else self._pace)

    def _find_course(self) -> TurnsLeft | None:
        """Return the turns to the phase's likely end; None if one of its figures is unknown, or nothing is left."""
        turns, growth, last = self._find_turns_to_go(), self._find_growth(), self._last
        rates = self._find_rates(last.model, self._last_at) if last else None
        if not turns or growth is None or rates is None:
            return None
        output = self.sum.spent.usage.output_tokens / self._measured
        return TurnsLeft(turns=turns, growth_tokens=growth, output_tokens=output, rates=rates)

    def _list_retrieved(self) -> tuple[Retrieved, ...]:
        results, claims = self._results, self._claims.uses
        preloads = [f"preload {path}" for path in self.started.preloads]
        preloaded = sum(part.tokens for part in self._parts if part.source == TokenSource.PRELOAD)

        def count(kind: str, names: Collection[str], tokens: int) -> Retrieved:
            used = sum(name in results.used for name in names)
            return Retrieved(kind=kind, shown=len(names), used=used, tokens=tokens)

        used_claims, claim_tokens = sum(claim.used for claim in claims), sum(claim.tokens for claim in claims)
        found = (
            count("file", results.files, sum(results.files.values())),
            Retrieved(kind="ledger", shown=len(claims), used=used_claims, tokens=claim_tokens),
            count("preload", preloads, preloaded),
        )
        return tuple(one for one in found if one.shown)

    def _list_layers(self) -> tuple[LayerFigures, ...]:
        held, whole = sum_layers(self._composition.held), self._composition.tokens
        line = self._last.soft_tokens if self._last else 0
        mosts = {part["source"]: most for part in self.started.prompt if (most := part.get("most_tokens"))}
        cuts: dict[str, int | None] = {**self._cuts, "results": self._find_cut_tokens()}
        return tuple(
            LayerFigures(
                name=layer.name,
                tokens=held[layer.name],
                share=held[layer.name] / whole if whole else 0.0,
                most_tokens=mosts.get(layer.name) or layer.find_most(line),
                cut_tokens=cuts[layer.name],
            )
            for layer in LAYERS
        )

    def _find_cut_tokens(self) -> int | None:
        return estimate_size_tokens(self._cut_bytes) if self._knows_cuts else None

    def _find_growth(self) -> float | None:
        if self._measured < 2 or self._first_tokens is None or self._last_tokens is None:  # noqa: PLR2004  # two points
            return None
        growth = (self._last_tokens - self._first_tokens) / self._measured
        return growth if growth > 0 else None

    # In the class: a dict of bound methods in each object would be a reference cycle.
    _HANDLERS: ClassVar[Mapping[type[Event], Callable[[Any, float, Any], None]]] = {
        RelaySpoke: _take_words,
        TextShown: _hear,
        ToolStarted: _start_tool,
        ToolFinished: _end_tool,
        ResponseReceived: _answer,
        GaugeCrossed: _cross,
        RetryScheduled: _retry,
        CacheBroken: _break_cache,
        SessionEnded: _end,
    }


_EXPLORE = "explore"
_NOT_ANSWERED = frozenset({"cut", "lost"})
_IN_FRONT = (TokenSource.SYSTEM, TokenSource.TOOLS, TokenSource.RULES)
_DECIDING = {"record": "records", "amend": "amendments"}
