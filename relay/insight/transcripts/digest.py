"""The digest of a conversation, by rule and without a model: what a planner needs to make a relay of it. Pure.

It says what the user said, what the agent decided, what it changed and where that stands in git, what failed last, what
is open and what compactions removed. Each line has the number of its turn, which a claim can cite. Rules find a
decision by its words in English; the user's words are kept in any language.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from relay.base.words import count, list_some, shorten
from relay.insight.transcripts.conversation import Conversation, Role, Said, cut_middle
from relay.ledger.model import render_stamp_time
from relay.session.usage import estimate_tokens

MAX_TOKENS = 24_000
"""Of a digest, by estimate; a phase's session has room for several."""
_SHARES = {
    "The user's words": 0.4,
    "Decisions, as the agent said them": 0.15,
    "Files that it changed, and where they stand in git now": 0.12,
    "Calls that failed and did not succeed later": 0.13,
    "Open": 0.1,
    "Removed by compactions": 0.1,
}
_SENTENCE_CHARS = 320
_ERROR_CHARS = 600
_WORDS_CHARS = 2_000
_MOST_NAMED = 20
_LATE_TURNS = 10
"""A call without a result is under way where it is among so many last turns."""
_SENTENCE = re.compile(r"[^.!?\n]{8,}[.!?\n]?")
_DECIDES = re.compile(
    r"\b(?:decid\w+|chos[e]n?|instead of|rather than|because|trade-?off|root cause|turns out|must (?:not|never)|"
    r"(?:we|I)(?:'ll| will)? (?:use|keep|avoid|go with)|does not work|doesn't work|not supported)\b",
    re.IGNORECASE,
)


def render_digest(conversation: Conversation, states: Mapping[str, str], *, max_tokens: int = MAX_TOKENS) -> str:
    """Return the digest, of at most about `max_tokens`.

    Args:
        states: Of each changed path, its place in git, in words.
        max_tokens: Each section has a share of it; what a section leaves out it says.
    """
    turns = conversation.turns
    sections = (
        list(_list_words(turns)),
        list(_list_decisions(turns)),
        list(_list_files(turns, states)),
        list(_list_failures(turns)),
        list(_list_open(turns, conversation.steps)),
        list(_list_removed(turns)),
    )
    texts = (
        f"## {title}\n{_fit(lines, int(max_tokens * share), keeps_first=title in _FROM_THE_FIRST)}"
        for (title, share), lines in zip(_SHARES.items(), sections, strict=True)
        if lines
    )
    return "\n\n".join(texts)


_FROM_THE_FIRST = frozenset({"The user's words"})
"""The goal stands there."""


def name_turns(conversation: Conversation, numbers: Iterable[int]) -> str:
    """Return words for the turns that a claim rests on, with the time of the first; empty for an unknown one."""
    chosen = sorted(set(numbers))
    if not chosen or not all(number in conversation.numbers for number in chosen):
        return ""
    at = next((turn.at for turn in conversation.turns if turn.number == chosen[0]), 0.0)
    when = f", {render_stamp_time(datetime.fromtimestamp(at, UTC))}" if at else ""
    return f"turn{'s' * (len(chosen) > 1)} {', '.join(map(str, chosen))}{when}"


def _mark(turn: Said, words: str) -> str:
    return _indent(f"[{turn.number}] {words}")


def _indent(entry: str) -> str:
    """Indent all lines but the first, so that none of them can look like a heading or a turn."""
    return entry.replace("\n  ", "\n").replace("\n", "\n  ")


def _list_words(turns: Sequence[Said]) -> Iterator[str]:
    for turn in turns:
        if turn.role is Role.USER:
            yield _mark(turn, cut_middle(turn.text, _WORDS_CHARS))


