"""The values of one leg: what a session is given, what it used, how it ended.

A *leg* is one fresh session on one phase. A *baton* is what one leg hands to the next. Nothing here does I/O.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from relay.base.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    """JSON Schema of an object; `additionalProperties` is false and `required` is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool; `input` has been parsed from complete JSON but not validated."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A part of a file as a tool showed it."""

    path: str
    """Relative to the repository's root, links followed."""
    first_line: int
    """1-based."""
    last_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answers. A failure is a result the model can act on, never an exception."""

    text: str
    is_error: bool = False
    ends_session: bool = False
    """The session stops at this tool boundary (hand_off, block, an accepted plan)."""
    changed_paths: tuple[str, ...] | None = ()
    """Repository-relative paths the tool wrote; None when unknown (a shell command)."""
    shown: Shown | None = None
    """The part of a file that the text is; None when it is none."""
    waited_s: float = 0.0
    """For a person: no part of how long the tool took."""


class SessionKind(StrEnum):
    """What the sessions of a command are for; named as the command. What a kind does not claim below, it may not do."""

    PLAN = "plan"
    CONVERGE = "converge"
    REVIEW = "review"
    REWIND = "rewind"
    RUN = "run"

    @property
    def writes(self) -> bool:
        """Whether commands may write the work tree, not only their own temporary directory."""
        return self in {SessionKind.RUN, SessionKind.REWIND}

    @property
    def commits_phases(self) -> bool:
        """Whether the tree has to be clean, setup approved, hooks fit to run and the reviewer known at its start."""
        return self is SessionKind.RUN

    @property
    def replaces_plan(self) -> bool:
        """Whether the plan file will hold another plan."""
        return self is SessionKind.PLAN


class SessionEnd(StrEnum):
    """Why a session stopped answering. The first four are normal; the rest are stops or faults."""

    FINISHED = "finished"
    """The model ended its turn; whether the phase is done is the gate's question, not this one."""
    ENDED_BY_TOOL = "ended_by_tool"
    """A tool result with `ends_session`."""
    HARD_LINE = "hard_line"
    """The gauge reached its hard line; every pending call was answered."""
    OVERFLOW = "overflow"
    """The provider refused the prompt as too long, or stopped at the end of the window."""
    STUCK = "stuck"
    """The same calls with the same results, after a nudge."""
    REFUSED = "refused"
    """The model refused on policy grounds."""
    TRUNCATED = "truncated"
    """Cut at the output limit again and again."""
    BUDGET = "budget"
    """The next request could cross the spending cap."""
    LIMIT = "limit"
    """A usage limit, or an endpoint that asks to be left alone, for longer than relay is allowed to wait."""
    API_FAILED = "api_failed"
    """The API failed for longer than the retry budget, or permanently; not the session's fault."""
    DENIED = "denied"
    """Only the user can change it: key, permission, billing, spending cap, unknown model."""
    AGENT_FAILED = "agent_failed"
    """The program that ran the session is gone, silent, or out of its protocol; not the session's fault."""
    INTERRUPTED = "interrupted"
    """The user or the system asked relay to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutcome:
    """How one advance of a session ended."""

    end: SessionEnd
    detail: str = ""
    """One line for the user: the evidence, an error's text and request id."""
    text: str = ""
    """The model's last words in this advance; shown, never trusted."""
    retry_at: float | None = None
    """For LIMIT: seconds since the epoch at which it resets; None when that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baton:
    """What a leg hands to the next leg of its phase."""

    done: tuple[str, ...] = ()
    """Item ids claimed, with the evidence: ``1.2: tests pass``."""
    open: tuple[str, ...] = ()
    """Item ids still open."""
    next_step: str = ""
    learned: tuple[str, ...] = ()
    """Decisions and findings, each with its reason."""
    recorded: tuple[str, ...] = ()
    """Ids of the claims that it put into the ledger, which says the rest."""
    dead_ends: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Paths touched so far."""
    gate: str = ""
    """The last gate result, one paragraph; empty when the gate has not run."""
    author: str = "relay"
    """``model`` when the session called hand_off, ``relay`` when relay wrote it from its own log."""
