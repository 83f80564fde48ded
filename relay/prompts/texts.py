"""The texts for the model: the only reader of `templates/prompts/`.

The system text is the same for every session of a run, so that a fresh session starts on a warm cache; everything that
changes stands in the first message.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from string import Template

from relay.base.values import dataclass
from relay.base.words import list_some
from relay.plan.excerpt import cut_excerpt
from relay.plan.model import Phase, Plan
from relay.prompts.package_data import get_shipped
from relay.session.events import SizedPart
from relay.session.usage import estimate_tokens
from relay.session.values import HandoffNote, ToolSpec

_RULES = "\n\n# Rules of this repository\n\n"
MAX_OUTDATED = 20
"""Most later items in one notice."""


PartLimit = tuple[str, int, int]
"""What bounds a part of the first message: its source, the tokens cut from it, and the most that the settings allow; 0
for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBriefing:
    """What a fresh session is told about its phase."""

    plan: Plan
    phase: Phase
    plan_path: str
    environment: tuple[str, ...]
    """One fact per line: sandbox, network, branch."""
    claimed: tuple[str, ...]
    """Items that earlier sessions of this phase ticked, and that are not committed yet."""
    handoff_note: str
    """The handoff note of the session before, as `render_handoff_note` wrote it; empty for the first."""
    interruption: str
    """What an interrupted session left behind; empty if nothing."""
    baseline: str
    """Verify commands that were red before the phase; empty if none were."""
    ledger: str
    """Ledger snapshot within its token budget; may be empty."""
    files: tuple[tuple[str, str], ...] = ()
    """Small files that the phase names, with their names (`relay.run.attempt.preload`)."""
    rules: str = ""
    """Rules of the folders that the phase names, below those of the root; may be empty."""
    skills: str = ""
    """One line for each skill of the repository; may be empty."""
    review: str = ""
    """Faults in the phase's work that reviewers confirmed; empty if none."""
    said: tuple[str, ...] = ()
    """What the user said to earlier sessions of the phase."""
    stale: tuple[str, ...] = ()
    """Files the phase names that are gone or changed since the plan was made."""
    amended: tuple[str, ...] = ()
    """Items and notes that earlier sessions of this phase added to other phases, and that are not committed yet."""
    limits: tuple[PartLimit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewBriefing:
    """What a reviewer sees; nothing that the author said."""

    task: str
    """The task: the phase as the plan has it."""
    patch: str
    """The change, as git shows it; cut if too long."""
    gate: str
    """The checks that it passed; empty if none."""
    earlier: str = ""
    """What an earlier round confirmed and this change should repair; empty in the first."""


@cache
def _load(name: str) -> str:
    return (get_shipped("templates") / "prompts" / f"{name}.md").read_text(encoding="utf-8")


def render_text(name: str, **values: str | int) -> str:
    """Return a text of `templates/prompts/` with its values; numbers as people write them."""
    shown = {key: f"{value:,}" if isinstance(value, int) else value for key, value in values.items()}
    return Template(_load(name)).substitute(shown).strip()


def render_system(name: str, rules: str, **values: str | int) -> str:
    """Return a role with its protocol, and the repository's rules (empty if there are none)."""
    role = render_text(name, **values)
    return f"{role}{_RULES}{rules.strip()}" if rules else role


def render_soft_notice(fill_tokens: int, room_tokens: int) -> str:
    """Return the model's notice at the soft line; `room_tokens` is the room up to the hard line."""
    return render_text("soft_notice", fill=fill_tokens, room=room_tokens)


def render_band_notice(fill_tokens: int, line_tokens: int) -> str:
    """Return the model's notice in the consolidate band; `line_tokens` is the reset line."""
    return render_text("consolidate", fill=fill_tokens, line=line_tokens)


def render_outdated(lines: Sequence[str]) -> str:
    """Return the session's notice of later items that its change made wrong; empty without any."""
    if not lines:
        return ""
    listed = list_some([f"- {line}" for line in lines], MAX_OUTDATED, joint="\n")
    return f"relay: this made later items wrong. `amend` each phase with what holds now before you tick:\n{listed}"


def render_critic_message(request: str, plan_text: str) -> str:
    """Return the first message of the session that looks for faults in a plan."""
    return f"# What was asked for\n{request.strip()}\n\n{_number_plan(plan_text)}\n\nJudge the plan now."


def _number_plan(plan_text: str) -> str:
    lines = "\n".join(f"{number}\t{line}" for number, line in enumerate(plan_text.splitlines(), 1))
    return f"# The plan, with line numbers\n{lines}"


def render_reviewer_message(briefing: ReviewBriefing) -> str:
    """Return the first message of the session that looks for faults."""
    sections = [
        ("What was to be done", briefing.task),
        ("Found in an earlier round, and to be repaired by this change", briefing.earlier),
        ("Checks that it has passed", briefing.gate),
        ("The change", briefing.patch),
    ]
    body = "\n\n".join(f"# {title}\n{text}" for title, text in sections if text)
    return f"{body}\n\nThe work tree has the change in it. Review it now."


def render_refuter_message(findings: str, plan_text: str = "") -> str:
    """Return the first message of the session that tries to refute faults; `plan_text` if they are a plan's."""
    where = _number_plan(plan_text) if plan_text else "The work tree has the change in it."
    return f"# Faults\n{findings}\n\n{where}\n\nRefute them now, or confirm them."


def render_hand_in_reminder(tool: str) -> str:
    """Return the one reminder of a session that stops without handing its result in."""
    return f"relay: hand in what you have by calling {tool}; your words are not read."


def render_hand_in_notice(tool: str) -> str:
    """Return a reader's notice at the soft line: no other session continues its work."""
    return f"relay: the context of this session has reached its planned line. Call {tool} now with what you have shown."


def render_explorer_message(task: str, question: str, paths: Sequence[str]) -> str:
    """Return the first message of the session that answers a question.

    Args:
        task: The phase that the question is asked for; may be empty.
        paths: Where to begin; may be empty.
    """
    sections = [("Asked for this phase", task), ("Begin at", "\n".join(paths)), ("The question", question)]
    return "\n\n".join(f"# {title}\n{text}" for title, text in sections if text)


def render_trial_system(least_tokens: int) -> str:
    """Return the system text of a trial, with at least `least_tokens` by estimate: short prompts are not cached."""
    lines = [render_text("trial"), ""]
    while estimate_tokens("\n".join(lines)) < least_tokens:
        lines.append(f"Line {len(lines)} makes this prompt long enough for the prompt cache and means nothing.")
    return "\n".join(lines)


def render_trial_message(word: str) -> str:
    """Return the message of a trial: one tool call, then one word."""
    return f"Call the tool `echo` with the word `{word}`. When it has answered, say the word that it answered, once."


def render_phase_message(briefing: PhaseBriefing) -> str:
    """Return the first message of a session."""
    body = "\n\n".join(text for _, text in list_phase_parts(briefing))
    return f"{body}\n\nCarry out phase {briefing.phase.id} now."


def list_phase_parts(briefing: PhaseBriefing) -> tuple[tuple[str, str], ...]:
    """Return the parts of the first message of a session, each with its source as in `SessionStarted.prompt`."""
    return tuple((source, f"# {title}\n{text}") for source, title, text in _list_sections(briefing) if text)


def _list_sections(briefing: PhaseBriefing) -> Sequence[tuple[str, str, str]]:
    plan, phase = briefing.plan, briefing.phase
    excerpt = cut_excerpt(plan, phase, briefing.claimed)
    return (
        ("environment", "Environment", "\n".join(briefing.environment)),
        ("plan", f"The plan, {briefing.plan_path}", _render_outline(plan, phase, excerpt.goal)),
        ("plan", "Beside the phases", excerpt.beside),
        *(("preload", f"{name}, read for you just now", text) for name, text in briefing.files),
        ("phase", "Your phase, with the ids of its items", _explain_boxes(phase, excerpt.phase, briefing.claimed)),
        ("rules", "Rules of its folders", briefing.rules),
        ("skills", "Skills: before work that one fits, read .agents/skills/NAME/SKILL.md", briefing.skills),
        ("environment", "Red before this phase", briefing.baseline),
        ("environment", "Changed since the plan was made", "\n".join(briefing.stale)),
        ("ledger", "What is known (ledger)", briefing.ledger),
        ("review", "Confirmed by review", briefing.review),
        ("handoff_note", "From the session before you", briefing.handoff_note),
        ("handoff_note", "Interrupted work", briefing.interruption),
        ("handoff_note", "Amended in other phases by the sessions before you", "\n".join(briefing.amended)),
        (
            "steering",
            "Said by the user to the sessions before you",
            "\n".join(f"- {' '.join(text.split())}" for text in briefing.said),
        ),
    )


def render_feature_message(feature: str) -> str:
    """Return the planner's first message for a new plan."""
    return f"Plan this feature:\n\n{feature.strip()}"


def render_session_message(wish: str, *, head: str, digest: str, tag: str) -> str:
    """Return the planner's first message for the rest of another agent's session.

    Args:
        wish: What the user typed beside it; may be empty.
        head: What the session is.
        digest: Of its transcript; hostile.
        tag: Marks the digest; nothing in it has this name.
    """
    said = f"The user adds: {wish.strip()}\n\n" if wish.strip() else ""
    return render_text("session", wish=said, head=head, digest=digest, tag=tag)


def render_revise_message(request: str, plan_text: str) -> str:
    """Return the planner's first message for a change to a plan."""
    return render_text("revise", request=request.strip(), plan=plan_text.strip())


def render_correction_message(findings: str, plan_text: str) -> str:
    """Return the planner's first message for a plan with faults that two sessions confirmed."""
    return render_revise_message(
        f"Two fresh sessions have confirmed these faults. Correct them:\n{findings}", plan_text
    )


def _render_outline(plan: Plan, current: Phase, goal: str) -> str:
    lines = []
    for phase in plan.phases:
        state = " (yours)" if phase.id == current.id else " (done)" if phase.done else ""
        lines.append(f"- {phase.id} — {phase.title}{state}")
    return "\n".join([goal, "", *lines] if goal else lines)


def _explain_boxes(phase: Phase, text: str, claimed: Sequence[str]) -> str:
    remarks = ["[~]: ticked by an earlier session, not committed yet."] if claimed else []
    remarks += ["]*: not required."] if any(item.optional for item in phase.items) else []
    if persons := [item.id for item in phase.items if item.state == "yours"]:
        remarks.append(f"{', '.join(persons)}: for a person, not for you; leave open.")
    return "\n\n".join([text, *remarks])


def render_handoff_note(handoff_note: HandoffNote) -> str:
    """Return a handoff note as lines of text, for a commit's body and for the next session."""
    parts = [
        ("Ticked", handoff_note.done),
        ("Still open", handoff_note.open),
        ("Next step", (handoff_note.next_step,) if handoff_note.next_step else ()),
        ("Decisions and findings", handoff_note.learned),
        ("Recorded in the ledger", (", ".join(handoff_note.recorded),) if handoff_note.recorded else ()),
        ("Dead ends", handoff_note.dead_ends),
        ("Files touched", handoff_note.files),
        ("Last gate", (handoff_note.gate,) if handoff_note.gate else ()),
    ]
    lines = [f"(written by {'the session itself' if handoff_note.author == 'model' else 'relay from its own log'})"]
    for title, entries in parts:
        if entries:
            lines += [f"{title}:", *(f"- {' '.join(entry.split())}" for entry in entries)]
    return "\n".join(lines)


def measure_prompt(
    system: str,
    tools: Sequence[ToolSpec],
    message: Iterable[tuple[str, str]],
    limits: Iterable[PartLimit] = (),
) -> tuple[SizedPart, ...]:
    """Return the parts of a first prompt, as in `SessionStarted.prompt`.

    Args:
        system: Role, protocol and the repository's rules.
        message: The parts of the first message, each with its source.
        limits: Of these parts.
    """
    role, _, rules = system.partition(_RULES)
    described = json.dumps([[tool.name, tool.description, tool.input_schema] for tool in tools], default=str)
    texts: dict[str, str] = {}
    bounds = {source: (cut, most) for source, cut, most in limits}
    for source, text in (("system", role), ("rules", rules), *message):
        texts[source] = f"{texts[source]}\n\n{text}" if source in texts else text
    parts = [_measure(source, text, bounds=bounds.get(source, (0, 0))) for source, text in texts.items() if text]
    return (*parts[:1], _measure("tools", described, is_json=True), *parts[1:])


def _measure(source: str, text: str, *, is_json: bool = False, bounds: tuple[int, int] = (0, 0)) -> SizedPart:
    size = len(text.encode("utf-8", "replace"))
    part = SizedPart(source=source, bytes=size, tokens=estimate_tokens(text, json=is_json))
    cut_tokens, most_tokens = bounds
    if cut_tokens:
        part["cut_tokens"] = cut_tokens
    if most_tokens:
        part["most_tokens"] = most_tokens
    return part
