"""The figures of one session (leg), updated event by event, with the file parts that it was shown more than once."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from relay.base.values import dataclass
from relay.insight.figures.claims import ClaimTally
from relay.insight.figures.tallies import (
    SUMMARY_CHARS,
    Composition,
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
    LegFigures,
    PromptPart,
    Series,
    ToolSpan,
    TurnFigures,
    rank,
)
from relay.session.events import (
    CacheBroken,
    CacheRefreshed,
    Event,
    GaugeCrossed,
    LegEnded,
    LegStarted,
    RelaySpoke,
    ResponseReceived,
    RetryScheduled,
    TextShown,
    ToolFinished,
    ToolStarted,
)
from relay.session.gauge import Band, find_band
from relay.session.prices import Rates, find_price
from relay.session.records import LoggedEvent
from relay.session.usage import Usage, estimate_size_tokens
from relay.session.values import Shown

MOST_PARTS = 5_000
"""Parts of files that are remembered per session; older ones are forgotten and count as no noise."""
MOST_PATHS = 20_000
"""Files that are remembered by name."""


@dataclass(slots=True, kw_only=True)
class _Excerpt:
    """A part of a file in the context. Mutable: it is superseded once."""

    first: int
    last: int
    sha256: str
    tokens: int
    superseded: bool = False


class Reads:
    """The reads of one session. Mutable.

    A result is superseded by a later one that shows the same part again (even if the file has changed). The result of a
    failed call is superseded by the same call made again. The second page of a file supersedes nothing of the first.
    """

    def __init__(self) -> None:
        self.noise_tokens = 0
        """Superseded tokens that are in context."""
        self.duplicates = 0
        self.duplicate_tokens = 0
        self.shown: set[str] = set()
        """Files that the session was shown a part of."""
        self._parts: dict[str, list[_Excerpt]] = {}
        self._count = 0
        self._failed: dict[tuple[str, str], int] = {}

    def show(self, shown: Shown, sha256: str, tokens: int) -> None:
        """Add a part of a file."""
        if len(self.shown) < MOST_PATHS:
            self.shown.add(shown.path)
        parts = self._parts.setdefault(shown.path, [])
        for part in parts:
            if part.superseded or not shown.first_line <= part.first <= part.last <= shown.last_line:
                continue
            part.superseded = True
            self.noise_tokens += part.tokens
            if (part.first, part.last, part.sha256) == (shown.first_line, shown.last_line, sha256):
                self.duplicates += 1
                self.duplicate_tokens += tokens
        parts[:] = [part for part in parts if not part.superseded]
        parts.append(_Excerpt(first=shown.first_line, last=shown.last_line, sha256=sha256, tokens=tokens))
        self._count += 1
        if self._count > MOST_PARTS:
            self._forget()

    def answer(self, signature: tuple[str, str], *, is_error: bool, tokens: int) -> None:
        """Add the result of a call."""
        self.noise_tokens += self._failed.pop(signature, 0)
        if is_error and len(self._failed) < MOST_PARTS:
            self._failed[signature] = tokens

    def drop(self) -> None:
        """Forget the context: it was compacted."""
        self.noise_tokens = 0
        self._failed.clear()
        self._forget()

    def _forget(self) -> None:
        self._parts.clear()
        self._count = 0


MOST_BATON_CHARS = 4_000
MOST_OPEN_CALLS = 1_000
"""Simultaneous calls; a log with more has lost their ends."""
_MILLION = 1_000_000


def find_table_rates(model: str, at: float) -> Rates | None:
    """Return a model's prices from relay's own table, `at` seconds since the epoch; without tiers."""
    price = find_price(model, at=datetime.fromtimestamp(at, tz=UTC).date())
    return price.rates if price else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """A tool result that no prompt holds yet."""

    call: ToolFinished
    summary: str
    turn: int
    duplicate: bool
    band: Band | None
    """Of the fill at its call."""


class LegTally:
    """Growing figures of one session. Mutable.

    Args:
        known: Files that earlier sessions were shown or changed.
    """

    def __init__(self, run_id: str, began: float, started: LegStarted, known: Collection[str]) -> None:
        self._run_id = run_id
        self.started = started
        self._began = began
        self._known = known
        self.sum = Sum()
        self.tools = ToolTally()
        self.orientation_tokens = 0
        """Tokens of what it was shown of files that earlier sessions were shown."""
        self._reads = Reads()
        self._composition = Composition()
        self._pending: list[_Result | None] = []
        self._claims = ClaimTally(started.claims)
        self._calls: dict[str, tuple[float, str]] = {}
        self._answers: dict[tuple[str, str], str] = {}
        self._explorer: tuple[int, int] | None = None
        """First and largest context of the present explorer."""
        self._spared_tokens = 0
        self._changed: set[str] = set()
        self._compactions: list[Compaction] = []
        self._turns = Series[TurnFigures](lambda point: point.fill_tokens or 0)
        self._spans = Series[ToolSpan](lambda span: span.duration_s)
        self._last: ResponseReceived | None = None
        self._turn = self._measured = 0
        self._first_tokens: int | None = None
        self._last_tokens: int | None = None
        self._peak_tokens: int | None = None
        self._signal: float | None = None
        self._band: Band | None = None
        self._bands: dict[Band, dict[str, int]] = {}
        self._ended: tuple[float, LegEnded] | None = None
        self._parts = tuple(PromptPart(source=part["source"], tokens=part["tokens"]) for part in started.prompt)
        for part in self._parts:
            self._append(part.source, part.tokens)

    @property
    def seen(self) -> set[str]:
        """Files that it was shown or changed by name."""
        return self._reads.shown | self._changed

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
        self._note_changes(event.changed_paths or ())
        self._claims.touch((event.shown.path,) if event.shown else (), event.changed_paths or ())
        signature = name, summary
        duplicate = bool(event.result_sha256) and self._answers.get(signature) == event.result_sha256
        if len(self._answers) < MOST_OPEN_CALLS:
            self._answers[signature] = event.result_sha256
        tokens = estimate_size_tokens(event.result_bytes or 0)
        if event.name == _EXPLORE:
            self._end_exploration(at, tokens, is_error=event.is_error)
        self._append(
            name_tool_source(name),
            tokens,
            _Result(call=event, summary=summary, turn=self._turn, duplicate=duplicate, band=self._band),
        )

    def _note_changes(self, paths: Collection[str]) -> None:
        for path in paths:
            if path not in self._changed and len(self._changed) < MOST_PATHS:
                ghost = path in self._known and path not in self._reads.shown
                self.sum.count("ghost_edits", ghost)
                self._count_in_band("changed")
                self._count_in_band("ghosts", ghost)
                self._changed.add(path)

    def _answer(self, at: float, event: ResponseReceived) -> None:
        self.sum.answer(event)
        if not event.turn:
            self._answer_beside(event)
            return
        self._turn, self._last = event.turn, event
        self._band = find_band(event.fill_tokens, event.soft_tokens) or self._band
        self._count_in_band("turns")
        if event.usage is None:
            return
        rates = find_table_rates(event.model, at)
        carried = min(event.usage.prompt_tokens, self._composition.tokens)
        self.sum.count("carried_tokens", carried)
        self.sum.pay("carried_usd", None if rates is None else carried * rates.read / _MILLION)
        if spared := self._spared_tokens:
            self.sum.pay("spared_usd", None if rates is None else spared * rates.read / _MILLION)
        if event.estimated or event.stop_reason in _NOT_ANSWERED:
            add_sources(self.sum.sources, self._composition.divide(event.usage.prompt_tokens))
        else:
            self._measure(event.usage)
        noise = self._reads.noise_tokens
        self.sum.count("tax_tokens", noise)
        self.sum.pay("tax_usd", None if rates is None else noise * rates.read / _MILLION)
        self._draw(at, event, event.usage, noise)

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
            rates = find_table_rates(self._last.model, at) if self._last else None
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
        self._reads.answer((name, result.summary), is_error=call.is_error, tokens=tokens)
        if call.shown is not None:
            if call.shown.path in self._known and call.shown.path not in self._reads.shown:
                self.orientation_tokens += tokens
            before = self._reads.duplicates, self._reads.duplicate_tokens
            self._reads.show(call.shown, call.result_sha256, tokens)
            self.sum.count("duplicate_reads", self._reads.duplicates - before[0])
            self.sum.count("duplicate_tokens", self._reads.duplicate_tokens - before[1])
            self._count_in_band("shown", band=result.band)
            self._count_in_band("duplicates", self._reads.duplicates - before[0], band=result.band)

    def _compact(self, held: Mapping[str, int], before: int, after: int) -> None:
        now = self._composition.held
        dropped = {source: max(0, tokens - now.get(source, 0)) for source, tokens in held.items()}
        self._compactions.append(
            Compaction(turn=self._turn, before_tokens=before, after_tokens=after, dropped=rank(dropped))
        )
        self._reads.drop()

    def _draw(self, at: float, event: ResponseReceived, usage: Usage, noise: int) -> None:
        room = usage.prompt_tokens - (self._first_tokens or usage.prompt_tokens)
        self._signal = 1 - min(1.0, noise / room) if room > 0 else None
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
                noise_tokens=noise,
                signal=self._signal,
            )
        )

    def _cross(self, _: float, event: GaugeCrossed) -> None:
        self.sum.count("crossings", event.line == "soft")

    def _retry(self, _: float, event: RetryScheduled) -> None:
        self.sum.retry(event)

    def _break_cache(self, _: float, __: CacheBroken) -> None:
        self.sum.count("cache_breaks")

    def _refresh_cache(self, _: float, event: CacheRefreshed) -> None:
        self.sum.refresh(event)
        add_sources(self.sum.sources, self._composition.divide(event.usage.prompt_tokens))

    def _end(self, at: float, event: LegEnded) -> None:
        self._ended = at, event

    @property
    def figures(self) -> LegFigures:
        """The figures so far."""
        started, last = self.started, self._last
        ended_at, ended = self._ended or (None, None)
        growth = self._find_growth()
        return LegFigures(
            run_id=self._run_id,
            session_id=started.session_id,
            phase_id=started.phase_id,
            title=started.title,
            leg=started.leg,
            attempt=started.attempt,
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
            baton=started.baton[:MOST_BATON_CHARS],
            first_tokens=self._first_tokens,
            last_tokens=self._last_tokens,
            peak_tokens=self._peak_tokens,
            soft_tokens=last.soft_tokens if last else None,
            hard_tokens=last.hard_tokens if last else None,
            window_tokens=last.window_tokens if last else None,
            held=rank(self._composition.held) if self._measured else (),
            noise_tokens=self._reads.noise_tokens,
            signal=self._signal,
            growth_tokens=growth,
            turns_left=_find_turns_left(last, self._last_tokens, growth),
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
        CacheRefreshed: _refresh_cache,
        LegEnded: _end,
    }


def _find_turns_left(last: ResponseReceived | None, last_tokens: int | None, growth: float | None) -> int | None:
    if last is None or last_tokens is None or growth is None:
        return None
    return int(max(0, last.soft_tokens - last_tokens) // growth)


_EXPLORE = "explore"
_NOT_ANSWERED = frozenset({"cut", "lost"})
_DECIDING = {"record": "records", "amend": "amendments"}
