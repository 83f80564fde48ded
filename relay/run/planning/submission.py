"""The submissions of a planning session: relay's judgement of each, and the questions to the user.

A new plan's phases must fit one session. The estimate of a phase uses stated numbers and the sizes of files, without
any request to a model. A phase's context at its end is roughly

    fixed    1,300 tokens for tools and role, the rules files, the plan's text
  + reading  the files that the phase and its items name, whole, once: bytes / 4 · 4/3, of each at most the limit of
             one read: larger files are searched, seldom read whole
  + work     `ITEM_TOKENS` for each open item

The cost follows from sending that context, growing evenly, `TURNS` + `ITEM_TURNS` · items times through the prompt
cache. The estimate is good for one decision: does the phase fit below the reset line?
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.base.errors import PlanError
from relay.base.values import dataclass
from relay.base.words import list_some, render_tokens, shorten
from relay.config import Settings
from relay.config.choices import check_models
from relay.gate.shell_line import check_command
from relay.plan.check import check_plan
from relay.plan.edit import append_entries, replace_phase
from relay.plan.excerpt import cut_excerpts
from relay.plan.lineage import check_ticks_kept, find_lineage
from relay.plan.model import Phase, Plan, Violation
from relay.plan.parse import parse_plan
from relay.plan.text import BOM
from relay.session.events import Noticed, Observe, QuestionAsked, WordsHeard
from relay.session.layers import PHASE, PLAN
from relay.session.usage import MAX_READ_BYTES, Usage, estimate_size_tokens, pad_tokens
from relay.session.values import ToolResult
from relay.store.worktree_notes import UserWords
from relay.tools.workspace import RefusedError

if TYPE_CHECKING:
    from relay.setup.context import Ask  # it loads what `relay check` does not need

FIXED_TOKENS = 1_300
"""Tools and role: the limit of `tests/test_overhead.py`."""
ITEM_TOKENS = 4_000
"""For one item: an edit (about 800), a test run's output (1,500), looking around, words and thinking (1,700)."""
ITEM_TURNS = 4
TURNS = 3
"""Turns that do not depend on the number of items: orientation and the end."""
ITEM_OUTPUT_TOKENS = 1_200
_OVERKILL_SHARE = 0.5
_SEVERAL = 2
_SHOWN_BIG = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSize:
    """The estimated size of a phase."""

    phase_id: str
    plan_tokens: int
    """The plan around the phase, in the first message of its sessions."""
    phase_tokens: int
    """The phase itself."""
    fixed_tokens: int
    """Tools, role, rules, plan and phase."""
    reading_tokens: int
    work_tokens: int
    turn: Usage
    """The average request."""
    turns: int
    line_tokens: int
    """The reset line for comparison."""

    @property
    def context_tokens(self) -> int:
        """The context at the end of the phase if one session did all of it."""
        return self.fixed_tokens + self.reading_tokens + self.work_tokens

    @property
    def too_big(self) -> bool:
        """Whether one session is not expected to finish the phase."""
        return self.context_tokens > self.line_tokens


def size_phase(
    phase: Phase, *, file_bytes: Iterable[int], text_bytes: tuple[int, int], rules_bytes: int, line_tokens: int
) -> PhaseSize:
    """Estimate a phase's open items.

    Args:
        phase: Ticked items cost nothing.
        file_bytes: Sizes of the files that the open items name, each file once.
        text_bytes: Sizes of the plan's text around the phase, and of the phase's.
        rules_bytes: Size of the loaded rules files.
        line_tokens: The reset line.
    """
    items = len(phase.open_items)
    plan_tokens, phase_tokens = map(_count_tokens, text_bytes)
    fixed = FIXED_TOKENS + plan_tokens + phase_tokens + _count_tokens(rules_bytes)
    reading = sum(_count_tokens(min(size, MAX_READ_BYTES)) for size in file_bytes)
    work = items * ITEM_TOKENS
    turns = TURNS + ITEM_TURNS * items if items else 0
    grown = reading + work
    turn = Usage(
        cache_read_tokens=fixed + grown // 2,
        cache_write_5m_tokens=(fixed + grown) // max(1, turns),
        output_tokens=items * ITEM_OUTPUT_TOKENS // max(1, turns),
    )
    return PhaseSize(
        phase_id=phase.id,
        plan_tokens=plan_tokens,
        phase_tokens=phase_tokens,
        fixed_tokens=fixed,
        reading_tokens=reading,
        work_tokens=work,
        turn=turn,
        turns=turns,
        line_tokens=line_tokens,
    )


