"""Change a plan file, and nothing in it but the requested part.

Every function reads its own result before it returns: the new part says what was asked for, and nothing else means
something else now. A change that would is refused, never done by halves. `Plan.tick` and `Plan.untick` change boxes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, pairwise, product, zip_longest
from string import ascii_lowercase

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.base.words import HIDING, list_some
from relay.plan.check import check_order
from relay.plan.model import Phase, Plan, find_meaning
from relay.plan.outline import ITEM_LEVEL, Entry, EntryKind, Outline, Section
from relay.plan.parse import find_plan_in, parse_plan
from relay.plan.paths import place
from relay.plan.statements import find_statement
from relay.plan.text import BOM, Lines, render_plain

_LINE_END = re.compile(r"\r\n|\r|\n")
_BULLET = r"(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
_BOXES = re.compile(rf"\A(?:{_BULLET}\[ \](?:[ \t]+|\Z))*")
"""All of them, so that an item's text is read as the same item."""
_TICKED = re.compile(rf"{_BULLET}\[[xX]\](?:[ \t]|\Z)")
_ORDERED = re.compile(r"(\d{1,9})(?=[.)][ \t]+\Z)")
_BLOCK_START = re.compile(
    r"(?:[-+*]|\#{1,6})(?:[ \t]|\Z)|(?:[-*_=][ \t]*)+\Z|>|<|`{3}|~{3}|\[[^\w\[\]]*\w?[^\w\[\]]*\]|\[[^\]]*\]:"
    r"|(?P<digits>\d{1,9})[.)](?:[ \t]|\Z)"
)
_UNSEEN = re.compile(rf"[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f{HIDING}]")
"""Control characters except white space, and characters that hide or reorder text."""
_BEFORE_TEXT = re.compile(r"[ \t>]*")
_NO_BLANK = re.compile(r"[^ \t>]")
NO_HEADING = "is an item of a list: number its parts as items of their own, such as `- [ ] 12. …`"
"""Why a phase that has no heading cannot be written anew by itself."""
_UNIT = re.compile(r"(?:phase|task|step|iteration)\s+\#?(\d{1,9}(?:\.\d{1,9})*[a-z]?)", re.IGNORECASE)
_HEADING = re.compile(r" {0,3}(?:#{1,6}[ \t]+)?")
_MARK = re.compile(r"#{1,6}(?=[ \t])")
_MOST_COMMANDS = 20
"""The newest verify commands that an appended phase takes over."""
_LINES = frozenset({EntryKind.PROSE, EntryKind.BULLET})
_ASKED, _ASSUMED = "question: ", " (assumed: "
_MAX_LEVEL = 6


def append_note(plan: Plan, phase_id: str, note: str) -> Plan:
    """Append ``- note`` to a phase's Notes, one level below its heading; they are made at its end when there are none.

    A note that is there already is not written again.

    Args:
        plan: The plan; its line ending is kept.
        phase_id: The phase, done or not.
        note: Any text. It becomes one line, and what Markdown would take for a block is escaped.

    Raises:
        PlanError: There is no such phase, the note is empty, or the note would not be read as one there.
    """
    outline = plan.outline
    phase, sections = _get_phase(plan, phase_id)
    words = _render_inert(_clean(note))
    if not words:
        raise PlanError(f"an empty note for phase {phase_id}; a note has text", line=phase.line)
    if words in (known := list_notes(plan)[phase_id]):
        return plan
    notes = next((section for section in sections[1:] if section.is_notes), None)
    at = _last_line(outline.lines, notes or sections[-1]) + 1
    return _insert(
        plan,
        at,
        _render_note(outline, sections[0], notes, words),
        lambda noted: _has_grown(plan, noted, phase_id) and list_notes(noted)[phase_id] == (*known, words),
        PlanError(
            f"a note at the end of phase {phase_id} would not be read as one; "
            "close the code fence or HTML that it ends with",
            line=phase.line,
        ),
    )


def _insert(plan: Plan, at: int, ways: Iterable[list[str]], is_so: Callable[[Plan], bool], refusal: PlanError) -> Plan:
    """Return the plan with lines inserted at a line, in the first way by which it says what it should.

    Raises:
        PlanError: The refusal: there is none.
    """
    for lines in ways:
        longer = find_plan_in(plan.outline.lines.insert((at, lines)))
        if longer and is_so(longer):
            return longer
    raise refusal


