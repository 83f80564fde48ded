"""What events say in pieces, as JSON has them: mappings with fixed names and types. A reader checks each piece."""

from typing import Literal, NotRequired, TypedDict

BoxState = Literal["open", "optional", "claimed", "done"]


class ShownItem(TypedDict):
    """An item of a plan."""

    id: str
    text: str
    state: BoxState
    paths: NotRequired[list[str]]
    """Those that it names."""


class ShownPhase(TypedDict):
    """A phase of a plan."""

    id: str
    title: str
    items: list[ShownItem]


class SizedPart(TypedDict):
    """A part of a first prompt."""

    source: str
    """``system``, ``tools``, ``rules``, ``plan``, ``baton``, ``ledger``, ``environment`` or their like."""
    bytes: int
    """Of its UTF-8."""
    tokens: int
    """By estimate."""


class CheckResult(TypedDict):
    """A verify command that ran."""

    command: str
    status: str
    exit_code: int | None
    """None when relay killed it."""
    duration_s: float
    output: str
    """Its last lines."""
    output_sha256: NotRequired[str]
    """Of all that relay kept of the output."""
    causes: NotRequired[list[str]]
    """What the sandbox kept from it."""


class ChangedFile(TypedDict):
    """What a commit did to a file."""

    path: str
    added: int | None
    """Lines; None for a binary file."""
    deleted: int | None


class ShownFinding(TypedDict):
    """What a reviewer says is wrong."""

    file: str
    line: int
    """1-based; 0 where it is about the whole file."""
    summary: str
    failure_scenario: str
    category: str
    severity: str
    verdict: str
    """``confirmed``, ``refuted`` or ``unexamined``."""
    reason: str
    """Of the verdict."""
