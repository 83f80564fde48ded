"""How the sessions of a phase ended, in the trailers of their last snapshots.

What a session, or a run, must know to not do the same again: until when a limit lasts, which endings say nothing about
the phase, and whether session after session fails at the same place. All of it is read from git, so it survives
everything that git survives.
"""

import re
from datetime import UTC, datetime

from relay.git.message import CommitText, list_loose_texts, read_texts
from relay.git.repository import Repo
from relay.session.values import SessionEnd
from relay.store.legs import OpenLeg
from relay.store.trailers import DISCARDED, ENDED, ERROR, PROPOSED, SESSION, WAIT_UNTIL

_NOT_ITS_FAULT = frozenset({
    SessionEnd.INTERRUPTED, SessionEnd.LIMIT, SessionEnd.API_FAILED, SessionEnd.DENIED, SessionEnd.BUDGET,
    SessionEnd.AGENT_FAILED,
})  # fmt: skip
"""Ends that say nothing about the phase: they count neither as a leg of it nor as an attempt."""
_NO_SUBJECT = "-"
_ERROR_CHARS = 240
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_MOST_SNAPSHOTS = 20_000
_MOST_READ = 32
"""Snapshots that are read one by one; for more git is asked."""


def render_end(end: SessionEnd, *, item: str, error: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers of a session's last snapshot.

    Args:
        item: The item it was at; empty when all are claimed.
        error: The last error that it did not overcome; empty when there is none.
    """
    words = " ".join(error.split())
    if len(words) > _ERROR_CHARS:
        words = f"{words[: _ERROR_CHARS // 2]} … {words[-_ERROR_CHARS // 2 :]}"
    return (ENDED, end), (ERROR, f"{item or 'all ticked'}: {words}" if words else "")


def has_ended_with(leg: OpenLeg, source: str, words: str) -> bool:
    """Return whether the leg's last session had ticked everything and ended with this error."""
    (_, error) = render_end(SessionEnd.FINISHED, item="", error=f"{source}: {words}")
    return error in leg.wip_trailers


def render_proposal(subject: str) -> tuple[tuple[str, str], ...]:
    """Return the trailer of a session that has finished its phase, and whose work was not committed."""
    return ((PROPOSED, " ".join(subject.split()) or _NO_SUBJECT),)


def find_proposal(leg: OpenLeg) -> str | None:
    """Return the subject that the leg's last session proposed, empty for none; None when it left work to do."""
    found = dict(leg.wip_trailers)
    if PROPOSED not in found or DISCARDED in found:
        return None
    return "" if found[PROPOSED] == _NO_SUBJECT else found[PROPOSED]


def render_wait(until: float | None, model: str) -> tuple[tuple[str, str], ...]:
    """Return the trailer for a limit; nothing when its end (seconds since the epoch) is not known."""
    if until is None:
        return ()
    return ((WAIT_UNTIL, f"{datetime.fromtimestamp(until, tz=UTC):{_TIME}} {model}"),)


def find_reset(leg: OpenLeg, model: str) -> float | None:
    """Return when the limit that the leg met resets, in seconds since the epoch; None without one for this model."""
    found = find_wait_until(leg)
    return found[0] if found is not None and found[1] == model else None


def find_wait_until(leg: OpenLeg) -> tuple[float, str] | None:
    """Return when a limit that the leg met resets, in seconds since the epoch, and the model it is a limit of."""
    moment, _, limited = dict(leg.wip_trailers).get(WAIT_UNTIL, "").partition(" ")
    try:
        return datetime.strptime(moment, _TIME).replace(tzinfo=UTC).timestamp(), limited
    except ValueError:
        return None


def is_refunded(leg: OpenLeg) -> bool:
    """Say whether the leg's last session ended by what it could not help: a kill, a limit, an endpoint in trouble."""
    return not leg.baton or dict(leg.wip_trailers).get(ENDED, "") in _NOT_ITS_FAULT


def find_repeated_error(repo: Repo, leg: OpenLeg) -> tuple[int, str]:
    """Return how many of the leg's last sessions in a row ended at the same item with the same error, and that error.

    Numbers in errors are not compared: lines, times and process ids differ where nothing else does.
    """
    errors = _read_errors(repo, leg)
    if not errors or not errors[0]:
        return 0, ""
    first = _NUMBER.sub("#", errors[0].partition(": ")[2])
    item = errors[0].partition(": ")[0]
    times = 0
    for error in errors:
        if error.partition(": ")[0] != item or _NUMBER.sub("#", error.partition(": ")[2]) != first:
            break
        times += 1
    return times, errors[0]


def _read_errors(repo: Repo, leg: OpenLeg) -> list[str]:
    """Return the errors of the sessions that ended by themselves, newest first; empty for one that ended without."""
    if leg.last_wip is None:
        return []
    texts = _read_snapshots(repo, leg.last_wip.commit, leg.base_head)
    # What is found later is stored with the words of the session that ended: each session counts once.
    ended = {text.get(SESSION): text for text in reversed(texts) if text.get(ENDED)}
    return [text.get(ERROR) for text in reversed(ended.values()) if text.get(ENDED) not in _NOT_ITS_FAULT]


def _read_snapshots(repo: Repo, newest: str, base: str | None) -> tuple[CommitText, ...]:
    """Return the snapshots of a leg, newest first."""
    found: list[CommitText] = []
    for text in list_loose_texts(repo, newest, _MOST_READ, first_parents=True):
        if text.commit == base:
            return tuple(found)
        found.append(text)
        if not text.parents:
            return tuple(found)
    revs = (newest, *((f"^{base}",) if base else ()))
    return read_texts(repo.git, "--first-parent", f"--max-count={_MOST_SNAPSHOTS}", *revs, "--")