def _render_note(outline: Outline, head: Section, notes: Section | None, words: str) -> Iterator[list[str]]:
    """Yield the ways to write a note, the best first; with a Notes heading where there is none."""
    if head.level == ITEM_LEVEL:
        line = outline.lines.at((notes or head).line - 1)
        for indent in [_BEFORE_TEXT.match(line)[0]] if notes else [_indent(line), ""]:  # type: ignore[index]  # any line
            yield [*([] if notes else [f"{indent}- Notes"]), f"{indent}  - {words}"]
        return
    heading = [] if notes else [f"{'#' * min(head.level + 1, _MAX_LEVEL)} Notes"]
    # HTML ends at a blank line; a heading below that is indented would be part of a note with a narrow bullet.
    for bullet, above, below in product(("-", "-  "), ([], [""]), ([], [""])):
        yield [*above, *heading, f"{bullet} {words}", *below]


def _indent(line: str) -> str:
    """Return the text before a list item's box, with blanks for the bullet."""
    return _NO_BLANK.sub(" ", line.partition("[")[0])


def append_entries(plan: Plan, title: str, texts: Sequence[str]) -> Plan:
    """Append ``- text`` lines to a section above the phases, where they are not there yet.

    A missing section is made below the plan's title.

    Args:
        plan: The plan; its line ending is kept.
        texts: Any; as in `append_note`.

    Raises:
        PlanError: The phases would change their meaning.
    """
    there = set(plan.preamble.splitlines())
    entries = [line for text in texts if (words := _render_inert(_clean(text))) and (line := f"- {words}") not in there]
    if not entries:
        return plan
    outline = plan.outline
    above = outline.sections[: outline.extents[0].start]
    known = next((section for section in above if section.title.strip(" :").casefold() == title.casefold()), None)
    place = known or above[min(1, len(above) - 1)]
    at = _last_line(outline.lines, place) + 1 if place.end > place.start else outline.front.body
    label = f"{'#' * min(place.level + 1, _MAX_LEVEL)} {title}" if place.level else f"**{title}**"
    heading = [] if known else [*([""] if at else []), label, ""]
    ways = ([*over, *heading, *entries, *below] for over, below in product(([], [""]), ([], [""])))
    refusal = PlanError(
        "what stands above the first phase does not end there; write its heading with #", line=place.line
    )
    return _insert(plan, at, ways, lambda longer: _list_meant(longer) == _list_meant(plan), refusal)


def append_phase(plan: Plan, title: str, *, said: Sequence[str], items: Sequence[str]) -> Plan:
    """Append a phase with the verify commands of all phases behind the others.

    Args:
        plan: The plan; its line ending is kept.
        said: Any text: each becomes a quoted line of the phase.
        items: Texts of its items.

    Raises:
        PlanError: The phase would not be read as this one, or another would change its meaning.
    """
    commands = dict.fromkeys(
        place(command, phase.find_wish("in")[0]) for phase in plan.phases for command in phase.own_verify
    )
    gate = [f"`` {one} ``" if "`" in one else f"`{one}`" for one in commands if "\n" not in one]
    number = next(n for n in count(len(plan.phases) + 1) if plan.find_phase(str(n)) is None)
    mark = _MARK.match(plan.text, plan.phases[-1].start)
    above = plan.outline.lines
    lines = [
        *([""] if above.count and above.at(above.count - 1).strip() else []),
        f"{mark[0] if mark else '##'} Phase {number} — {title}",
        *([f"Verify: {' '.join(gate[-_MOST_COMMANDS:])}"] if gate else []),
        "",
        *(part for text in said for part in (f"> {_render_inert(_clean(text))}", ">")),
        "",
        *(f"- [ ] {item}" for item in items),
    ]

    def is_so(longer: Plan) -> bool:
        new, meant = longer.phases[-1], _list_meant(longer)[:-1]
        said = (new.title, [item.text for item in new.items], new.wishes, new.tool_lines)
        return said == (title, [*items], (), ()) and meant == _list_meant(plan)

    refusal = PlanError(
        "a phase at the end of the plan would not be read as one; close the code fence or HTML that it ends with",
        line=plan.phases[-1].line,
    )
    return _insert(plan, above.count, [lines], is_so, refusal)


def _list_meant(plan: Plan, *, but: str = "") -> list[tuple[object, ...]]:
    """Return what a plan says and means, without positions; of the phase `but` without its items and notes."""
    phases = [
        (find_meaning(p, items=p.id != but), "" if p.id == but else plan.text[p.start : p.end].strip())
        for p in plan.phases
    ]
    return [(plan.title, tuple(plan.settings)), *phases]


