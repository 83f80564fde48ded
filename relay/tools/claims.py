"""The tools by which the model reports on its work: `tick`, `record`, `amend`, `hand_off`, `defer`, `block`.

They write `AttemptNotes`. These are claims and no facts: relay checks before it ticks an item.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from msgspec import structs

from relay.base.errors import PlanError
from relay.base.tree import FileState
from relay.base.values import dataclass
from relay.base.words import list_some, name_item, render_output, shorten
from relay.ledger.belief import ClaimStatus, judge
from relay.ledger.citation import MAX_CITED_BYTES, PLACE, explain_missing, parse_lines, parse_place
from relay.ledger.model import Kind, Ledger, Record, Source
from relay.plan.edit import render_question
from relay.plan.model import Item, Phase, Plan
from relay.plan.operations import AddItems, AddNote, run_operation
from relay.session.events import QuestionAsked
from relay.session.values import CLAIM_LINKS, ToolResult
from relay.tools.workspace import RefusedError, Workspace, locate, open_regular, require_readable


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOff:
    """The model's message to the next session of its phase."""

    next_step: str
    learned: tuple[str, ...]
    dead_ends: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Findings:
    """What explorers found out for a planner, and what it took from another agent's session. Mutable: it grows."""

    ledger: Ledger
    """The ledger with the records."""
    records: list[Record] = field(default_factory=list)
    cite: Callable[[Sequence[int]], str] | None = None
    """Names turns of the session that the plan is made of, empty for an unknown one; None without such a session."""


@dataclass(slots=True, kw_only=True)
class AttemptNotes:
    """The claims of a session, which the loop reads at its end. Mutable: the tools fill it."""

    plan: Plan
    """The plan with the session's amendments and without its ticks; new items can be ticked at once."""
    phase: Phase
    """The phase of this session in `plan`; only its items can be ticked."""
    ledger: Ledger = field(default_factory=Ledger)
    """The ledger with the session's records."""
    find_beside: Callable[[], Collection[str]] = frozenset
    """Returns the phases in other work trees, which do not see amendments."""
    claims: dict[str, str] = field(default_factory=dict)
    """Item id to evidence, in order. The caller puts in the claims of earlier sessions first."""
    records: list[Record] = field(default_factory=list)
    questions: list[QuestionAsked] = field(default_factory=list)
    """Questions left to the user; each stands in the plan's notes."""
    hand_off: HandOff | None = None
    subject: str = ""
    """The commit's subject that came with a tick; empty without one."""
    blocked: str | None = None
    """The reason given to `block`; None if it was not called."""
    seen: dict[str, FileState] = field(default_factory=dict)
    """State of each file when the model last saw a part of it, or wrote it."""
    touched_paths: dict[str, None] = field(default_factory=dict)
    """Files changed by edit and write, in order; changes by commands are not known here."""
    last_errors: dict[str, str] = field(default_factory=dict)
    """Tool name to the text of its last failure, until the tool succeeds again."""
    counts: Counter[str] = field(default_factory=Counter)
    """Number of calls by tool name, unknown names included."""

    def open_ids(self) -> tuple[str, ...]:
        """Return the ids of the items that are neither ticked nor claimed, in order."""
        return tuple(item.id for item in self.phase.open_items if item.id not in self.claims)


MAX_CLAIM_CHARS = 4_000
"""A page. Longer texts belong in a file."""

