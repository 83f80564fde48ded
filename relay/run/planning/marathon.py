"""A running or ended session of another agent, read so that a plan can be made of what is left of it.

The transcript is data of strangers: `relay.insight.transcripts` bounds, cuts and cleans what it has, and takes secrets
out; the planner gets a digest of it in a marked block, whose mark nobody can know before.
"""

import hashlib
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from relay.base.errors import ConfigError
from relay.base.redaction import redact
from relay.base.values import dataclass
from relay.base.words import count, list_some, render_output, render_usd, shorten
from relay.git.repository import Repo
from relay.git.status import StatusEntry, read_status
from relay.git.trees import find_entries
from relay.insight.transcripts.conversation import Conversation
from relay.insight.transcripts.digest import name_turns, render_digest
from relay.insight.transcripts.emitter import Reading
from relay.insight.transcripts.library import OpenTranscript, RelayedTally, Transcript
from relay.plan.model import Plan
from relay.prompts.texts import render_session_message
from relay.run.planning.submission import PhaseSize
from relay.session.events import Noticed, RunStarted
from relay.session.prices import cost_usd
from relay.setup.context import RunContext

STILL_WRITTEN_S = 60
UNCOMMITTED = ("new, not committed", "changed, not committed", "deleted, not committed")
_NAME_CHARS = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Marathon:
    """A session that was read to its end."""

    name: str
    """Agent, version and session."""
    conversation: Conversation
    digest: str
    tally: RelayedTally
    left: tuple[str, ...]
    """Files that it changed and that are not committed."""
    own_usd: float | None
    """What the agent itself says that it has cost; None if it does not say."""

    def render_message(self, wish: str) -> str:
        """Return the planner's first message; `wish` is what the user typed beside it, may be empty."""
        tag = f"session-{hashlib.sha256(self.digest.encode('utf-8', 'replace')).hexdigest()[:12]}"
        head = f"{self.name}: {count(self.conversation.count, 'turn')}, each with its number in brackets"
        return render_session_message(wish, head=head, digest=self.digest, tag=tag)

    def cite(self, turns: Sequence[int]) -> str:
        """Return words for turns as the source of a claim; empty if there is one that the session has not."""
        named = name_turns(self.conversation, turns)
        return f"{named}, of {self.name}" if named else ""

    def describe_left(self) -> str:
        """Say what the user has to commit before a run; empty if nothing."""
        listed = list_some([shorten(path, _NAME_CHARS) for path in self.left])
        return f"it left files that are not committed, and a run sees none of them: {listed}" if listed else ""

    def describe_cost(self, ctx: RunContext, plan: Plan, sizes: Sequence[PhaseSize]) -> str:
        """Say what the session has cost, and what its rest would cost there and as a relay."""
        usd: float | None = 0.0
        for phase, size in zip(plan.phases, sizes, strict=True):
            model = ctx.settings.model_for(phase.model)
            price = ctx.sessions.price if model == ctx.settings.model else ctx.sessions.find_price(model)
            usd = None if usd is None or price is None else usd + size.turns * cost_usd(size.turn, price)
        turns = sum(size.turns for size in sizes)
        spent = render_usd(self.tally.usd, estimated=True) if self.own_usd is None else render_usd(self.own_usd)
        there = render_usd(self.tally.estimate_rest(turns), estimated=True)
        return (
            f"{self.name} has cost {spent} so far; the rest, by estimate {count(turns, 'turn')}, "
            f"would cost {there} there and {render_usd(usd, estimated=True)} as a relay"
        )


def read_marathon(ctx: RunContext, transcript: Transcript) -> Marathon:
    """Read a transcript as it is now, also one that is still written.

    Raises:
        ConfigError: It cannot be read, or nobody says anything in it.
    """
    if time.time() - transcript.updated < STILL_WRITTEN_S:
        words = (
            f"{transcript.path} was written a moment ago: stop that agent, for a plan is not taken where files change"
        )
        ctx.observe(Noticed(text=words, warning=True))
    conversation, tally = Conversation(partial(redact, environ_values=ctx.secret_values)), RelayedTally()
    reading, name = Reading(hear=conversation.hear), transcript.format.value
    for record in OpenTranscript(transcript=transcript, reading=reading):
        event = record.event
        tally.take(record)
        if isinstance(event, RunStarted):
            name = f"{event.command}, session {event.run_id}"
    if not conversation.count:
        raise ConfigError(f"nobody says anything in {transcript.path}", hint="relay lab inspect lists other sessions")
    changed = (path for turn in conversation.turns for path in turn.changed)
    states = find_states(ctx.repo, reading.cwd, changed)
    clean = " ".join(render_output(name.encode("utf-8", "replace")).split())
    return Marathon(
        name=shorten(redact(clean, environ_values=ctx.secret_values), _NAME_CHARS),
        conversation=conversation,
        digest=render_digest(conversation, states),
        tally=tally,
        left=tuple(path for path, state in states.items() if state in UNCOMMITTED),
        own_usd=reading.own_cost_usd,
    )


def find_states(repo: Repo, cwd: str, paths: Iterable[str]) -> Mapping[str, str]:
    """Return where each path stands in git, in words.

    Args:
        cwd: The agent's directory, to which paths are relative. Where it is not in the repository (a transcript from
            another machine), they are taken as relative to the root.
    """
    root, real = os.path.realpath(repo.root), os.path.realpath(cwd.replace("\0", "")) if cwd else ""
    base = real if real == root or real.startswith(f"{root}/") else root
    places = {path: _locate(root, base, path) for path in dict.fromkeys(paths)}
    changes, head = {entry.path: entry for entry in read_status(repo).entries}, repo.head()
    committed = find_entries(repo, head, filter(None, places.values())) if head else {}
    return {path: _describe(repo, changes.get(place), committed, place) for path, place in places.items()}


def _locate(root: str, base: str, path: str) -> str:
    """Return a path relative to the root; empty if it is outside, or no path."""
    if "\0" in path or not path.isprintable():
        return ""
    found = os.path.normpath(Path(base) / path)
    return found[len(root) + 1 :] if found.startswith(f"{root}/") else ""


def _describe(repo: Repo, entry: StatusEntry | None, committed: Collection[str], path: str) -> str:
    if not path:
        return "outside of this repository"
    there = os.path.lexists(f"{repo.root}/{path}")
    if entry is None:
        return "committed" if path in committed else "ignored by git" if there else "not there"
    if entry.unmerged:
        return "in conflict"
    return UNCOMMITTED[0] if entry.untracked else UNCOMMITTED[1 if there else 2]