def _has_grown(before: Plan, after: Plan, phase_id: str, added: Sequence[str] = ()) -> bool:
    """Return whether a phase has these items behind its own, and all else is as it was but for its notes."""
    if _list_meant(before, but=phase_id) != _list_meant(after, but=phase_id):
        return False
    phases = (phase for plan in (before, after) if (phase := plan.find_phase(phase_id)))
    was, now = ([(item.id, item.text, item.done) for item in phase.items] for phase in phases)
    return now[: len(was)] == was and [(text, done) for _, text, done in now[len(was) :]] == [
        (text, False) for text in added
    ]


def list_notes(plan: Plan) -> Mapping[str, tuple[str, ...]]:
    """Return the notes of all phases, by phase id."""
    return {phase.id: tuple(entry.text for entry in _list_notes(sections)) for phase, sections in plan.parts}


def _list_notes(sections: Sequence[Section]) -> Iterator[Entry]:
    return (e for s in sections[1:] if s.is_notes for e in s.entries if e.kind is EntryKind.BULLET)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftQuestion:
    """A question that a session left to the user in a phase's notes, and the answer it assumed."""

    phase_id: str
    question: str
    assumed: str

    @property
    def text(self) -> str:
        """Both in one line, with the phase."""
        return f"phase {self.phase_id}: {self.question}{_ASSUMED}{self.assumed})"


def render_question(question: str, assumed: str) -> str:
    """Return the note that asks a question; it stays open until the user removes the note."""
    return f"{_ASKED}{question}{_ASSUMED}{assumed})"


def list_questions(plan: Plan) -> tuple[LeftQuestion, ...]:
    """Return the questions in the notes of all phases, in their order."""
    if _ASSUMED not in plan.text:
        return ()
    return tuple(
        LeftQuestion(phase_id=phase.id, question=asked.removeprefix(_ASKED), assumed=assumed.removesuffix(")"))
        for phase, sections in plan.parts
        for asked, mark, assumed in (entry.text.rpartition(_ASSUMED) for entry in _list_notes(sections))
        if mark and asked.startswith(_ASKED)
    )


def append_items(plan: Plan, phase_id: str, lines: Sequence[str]) -> Plan:
    """Append open items to a phase, below its last one and with the same bullet, indentation and quote marks.

    An item that is there already is not written again.

    Args:
        plan: The plan; its line ending is kept.
        phase_id: A phase that is not done, but where all of the items are there already.
        lines: One item each, with or without ``- [ ]``. White space inside becomes single blanks.

    Raises:
        PlanError: There is no such phase, it is done, an item is empty or ticked, an item prints a number that would
            change the id of another, or it would not be read as an item.
    """
    outline = plan.outline
    phase, sections = _get_phase(plan, phase_id)
    known = {item.text for item in phase.items}
    read = dict.fromkeys(_read_item(phase, line) for line in lines)
    texts = [text for text in read if text not in known]
    if not texts:
        return plan
    _refuse_done(phase)
    at, prefix = _find_room(outline, sections)
    longer = parse_plan(outline.lines.insert((at, list(_render_items(prefix, texts)))))
    _refuse_renamed(plan, longer, phase)
    if not _has_grown(plan, longer, phase_id, texts):
        raise PlanError(f"items appended to phase {phase_id} would not be read as its items", line=phase.line)
    return longer


def _find_room(outline: Outline, inside: Sequence[Section]) -> tuple[int, str]:
    """Return the 0-based line before which a phase's next item goes, and the text in front of its box."""
    in_list = inside[0].level == ITEM_LEVEL
    first, *others = [box for section in inside for box in section.boxes if box.depth <= in_list]
    last = others[-1] if others else first
    prefix = outline.lines.at(last.line - 1).partition("[")[0]
    if in_list and not others:
        prefix = f"{_indent(prefix)}- "
    notes = next((section.line - 1 for section in inside[1:] if section.is_notes), last.stop)
    at = min(last.stop, notes)
    while not outline.lines.at(at - 1).strip(" \t>"):
        at -= 1
    return at, prefix


