"""Whether a plan says what its author meant. Pure: `Plan` in, violations out.

A plan that parses can still be wrong in ways that a run would turn into a stall, a skipped item or a gate that is not
there. What loses work or stops a run is an error; what weakens it is a warning.
"""

import re
from collections.abc import Iterator

from relay.plan.lines import Lines
from relay.plan.model import Phase, Plan, Violation
from relay.plan.outline import Entry, EntryKind, Outline, Section, find_extents, iter_entries
from relay.plan.paths import find_paths
from relay.plan.spans import parse_number, render_plain
from relay.plan.statements import find_statement, read_after_lines, read_verify_lines
from relay.words import list_some, shorten

_ALLOWED_BOX = "write `- [ ] text` or `- [x] text`"
_NEAR_BOX = re.compile(r"\[(?:[ \t\xa0]*+(?:[xX][ \t\xa0]*+)?|[^\w\s\[\]\\^!@#])\](?![(\[:])")
_NEAR_ITEM = re.compile(r"(?:[-*+•‣–—]|\d{1,9}[.)])[ \t\xa0]*\[[ \txX]?\](?![(\[:])")
_BARE_BOX = re.compile(r"\[[ xX]\][ \t]+\S")
_HIDDEN_ITEM = re.compile(r"^[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]\][ \t]+\S", re.MULTILINE)
_SENTENCE = re.compile(r"[A-Z][a-z]+ .*")
_SHOWN_CHARS = 60
_MAX_COMMAND_CHARS = 4_000
_DECEPTIVE = re.compile("[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufffd]")
"""Control characters but tab and line feed, what reorders or hides text, and what stands for NUL."""
_LONE_RETURN = re.compile(r"\r(?!\n)")


def check_plan(plan: Plan) -> tuple[Violation, ...]:
    """Return what is wrong with a plan, in line order; warnings are marked as such."""
    outline = plan.outline
    heads = {extent.head for extent in find_extents(outline.sections)}
    found = [
        *_check_numbers(plan),
        *_check_order(plan),
        *_check_gates(plan, outline),
        *_check_items(plan, outline),
        *_check_headings(outline, heads),
        *_check_lines(outline),
        *_check_line_ends(plan.text),
    ]
    return tuple(sorted(found, key=lambda violation: violation.line))


def _check_numbers(plan: Plan) -> Iterator[Violation]:
    seen: dict[str, Phase] = {}
    for phase in plan.phases:
        number = parse_number(render_plain(phase.heading)).number.casefold()
        first = seen.setdefault(number, phase) if number else phase
        if first is not phase:
            yield _error(phase.line, f"phase number {number} is taken by line {first.line}; give each phase its own")
        elif number and number != phase.id.casefold():
            yield _warning(
                phase.line,
                f"this heading says {number}, but relay counts it as phase {phase.id}, because not every phase "
                "carries its own number; number all of them or none",
            )


def _check_order(plan: Plan) -> Iterator[Violation]:
    known = {phase.id for phase in plan.phases}
    for phase in plan.phases:
        for target in phase.after:
            if target not in known:
                yield _error(
                    phase.line,
                    f"phase {phase.id} comes after {target}, which is no phase; there are {_list(known, plan)}",
                )
    cycle = _find_cycle(plan)
    if cycle:
        way = " → ".join(phase.id for phase in (*cycle, cycle[0]))
        yield _error(
            cycle[0].line,
            f"phases wait for each other: {way}; change an `After:` line (the default is the phase above)",
        )


def _list(known: set[str], plan: Plan) -> str:
    return list_some([phase.id for phase in plan.phases if phase.id in known])


def _find_cycle(plan: Plan) -> tuple[Phase, ...]:
    """Return the phases of one circle of `after`, each followed by one it waits for; empty when there is none."""
    phases = {phase.id: phase for phase in plan.phases}
    waiting = {phase_id: {target for target in phase.after if target in phases} for phase_id, phase in phases.items()}
    needed_by: dict[str, list[str]] = {phase_id: [] for phase_id in phases}
    for phase_id, targets in waiting.items():
        for target in targets:
            needed_by[target].append(phase_id)
    ready = [phase_id for phase_id, targets in waiting.items() if not targets]
    while ready:
        done = ready.pop()
        del waiting[done]
        for phase_id in needed_by[done]:
            waiting[phase_id].discard(done)
            if not waiting[phase_id]:
                ready.append(phase_id)
    if not waiting:
        return ()
    at = next(iter(waiting))
    walked: dict[str, None] = {}
    while at not in walked:
        walked[at] = None
        at = min(waiting[at])
    way = list(walked)
    return tuple(phases[phase_id] for phase_id in way[way.index(at) :])


def _check_gates(plan: Plan, outline: Outline) -> Iterator[Violation]:
    for phase in plan.phases:
        if not phase.verify:
            yield _warning(
                phase.line,
                f"phase {phase.id} has no `Verify:` line, so its boxes are ticked unchecked; add one such as "
                "Verify: `pytest -q`",
            )
    seen: set[str] = set()
    for phase in plan.phases:
        yield from _check_commands(phase, tuple(command for command in phase.verify if command not in seen))
        seen.update(phase.verify)
    for section in outline.sections:
        yield from _check_statements(section)


