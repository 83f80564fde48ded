"""Run phases side by side: each is a `relay run --phase N --json`, whose events are read as they come."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from relay.base.errors import ExitCode
from relay.base.values import dataclass
from relay.fleet.landing import Job
from relay.insight.telemetry.log import parse_line
from relay.session.events import (
    CacheRefreshed,
    RequestStarted,
    ResponseReceived,
    RunEnded,
    RunStarted,
    TextShown,
)
from relay.session.records import LoggedEvent, Scope
from relay.session.usage import Spent, Usage

_CHUNK_BYTES = 1 << 16
_LAST_CHARS = 2_000
FIRST_TOKEN_S = 4.0
"""After so long an answer has begun, or will have when a sibling that starts now asks, a second or two later.

No event says so before the answer is complete; first tokens come within seconds.
"""
LOST = "it was killed, or the system ended it"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a phase's run ended."""

    exit_code: int
    """Negative: the signal that killed it."""
    reason: str
    next_command: str = ""
    hint: str = ""
    """What to do when the run could not begin; empty otherwise."""
    spent: Spent | None = None
    """Its cost; None when it did not report one."""
    unsent: Spent | None = None
    """As in `relay.setup.context.RunEnd`: it would have gone on with this much more."""
    began: bool = True
    """Whether the run began: its preconditions held."""


class JobRun:
    """A relay process at work on one phase. Mutable: its events are read, and it ends.

    Args:
        job: Its work tree.
        phase_id: The phase's id in the plan of that work tree.
        words: Further words after ``relay run --phase N --json``.
    """

    def __init__(self, job: Job, phase_id: str, words: Sequence[str], environ: Mapping[str, str]) -> None:
        self.job = job
        self._asked_at: float | None = None
        self._is_answered = False
        self._rest = b""
        self._errors = b""
        self._spent = Spent()
        self._ended: RunEnded | None = None
        self._began = False
        argv = (sys.executable, "-P", "-m", "relay", "run", "--phase", phase_id, "--json")
        # A session of its own: Ctrl-C in the terminal reaches the parent only, which hands it on.
        self._process = subprocess.Popen(
            [*argv, "--job-of", str(os.getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=job.repo.root,
            env=environ,
            start_new_session=True,
        )
        for stream in self._streams:
            os.set_blocking(stream.fileno(), False)

    @property
    def _streams(self) -> tuple[IO[bytes], IO[bytes]]:
        out, err = self._process.stdout, self._process.stderr
        assert out is not None  # noqa: S101  # asked for
        assert err is not None  # noqa: S101  # as well
        return out, err

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors to wait on for its output."""
        return tuple(stream.fileno() for stream in self._streams if not stream.closed)

    def hear(self) -> Iterator[LoggedEvent]:
        """Yield its events since the last call."""
        out, err = self._streams
        self._errors = (self._errors + _read(err))[-_LAST_CHARS:]
        *lines, self._rest = (self._rest + _read(out)).split(b"\n")
        for line in lines:
            if record := parse_line(line, Scope()):
                self._note(record)
                yield record

    def _note(self, record: LoggedEvent) -> None:
        match record.event:
            case ResponseReceived() | CacheRefreshed() as event:
                self._is_answered = True
                self._spent += Spent(usage=event.usage or Usage(), cost_usd=event.cost_usd, estimated=event.estimated)
            case TextShown():
                self._is_answered = True
            case RequestStarted():
                self._asked_at = self._asked_at or record.at
            case RunStarted():
                self._began = True
            case RunEnded() as event:
                self._ended = event
            case _:
                pass

    def interrupt(self, *, now: bool) -> None:
        """Ask it to hand over, or to stop at once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM if now else signal.SIGINT)

    @property
    def has_spoken(self) -> bool:
        """Whether its first answer has probably begun: from then on its prefix is in the prompt cache."""
        return self._is_answered or (self._asked_at is not None and time.time() > self._asked_at + FIRST_TOKEN_S)

    @property
    def has_asked(self) -> bool:
        """Whether it has sent a request. A run that only lands a phase sends one if it has to repair something."""
        return self._asked_at is not None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended; its last events may still be unread."""
        return self._process.poll() is not None

    def close(self) -> JobEnd:
        """Wait for its end and return it; unread events are lost."""
        for stream in self._streams:
            stream.close()  # first: nobody waits for room in a pipe that is not read
        code = self._process.wait()
        ended = self._ended
        reason, hint = _find_error(self._errors.decode(errors="replace"))
        return JobEnd(
            exit_code=ended.exit_code if ended else code,
            reason=ended.reason if ended else reason,
            hint="" if ended else hint,
            next_command=ended.next_command if ended else "",
            spent=self._spent if ended or code == ExitCode.USER else None,
            unsent=_read_unsent(ended) if ended else None,
            began=self._began,
        )


def _read_unsent(ended: RunEnded) -> Spent | None:
    if ended.unsent_tokens is None:
        return None
    return Spent(usage=Usage(input_tokens=ended.unsent_tokens), cost_usd=ended.unsent_usd, estimated=True)


def _read(stream: IO[bytes]) -> bytes:
    found = b""
    while chunk := stream.read(_CHUNK_BYTES):
        found += chunk
    return found


def _find_error(said: str) -> tuple[str, str]:
    """Return why it could not begin, and what to do, of what it wrote to its standard error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    try:
        error = json.loads(lines[-1])["error"]
        return str(error["message"]), str(error["hint"])
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return "; ".join(lines[-3:]) or LOST, ""