_AROUND_ID = "#()[]*_:. "
"""Characters that a model or a plan may put around an item's id."""
_ID = re.compile(r"[\w-]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_NO_CLAIM = "there is no claim {!r} in the ledger"
MAX_ALLOWED = 20
"""Most ids that a refusal lists, the newest first."""
_FORMS = "path, path:line or path:first-last"
_SHOWN_CHARS = 120
_KNOWN = "It stands in the plan already; nothing changed."
_BOX = re.compile(r"\s{0,12}(?:[-*+]|\d{1,9}[.)])\s+\[(.)\]\s+(\S.*)")


def run_tick(notes: AttemptNotes, given: Mapping[str, Any]) -> ToolResult:
    """Note the claim that an open item of the phase is finished; the answer names the item.

    An item for a person is refused. The last item's tick with the commit's subject ends the turn.
    """
    evidence = _get_text(given, "evidence")
    asked = given["item"].strip().strip(_AROUND_ID)
    item = _find_item(notes.phase, asked)
    if item is None:
        raise RefusedError(_say_unknown_item(notes, asked))
    named = shorten(name_item(item.id, item.text), _SHOWN_CHARS)
    if item.state == "yours":
        open_items = ", ".join(notes.open_ids()) or "none"
        raise RefusedError(f"{item.id} is for a person, who ticks it: leave it open. Open for you: {open_items}.")
    known = item.done or item.id in notes.claims
    said = (
        f"Already {'ticked' if item.done else 'claimed'}: {named}. Nothing changed." if known else f"Claimed: {named}"
    )
    if not known:
        notes.claims[item.id] = evidence
    notes.subject = given.get("commit", "").strip().removeprefix("Commit:") or notes.subject
    if left := notes.open_ids():
        return ToolResult(text=f"{said}\nStill open: {', '.join(left)}.")
    if notes.subject:
        return ToolResult(text=f"{said}\nrelay runs the checks.", ends_turn=True)
    return ToolResult(
        text=f"{said}\nNothing is open: end with a line `Commit: <what changed>`, and relay runs the checks."
    )


def _find_item(phase: Phase, asked: str) -> Item | None:
    """Return the item with this id, else the only one that begins with these words, such as spec-kit's ``T001``."""
    known = next((item for item in phase.items if item.id == asked), None)
    if known is not None or not asked:
        return known
    begins = re.compile(rf"[{re.escape(_AROUND_ID)}]*{re.escape(asked)}(?!\.?\w)", re.IGNORECASE)
    found = [item for item in phase.items if begins.match(item.text)]
    return found[0] if len(found) == 1 else None


def _say_unknown_item(notes: AttemptNotes, item_id: str) -> str:
    own = f"Open items of phase {notes.phase.id}: {', '.join(notes.open_ids()) or 'none'}."
    owner = next((phase for phase in notes.plan.phases if any(item.id == item_id for item in phase.items)), None)
    if owner is None:
        return f"There is no item {item_id!r}. {own}"
    return f"{item_id} belongs to phase {owner.id}, not to yours. {own}"


def run_record(workspace: Workspace, notes: AttemptNotes, given: Mapping[str, Any]) -> ToolResult:
    """Note a finding; its sources must exist, so that later sessions can check them for changes."""
    links = _require_links(notes, given)
    is_bare = links["confirms"] or (len(links["contradicts"]) > 1 and not given["claim"].strip())
    record = Record(
        claim="" if is_bare else _get_text(given, "claim"),
        because=_get_text(given, "because"),
        kind=Kind(given.get("kind", Kind.DECISION)),
        **links,
        sources=tuple(_require_source(workspace, source.strip()) for source in given["sources"]),
    )
    if not record.sources and (cited := [one for one in record.confirms if notes.ledger.claims[one].sources]):
        raise RefusedError(f"sources: say where {', '.join(cited)} stands now, as {_FORMS}.")
    if record in notes.records:
        return ToolResult(text="Already recorded; nothing changed.")
    notes.records.append(record)
    return ToolResult(text="Recorded.")


def _require_links(notes: AttemptNotes, given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the claims that a record names, by field."""
    links = {name: tuple(dict.fromkeys(_ID.findall(given.get(name, "")))) for name in CLAIM_LINKS}
    named, claims, nogoods = [one for ids in links.values() for one in ids], notes.ledger.claims, notes.ledger.nogoods
    judgement = judge(notes.ledger, {})
    standing = [name for name in claims if judgement[name].status is not ClaimStatus.OUT]
    for name, ids in links.items():
        for one in ids:
            entry = claims.get(one) or (nogoods.get(one) if name == "replaces" else None)
            if entry is None or (one not in standing and name != "replaces"):
                why = f"{one} is out ({judgement[one].because})" if one in claims else _NO_CLAIM.format(one)
                allowed = list_some(standing[::-1], MAX_ALLOWED) or "none, for no claim of the ledger holds"
                raise RefusedError(f"{name}: {why}. Allowed: {allowed}.")
            if named.count(one) > 1 or (name == "confirms" and len(ids) < len(named)):
                raise RefusedError(
                    f"{name}: {one} can stand in one of {', '.join(CLAIM_LINKS)}, and confirms stands alone."
                )
            if name == "replaces" and entry.stamp.is_persons:
                ways = "say so with its id in contradicts, or `defer` the question"
                raise RefusedError(f"replaces: a person recorded {one}, and only a person takes it back; {ways}.")
    return links


def _require_source(workspace: Workspace, source: str) -> Source:
    if PLACE.fullmatch(source) is None:
        raise RefusedError(f"A source is {_FORMS}; leave sources empty if there is none.")
    asked = parse_place(source)
    first, last = parse_lines(asked.lines or "1")
    if last < first:
        raise RefusedError(f"{source}: the last line is before the first.")
    with locate(workspace, asked.path, follow=True) as place:
        if place.status is None:
            raise RefusedError(f"{source}: no such file. A source is {_FORMS}.")
        require_readable(workspace, place.path)  # its hash goes into the ledger, where its content could be guessed
        found = structs.replace(asked, path=place.path)
        if found.lines:
            with os.fdopen(open_regular(place), "rb") as stream:
                if words := explain_missing(found, stream.read(MAX_CITED_BYTES + 1)):
                    raise RefusedError(words)
        return found


def read_turned(workspace: Workspace, findings: Findings, given: Mapping[str, Any]) -> Record:
    """Return a claim whose sources are turns of another agent's session, and places in the repository."""
    numbers = [int(text) for text in given["turns"] if _NUMBER.fullmatch(text)]
    named = findings.cite(numbers) if findings.cite and len(numbers) == len(given["turns"]) else ""
    if not named:
        raise RefusedError("turns: the numbers in brackets of the session's digest, such as 12; at least one.")
    return Record(
        claim=_get_text(given, "claim"),
        because=f"{_get_text(given, 'because')} ({named})",
        kind=Kind(given.get("kind", Kind.DECISION)),
        sources=tuple(_require_source(workspace, source.strip()) for source in given.get("sources", ())),
    )


def run_amend(notes: AttemptNotes, given: Mapping[str, Any]) -> ToolResult:
    """Note new items or a note for an open phase."""
    why, change = _get_text(given, "why"), _get_text(given, "change")
    phase = notes.plan.find_phase(given["phase"].strip())
    if phase is None or phase.done:
        opened = ", ".join(one.id for one in notes.plan.phases if not one.done)
        state = f"Phase {phase.id} is done and cannot change." if phase else f"There is no phase {given['phase']!r}."
        raise RefusedError(f"{state} Open phases: {opened}.")
    if phase.id != notes.phase.id and phase.id in notes.find_beside():
        words = f"Phase {phase.id} is at work beside yours, or done there: it takes nothing new."
        raise RefusedError(f"{words} Amend a phase that has not begun, or record it.")
    items, rest = _split_items(change)
    # A session that was cut off may have added some: the plan tells, and not this session's memory.
    known, note = {item.text for item in phase.items}, " ".join(" ".join(rest).split())
    items = tuple(item for item in dict.fromkeys(items) if item not in known)
    if not items and not note:
        return ToolResult(text=_KNOWN)
    note = f"amended: {note or f'added {len(items)} item(s)'} (because {why})"
    if not _grow(notes, AddItems(phase_id=phase.id, texts=items), AddNote(phase_id=phase.id, text=note)):
        return ToolResult(text=_KNOWN)
    what = f"{len(items)} new item{'s' * (len(items) > 1)}" if items else "a note"
    return ToolResult(text=f"Noted: {what} for phase {phase.id}. relay writes it into the plan when this session ends.")


def _grow(notes: AttemptNotes, *operations: AddItems | AddNote) -> bool:
    """Add what the plan does not have yet, all or nothing; return whether there was any."""
    plan = notes.plan
    try:
        for operation in operations:
            plan = run_operation(plan, operation)
    except PlanError as error:
        raise RefusedError(f"The plan cannot take this: {error}") from error
    if plan.text == notes.plan.text:
        return False
    notes.plan, notes.phase = plan, plan.find_phase(notes.phase.id) or notes.phase
    return True


def _split_items(change: str) -> tuple[tuple[str, ...], Sequence[str]]:
    """Return the texts of items, and the other lines."""
    items, rest = [], []
    for line in change.splitlines():
        match = _BOX.fullmatch(line.rstrip())
        if match is None:
            rest.append(line)
        elif match[1] != " ":
            raise RefusedError(f"New items begin unticked, as '- [ ] text'. Found: {line.strip()[:100]}")
        else:
            items.append(" ".join(match[2].split()))
    return tuple(items), rest


def run_defer(notes: AttemptNotes, given: Mapping[str, Any]) -> ToolResult:
    """Note a question for the user and the session's assumption; the session goes on."""
    question, assumed = (" ".join(_get_text(given, name).split()) for name in ("question", "assumed"))
    if not _grow(notes, AddNote(phase_id=notes.phase.id, text=render_question(question, assumed))):
        return ToolResult(text="Already asked; nothing changed.")
    notes.questions.append(QuestionAsked(question=question, assumed=assumed))
    return ToolResult(text="The user will read it in the plan. Go on with what you assume.")


def run_hand_off(notes: AttemptNotes, given: Mapping[str, Any]) -> ToolResult:
    """End the session; its message goes into the handoff note."""
    notes.hand_off = HandOff(
        next_step=_get_text(given, "next_step"),
        learned=_get_entries(given, "learned"),
        dead_ends=_get_entries(given, "dead_ends"),
    )
    return ToolResult(text="Handed off.", ends_session=True)


def run_block(notes: AttemptNotes, given: Mapping[str, Any]) -> ToolResult:
    """End the session because only the user can go on."""
    notes.blocked = _get_text(given, "reason")
    return ToolResult(text="Blocked; the user is asked.", ends_session=True)


def _get_text(given: Mapping[str, Any], name: str) -> str:
    return _require_text(name, given[name])


def _get_entries(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(_require_text(name, entry) for entry in given[name] if entry.strip())


def _require_text(name: str, value: str) -> str:
    text = render_output(value.encode()).strip()
    if not text:
        raise RefusedError(f"{name} must not be empty.")
    if len(text) > MAX_CLAIM_CHARS:
        raise RefusedError(
            f"{name} has {len(text):,} characters; {MAX_CLAIM_CHARS:,} are allowed. Put the rest in a file."
        )
    return text


def read_question(workspace: Workspace, given: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Return a question to an explorer, and the paths where it should begin."""
    paths = tuple(path.strip() for path in given.get("paths", ()))
    for path in paths:
        with locate(workspace, path, follow=True) as place:
            if place.status is None:
                raise RefusedError(f"paths: {path}: no such file or folder.")
            require_readable(workspace, place.path)
    return _get_text(given, "question"), paths


def read_finding(workspace: Workspace, given: Mapping[str, Any], because: str) -> Record:
    """Return a claim that an explorer hands in."""
    return Record(
        claim=_get_text(given, "claim"),
        because=because,
        kind=Kind.OBSERVATION,
        sources=tuple(_require_source(workspace, place.strip()) for place in given["places"]),
    )
