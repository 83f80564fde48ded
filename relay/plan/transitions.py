"""Check that a change to a plan file is legal while relay runs.

Both plans are cut into phases and the text between them. Parts that are not amendable must be the same byte for byte,
apart from boxes that may be ticked and lines that were appended to a phase's ``Notes``. Amendable phases may change
freely around their ticked items. The guard fails closed: it refuses every change that it cannot explain so.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, takewhile

from relay.base.values import dataclass
from relay.base.words import list_some, shorten
from relay.plan.model import Item, Phase, Plan, Violation
from relay.plan.outline import OPEN_SIGNS, Outline, Section

BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPart:
    """A phase, or the text between two phases."""

    phase: Phase | None
    """None for the text between."""
    sections: tuple[Section, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two plans under comparison, cut into its parts."""

    plan: Plan
    masked: str
    """The text with every box open."""
    parts: tuple[PlanPart, ...]

    @property
    def outline(self) -> Outline:
        return self.plan.outline

    def cut(self, part: PlanPart | Section) -> str:
        """Return the text of a part or a section with every box open."""
        return self.masked[part.start : part.end]


def make_side(plan: Plan) -> Side:
    """Cut a plan into its parts."""
    outline = plan.outline
    marks = [box.mark for section in outline.sections for box in section.boxes]
    return Side(plan=plan, masked=outline.lines.put(marks, " ").text, parts=tuple(_cut(plan)))


def _cut(plan: Plan) -> Iterator[PlanPart]:
    done = 0
    for phase, sections in plan.parts:
        if phase.start > done:
            yield PlanPart(phase=None, sections=(), start=done, end=phase.start)
        yield PlanPart(phase=phase, sections=sections, start=phase.start, end=phase.end)
        done = phase.end
    if done < len(plan.text):
        yield PlanPart(phase=None, sections=(), start=done, end=len(plan.text))


def find_key(side: Side, part: PlanPart) -> tuple[str, ...]:
    """Return the texts of a part that must stay equal; its changeable texts are checked later."""
    if part.phase is None:
        return ("text", side.cut(part))
    lasting = (section for at, section in enumerate(part.sections) if not at or not section.is_notes)
    return ("phase", str(len(part.phase.items)), *(side.cut(section).rstrip(BLANK) for section in lasting))