def _check_commands(phase: Phase, commands: tuple[str, ...]) -> Iterator[Violation]:
    """Refuse commands that the user cannot review: a screen hides or reorders characters, or they are too long."""
    for command in commands:
        if words := find_obscurity(command):
            yield _error(phase.line, f"a verify command of phase {phase.id} {words}")


def find_obscurity(command: str) -> str:
    """Say why a person who reads a command does not see what it does; empty when nothing hides it."""
    found = _DECEPTIVE.search(command)
    if found:
        return f"holds the character U+{ord(found[0]):04X}, which a screen does not show; take it out"
    if len(command) > _MAX_COMMAND_CHARS:
        return f"has {len(command):,} characters; {_MAX_COMMAND_CHARS:,} are allowed, put the rest into a script"
    return ""


def _check_statements(section: Section) -> Iterator[Violation]:
    for verify in read_verify_lines(section):
        if not verify.commands:
            yield _warning(verify.line, "`Verify:` names no command; put it in backticks on the same line or below")
        elif verify.plain and _SENTENCE.fullmatch(verify.commands[0]):
            shown = shorten(verify.commands[0], _SHOWN_CHARS)
            yield _warning(verify.line, f"relay will run `{shown}` as a command; put the command in backticks")
    for after in read_after_lines(section):
        if after.prose:
            yield _warning(
                after.line,
                f"`After: {shorten(after.prose, _SHOWN_CHARS)}` is read as prose, because it names no phase by number; "
                "write `After: 1, 3` or `After: none`",
            )


def _check_items(plan: Plan, outline: Outline) -> Iterator[Violation]:
    for box in outline.sections[0].boxes:
        yield _error(box.line, "this item stands above the first heading, so it is in no phase; put a heading above it")
    prose = {box.line: box.prose for section in outline.sections for box in section.boxes}
    for phase in plan.phases:
        yield from _check_repeats(phase)
        for item in phase.items:
            for path in find_paths(prose[item.line]).refused:
                shown = shorten(path, _SHOWN_CHARS)
                yield _warning(item.line, f"`{shown}` leads out of the repository; paths are relative to its root")
            if not item.paths:
                yield _warning(
                    item.line, f"item {item.id} names no file or folder; add it at the end, as in ` — src/keys.py`"
                )


def _check_repeats(phase: Phase) -> Iterator[Violation]:
    """Refuse two items of the same text under the same parent: neither a model nor a person can tell them apart."""
    above: list[str] = []
    seen: dict[tuple[str, str], str] = {}
    for item in phase.items:
        del above[item.depth :]
        parent = above[-1] if above else ""
        first = seen.setdefault((parent, item.text), item.id)
        if first != item.id:
            yield _error(item.line, f"item {item.id} says the same as item {first}; say what is different")
        above += [item.id] * (item.depth + 1 - len(above))


def _check_headings(outline: Outline, heads: set[int]) -> Iterator[Violation]:
    for at, section in enumerate(outline.sections[1:], start=1):
        if section.underlined and find_statement(section.title):
            yield _error(
                section.line,
                "this line is a heading, because the line below underlines it; put a blank line between them",
            )
        if at in heads and not section.title:
            yield _error(section.line, "this phase's heading is empty; give it a title")
        if at in heads and section.is_notes:
            yield _warning(
                section.line, "this Notes section has boxes, so it is a phase of its own; notes are `- text`"
            )


def _check_lines(outline: Outline) -> Iterator[Violation]:
    for _, entry in iter_entries(outline.sections):
        yield from _check_entry(entry)


def _check_entry(entry: Entry) -> Iterator[Violation]:
    shown = shorten(entry.text.partition("\n")[0], _SHOWN_CHARS)
    match entry.kind:
        case EntryKind.BULLET if _NEAR_BOX.match(entry.text):
            yield _error(entry.line, f"`{shown}` is not a box, so this is no item; {_ALLOWED_BOX}")
        case EntryKind.PROSE if _NEAR_ITEM.match(entry.text):
            yield _error(entry.line, f"`{shown}` is not a list item, so its box does not count; {_ALLOWED_BOX}")
        case EntryKind.PROSE if _BARE_BOX.match(entry.text):
            yield _warning(entry.line, f"`{shown}` has no bullet, so its box does not count; {_ALLOWED_BOX}")
        case EntryKind.CODE if entry.unclosed:
            yield _error(entry.line, "this code fence is not closed, so all that follows is code; close it")
        case EntryKind.HTML if entry.text.lstrip().startswith("<!--") and "-->" not in entry.text:
            yield _error(entry.line, "this comment is not closed, so all that follows is hidden; close it with `-->`")
        case EntryKind.HTML if not entry.text.lstrip().startswith("<!--") and _HIDDEN_ITEM.search(entry.text):
            yield _warning(entry.line, "boxes inside this HTML do not count; put a blank line after the opening tag")
        case _:
            pass


def _check_line_ends(text: str) -> Iterator[Violation]:
    """Refuse a lone carriage return among other line ends: a terminal writes what follows over what was before."""
    lone = _LONE_RETURN.search(text)
    if lone and "\n" in text:
        yield _error(Lines.of(text).index_at(lone.start()) + 1, "this line ends in a lone carriage return; take it out")


def _error(line: int, message: str) -> Violation:
    return Violation(line=line, message=message)


def _warning(line: int, message: str) -> Violation:
    return Violation(line=line, message=message, warning=True)
