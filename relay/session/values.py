"""The values of one session: what a session is given, what it used, how it ended.

A *handoff note* is what a session leaves for the next session of its phase. Nothing here does I/O.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta

from relay.base.values import dataclass
from relay.session.pictures import Picture

MOST_NUMBER = 2**53
"""JSON keeps no larger number for sure."""
Whole = Annotated[int, Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]
Number = Annotated[float, Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    """JSON Schema of an object; `required` is complete, and no other properties are taken."""


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
    first_line: Whole
    """1-based."""
    last_line: Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answers. A failure is a result the model can act on, never an exception."""

    text: str
    is_error: bool = False
    ends_session: bool = False
    """The session stops at this tool boundary (hand_off, block, an accepted plan)."""
    ends_turn: bool = False
    """The turn is finished as if the model had said so, which saves the request that asks it; agents go on."""
    changed_paths: tuple[str, ...] | None = ()
    """Repository-relative paths that the tool wrote; None if unknown (a shell command)."""
    shown: Shown | None = None
    """The part of a file that the text shows; None for other texts."""
    picture: Picture | None = None
    """What the model is shown besides the text, if it takes pictures."""
    waited_s: float = 0.0
    """Time spent waiting for a person; it does not count as the tool's time."""
    cut_bytes: int | None = 0
    """Size of the output that is not in `text` because of the cap; None if unknown."""


class SessionKind(StrEnum):
    """What a command's sessions are for; named as the command. A kind may only do what its properties allow."""

    PLAN = "plan"
    CONVERGE = "converge"
    EXPLORE = "explore"
    """No command: a session of `PLAN` or `RUN` asks for it."""
    REVIEW = "review"
    REWIND = "rewind"
    RUN = "run"

    @property
    def writes(self) -> bool:
        """Whether commands may write the work tree, not only their own temporary directory."""
        return self in {SessionKind.RUN, SessionKind.REWIND}

    @property
    def plans(self) -> bool:
        """Whether a planner's session writes phases."""
        return self in {SessionKind.PLAN, SessionKind.CONVERGE}

    @property
    def commits_phases(self) -> bool:
        """Whether the tree must be clean, setup approved, hooks runnable and the reviewer known at its start."""
        return self is SessionKind.RUN


CLAIM_LINKS = ("rests_on", "replaces", "contradicts", "confirms")
"""The arguments of the tool `record` that name claims of the ledger."""


class SessionEnd(StrEnum):
    """Why a session stopped. The first four are normal; the rest are stops or faults."""

    FINISHED = "finished"
    """The model ended its turn. Whether the phase is done, the gate decides."""
    ENDED_BY_TOOL = "ended_by_tool"
    """A tool result with `ends_session`."""
    HARD_LINE = "hard_line"
    """The gauge reached its hard line; every pending call was answered."""
    OVERFLOW = "overflow"
    """The provider refused the prompt as too long, or stopped at the end of the window."""
    STUCK = "stuck"
    """The same calls with the same results, after a warning."""
    REFUSED = "refused"
    """The model refused on policy grounds."""
    TRUNCATED = "truncated"
    """Cut at the output limit again and again."""
    BUDGET = "budget"
    """The next request could cross the spending cap."""
    LIMIT = "limit"
    """A usage limit, or an endpoint that asks relay to wait, for longer than relay may wait."""
    API_FAILED = "api_failed"
    """The API failed for longer than the retry budget, or permanently; not the session's fault."""
    DENIED = "denied"
    """Only the user can change it: key, permission, billing, spending cap, unknown model."""
    AGENT_FAILED = "agent_failed"
    """The program that ran the session is gone, silent, or breaks its protocol; not the session's fault."""
    INTERRUPTED = "interrupted"
    """The user or the system asked relay to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOutcome:
    """How one advance of a session ended."""

    end: SessionEnd
    detail: str = ""
    """One line for the user: the evidence, an error's text and request id."""
    text: str = ""
    """The model's last words; shown, never trusted."""
    retry_at: float | None = None
    """For LIMIT: when it resets, in seconds since the epoch; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffNote:
    """What a session hands to the next session of its phase."""

    done: tuple[str, ...] = ()
    """Item ids claimed, with the evidence: ``1.2: tests pass``."""
    open: tuple[str, ...] = ()
    """Item ids still open."""
    next_step: str = ""
    learned: tuple[str, ...] = ()
    """Decisions and findings, each with its reason."""
    recorded: tuple[str, ...] = ()
    """Ids of the claims that it put into the ledger."""
    dead_ends: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Paths touched so far."""
    gate: str = ""
    """The last gate result, one paragraph; empty if the gate has not run."""
    author: str = "relay"
    """``model`` if the session called hand_off, ``relay`` if relay wrote it from its own log."""
