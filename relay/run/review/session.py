"""The two sessions of a review: one looks for what is wrong, a fresh one tries to refute it.

Neither writes anything, sees what the author said, or knows that the other one is a session of the same kind.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from relay.base.values import dataclass
from relay.prompts.texts import (
    ReviewBriefing,
    render_no_review_reminder,
    render_refuter_message,
    render_refuter_system,
    render_review_notice,
    render_reviewer_message,
    render_reviewer_system,
)
from relay.run.review.finding import (
    ReviewFinding,
    apply_verdicts,
    choose_for_refutation,
    read_findings,
    render_numbered,
)
from relay.runners.base import Callbacks, Session
from relay.session.values import SessionEnd, SessionOutcome, ToolSpec
from relay.setup.session import Sessions, SessionTask
from relay.tools.output import ToolAnswer
from relay.tools.specs import JUDGE_FINDINGS, REPORT_FINDINGS
from relay.tools.toolbox import build_reader_tools, refuse_secrets
from relay.tools.workspace import Workspace

TakenT = TypeVar("TakenT")
_REASONS = {
    REPORT_FINDINGS.name: "A fresh session looks for faults in the change.",
    JUDGE_FINDINGS.name: "Another one tries to refute what was found.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewers:
    """Who reviews, and where."""

    sessions: Sessions
    """On the plan's account, with the reviewer's model."""
    workspace: Workspace
    """Its sandbox is read-only."""
    runner: str
    """Who is wished to run the sessions; empty where the settings say it."""
    rules: str
    """The repository's, for the model."""
    secret_values: tuple[str, ...]
    new_id: Callable[[], str]
    phase_id: str
    """Of the phase that is reviewed; empty for another range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete:
    """A review that came to no end."""

    end: SessionEnd
    detail: str
    """One line for the user."""
    retry_at: float | None = None
    """As `SessionOutcome` has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HandIn:
    """How a session of a review ended; a `relay.setup.session.SessionResult`."""

    kind: str
    end: SessionEnd
    detail: str
    retry_at: float | None


def review(reviewers: Reviewers, briefing: ReviewBriefing) -> tuple[ReviewFinding, ...] | Incomplete:
    """Have a change looked at, and what is found refuted where that can be done.

    Returns:
        The findings with what was made of each, in the order they were reported.
    """
    system = render_reviewer_system(reviewers.rules)
    message = render_reviewer_message(briefing)
    found = _ask(reviewers, "review", system, message, REPORT_FINDINGS, lambda given: read_findings(given["findings"]))
    if isinstance(found, Incomplete):
        return found
    asked = choose_for_refutation(found)
    if not asked:
        return found
    system = render_refuter_system(reviewers.rules)
    message = render_refuter_message(render_numbered(asked))
    verdicts = _ask(reviewers, "refutation", system, message, JUDGE_FINDINGS, lambda given: tuple(given["verdicts"]))
    return verdicts if isinstance(verdicts, Incomplete) else apply_verdicts(found, asked, verdicts)


def _ask(  # two private callers
    reviewers: Reviewers,
    title: str,
    system: str,
    message: str,
    tool: ToolSpec,
    read: Callable[[Mapping[str, Any]], TakenT],
) -> TakenT | Incomplete:
    """Have one session hand something in; what it hands in last counts."""
    taken: list[TakenT] = []

    def take(given: Mapping[str, Any]) -> ToolAnswer:
        try:
            taken.append(read(given))
        except ValueError as error:
            return ToolAnswer(text=str(error), is_error=True)
        return ToolAnswer(text="Thank you.", ends_session=True)

    def drive(session: Session) -> _HandIn:
        outcome = session.advance(message)
        if outcome.end is SessionEnd.FINISHED and not taken:
            outcome = session.advance(render_no_review_reminder(tool.name))
        return _HandIn(
            kind="done" if taken else "failed",
            end=outcome.end,
            detail=_describe(outcome) if not taken else "",
            retry_at=outcome.retry_at,
        )

    toolbox = build_reader_tools(reviewers.workspace, (tool, take))
    task = SessionTask(
        session_id=reviewers.new_id(),
        title=title,
        phase_id=reviewers.phase_id,
        reason=_REASONS[tool.name],
        system=system,
        tools=toolbox.specs,
        callbacks=Callbacks(
            run_tool=refuse_secrets(toolbox.run, reviewers.secret_values),
            render_soft_notice=lambda *_: render_review_notice(tool.name),
        ),
        runner=reviewers.runner,
    )
    ended = reviewers.sessions.run(task, drive)
    if taken:
        return taken[-1]
    return Incomplete(
        end=ended.end, detail=f"the {title} did not come to an end: {ended.detail}", retry_at=ended.retry_at
    )


def _describe(outcome: SessionOutcome) -> str:
    return outcome.detail or "its session handed nothing in"