def suggest_parts(size: PhaseSize) -> int:
    """Return the number of phases to split a phase into; 1 if it fits or a split would not help."""
    room = size.line_tokens - size.fixed_tokens
    grown = size.reading_tokens + size.work_tokens
    return max(1, -(-grown // room)) if room > 0 else 1


def describe_overkill(sizes: Sequence[PhaseSize]) -> str:
    """Return words if one session is expected to do all open phases, of which there are several, in half its context.

    The estimates are rough: the other half is left for what they miss.
    """
    open_sizes = [size for size in sizes if size.turns]
    own = sum(size.reading_tokens + size.work_tokens for size in open_sizes)
    together = own + max((size.fixed_tokens for size in open_sizes), default=0)
    line_tokens = min((size.line_tokens for size in open_sizes), default=0)
    if len(open_sizes) < _SEVERAL or together > line_tokens * _OVERKILL_SHARE:
        return ""
    share = f"about {render_tokens(together)} of {render_tokens(line_tokens)}"
    return f"one session can do all open phases ({share}); one phase costs less"


def describe_layers(sizes: Sequence[PhaseSize]) -> tuple[str, ...]:
    """Return which texts of the plan are too large for their layer of a session's context, and what to do."""
    open_sizes = [size for size in sizes if size.turns]
    long = [size for size in open_sizes if size.phase_tokens > PHASE.find_most(size.line_tokens)]
    words = []
    if widest := max(open_sizes, key=lambda size: size.plan_tokens, default=None):
        most = PLAN.find_most(widest.line_tokens)
        if widest.plan_tokens > most:
            text = f"the plan around a phase takes about {render_tokens(widest.plan_tokens)} tokens of each session"
            ways = "shorten its goal, or move text into the phases"
            words.append(f"{text}, and should take {render_tokens(most)}: {ways}")
    if long:
        found = [f"phase {size.phase_id} (about {render_tokens(size.phase_tokens)})" for size in long]
        room = render_tokens(PHASE.find_most(long[0].line_tokens))
        text = f"more text than the {room} tokens that a phase should take: {list_some(found, _SHOWN_BIG)}"
        words.append(f"{text}; move detail into files that its items name, or split it")
    return tuple(words)


def describe_fit(plan: Plan, sizes: Sequence[PhaseSize]) -> tuple[str, ...]:
    """Return what a run says before it pays: that one session would do, or which phases do not fit into one."""
    return (*_describe_context(plan, sizes), *describe_layers(sizes))


def _describe_context(plan: Plan, sizes: Sequence[PhaseSize]) -> tuple[str, ...]:
    big = [size for size in sizes if size.turns and size.too_big]
    if not big:
        words = "" if plan.done_ids else describe_overkill(sizes)
        return (words,) if words else ()
    shown = list_some(
        [f"phase {size.phase_id} (about {render_tokens(size.context_tokens)})" for size in big], _SHOWN_BIG
    )
    line = render_tokens(big[0].line_tokens)
    return (f"too big for one session, which hands over at {line}: {shown}; relay check says how to split",)


def _count_tokens(size_bytes: int) -> int:
    return pad_tokens(estimate_size_tokens(size_bytes))


def measure_phases(
    root: Path, plan: Plan, *, find_line: Callable[[Phase], int], rules_bytes: int
) -> tuple[PhaseSize, ...]:
    """Estimate each phase.

    Args:
        find_line: Returns the reset line of a phase's model, in tokens.
        rules_bytes: Size of the loaded rules files.
    """
    titles = sum(len(phase.title) for phase in plan.phases)
    return tuple(
        size_phase(
            phase,
            file_bytes=tuple(iter_sizes(root, phase.open_paths if phase.open_items else ())),
            text_bytes=(titles + excerpt.chars - len(excerpt.phase), len(excerpt.phase)),
            rules_bytes=rules_bytes,
            line_tokens=find_line(phase),
        )
        for phase, excerpt in zip(plan.phases, cut_excerpts(plan), strict=True)
    )


def iter_sizes(root: Path, paths: Iterable[str]) -> Iterator[int]:
    """Yield the sizes in bytes of regular files inside the root; missing files cost nothing to read."""
    real_root = os.path.realpath(root)
    for path in paths:
        try:
            real = os.path.realpath(root / path)
            found = os.lstat(real)
        except (OSError, ValueError):
            continue  # the file does not exist yet, or no file can have this name
        if stat.S_ISREG(found.st_mode) and Path(real).is_relative_to(real_root):
            yield found.st_size


MAX_SUBMISSIONS = 6
"""Most submissions of a session: six corrections without success mean that more will not help."""

SIZE_TRIES = 2
"""Submissions that may be rejected for a phase's estimated size; an estimate does not block a plan for good."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedPlan:
    """A submission that goes back to the session."""

    violations: tuple[Violation, ...]
    """With the submission's own lines; never empty."""

    @property
    def faults(self) -> tuple[str, ...]:
        """The violations as texts for the model."""
        return tuple(
            f"line {fault.line}: {fault.message}" if fault.line else fault.message for fault in self.violations
        )


CheckedSubmission = Plan | RejectedPlan
"""The whole new plan, even if the submission was a part of it; or its rejection."""
MeasurePhases = Callable[[Plan], tuple[PhaseSize, ...]]
"""Estimates each phase of a plan."""
JudgeSubmission = Callable[[str, bool], CheckedSubmission]
"""Judges a submission, with or without sizes."""


@dataclass(slots=True, kw_only=True)
class Submissions:
    """The submissions of one session. Mutable: it counts them and keeps the last."""

    judge: JudgeSubmission
    tries: int = 0
    last: str = ""
    """The newest; empty before the first."""
    judgement: CheckedSubmission | None = None
    """Of the newest; None before the first."""

    @property
    def accepted(self) -> Plan | None:
        """The new plan; None if no submission was accepted."""
        return self.judgement if isinstance(self.judgement, Plan) else None

    @property
    def is_open(self) -> bool:
        """Whether the session may submit again."""
        return self.accepted is None and self.tries < MAX_SUBMISSIONS

    def submit(self, markdown: str) -> ToolResult:
        """Judge a submission; an accepted one ends the session, and so does the last rejected one."""
        self.tries += 1
        self.last = markdown
        self.judgement = self.judge(markdown, self.tries <= SIZE_TRIES)
        if isinstance(self.judgement, Plan):
            return ToolResult(text="The plan is accepted.", ends_session=True)
        left = MAX_SUBMISSIONS - self.tries
        listed = "\n".join(f"- {fault}" for fault in self.judgement.faults)
        words = f"The plan is not accepted ({left} tries left). Correct this and submit the whole text again:\n{listed}"
        return ToolResult(text=words, is_error=True, ends_session=not left)


def knowing_models(judge: JudgeSubmission, settings: Settings) -> JudgeSubmission:
    """Return a judge that also refuses phases on a model or effort that a run would refuse."""

    def judge_known(text: str, sizes: bool) -> CheckedSubmission:  # noqa: FBT001  # as Judge has it
        result = judge(text, sizes)
        phases = [] if isinstance(result, RejectedPlan) else [phase for phase in result.phases if not phase.done]
        faults = tuple(check_models(phases, settings))
        return RejectedPlan(violations=faults) if faults else result

    return judge_known


def judge_split(text: str, measure: MeasurePhases | None, *, before: Plan, phase: Phase) -> CheckedSubmission:
    """Judge phases that replace one phase; the faults name lines of the submission."""
    try:
        parse_plan(text)
    except PlanError as error:
        return reject(error)
    try:
        result = judge_plan(replace_phase(before, phase.id, text).text, measure, before=before)
    except PlanError as error:
        result = reject(error)
    if isinstance(result, Plan):
        return result
    named = (_find_submitted_line(phase, text, fault) for fault in result.violations)
    return RejectedPlan(violations=(*_describe_numbering(before, phase, text), *named))


def judge_appended(text: str, measure: MeasurePhases | None, *, before: Plan) -> CheckedSubmission:
    """Judge phases that follow all others; existing phases must stay the same."""
    result = judge_plan(f"{before.text.rstrip()}\n\n{text.strip(_BLANK)}\n", measure, before=before)
    if isinstance(result, RejectedPlan):
        return result
    old = len(before.phases)
    kept = all(
        before.text[was.start : was.end].rstrip() == result.text[now.start : now.end].rstrip()
        for was, now in zip(before.phases, result.phases, strict=False)
    )
    if len(result.phases) <= old or not kept:
        words = "this is no new phase after the others: begin with its heading, as the plan's phases do"
        return RejectedPlan(violations=(Violation(line=0, message=words),))
    faults = _check_new(result.phases[old:])
    return RejectedPlan(violations=tuple(faults)) if faults else result


def reject(error: PlanError) -> RejectedPlan:
    """Return the rejection for a plan's error."""
    return RejectedPlan(violations=(Violation(line=error.line, message=error.message),))


def _find_submitted_line(phase: Phase, text: str, fault: Violation) -> Violation:
    """Return a fault of the whole plan with its line in the submission."""
    if not fault.line:
        return fault
    written = text.removeprefix(BOM).strip(_BLANK)
    above = len(_LINE_END.findall(text[: text.index(written)]))
    line = fault.line - phase.line
    if 0 <= line <= len(_LINE_END.findall(written)):
        return replace(fault, line=line + 1 + above)
    return replace(fault, line=0, message=f"in the rest of the plan: {fault.message}")


def _describe_numbering(before: Plan, phase: Phase, text: str) -> Iterator[Violation]:
    """Yield a note if the whole plan numbers the submitted phases differently from the submission."""
    whole = f"{before.text[: phase.start]}{text.strip(_BLANK)}\n\n{before.text[phase.end :]}"
    try:
        alone, inside = parse_plan(text).phases, parse_plan(whole).phases
    except PlanError:
        return  # the fault reports it
    first = sum(other.start < phase.start for other in before.phases)
    named = inside[first : first + len(alone)]
    if [one.id for one in named] != [one.id for one in alone]:
        names = "; ".join(f"{one.id} is `{one.title}`" for one in named)
        yield Violation(line=0, message=f"phases and items are named here as the whole plan will number them: {names}")


def judge_plan(text: str, measure: MeasurePhases | None, *, before: Plan | None = None) -> CheckedSubmission:
    """Judge a whole plan.

    Args:
        measure: Estimates its phases; None if sizes no longer count.
        before: The plan before the change; None for a new plan.
    """
    text = text if text.endswith("\n") else f"{text}\n"
    try:
        plan = parse_plan(text)
    except PlanError as error:
        return reject(error)
    known = {fault.message for fault in check_plan(before)} if before else set()  # not the session's to mend
    faults = [fault for fault in check_plan(plan) if not fault.warning and fault.message not in known]
    if before is None:
        faults += _check_new(plan.phases)
    else:
        faults += [*check_ticks_kept(before, plan), *_check_words(before, plan)]
    faults += _check_sizes(measure(plan)) if measure else []
    return RejectedPlan(violations=tuple(faults)) if faults else plan


def _check_words(before: Plan, plan: Plan) -> Iterator[Violation]:
    """Yield a fault for each item that is done and has other words in the new plan; a person may do that."""
    reworded, lines = find_lineage(before, plan).reworded, {item.id: item.line for item in plan.items}
    for item in before.items:
        if item.done and (now := reworded.get(item.id)):
            yield Violation(line=lines[now], message=f"item {item.id} `{item.text}` is done; keep its words")


def _check_new(phases: Sequence[Phase]) -> list[Violation]:
    """Return the faults of new phases: each must have no tick, and a verify command."""
    faults = [
        Violation(line=i.line, message=f"item {i.id} is ticked; only relay ticks, when its gate has seen the work")
        for p in phases
        for i in p.items
        if i.done
    ]
    faults += [
        Violation(line=p.line, message=f"phase {p.id} has no `Verify:` line with a command")
        for p in phases
        if not p.verify
    ]
    faults += [
        Violation(line=phase.line, message=f"`{command}` {words}")
        for phase in phases
        for command in phase.verify
        if (words := check_command(command))
    ]
    faults += [
        Violation(line=item.line, message=f"item {item.id} names no file or folder; end it with ` — path`")
        for phase in phases
        for item in phase.items
        if not item.paths
    ]
    return faults


def _check_sizes(sizes: tuple[PhaseSize, ...]) -> list[Violation]:
    return [
        Violation(
            line=0,
            message=f"phase {size.phase_id} is too big for one session (about {size.context_tokens:,} tokens, the line "
            f"is {size.line_tokens:,}): split it into {suggest_parts(size)} phases",
        )
        for size in sizes
        if size.too_big and suggest_parts(size) > 1
    ]


CONSTRAINTS, ASSUMPTIONS, ISSUE = "Constraints", "Assumptions", "Issue"
"""Sections of the plan: the user's words, assumptions in the place of answers, and the issue that it is for."""
MAX_QUESTIONS = 4
MAX_ROUNDS = 3
"""Calls with questions that are answered: ask a person only for what matters."""
MAX_CHARS = 400
"""Most characters of a question or an option: a small screen shows them at once."""
_OPTIONS = range(2, 5)


class Interview:
    """The questions of one session. Mutable: it keeps the answers.

    Args:
        ask: Asks a person; None without one.
        redact: Redacts secrets in a person's words.
        issue: The issue that the task names, such as ``#12``; empty for none.
    """

    def __init__(self, ask: "Ask | None", observe: Observe, redact: Callable[[str], str], *, issue: str = "") -> None:
        self._ask, self._observe, self._redact, self._issue = ask, observe, redact, issue
        self._rounds = 0
        self._said: dict[str, None] = {}
        self.assumed: dict[str, None] = {}
        """Questions that nobody answered, each with what holds then."""
        self.left: list[str] = []
        """Names of the texts from another terminal that the session was told."""

    def take(self, given: Mapping[str, Any]) -> ToolResult:
        """Ask a session's questions, and return the answers.

        Raises:
            RefusedError: The session asks too much, or a question is invalid.
        """
        questions = tuple(_read_question(one, waits=self._ask is not None) for one in given["questions"])
        if not 1 <= len(questions) <= MAX_QUESTIONS:
            raise RefusedError(f"Ask 1 to {MAX_QUESTIONS} questions at once.")
        if self._rounds >= MAX_ROUNDS:
            raise RefusedError("The user was asked often enough. Decide, and say in the plan what you assume.")
        self._rounds += 1
        began = time.monotonic()
        lines = [self._put(question, len(questions) - at) for at, question in enumerate(questions, 1)]
        words = "relay writes this into the plan itself; you need not."
        return ToolResult(text="\n".join((*lines, words)), waited_s=time.monotonic() - began)

    def _put(self, question: QuestionAsked, left: int) -> str:
        self._observe(question)
        answer = self._ask(question, left) if self._ask else None
        if answer is None:
            if self._ask:
                self._observe(Noticed(text=f"not answered; assumed: {question.assumed}"))
            self.assumed[f"{question.question} {question.assumed}"] = None
            return f"{question.question} Nobody answered; assume: {question.assumed}"
        return f"{question.question} The user says: {self.hear(answer, question.question)}"

    def hear(self, text: str, question: str = "") -> str:
        """Keep the user's words as a constraint; return them without secrets."""
        clean = self._redact(text)
        self._said[f"{question} {clean}".strip()] = None
        self._observe(WordsHeard(text=clean))
        return clean

    def take_words(self, found: Sequence[UserWords]) -> tuple[str, ...]:
        """Return the user's words that the session has not seen yet."""
        new = [said for said in found if said.name not in self.left]
        self.left += [said.name for said in new]
        return tuple(self.hear(said.text) for said in new)

    def note_into(self, plan: Plan) -> Plan:
        """Return the plan with the issue, the user's words and the assumptions.

        Raises:
            PlanError: It would be parsed as a different plan then.
        """
        plan = append_entries(plan, ISSUE, [f"Closes {self._issue}"] if self._issue else [])
        return append_entries(append_entries(plan, ASSUMPTIONS, [*self.assumed]), CONSTRAINTS, [*self._said])

    def noting(self, judge: JudgeSubmission) -> JudgeSubmission:
        """Return a judge that adds the answers to an accepted plan."""

        def judge_noted(text: str, sizes: bool) -> CheckedSubmission:  # noqa: FBT001  # as Judge has it
            result = judge(text, sizes)
            if isinstance(result, RejectedPlan):
                return result
            try:
                return self.note_into(result)
            except PlanError as error:
                return reject(error)

        return judge_noted


def _read_question(given: Mapping[str, Any], *, waits: bool) -> QuestionAsked:
    question, options = " ".join(given["question"].split()), [" ".join(text.split()) for text in given["options"]]
    default = " ".join(given["default"].split())
    texts = (question, *options)
    if not all(texts) or any(len(text) > MAX_CHARS for text in texts):
        raise RefusedError(f"A question and its options have 1 to {MAX_CHARS} characters each.")
    if len(options) not in _OPTIONS or len(set(options)) < len(options):
        raise RefusedError(f"{shorten(question, MAX_CHARS)}: give 2 to 4 different options.")
    if default not in options:
        raise RefusedError(f"{shorten(question, MAX_CHARS)}: the default is one of its options, word for word.")
    return QuestionAsked(question=question, options=tuple(options), assumed=default, waits=waits)
