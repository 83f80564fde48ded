"""Runs of phases side by side: each is a `relay run --phase N --json` of its own, and is heard as it speaks."""

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
"""After so long an answer has begun, or will have before a sibling that starts now asks, a second or two later.

No event says so before the answer is whole; first tokens come within seconds.
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
    """What to do when it could not begin; empty otherwise."""
    spent: Spent | None = None
    """What it has cost; None when it did not say."""
    unsent: Spent | None = None
    """As of `relay.setup.context.RunEnd`: with more it would have gone on."""
    began: bool = True
    """Whether it came to work at all: what must hold before did."""


class JobRun:
    """A relay at work on one phase. Mutable: it is heard, and it ends.

    Args:
        job: Its work tree.
        phase_id: Its phase as the plan there has it now.
        words: What is typed behind ``relay run --phase N --json``.
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
        """What can be read when it has something to say."""
        return tuple(stream.fileno() for stream in self._streams if not stream.closed)

    def hear(self) -> Iterator[LoggedEvent]:
        """Yield what it has said since."""
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
        """Have it hand over, or stop at once."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM if now else signal.SIGINT)

    @property
    def has_spoken(self) -> bool:
        """Whether its first answer has begun, as far as is known: the cache has its prefix from then on."""
        return self._is_answered or (self._asked_at is not None and time.time() > self._asked_at + FIRST_TOKEN_S)

    @property
    def has_asked(self) -> bool:
        """Whether it has sent a request: one that only lands a phase does so where something is to be repaired."""
        return self._asked_at is not None

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone; what it said last may still be to be heard."""
        return self._process.poll() is not None

    def close(self) -> JobEnd:
        """Return how it ended, once it has; what it says meanwhile nobody hears."""
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