def replace_phase(plan: Plan, phase_id: str, markdown: str) -> Plan:
    """Replace an open phase by new ones.

    Args:
        plan: The plan; its line ending is used.
        phase_id: A phase that is not done.
        markdown: One or more headings with items. Ticked items of the old phase stand there with the same text, ticked,
            in the same order. Notes of the old phase are kept at the end.

    Raises:
        PlanError: There is no such phase, it is done, the new text has no phase, a ticked item is missing, or other
            phases would change their meaning.
    """
    text, outline = plan.text, plan.outline
    phase, sections = _get_phase(plan, phase_id)
    _refuse_done(phase)
    if phase.in_list:
        raise PlanError(f"phase {phase.id} {NO_HEADING}", line=phase.line)
    ending = outline.lines.find_ending(phase.line)
    written = _LINE_END.sub(ending.replace("\\", r"\\"), markdown.removeprefix(BOM)).strip(" \t\r\n")
    notes = "".join(text[s.start : s.end] for s in sections[1:] if s.is_notes).rstrip(" \t\r\n")
    tail = text[phase.start : phase.end]
    tail = tail[len(tail.rstrip(" \t\r\n")) :]
    parse_plan(written)  # it must have a phase of its own
    replaced = parse_plan(
        "".join((text[: phase.start], written, f"{ending}{ending}{notes}" if notes else "", tail, text[phase.end :]))
    )
    _refuse_other(plan, replaced, phase)
    return replaced


def split_at_headings(plan: Plan, phase_id: str) -> Plan | None:
    """Return the plan with the sub-headings of an open phase that have boxes as phases; None if that cannot be done.

    Each gets a number, ``### Phase 3a — Schema``, and what the phase says of its order, runner and model. What stands
    between the phase's heading and the first of them stays: with boxes it is a phase before them, else it is for all
    of them. The last one repeats the phase's verify commands, which must be green at its end.

    Raises:
        PlanError: There is no such phase, or it is done.
    """
    phase, sections = _get_phase(plan, phase_id)
    _refuse_done(phase)
    parts = _list_parts(sections)
    named = _UNIT.match(render_plain(phase.heading))
    if not parts or not named or named[1][-1].isalpha() or len(parts) > len(ascii_lowercase):
        return None
    ids, lines = [f"{named[1]}{letter}" for letter in ascii_lowercase[: len(parts)]], plan.outline.lines
    starts = [lines.offset(part.line - 1) + _HEADING.match(lines.at(part.line - 1)).end() for part in parts]  # type: ignore[union-attr]  # any line
    words = (*(f"{named[0]}{one[-1]} — " for one in ids), "")
    pieces = (plan.text[a:b] for a, b in pairwise((0, *starts, len(plan.text))))
    numbered = find_plan_in("".join(f"{piece}{word}" for piece, word in zip(pieces, words, strict=True)))
    split = _repeat_statements(numbered, phase, sections[0], ids) if numbered else None
    stays = {one.id for one in plan.phases if one is not phase or sections[0].boxes}
    if not split or {one.id for one in split.phases} != {*stays, *ids}:
        return None
    same = [(item.text, item.done) for item in split.items] == [(item.text, item.done) for item in plan.items]
    return split if same and not any(check_order(split)) else None


def _repeat_statements(plan: Plan, phase: Phase, head: Section, ids: Sequence[str]) -> Plan | None:
    """Return the plan with a phase's statements in its parts; None if they cannot be written."""
    known = {command for part in plan.phases if part.id in ids for command in part.own_verify}
    commands = [command for command in phase.own_verify if command not in known]
    heads = [sections[0] for part, sections in plan.parts if part.id in ids]
    if len(heads) != len(ids) or any("`" in command for command in commands):
        return None
    said = [(find_statement(entry.text) or "", entry.text) for entry in head.entries if entry.kind in _LINES]
    for_all = [text for word, text in said if word and word not in {"verify", "after"}]
    added = [[text for text in for_all if text not in {one.text for one in part.entries}] for part in heads]
    added[0] += [] if head.boxes else [text for word, text in said if word == "after"]
    added[-1] += [f"Verify: `{command}`" for command in commands]
    at = [part.line + part.heading.count("\n") + part.underlined for part in heads]
    return find_plan_in(plan.outline.lines.insert(*zip(at, added, strict=True)))


def _list_parts(sections: Sequence[Section]) -> list[Section]:
    """Return a phase's sub-sections with boxes, without those below another of them."""
    parts: list[Section] = []
    for section in sections[1:]:
        if section.boxes and not (parts and section.level > parts[-1].level):
            parts.append(section)
    return parts


