"""Growing counts, each with a bound: of sums, tools, the log, a phase, and the composition of prompts by source.

A source's tokens are estimated by size and scaled to the count of the endpoint.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from relay.base.values import dataclass
from relay.insight.figures.values import (
    MONEY,
    CheckEvidence,
    CostlyResult,
    PhaseFigures,
    PhaseWork,
    ToolFigures,
    Totals,
    rank,
)
from relay.session.events import (
    Committed,
    GateFinished,
    LeftFile,
    ResponseReceived,
    RetryScheduled,
    ShownPhase,
)
from relay.session.recall import LARGE_TOKENS
from relay.session.usage import Spent, Usage, add_usd
from relay.session.values import Shown

MOST_SCALE = 2
"""An estimate by size is at most so much too small: further tokens are of unknown source."""
LEAST_SCALE = 0.5
"""An estimate is at most so much too large: if less was added, thinking was taken out of the prompt."""
FALL_SHARE = 0.25
FALL_TOKENS = 10_000
"""A prompt that is smaller than the context before it by both was compacted or cleared."""


class TokenSource(StrEnum):
    """The source of tokens in a prompt; results of a tool are ``tool <name>``."""

    SYSTEM = "system"
    """Role and protocol."""
    TOOLS = "tools"
    """The descriptions of the tools."""
    RULES = "rules"
    PLAN = "plan"
    """The plan around the phase."""
    PHASE = "phase"
    """The phase, with its notes."""
    HANDOFF_NOTE = "handoff_note"
    """The handoff note of the session before."""
    LEDGER = "ledger"
    PRELOAD = "preload"
    """Files that relay put into the first message."""
    ENVIRONMENT = "environment"
    """Facts about branch and sandbox, red verify commands, stale files."""
    REVIEW = "review"
    """Findings that reviewers confirmed."""
    STEERING = "steering"
    """Messages of a person to the sessions before."""
    RELAY = "relay"
    """relay's messages in mid-session: reminders, notices, the report of a red gate."""
    ASSISTANT = "assistant"
    """The model's answers: words and calls."""
    THINKING = "thinking"
    EXPLORE = "explore"
    """Prompts of explorers, whole."""
    OTHER = "other"
    """Tokens that the endpoint counted and no event explains; all of a first prompt in the logs of other programs."""


def name_tool_source(tool: str) -> str:
    """Return the source of a tool's results."""
    return f"tool {tool}"


