"""One session that only reads and hands a result in: a reviewer, or an explorer."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from relay.base.values import dataclass
from relay.prompts.texts import render_hand_in_notice, render_hand_in_reminder
from relay.runners.base import Callbacks, Session
from relay.session.values import SessionEnd, ToolResult, ToolSpec
from relay.setup.context import RunContext
from relay.setup.session import Sessions, SessionTask
from relay.tools.toolbox import build_reader_tools, refuse_secrets
from relay.tools.workspace import Workspace

TakenT = TypeVar("TakenT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Sessions that only read, and their surroundings."""

    ctx: RunContext
    """Of the run that they are part of."""
    sessions: Sessions
    """With the readers' model; their cost counts for the plan."""
    workspace: Workspace
    """With a read-only sandbox."""
    runner: str
    """The runner that the phase names; empty for the one of the settings."""
    new_id: Callable[[], str]
    phase_id: str
    """The phase that they read for; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What one of them is to do."""

    title: str
    reason: str
    """Why its session starts, for the user."""
    system: str
    message: str
    tool: ToolSpec
    """By this it hands its result in."""
    line: str = ""
    """Its own reset line; empty for the line of the settings."""
    hear: Callable[[], str] = lambda: ""
    """As in `relay.runners.base.Callbacks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete:
    """A session without a result."""

    end: SessionEnd
    detail: str
    """One line for the user."""
    retry_at: float | None = None
    """As in `SessionOutcome`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HandIn:
    """The end of a reader's session; a `relay.setup.session.SessionResult`."""

    kind: str
    end: SessionEnd
    detail: str
    retry_at: float | None


def ask(readers: Readers, errand: Errand, read: Callable[[Mapping[str, Any]], TakenT]) -> TakenT | Incomplete:
    """Run one session; return the last value that it hands in.

    Args:
        read: Makes the value of a checked input. Raises ValueError with a message for the model.
    """
    taken: list[TakenT] = []
    tool = errand.tool

    def take(given: Mapping[str, Any]) -> ToolResult:
        try:
            taken.append(read(given))
        except ValueError as error:
            return ToolResult(text=str(error), is_error=True)
        return ToolResult(text="Thank you.", ends_session=True)

    def drive(session: Session) -> _HandIn:
        outcome = session.advance(errand.message)
        if outcome.end is SessionEnd.FINISHED and not taken:
            outcome = session.advance(render_hand_in_reminder(tool.name))
        return _HandIn(
            kind="done" if taken else "failed",
            end=outcome.end,
            detail="" if taken else outcome.detail or "its session handed nothing in",
            retry_at=outcome.retry_at,
        )

    toolbox = build_reader_tools(readers.workspace, (tool, take))
    task = SessionTask(
        session_id=readers.new_id(),
        title=errand.title,
        phase_id=readers.phase_id,
        reason=errand.reason,
        reset_at=errand.line,
        system=errand.system,
        tools=toolbox.specs,
        callbacks=Callbacks(
            run_tool=refuse_secrets(toolbox.run, readers.ctx.secret_values),
            render_soft_notice=lambda *_: render_hand_in_notice(tool.name),
            hear=errand.hear,
        ),
        runner=readers.runner,
    )
    ended = readers.sessions.run(task, drive)
    if taken:
        return taken[-1]
    return Incomplete(end=ended.end, detail=ended.detail, retry_at=ended.retry_at)