def _get_phase(plan: Plan, phase_id: str) -> tuple[Phase, tuple[Section, ...]]:
    for phase, sections in plan.parts:
        if phase.id == phase_id:
            return phase, sections
    raise PlanError(f"there is no phase {phase_id}; there are {list_some([p.id for p in plan.phases])}", line=1)


def _refuse_done(phase: Phase) -> None:
    if phase.done:
        raise PlanError(f"phase {phase.id} is done; only open phases change, write a new one", line=phase.line)


def _refuse_other(before: Plan, after: Plan, phase: Phase) -> None:
    """Refuse a text in place of a phase that loses or makes a tick, or changes what another phase means."""
    above = before.phases.index(phase)
    below = len(before.phases) - above - 1
    written = after.phases[above : len(after.phases) - below]
    end = len(after.text) - len(before.text) + phase.end
    starts = {section.start for section in after.outline.sections}
    if len(after.phases) <= above + below or phase.start not in starts or written[-1].end > end:
        words = f"the new text of phase {phase.id} must begin with a heading, and end what it begins: fences and HTML"
        raise PlanError(words, line=phase.line)
    ticks = ([item for one in phases for item in one.items if item.done] for phases in ((phase,), written))
    for old, new in zip_longest(*ticks):
        if old is None or new is None or old.text != new.text:
            words = (
                f"`{old.text}` is gone or has moved" if old else f"`{new.text}` is ticked, and not in phase {phase.id}"
            )
            raise PlanError(f"{words}; ticked items stay, in their order", line=(new or written[0]).line)
    pairs = [*zip(before.phases[:above], after.phases[:above], strict=True)]
    pairs += zip(before.phases[above + 1 :], after.phases[len(after.phases) - below :], strict=True)
    names = {was.id: {now.id} for was, now in pairs} | {phase.id: {one.id for one in written}}
    for was, now in pairs:
        texts = (plan.text[one.start : one.end].strip() for plan, one in ((before, was), (after, now)))
        if len(set(texts)) > 1 or (was.verify, was.own_verify, was.files) != (now.verify, now.own_verify, now.files):
            words = f"the new text of phase {phase.id} would change phase {was.id}, or its gate"
            raise PlanError(words, line=now.line)
        if was.id != now.id and any(item.done for item in was.items):
            words = f"phase {was.id} would be phase {now.id}; a phase with ticked items keeps its id"
            raise PlanError(words, line=now.line)
        wanted = [names.get(one, {one}) for one in was.after]
        if not set().union(*wanted) >= set(now.after) or any(one.isdisjoint(now.after) for one in wanted):
            words = f"what phase {was.id} comes after would change; write its number in `After:`"
            raise PlanError(words, line=now.line)


def _refuse_renamed(before: Plan, after: Plan, phase: Phase) -> None:
    """Refuse new items that change the id of another: claims are kept by id."""
    pairs = (
        (old, new)
        for was, now in zip(before.phases, after.phases, strict=False)
        for old, new in zip(was.items, now.items, strict=False)
    )
    if lost := [old.id for old, new in pairs if old.id != new.id]:
        words = f"a new item for phase {phase.id} prints a number that would change what item {lost[0]} is called"
        raise PlanError(f"{words}; write it without a number", line=phase.line)


def _last_line(lines: Lines, section: Section) -> int:
    """Return the 0-based index of a section's last line that is not blank; the heading counts."""
    at = lines.index_at(max(section.end - 1, section.start))
    while at > section.line - 1 and lines.is_blank(at):
        at -= 1
    return at


def _clean(text: str) -> str:
    """Return a text as one line, without characters that hide or reorder others on a screen."""
    return " ".join(_UNSEEN.sub("\ufffd", text).split())


def _render_inert(text: str) -> str:
    found = _BLOCK_START.match(text)
    if not found:
        return text
    at = len(found["digits"] or "")
    return f"{text[:at]}\\{text[at:]}"


def _read_item(phase: Phase, line: str) -> str:
    text = _BOXES.sub("", _clean(line), count=1)
    if _TICKED.match(text):
        raise PlanError(f"a new item for phase {phase.id} is ticked; new items are open", line=phase.line)
    if not text:
        raise PlanError(f"an empty item for phase {phase.id}; an item has text", line=phase.line)
    return text


def _render_items(prefix: str, texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        prefix = _ORDERED.sub(lambda number: str(int(number[1]) + 1), prefix)
        yield f"{prefix}[ ] {text}"