PartTexts = tuple[str, ...]
"""The texts of a part that must stay equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Parts in the place of other parts, as indexes."""

    before: range
    after: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The pairs of parts; indexes into the two sequences."""

    pairs: tuple[tuple[int, int], ...] = ()
    runs: tuple[Run, ...] = ()
    broken: tuple[int, int] | None = None
    """Where the sequences first differ; None if they can be aligned."""


def align(old: Sequence[PartTexts], new: Sequence[PartTexts], *, free: Sequence[bool]) -> Alignment:
    """Match every part that is not free with an equal one, in order and without gaps of its own.

    It works like a file name pattern: the fixed parts are the letters, each run of free parts is a ``*``. Taking the
    leftmost match of each finds an alignment if there is any.
    """
    pairs: list[tuple[int, int]] = []
    runs: list[Run] = []
    at_old = at_new = 0
    groups = [(is_free, list(group)) for is_free, group in groupby(range(len(old)), key=free.__getitem__)]
    for block in (range(group[0], group[-1] + 1) for is_free, group in groups if not is_free):
        found = _find_block(old, new, block, at_new, is_wild=block.start > at_old)
        if found is None:
            reaches_end = block.start > at_old and block.stop == len(old)
            likely = max(at_new, len(new) - len(block)) if reaches_end else at_new
            return Alignment(broken=_find_break(old, new, block, likely))
        if block.start > at_old:
            runs.append(Run(before=range(at_old, block.start), after=range(at_new, found)))
        pairs += zip(block, range(found, found + len(block)), strict=True)
        at_old, at_new = block.stop, found + len(block)
    if at_old < len(old):
        runs.append(Run(before=range(at_old, len(old)), after=range(at_new, len(new))))
    elif at_new < len(new):
        return Alignment(broken=(at_old, at_new))
    return Alignment(pairs=tuple(pairs), runs=tuple(runs))


def _find_block(
    old: Sequence[PartTexts], new: Sequence[PartTexts], block: range, at: int, *, is_wild: bool
) -> int | None:
    wanted = list(old[block.start : block.stop])
    last = len(new) - len(block)
    if not is_wild:
        places = range(at, at + 1)
    elif block.stop == len(old):
        places = range(max(at, last), last + 1)
    else:
        places = range(at, last + 1)
    return next((place for place in places if list(new[place : place + len(block)]) == wanted), None)


def _find_break(old: Sequence[PartTexts], new: Sequence[PartTexts], block: range, at: int) -> tuple[int, int]:
    """Return where a block that was not found at `at` first differs from the parts there."""
    pairs = zip(block, range(at, at + len(block)), strict=True)
    return next((index, place) for index, place in pairs if place >= len(new) or new[place] != old[index])


_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_SHOWN_CHARS = 60
_NO_WORD = re.compile(r"[\W_]+")


def check_transition(
    before: Plan, after: Plan, *, may_tick: Collection[str], amendable: Collection[str] = ()
) -> tuple[Violation, ...]:
    """Return the violations in a change; empty if it is legal.

    Args:
        after: The changed plan; violations name lines of its text.
        may_tick: Ids, in `before`, of items whose box may go from ``[ ]`` to ``[x]``.
        amendable: Ids, in `before`, of phases that may be rewritten, split or dropped; a phase that is done never is.
    """
    if before.text == after.text:
        return ()
    return tuple(_check_sides(make_side(before), make_side(after), frozenset(may_tick), frozenset(amendable)))


def _check_sides(old: Side, new: Side, may_tick: frozenset[str], amendable: frozenset[str]) -> Iterator[Violation]:
    if _front(old) != _front(new):
        yield _violation(1, "the front matter was changed; only the user changes it")
        return
    free = [part.phase is not None and part.phase.id in amendable and not part.phase.done for part in old.parts]
    keys = [find_key(side, part) for side in (old, new) for part in side.parts]
    alignment = align(keys[: len(old.parts)], keys[len(old.parts) :], free=free)
    if alignment.broken:
        yield _find_difference(old, new, *alignment.broken)
        return
    for was, now in alignment.pairs:
        yield from _check_pair(old, new, old.parts[was], new.parts[now], may_tick)
    for run in alignment.runs:
        yield from _check_amended(_phases(old, run.before), _phases(new, run.after), may_tick, new)
    yield from _check_meaning(old, new, alignment)


def _front(side: Side) -> str:
    return side.outline.text[: side.outline.lines.offset(side.outline.front.body)]


def _phases(side: Side, parts: range) -> list[Phase]:
    return [phase for at in parts if (phase := side.parts[at].phase)]


def _check_pair(old: Side, new: Side, was: PlanPart, now: PlanPart, may_tick: frozenset[str]) -> Iterator[Violation]:
    if was.phase is None or now.phase is None:
        if old.outline.text[was.start : was.end] != new.outline.text[now.start : now.end]:
            yield _violation(_line(new, now.start), "a box outside of the phases was changed; it is no item")
        return
    yield from _check_boxes(old, new, was.phase, now.phase, may_tick)
    yield from _check_sections(old, new, was, now)


def _check_boxes(old: Side, new: Side, was: Phase, now: Phase, may_tick: frozenset[str]) -> Iterator[Violation]:
    for before, after in zip(was.items, now.items, strict=True):
        marks = old.outline.text[before.mark], new.outline.text[after.mark]
        if marks[0] == marks[1] or (not before.done and marks[1] == " "):
            continue  # a begun item, `[-]`, may become open
        if before.done:
            yield _violation(after.line, f"the box of item {before.id} was changed; a tick stays as it is")
        elif marks[1] in OPEN_SIGNS:
            yield _violation(after.line, f"the box of item {before.id} holds `{marks[1]}` now; an open one is `[ ]`")
        elif before.id not in may_tick:
            yield _violation(after.line, f"item {before.id} was ticked; {_render_allowed(may_tick)}")
        elif marks[1] != "x":
            yield _violation(after.line, f"item {before.id} was ticked with `{marks[1]}`; a tick is `[x]`")


def _check_sections(old: Side, new: Side, was: PlanPart, now: PlanPart) -> Iterator[Violation]:
    """Compare two phases that are equal but for blank lines and Notes."""
    before, after = was.sections, now.sections
    if len(after) == len(before) + 1 and after[-1].is_notes and not any(s.is_notes for s in before[1:]):
        if not _is_appended(old.cut(was), new.cut(now)):
            yield _violation(after[-1].line, "more than a Notes section was added; notes go at the end of the phase")
        return
    if len(after) != len(before):
        yield _violation(after[0].line, "a Notes section came or went; a phase has one, and notes are appended to it")
        return
    for at, (one, other) in enumerate(zip(before, after, strict=True)):
        texts = old.cut(one), new.cut(other)
        if at and one.is_notes and not (other.is_notes and _is_appended(*texts)):
            yield _violation(other.line, "Notes were changed; lines may only be appended to them")
        elif not (at and one.is_notes) and texts[0] != texts[1]:
            yield _violation(
                other.line, f"blanks or line endings were changed in {_quote(other.heading)}; nothing else may change"
            )


def _is_appended(before: str, after: str) -> bool:
    """Whether `after` is `before` with whole lines inserted below its last line that is not blank."""
    content = before.rstrip(BLANK)
    if not after.startswith(content):
        return False
    was, now = (_LINE.findall(text[len(content) :]) or [""] for text in (before, after))
    last = len(was) - 1
    # The last line of a file may have no ending; it gets one when lines are appended.
    if not was[last].endswith(("\r", "\n")) and last < len(now) and now[last].rstrip("\r\n") == was[last]:
        was[last] = now[last]
    head, foot = _count_equal(was, now), _count_equal(was[::-1], now[::-1])
    return head > 0 and len(now) >= len(was) and head + foot >= len(was)


def _count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _check_amended(
    was: Sequence[Phase], now: Sequence[Phase], may_tick: frozenset[str], new: Side
) -> Iterator[Violation]:
    """Check that rewritten phases keep their ticked items in order, and gain only ticks that are allowed.

    Items may have moved, so they are matched by their text. Texts can repeat, so all ways of matching are followed:
    `reached` holds how many ticks of the new text can be explained by the items of the old one so far.
    """
    ticks = [item for phase in now for item in phase.items if item.done]
    reached = {0}
    for item in (item for phase in was for item in phase.items):
        if item.done or item.id in may_tick:
            taken = {at + 1 for at in reached if at < len(ticks) and ticks[at].text == item.text}
            reached = taken if item.done else reached | taken
        if not reached:
            line = now[0].line if now else len(new.outline.lines.starts) - 1
            yield _violation(
                line, f"the ticked item {item.id} {_quote(item.text)} is gone or has moved; ticked items stay"
            )
            return
    if len(ticks) not in reached:
        extra = ticks[max(reached)]
        yield _violation(extra.line, f"{_quote(extra.text)} is ticked; {_render_allowed(may_tick)}")


def _check_meaning(old: Side, new: Side, alignment: Alignment) -> Iterator[Violation]:
    """Check that the rewrite changed neither gate, order nor id of the other phases."""
    order = _Order(old, new, alignment)
    for before, after in order.pairs:
        if before.verify != after.verify:
            yield _violation(after.line, f"the gate of phase {before.id} was changed; only the user changes it")
        if before.id != after.id and any(item.done for item in before.items):
            words = f"phase {before.id} became phase {after.id}; a phase with ticked items keeps its id"
            yield _violation(after.line, words)
        if not order.is_same(before, after):
            words = f"what phase {before.id} comes after was changed; write its number in `After:`"
            yield _violation(after.line, words)


class _Order:
    """The old plan's `after` lines, in the ids of the new plan."""

    def __init__(self, old: Side, new: Side, alignment: Alignment) -> None:
        matched = ((old.parts[was].phase, new.parts[now].phase) for was, now in alignment.pairs)
        self.pairs = [(before, after) for before, after in matched if before and after]
        self._phases = {phase.id: phase for phase in old.plan.phases}
        self._names = {before.id: frozenset({after.id}) for before, after in self.pairs}
        for run in alignment.runs:
            written = frozenset(phase.id for phase in _phases(new, run.after))
            self._names |= {phase.id: written for phase in _phases(old, run.before)}

    def is_same(self, before: Phase, after: Phase) -> bool:
        """Whether a phase still comes after the same phases; a split phase has several ids now."""
        wanted = [self._follow(target) for target in before.after]
        now = set(after.after)
        return frozenset().union(*wanted) >= now and all(not some or some & now for some in wanted)

    def _follow(self, target: str) -> frozenset[str]:
        """Return the phases that now stand for a target; for a dropped one, the phases that it came after."""
        found: frozenset[str] = frozenset()
        ahead, seen = [target], {target}
        while ahead:
            at = ahead.pop()
            found |= self._names.get(at, frozenset({at}))
            if at in self._names and not self._names[at]:
                above = [other for other in self._phases[at].after if other not in seen]
                ahead += above
                seen.update(above)
        return found


