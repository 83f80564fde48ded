"""What a planning session asks, who answers, and how both stand in the plan."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relay.base.errors import PlanError
from relay.base.words import shorten
from relay.plan.edit import append_entries
from relay.plan.model import Plan
from relay.run.planning.submission import Accepted, Judge, Judgement, reject
from relay.session.events import Noticed, Observe, QuestionAsked, WordsHeard
from relay.setup.context import Ask
from relay.store.inbox import Said
from relay.tools.output import ToolAnswer
from relay.tools.workspace import RefusedError

CONSTRAINTS, ASSUMPTIONS = "Constraints", "Assumptions"
"""Sections of the plan: what the user said, and what holds because nobody did."""
MAX_QUESTIONS = 4
MAX_ROUNDS = 3
"""Calls that are answered: a person is asked for what matters, not for each step."""
MAX_CHARS = 400
"""Of a question, and of an option: what a small screen shows at once."""
_OPTIONS = range(2, 5)


class Interview:
    """The questions of one session. Mutable: it keeps what was answered.

    Args:
        ask: Asks a person; None where there is none.
        redact: Takes secrets out of what a person says.
    """

    def __init__(self, ask: Ask | None, observe: Observe, redact: Callable[[str], str]) -> None:
        self._ask, self._observe, self._redact = ask, observe, redact
        self._rounds = 0
        self._said: dict[str, None] = {}
        self.assumed: dict[str, None] = {}
        """Questions that nobody answered, each with what holds then."""
        self.left: list[str] = []
        """Names of the texts from another terminal that the session was told."""

    def take(self, given: Mapping[str, Any]) -> ToolAnswer:
        """Ask what the session asks, and tell it the answers.

        Raises:
            RefusedError: It asks too much, or what nobody can answer.
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
        return ToolAnswer(text="\n".join((*lines, words)), waited_s=time.monotonic() - began)

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
        """Take what the user said for a constraint; return it without secrets."""
        clean = self._redact(text)
        self._said[f"{question} {clean}".strip()] = None
        self._observe(WordsHeard(text=clean))
        return clean

    def take_words(self, found: Sequence[Said]) -> tuple[str, ...]:
        """Return what the user left and the session was not told yet."""
        new = [said for said in found if said.name not in self.left]
        self.left += [said.name for said in new]
        return tuple(self.hear(said.text) for said in new)

    def note_into(self, plan: Plan) -> Plan:
        """Return the plan with what was said and what is assumed.

        Raises:
            PlanError: It would be read as another plan then.
        """
        return append_entries(append_entries(plan, ASSUMPTIONS, [*self.assumed]), CONSTRAINTS, [*self._said])

    def noting(self, judge: Judge) -> Judge:
        """Return a judge that takes what `judge` takes, with the answers in it."""

        def judge_noted(text: str, sizes: bool) -> Judgement:  # noqa: FBT001  # as Judge has it
            result = judge(text, sizes)
            if not isinstance(result, Accepted):
                return result
            try:
                return Accepted(plan=self.note_into(result.plan))
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
