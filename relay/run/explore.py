"""`explore`: a session inside a session, which reads in a window of its own and answers with claims and their places.

The outer session waits in its tool call, and pays: the most that the explorer can cost must fit the caps before it
begins, and each of its requests is checked and noted before it is sent like the session's own, so that a kill loses
none of it. However an explorer ends, the call gets an answer. An explorer has no explorer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from relay.base.errors import RelayError
from relay.base.values import dataclass
from relay.base.words import render_usd, shorten
from relay.config.model import OWN_LOOP
from relay.ledger.model import Claim, Record
from relay.plan.model import Phase
from relay.prompts.texts import render_explorer_message, render_hand_in_notice, render_system
from relay.run.reader import Errand, Incomplete, Readers, ask
from relay.session.events import Event, Noticed, Observe, OutputShown, ResponseReceived, RetryScheduled, ToolStarted
from relay.session.gauge import LARGEST_RESULT_TOKENS
from relay.session.prices import Budget, Price, worst_cost_usd
from relay.session.usage import Spent, Usage, estimate_tokens
from relay.session.values import SessionKind, ToolResult, ToolSpec
from relay.setup.context import RunContext
from relay.setup.observers import LONGEST_CHARS
from relay.setup.session import Sessions
from relay.tools.claims import read_finding, read_question
from relay.tools.toolbox import ANSWER, EXPLORE
from relay.tools.workspace import Workspace

MANY_PATHS = 8
"""A phase whose open items name so many paths, or a folder, is offered an explorer. With fewer paths a session reads
the files itself, for it needs them anyway; a planner writes at most eight items a phase."""
MAX_TURNS = 20
MAX_ANSWER_TOKENS = 1_500
MOST = Usage(input_tokens=200_000, output_tokens=20_000)
"""Tokens of all requests of one explorer together; cached ones count as well."""
OUTPUT_TOKENS = 8_000
"""Longest answer of one request."""
LINE = "min(45%,40k)"
"""Its soft line: twenty turns within `MOST` leave no room for a larger context."""
_QUESTION_CHARS = 120
KeepFindings = Callable[[Sequence[Record]], Sequence[Claim]]
"""Puts findings into the ledger; returns the claim of each."""


class Allowance:
    """What one explorer may use. Mutable: counts its requests, and passes its events on as the outer session's."""

    def __init__(self, price: Price | None, observe: Observe) -> None:
        usd = None if price is None else worst_cost_usd(MOST.input_tokens, MOST.output_tokens, price)
        self.most = Spent(usage=MOST, cost_usd=usd)
        self._price = price
        self._observe = observe
        self._budget = Budget(run_cap_usd=usd, token_cap=self.most.tokens)
        self._turns = self._fill_tokens = 0

    def check(self, prompt_tokens: int, output_tokens: int) -> str | None:
        """Return why a request must not be sent; None if it is within `most`."""
        usd = None if self._price is None else worst_cost_usd(prompt_tokens, output_tokens, self._price)
        if self._budget.check(usd, prompt_tokens + output_tokens):
            return f"it has used up what one may: {self.most.tokens:,} tokens"
        return None

    @property
    def is_at_end(self) -> bool:
        """Whether the next request should be the last one."""
        following = self._fill_tokens + LARGEST_RESULT_TOKENS
        return self._turns >= MAX_TURNS - 1 or self.check(2 * following, 2 * OUTPUT_TOKENS) is not None

    def observe(self, event: Event) -> None:
        """Take an event of the explorer."""
        match event:
            case ResponseReceived():
                self._budget = self._budget.charge(event.cost_usd, event.usage.context_tokens if event.usage else 0)
                self._turns += 1
                self._fill_tokens = event.fill_tokens or 0
                self._observe(replace(event, turn=0, query=EXPLORE.name))
            case ToolStarted():
                line = f"turn {self._turns} of {MAX_TURNS}: {event.name} {event.summary}"
                self._observe(OutputShown(line=shorten(line, LONGEST_CHARS)))
            case RetryScheduled():
                self._observe(OutputShown(line=shorten(f"waits {event.wait_s:.0f} s: {event.reason}", LONGEST_CHARS)))
            case Noticed():
                self._observe(event)
            case _:
                pass  # the outer session's figures are about its own conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Explorer:
    """Answers the questions of one session, each with a fresh session of its own."""

    ctx: RunContext
    sessions: Sessions
    """With the explorers' model and limits."""
    phase: Phase | None
    """The phase of the outer session; None for a planner's."""
    task: str
    """The phase as the plan has it; may be empty."""
    keep: KeepFindings

    @property
    def tool(self) -> tuple[ToolSpec, Callable[[Mapping[str, Any]], ToolResult]]:
        """The tool, and the function that answers a call of it."""
        return EXPLORE, self.take

    def take(self, given: Mapping[str, Any]) -> ToolResult:
        """Answer a call.

        Raises:
            RefusedError: The question or a path cannot be taken.
        """
        question, paths = read_question(self.ctx.workspace, given)
        allowance = Allowance(self.sessions.price, self.ctx.observe)
        if why := self.ctx.meter.budget.check(allowance.most.cost_usd, allowance.most.tokens):
            most = f"{allowance.most.tokens:,} tokens, {render_usd(allowance.most.cost_usd)}"
            return _refuse(f"Not explored: an explorer may need {most}, and the caps do not hold that ({why})")
        late: list[tuple[Record, ...]] = []
        try:
            with self.ctx.open_reading(SessionKind.EXPLORE) as workspace:
                found = self._ask(workspace, allowance, question, paths, late)
            if isinstance(found, Incomplete) and not late:
                return _refuse(f"The explorer found nothing: {found.detail}")
            return self._tell(late[-1] if isinstance(found, Incomplete) else found)
        except RelayError as error:
            return _refuse(f"Not explored: {error}")

    def _ask(
        self,
        workspace: Workspace,
        allowance: Allowance,
        question: str,
        paths: Sequence[str],
        late: list[tuple[Record, ...]],
    ) -> tuple[Record, ...] | Incomplete:
        ctx, check = self.ctx, self.sessions.check_budget
        because = f"an explorer was asked: {shorten(' '.join(question.split()), _QUESTION_CHARS)}"

        def read(given: Mapping[str, Any]) -> tuple[Record, ...]:
            records = tuple(read_finding(workspace, one, because) for one in given["claims"])
            if (tokens := sum(map(_measure, records))) > MAX_ANSWER_TOKENS:
                late.append(records)
                words = f"{tokens:,} tokens of claims; at most {MAX_ANSWER_TOKENS:,}: keep what answers the question"
                raise ValueError(words)
            return records

        def hear() -> str:
            return render_hand_in_notice(ANSWER.name) if allowance.is_at_end else ""

        readers = Readers(
            ctx=ctx,
            sessions=replace(
                self.sessions,
                check_budget=lambda prompt, output: allowance.check(prompt, output) or check(prompt, output),
                sandbox=workspace.sandbox,
                inside=allowance.observe,
            ),
            workspace=workspace,
            runner=self.phase.runner if self.phase else "",
            new_id=ctx.new_id,
            phase_id=self.phase.id if self.phase else "",
        )
        errand = Errand(
            title="exploration",
            reason="A session asked a question.",
            system=render_system("explorer", ctx.rules.text, turns=MAX_TURNS, tokens=MAX_ANSWER_TOKENS),
            message=render_explorer_message(self.task, question, paths),
            tool=ANSWER,
            line=LINE,
            hear=hear,
        )
        return ask(readers, errand, read)

    def _tell(self, records: Sequence[Record]) -> ToolResult:
        """Keep the claims that fit and name a place; return all that fit."""
        fitting, tokens = [], 0
        for record in records:
            if (tokens := tokens + _measure(record)) > MAX_ANSWER_TOKENS:
                break
            fitting.append(record)
        lines = [f"{claim.id}: {_render(claim)}" for claim in self.keep([one for one in fitting if one.sources])]
        lines += [f"not kept, it names no place: {one.claim}" for one in fitting if not one.sources]
        if left := len(records) - len(fitting):
            lines.append(f"({left} more did not fit)")
        return ToolResult(text="\n".join(lines) or "It claims nothing.")