class Composition:
    """The context of one session, by source. Mutable: follows it turn by turn.

    The first prompt is divided by the estimated sizes of its parts. Every later one is the context before it, the
    answer as the endpoint counted it, and the parts appended since, which take the rest. So the sources of a prompt
    always add up to the endpoint's count.
    """

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        """Tokens in context after the last answer."""
        self._pending: list[tuple[str, int]] = []

    @property
    def tokens(self) -> int:
        """Their sum."""
        return sum(self.held.values())

    def append(self, source: str, estimate_tokens: int) -> None:
        """Note a part that is new in the next prompt."""
        self._pending.append((source, max(0, estimate_tokens)))

    def measure(self, prompt_tokens: int) -> tuple[int, ...]:
        """Take the endpoint's count of a prompt.

        Returns:
            The tokens of each appended part, in order.
        """
        estimates = [estimate for _, estimate in self._pending]
        room = prompt_tokens - self.tokens
        room += self._take_thinking(min(sum(estimates), int(sum(estimates) * LEAST_SCALE) + 1) - room)
        if room < 0:
            return self._shrink(prompt_tokens)
        taken = share(min(room, MOST_SCALE * sum(estimates)), estimates)
        self._add(TokenSource.OTHER, room - sum(taken))
        return self._take(taken)

    def divide(self, prompt_tokens: int) -> Mapping[str, int]:
        """Divide a prompt without a count in the proportions of the context; the sum is `prompt_tokens`."""
        weights = dict(self.held)
        for source, estimate in self._pending:
            weights[source] = weights.get(source, 0) + estimate
        known = {source: weight for source, weight in weights.items() if weight}
        if not known:
            return {TokenSource.OTHER: prompt_tokens} if prompt_tokens else {}
        return dict(zip(known, share(prompt_tokens, list(known.values())), strict=True))

    def answer(self, output_tokens: int, thinking_tokens: int) -> None:
        """Add an answer, which is part of the next prompt."""
        thinking = min(max(0, thinking_tokens), output_tokens)
        self._add(TokenSource.THINKING, thinking)
        self._add(TokenSource.ASSISTANT, output_tokens - thinking)

    def _add(self, source: str, tokens: int) -> None:
        if tokens:
            self.held[source] = self.held.get(source, 0) + tokens

    def _take_thinking(self, missing: int) -> int:
        """Take thinking out of the context, as endpoints do with that of earlier turns; return the tokens."""
        taken = min(max(0, missing), self.held.get(TokenSource.THINKING, 0))
        self._add(TokenSource.THINKING, -taken)
        return taken

    def _shrink(self, prompt_tokens: int) -> tuple[int, ...]:
        """Divide a prompt that is smaller than the context before it: every source shrinks in proportion."""
        sources = list(self.held)
        weights = [self.held[source] for source in sources] + [estimate for _, estimate in self._pending]
        parts = share(prompt_tokens, weights)
        self.held = dict(zip(sources, parts, strict=False))
        return self._take(parts[len(sources) :])

    def _take(self, taken: tuple[int, ...]) -> tuple[int, ...]:
        """Move the pending parts into the context with these tokens; return the tokens."""
        for (source, _), tokens in zip(self._pending, taken, strict=True):
            self._add(source, tokens)
        self._pending.clear()
        return taken


def add_sources(totals: dict[str, int], found: Mapping[str, int] | Iterable[tuple[str, int]]) -> None:
    """Add tokens by source to others."""
    for source, tokens in found.items() if isinstance(found, Mapping) else found:
        totals[source] = totals.get(source, 0) + tokens


def has_fallen(before_tokens: int, prompt_tokens: int) -> bool:
    """Return whether a context was compacted or cleared; relative, so that small windows count as well.

    Source: an absolute fall of 50,000, as ContextSpectre has it, never fires in a window below 100,000.
    """
    fall = before_tokens - prompt_tokens
    return fall > FALL_SHARE * before_tokens and fall > FALL_TOKENS