def _find_difference(old: Side, new: Side, was: int, now: int) -> Violation:
    """Name the first line that differs."""
    before, after = list(_iter_lines(old, was)), list(_iter_lines(new, now))
    at = _count_equal([text for _, text in before], [text for _, text in after])
    line = after[at][0] if at < len(after) else new.outline.lines.count
    texts = [text for _, text in before[at : at + 2]], [text for _, text in after[at : at + 2]]
    return _violation(line, f"{_render_change(*texts)}; only boxes and Notes change")


def _render_change(before: Sequence[str], after: Sequence[str]) -> str:
    """Describe a difference. Each side is its first differing line and the line behind it, if any."""
    # No known text has different parts but equal lines; if one exists, it must not pass.
    if not before and not after:  # pragma: no cover
        return "headings or boxes are read differently now"
    lasts, was_there = before[:1] == after[1:2], after[:1] == before[1:2]
    if not before or (lasts and not was_there):
        return f"{_quote(after[0])} was added"
    if not after or (was_there and not lasts):
        return f"{_quote(before[0])} is gone"
    if before[0].strip() == after[0].strip():
        return "only the blanks or the line ending of this line were changed"
    return f"found {_quote(after[0])} where {_quote(before[0])} stood"


def _iter_lines(side: Side, first: int) -> Iterator[tuple[int, str]]:
    """Yield the lines from part `first` on with their numbers, every box open, without Notes."""
    lines = side.outline.lines
    for part in side.parts[first:]:
        pieces: list[PlanPart | Section] = [s for at, s in enumerate(part.sections) if not (at and s.is_notes)]
        for piece in pieces or [part]:
            for index in range(lines.index_at(piece.start), lines.count):
                if lines.starts[index] >= piece.end:
                    break
                yield index + 1, side.masked[lines.starts[index] : lines.starts[index + 1]]