def _render(found: Record | Claim) -> str:
    places = ", ".join(map(str, found.sources))
    return f"{found.claim} ({places})" if places else found.claim


def _measure(record: Record) -> int:
    return estimate_tokens(f"not kept, it names no place: {_render(record)}\n")


def _refuse(words: str) -> ToolResult:
    return ToolResult(text=f"{words}. Look yourself.", is_error=True)


def find_explorer(
    ctx: RunContext, keep: KeepFindings, *, phase: Phase | None = None, task: str = ""
) -> Explorer | None:
    """Return the explorer of a session; None if it gets none.

    Only relay's own loop has one, and only where a sandbox holds its commands to reading.

    Args:
        phase: The session's phase; None for a planner's session, which always gets one.
        task: The phase as the plan has it.

    Raises:
        RelayError: The explorer's model is unknown, or cannot be asked.
    """
    settings, wish = ctx.settings, phase.runner if phase else ""
    is_possible = settings.runner_for(wish) == OWN_LOOP and ctx.workspace.sandbox.mechanism.confines
    if "explore" in settings.ablate or not is_possible or (phase and not names_much(ctx.repo.root, phase)):
        return None
    asked = ctx.sessions.ask_model(settings.roles.explore or settings.model, wish)
    limited = replace(asked, max_turns=MAX_TURNS, max_output_tokens=OUTPUT_TOKENS)
    return Explorer(ctx=ctx, sessions=limited, phase=phase, task=task, keep=keep)


def names_much(root: Path, phase: Phase) -> bool:
    """Return whether the open items of a phase name `MANY_PATHS` paths, or a folder."""
    paths = phase.open_paths
    return len(paths) >= MANY_PATHS or any((root / path).is_dir() for path in paths)
