"""What the commits below ``refs/relay/`` say: one JSON value in each message.

Whoever can push such a ref writes what stands there: size, types and forms are checked before anything is believed.
Unknown keys are ignored: another machine of a fleet may have a newer relay. A value of the default is left out.
"""

import json
from typing import Annotated, Any, Self

from msgspec import Meta, Struct, convert, to_builtins

from relay.git.message import CommitText, Message
from relay.session.usage import Spent
from relay.store.trailers import parse_spent, render_spent

_MOST_CHARS = 1 << 24
CommitId = Annotated[str, Meta(pattern=r"\A([0-9a-f]{40,64})?\Z")]
Count = Annotated[int, Meta(ge=0, le=10**12)]
Name = Annotated[str, Meta(pattern=r"\A[^\0]*\Z")]
"""Git and the system take no NUL."""


class ReviewNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A review of the phase."""

    number: Count
    tree: CommitId
    """The reviewed tree: HEAD's with the attempt's files."""
    confirmed: Count = 0
    findings: tuple[str, ...] = ()
    """Each as JSON (`relay.run.review`), the confirmed ones among them."""


class Carried(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What each further session and checkpoint of an attempt keeps."""

    said: tuple[str, ...] = ()
    """The user's words to the sessions."""
    reviews: tuple[ReviewNote, ...] = ()
    merges: CommitId = ""
    """The phase's own commit, if the attempt only merges it onto what others landed; empty if it does work."""
    is_unchecked: bool = False
    """Whether nothing of the phase's commits was checked in this work tree."""
    joins: CommitId = ""
    """The phase's own commits, if it was put on others before it was done: its next commit has them as a parent."""
    unmerged: tuple[Name, ...] = ()
    """Files that git could not merge with what others did: its marks may stand there."""
    evidence: dict[str, str] = {}
    """Text of an item that is not committed yet → a session's evidence."""
    repairs: dict[str, Count] = {}
    """Session → how often relay gave the work back to it for a repair."""
    rungs: tuple[str, ...] = ()
    """Changes of model or effort in mid-phase, in order, as ``Relay-Rung`` has them."""

    def join(self, newer: Self) -> Self:
        """Return both, each thing once."""
        return type(self)(
            said=tuple(dict.fromkeys((*self.said, *newer.said))),
            reviews=tuple(dict.fromkeys((*self.reviews, *newer.reviews))),
            merges=newer.merges or self.merges,
            is_unchecked=self.is_unchecked or newer.is_unchecked,
            joins=newer.joins or self.joins,
            unmerged=tuple(dict.fromkeys((*self.unmerged, *newer.unmerged))),
            evidence={**self.evidence, **newer.evidence},
            repairs={**self.repairs, **newer.repairs},
            rungs=tuple(dict.fromkeys((*self.rungs, *newer.rungs))),
        )


class Course(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a phase was when a session began."""

    number: Count = 1
    """Of the session within its phase; an interrupted session and the one after it have the same."""
    tries: Count = 0
    """The same, with every session counted; 0 before any."""
    no_progress: Count = 0
    """Sessions in a row that crossed the reset line without ticking anything."""
    claimed: Count = 0
    """Items claimed."""
    baseline: str = ""
    """The gate before the phase (`relay.gate.model.render_baseline`); empty if unknown."""


class Ending(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session's last checkpoint says of its end."""

    end: str = ""
    """Its `SessionEnd`; empty while it works."""
    error: str = ""
    """Its current item and the last error that it did not overcome."""
    proposed: str | None = None
    """The subject of a finished phase whose commit was refused, empty for none; None if there is work left."""
    left: tuple[str, ...] = ()
    """What sessions did to the plan and could not be done again on the plan as a person edited it: sentences."""
    wait_until: Count = 0
    """When a limit resets, in seconds since the epoch; 0 without one."""
    limited: str = ""
    """The limit's model."""


class Notes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that such a commit may say; each kind of ref has a part of it (`relay.store.refs`)."""

    plan: Name = ""
    phase: Name = ""
    session: Name = ""
    usage: str = ""
    cost: str = ""
    """As in the trailers ``Relay-Usage`` and ``Relay-Cost``; empty where nothing was spent yet."""
    base: CommitId = ""
    """HEAD when the attempt, or the planning, began; empty on an unborn branch."""
    boot: str = ""
    """Identifies the machine's start in which the attempt began; empty where the system has no such id."""
    place: str = ""
    """The work tree in which it began."""
    wip: Annotated[str, Meta(pattern=r"\A(refs/relay/wip/[^\0\s]+)?\Z")] = ""
    """The ref of its checkpoints; says that this is the commit of an attempt."""
    items: tuple[Name, ...] = ()
    """Ids of the items that the session has claimed."""
    skipped: tuple[tuple[Name, str], ...] = ()
    """Paths that the tree does not hold, each with the reason."""
    replaced: tuple[Name, ...] = ()
    """Paths whose bytes in the tree are not the work tree's."""
    handoff_note: str = ""
    course: Course = Course()
    carried: Carried = Carried()
    ending: Ending = Ending()
    is_open: bool = False
    """Whether a planning session has begun and not ended."""
    worker: str = ""
    take: str = ""
    """Of a fence: who works on the phase, by number and nonce of the take."""

    @property
    def spent(self) -> Spent:
        """Usage and cost; nothing where neither was noted, unknown where they are not relay's."""
        return parse_spent(self.usage, self.cost) if self.usage or self.cost else Spent()


def note_spending(spent: Spent) -> dict[str, Any]:
    """Return the fields of `Notes` for what was spent."""
    (_, usage), (_, cost) = render_spent(spent)
    return {"usage": usage, "cost": cost}


def make_message(subject: str, notes: Notes) -> Message:
    """Return the message of a commit below ``refs/relay/``."""
    return Message(subject=subject, body=json.dumps(to_builtins(notes), indent=1))


def read_notes(text: CommitText) -> Notes | None:
    """Return what a commit says; None if it is none of relay's."""
    body = text.message.body
    if not body.startswith("{") or len(body) > _MOST_CHARS:
        return None
    try:
        return convert(json.loads(body), Notes)
    except (ValueError, RecursionError):
        return None