def _list_decisions(turns: Sequence[Said]) -> Iterator[str]:
    known: set[str] = set()
    for turn in turns:
        found = _SENTENCE.findall(turn.text) if turn.role is Role.AGENT else ()
        for sentence in (" ".join(one.split()) for one in found if _DECIDES.search(one)):
            if sentence not in known:
                known.add(sentence)
                yield _mark(turn, shorten(sentence, _SENTENCE_CHARS))


def _list_files(turns: Sequence[Said], states: Mapping[str, str]) -> Iterator[str]:
    changed: dict[str, list[int]] = {}
    for turn in turns:
        for path in turn.changed:
            changed.setdefault(path, []).append(turn.number)
    for path, numbers in changed.items():
        shown = ", ".join(map(str, numbers[-4:]))
        yield f"- {shorten(_one_line(path), _SENTENCE_CHARS)} [{shown}]: {states.get(path, 'unknown')}"


def _list_failures(turns: Sequence[Said]) -> Iterator[str]:
    """Yield the last failure of each call that was not made again with success."""
    failed: dict[tuple[str, str], Said] = {}
    for turn in turns:
        if turn.role is Role.TOOL and turn.answered:
            failed.pop((turn.tool, turn.text), None)
            if turn.failed:
                failed[turn.tool, turn.text] = turn
    for turn in failed.values():
        yield _mark(
            turn, f"{turn.tool} {shorten(_one_line(turn.text), _SENTENCE_CHARS)}\n{turn.result[-_ERROR_CHARS:]}"
        )


def _list_open(turns: Sequence[Said], steps: Mapping[str, str]) -> Iterator[str]:
    for name, state in steps.items():
        yield f"- its own list: {_one_line(name)}: {_one_line(state) or 'unknown'}"
    late = turns[-_LATE_TURNS:]
    yield from (_mark(turn, f"no result: {turn.tool} {_one_line(turn.text)}") for turn in late if not turn.answered)
    last = next((turn for turn in reversed(turns) if turn.role is Role.AGENT), None)
    if last:
        yield _mark(last, f"its last words: {cut_middle(last.text, _WORDS_CHARS)}")


def _list_removed(turns: Sequence[Said]) -> Iterator[str]:
    """Yield for each compaction what its summary says, and what stands above it and not in the summary."""
    above: list[Said] = []
    for place, turn in enumerate(turns):
        if turn.role is not Role.CUT:
            above.append(turn)
            continue
        behind = turns[place + 1] if place + 1 < len(turns) else None
        summary = behind.text if behind and behind.role is Role.SUMMARY else ""
        words = [f"[{one.number}]" for one in above if one.role is Role.USER and one.text[:60] not in summary]
        paths = dict.fromkeys(path for one in above for path in one.changed if path.rpartition("/")[2] not in summary)
        lines = [f"{turn.text}: {count(len(above), 'turn')} above it, which the agent knows from there on by a summary"]
        lines += [f"the user's words that are not in the summary: {list_some(words, _MOST_NAMED)}"] if words else []
        lines += [f"changed files that it does not name: {list_some([*paths], _MOST_NAMED)}"] if paths else []
        lines += [f"the summary: {cut_middle(summary, _WORDS_CHARS)}"] if summary else []
        above = []
        yield _mark(turn, "\n".join(lines))


def _fit(entries: Sequence[str], tokens: int, *, keeps_first: bool) -> str:
    """Return the newest entries that have room, and how many were left out; with `keeps_first` the first as well."""
    first = [_indent(cut_middle(entries[0], tokens // 4))] if keeps_first and len(entries) > 1 else []
    left = tokens - sum(map(estimate_tokens, first))
    kept: list[str] = []
    rest = entries[len(first) :]
    for entry in reversed(rest):
        left -= estimate_tokens(entry) + 1
        if left < 0 and kept:
            break
        kept.append(entry if left >= 0 else _indent(cut_middle(entry, max(0, left + estimate_tokens(entry)))))
    gone = len(rest) - len(kept)
    return "\n".join(
        [*first, *([f"({count(gone, 'older entry', 'older entries')} left out)"] if gone else []), *kept[::-1]]
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