def share(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Divide a whole number by weights; the parts add up to it, by largest remainder, the first of equals first.

    Args:
        total: At least 0.
        weights: None below 0; if all are 0 the parts are as equal as they can be.

    Returns:
        One part per weight.
    """
    if not weights:
        return ()
    whole = sum(weights)
    if not whole:
        return share(total, [1] * len(weights))
    parts = [total * weight // whole for weight in weights]
    rest = total - sum(parts)
    if rest:
        order = sorted(range(len(weights)), key=lambda n: (-(total * weights[n] % whole), n))
        for n in order[:rest]:
            parts[n] += 1
    return tuple(parts)


COSTLIEST = 10
"""Results that are kept per tool."""
MOST_TOOLS = 200
"""Tools with figures of their own; further names of a hostile log are one tool, ``(others)``."""
KEPT_WARNINGS = 100
OTHERS = "(others)"
SUMMARY_CHARS = 200


class Sum:
    """Growing `Totals`. Mutable."""

    def __init__(self) -> None:
        self.spent = Spent()
        self.sources: dict[str, int] = {}
        self.numbers: dict[str, float] = {}
        self.usd: dict[str, float | None] = dict.fromkeys(MONEY, 0.0)

    def count(self, name: str, by: float = 1) -> None:
        """Add to a number of `Totals`, or to its seconds."""
        self.numbers[name] = self.numbers.get(name, 0) + by

    def answer(self, event: ResponseReceived) -> None:
        """Add a response."""
        self.spent += Spent(usage=event.usage or Usage(), cost_usd=event.cost_usd, estimated=event.estimated)
        self.count("turns")
        self.count("unknown_turns", event.usage is None)
        self.count("answer_s", event.duration_s)

    def retry(self, event: RetryScheduled) -> None:
        """Add a wait before a retry."""
        self.count("retries", event.attempt > 0)
        self.count("retries_s", event.wait_s)

    def pay(self, name: str, usd: float | None) -> None:
        """Add to a sum of money of `Totals`; unknown stays unknown."""
        self.usd[name] = add_usd(self.usd[name], usd)

    def add(self, totals: Totals) -> None:
        """Add other totals."""
        self.spent += totals.spent
        add_sources(self.sources, totals.sources)
        for name in MONEY:
            self.pay(name, getattr(totals, name))
        for name in _NUMBERS:
            self.count(name, getattr(totals, name))

    @property
    def totals(self) -> Totals:
        """The sums so far."""
        # The keys of these dicts are fields of `Totals`; a typo would raise.
        return replace(Totals(spent=self.spent, sources=rank(self.sources)), **self.numbers, **self.usd)  # type: ignore[arg-type]


_NUMBERS = tuple(name for name in Totals.__dataclass_fields__ if name not in {"spent", "sources", *MONEY})


def add_totals(*found: Totals) -> Totals:
    """Add up."""
    total = Sum()
    for totals in found:
        total.add(totals)
    return total.totals


_ADDED = ("calls", "errors", "duration_s", "result_tokens", "duplicates", "duplicate_tokens")
"""Figures of a tool that add up."""


class ToolTally:
    """Growing figures of tools. Mutable."""

    def __init__(self) -> None:
        self._figures: dict[str, ToolFigures] = {}

    def name(self, tool: str) -> str:
        """Return the name that a tool is counted under."""
        return tool if tool in self._figures or len(self._figures) < MOST_TOOLS else OTHERS

    def end(self, tool: str, *, is_error: bool, duration_s: float) -> None:
        """Count a call."""
        self.add(ToolFigures(name=tool, calls=1, errors=int(is_error), duration_s=duration_s))

    def weigh(self, result: CostlyResult, *, duplicate: bool) -> None:
        """Add the tokens of a result, once they are known."""
        self.add(
            ToolFigures(
                name=result.tool,
                result_tokens=result.tokens,
                duplicates=int(duplicate),
                duplicate_tokens=result.tokens * duplicate,
                costliest=(result,),
            )
        )

    def add(self, figures: ToolFigures) -> None:
        """Add other figures."""
        name = self.name(figures.name)
        own = self._figures.get(name) or ToolFigures(name=name)
        sums = {field: getattr(own, field) + getattr(figures, field) for field in _ADDED}
        kept = sorted((*own.costliest, *figures.costliest), key=lambda result: -result.tokens)  # the first of equals
        self._figures[name] = replace(own, **sums, costliest=tuple(kept[:COSTLIEST]))

    @property
    def figures(self) -> tuple[ToolFigures, ...]:
        """All tools, most tokens first."""
        return tuple(sorted(self._figures.values(), key=lambda tool: (-tool.result_tokens, -tool.calls, tool.name)))


MOST_PARTS = 5_000
"""Parts of files that are remembered per session; older ones are forgotten and count as no noise."""
MOST_PATHS = 20_000
"""Files of a session or a phase that are remembered by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Excerpt:
    """A part of a file in the context."""

    first: int
    last: int
    sha256: str
    tokens: int
    number: int
    """Of its result."""


class Results:
    """The results that one session has in its context. Mutable.

    A result is superseded by that of the same call made again, whatever it answers, and by one that shows the same part
    of a file; the second page of a file supersedes nothing of the first. Of the rest, large results are unused until a
    later call names a part of them.
    """

    def __init__(self) -> None:
        self.superseded_tokens = 0
        self.duplicates = 0
        self.duplicate_tokens = 0
        self.files: dict[str, int] = {}
        """Files that the session was shown a part of, with the tokens of all parts."""
        self.used: set[str] = set()
        """Names of files, claims and preloads that a later call named or changed."""
        self._parts: dict[str, list[_Excerpt]] = {}
        self._count = 0
        self._answers: dict[str, tuple[int, int]] = {}
        """Number and tokens of the last result of each call."""
        self._superseded: set[int] = set()
        self._unused: dict[int, tuple[int, int]] = {}
        """Tokens of each large result that no call has named, and the turn that first had it in its prompt."""
        self._named: set[int] = set()

    def find_unused_tokens(self, turn: int) -> int:
        """Return the tokens of large results that were in a prompt before this turn's, and that no call has named."""
        return sum(tokens for tokens, since in self._unused.values() if since < turn)

    def place(self, number: int, tokens: int, turn: int) -> None:
        """Add a result to the context."""
        if tokens > LARGE_TOKENS and number not in self._named and len(self._unused) < MOST_PARTS:
            self._unused[number] = tokens, turn

    def name(self, number: int) -> None:
        """Note that a later call names a part of a result."""
        self._named.add(number)
        self._unused.pop(number, None)

    def show(self, number: int, shown: Shown, sha256: str, tokens: int) -> None:
        """Add a part of a file."""
        if shown.path in self.files or len(self.files) < MOST_PATHS:
            self.files[shown.path] = self.files.get(shown.path, 0) + tokens
        kept: list[_Excerpt] = []
        for part in self._parts.get(shown.path, ()):
            if not shown.first_line <= part.first <= part.last <= shown.last_line:
                kept.append(part)
                continue
            self._supersede(part.number, part.tokens)
            if (part.first, part.last, part.sha256) == (shown.first_line, shown.last_line, sha256):
                self.duplicates += 1
                self.duplicate_tokens += tokens
        new = _Excerpt(first=shown.first_line, last=shown.last_line, sha256=sha256, tokens=tokens, number=number)
        self._parts[shown.path] = [*kept, new]
        self._count += 1
        if self._count > MOST_PARTS:
            self._forget()

    def answer(self, number: int, signature: str, tokens: int) -> None:
        """Put a result in the place of that of the same call before."""
        if before := self._answers.pop(signature, None):
            self._supersede(*before)
        if len(self._answers) < MOST_PARTS:
            self._answers[signature] = number, tokens

    def drop(self) -> None:
        """Forget the context: it was compacted."""
        self.superseded_tokens = 0
        self._answers.clear()
        self._unused.clear()
        self._forget()

    def _supersede(self, number: int, tokens: int) -> None:
        if number not in self._superseded:
            self._superseded.add(number)
            self.superseded_tokens += tokens
            self._unused.pop(number, None)

    def _forget(self) -> None:
        self._parts.clear()
        self._count = 0


RULES_FILES = frozenset({"AGENTS.md", "AGENTS.override.md", "CLAUDE.md"})
_LEAST_STEM = 3
"""A declared file with a shorter name has no recognisable tests."""


class PhaseTally:
    """Growing figures of one phase. Mutable."""

    def __init__(self, phase_id: str) -> None:
        self.phase_id = phase_id
        self.title = ""
        self.items: dict[str, str] = {}
        """Text by id, as the plan was shown last."""
        self.open_items: frozenset[str] = frozenset()
        """Ids of required items that no commit has ticked."""
        self.claimed: frozenset[str] = frozenset()
        """Ids that are claimed or ticked."""
        self.sum = Sum()
        self.sessions = 0
        self.hand_offs = 0
        self.checks: tuple[CheckEvidence, ...] = ()
        self.left: tuple[LeftFile, ...] = ()
        """Of the last gate."""
        self._declared: tuple[str, ...] = ()
        self._ticked: dict[str, None] = {}
        self._touched: dict[str, None] = {}
        self._commits: list[str] = []
        self._gates = self._red_gates = self._repairs = 0
        self._first_gate_red: bool | None = None
        self._given_back = False
        self.is_done = False

    def show(self, phase: ShownPhase) -> None:
        """Update the phase from the plan."""
        self.title, items = phase["title"] or self.title, phase["items"]
        self.items = {item["id"]: item["text"] for item in items}
        self.open_items = frozenset(item["id"] for item in items if item["state"] in {"open", "claimed"})
        self.claimed = frozenset(item["id"] for item in items if item["state"] in {"claimed", "done"})
        paths = (path for item in items for path in item.get("paths", ()))
        self._declared = tuple(dict.fromkeys(paths))

    def touch(self, paths: Iterable[str], own: frozenset[str]) -> None:
        """Note changed files; those of the plan itself do not count."""
        for path in paths:
            if len(self._touched) < MOST_PATHS and PurePosixPath(path).name not in own:
                self._touched[path] = None

    def end_gate(self, event: GateFinished) -> None:
        """Add a finished gate or baseline."""
        self.sum.count("gates_s", event.duration_s)
        if event.baseline:
            return
        self.checks = tuple(
            CheckEvidence(
                command=check["command"],
                status=check["status"],
                exit_code=check["exit_code"],
                duration_s=check["duration_s"],
                output_sha256=check.get("output_sha256", ""),
            )
            for check in event.checks
        )
        self.left = event.evidence
        red = not event.passed and not event.expected
        self._gates += 1
        self._red_gates += red
        self._given_back = red
        if self._first_gate_red is None:
            self._first_gate_red = red

    def go_on(self) -> None:
        """Note a request: if the gate was red before it, the session is repairing."""
        self._repairs += self._given_back
        self._given_back = False

    def end_session(self) -> None:
        """Note the end of a session."""
        self._given_back = False

    def commit(self, event: Committed) -> None:
        """Add a commit of the phase."""
        self._ticked.update(dict.fromkeys(event.items))
        self._commits.append(event.commit)
        self.is_done = self.is_done or event.status == "done"

    @property
    def figures(self) -> PhaseFigures:
        """The figures so far."""
        touched = tuple(sorted(self._touched))
        return PhaseFigures(
            phase_id=self.phase_id,
            title=self.title,
            totals=self.sum.totals,
            sessions=self.sessions,
            work=PhaseWork(
                items=tuple(self.items),
                ticked=tuple(self._ticked),
                is_done=self.is_done,
                gates=self._gates,
                red_gates=self._red_gates,
                first_gate_red=self._first_gate_red,
                repairs=self._repairs,
                hand_offs=self.hand_offs,
                declared=self._declared,
                touched=touched,
                strayed=find_strayed(touched, self._declared),
                commits=tuple(self._commits),
            ),
        )


def find_strayed(touched: Iterable[str], declared: Iterable[str]) -> tuple[str, ...]:
    """Return the touched files that no declared path covers, in order.

    A declared path covers itself, the paths below it, its matches as a pattern, and tests that carry its name.
    Rules files never stray.
    """
    paths = tuple({str(PurePosixPath(path)) for path in declared})
    stems = {PurePosixPath(path).stem.lower() for path in paths}
    stems = {stem for stem in stems if len(stem) >= _LEAST_STEM}
    return tuple(path for path in touched if not _is_covered(path, paths, stems))


def _is_covered(path: str, declared: tuple[str, ...], stems: set[str]) -> bool:
    name = PurePosixPath(path).name
    if name in RULES_FILES:
        return True
    if "test" in path.lower() and any(stem in name.lower() for stem in stems):
        return True
    return any(
        known in {path, "."} or path.startswith(f"{known}/") or ("*" in known and fnmatchcase(path, known))
        for known in declared
    )