def _line(side: Side, offset: int) -> int:
    return side.outline.lines.index_at(offset) + 1


def _render_allowed(may_tick: frozenset[str]) -> str:
    if not may_tick:
        return "nothing may be ticked"
    return f"only {list_some(sorted(may_tick))} may be ticked"


def _quote(text: str) -> str:
    return f"`{shorten(text.strip(), _SHOWN_CHARS)}`"


def _violation(line: int, message: str) -> Violation:
    return Violation(line=line, message=message)


def has_same_words(before: Plan, after: Plan) -> bool:
    """Return whether two plans differ in blanks, marks and line ends only.

    Every letter and digit is in its place, and so is every box, command, path and setting to the last character: a
    formatter must not be able to change the meaning of a plan.
    """
    return _NO_WORD.sub("", before.text) == _NO_WORD.sub("", after.text) and _read(before) == _read(after)


def _read(plan: Plan) -> tuple[object, ...]:
    return (plan.settings, tuple(map(_read_phase, plan.phases)))


def _read_phase(phase: Phase) -> tuple[object, ...]:
    gates = (phase.verify, phase.own_verify)
    said = (phase.files, phase.after, phase.runner, phase.model, phase.effort, phase.tools)
    return (phase.id, gates, said, tuple(map(_read_item, phase.items)))


def _read_item(item: Item) -> tuple[object, ...]:
    return (item.id, item.done, item.optional, item.depth, item.paths, item.targets)
