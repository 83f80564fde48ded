"""What a relay would have done with a conversation: fresh sessions instead of a context that only grows."""

from collections import Counter

from relay.base.values import dataclass
from relay.insight.transcripts.teller import MAIN
from relay.session.events import LegStarted, ResponseReceived
from relay.session.gauge import Band, find_band
from relay.session.prices import Rates
from relay.session.records import LoggedEvent
from relay.session.usage import Usage

LEAST_ORIENTATION_TOKENS, MOST_ORIENTATION_TOKENS = 5_000, 30_000
"""What a fresh session reads before it goes on, at best and at worst."""
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One way through the same turns."""

    resets: int = 0
    peak_tokens: int = 0
    """The most that a context held."""
    prompt_tokens: int = 0
    """Of all prompts together."""
    usd: float | None = 0.0
    """None when the price of a model is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """The conversation as it was, and as a relay would have had it, by the same model of the cache."""

    line_tokens: int | None
    """Where a relay resets; None where there was no turn."""
    was: Course
    least: Course
    """With fresh sessions that have little to read."""
    most: Course
    """With fresh sessions that read much."""
    bands: tuple[tuple[Band, int], ...]
    """Turns of the conversation in each band, emptiest first: of the fill as it was, relative to a relay's line."""


class _CourseTally:
    """Adds up one way. Mutable.

    Args:
        orientation_tokens: What a fresh session reads; None: there are no resets, contexts are as they were.
    """

    def __init__(self, orientation_tokens: int | None) -> None:
        self._orientation = orientation_tokens
        self.context = 0
        self._resets = self._peak = self._prompts = 0
        self._usd: float | None = 0.0

    @property
    def way(self) -> Course:
        """What it comes to so far."""
        return Course(resets=self._resets, peak_tokens=self._peak, prompt_tokens=self._prompts, usd=self._usd)

    def go(self, usage: Usage, rates: Rates | None, *, prompt: int, read: int) -> None:
        """Take a turn whose prompt comes from the cache up to `read` tokens."""
        self._prompts += prompt
        self.context = prompt + usage.output_tokens
        self._peak = max(self._peak, self.context)
        if rates is None or self._usd is None:
            self._usd = None
            return
        written = prompt - read
        cost = read * rates.read + written * rates.write_5m + usage.output_tokens * rates.output
        self._usd += cost / _MILLION

    def relay(self, usage: Usage, rates: Rates | None, *, new: int, first: int, line: int) -> None:
        """Take a turn that adds `new` tokens, in a fresh session where the context has reached the line."""
        if self.context >= line:
            self._resets += 1
            self.go(usage, rates, prompt=first + (self._orientation or 0) + new, read=0)
        else:
            self.go(usage, rates, prompt=self.context + new, read=self.context)


class RelayedTally:
    """Follows a conversation turn by turn. Mutable.

    With P(i) and O(i) the prompt and the output of turn i as the endpoint counted them, C(i) = P(i) + O(i) its context,
    and B = P(1) the fixed prefix (system, tools, task), turn i brings N(i) = max(0, P(i) - C(i - 1)) new tokens, and
    none where it follows a compaction: there the summary stands for what a relay has in its plan and baton. Then

        as it was:  cost = C(i - 1) * read + N(i) * write + O(i) * output
                    after a compaction: B * read + (P(i) - B) * write + O(i) * output
        a relay:    S(i) = S(i - 1) + N(i) + O(i), at the same prices; where S(i - 1) >= line, a fresh session:
                    S(i) = B + orientation + N(i) + O(i), all of its prompt written anew

    for prices of the model per token and writes for five minutes. Both have a cache that never breaks, so both are less
    than what was billed. It leans against the relay: its prefix would be warm, and the requests that made summaries,
    each as long as the context, are in no transcript. What a fresh session reads is not known, hence a range. It breaks
    even after 12.5 * (B + orientation) / (C - B - orientation) turns, with writes at 1.25 and reads at 0.1 of the
    price of input.

    Sources: prompt caching's price multiples of the provider; the line is relay's default for the model.
    """

    def __init__(self) -> None:
        self._was = _CourseTally(None)
        self._ways = (_CourseTally(LEAST_ORIENTATION_TOKENS), _CourseTally(MOST_ORIENTATION_TOKENS))
        self._inside = self._fresh = False
        self._bands = Counter[Band]()
        self._first: int | None = None
        self._line: int | None = None

    def take(self, record: LoggedEvent, rates: Rates | None) -> None:
        """Take the next event.

        Args:
            record: Of whatever context; sub-agents are passed over, a relay has none.
            rates: What the tokens of an answer cost; None when unknown.
        """
        event = record.event
        if isinstance(event, LegStarted):
            self._inside, self._fresh = event.phase_id == MAIN, True
        elif isinstance(event, ResponseReceived) and event.usage is not None and self._inside:
            self._turn(event.usage, rates, event.soft_tokens)
            self._fresh = False
            if band := find_band(event.fill_tokens, event.soft_tokens):
                self._bands[band] += 1

    @property
    def figures(self) -> Relayed:
        """What it comes to so far."""
        least, most = self._ways
        bands = tuple((band, self._bands[band]) for band in Band)
        return Relayed(line_tokens=self._line, was=self._was.way, least=least.way, most=most.way, bands=bands)

    def _turn(self, usage: Usage, rates: Rates | None, line: int) -> None:
        prompt, before = usage.prompt_tokens, self._was.context
        self._line = line
        if self._first is None:
            self._first = prompt
            for walk in (self._was, *self._ways):
                walk.go(usage, rates, prompt=prompt, read=0)
            return
        first = self._first
        new = 0 if self._fresh else max(0, prompt - before)
        self._was.go(usage, rates, prompt=prompt, read=min(prompt, first if self._fresh else before))
        for walk in self._ways:
            walk.relay(usage, rates, new=new, first=first, line=line)
