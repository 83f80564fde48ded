"""Calling: each call is a process of its own, never waited for but for a moment at the end."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import IO, cast

from relay.base.values import dataclass
from relay.config.extras import advise_extra
from relay.config.news import Channel
from relay.news import call as program
from relay.news.forms import Job, render_news
from relay.news.occasions import News, Watcher
from relay.session.events import Event, Noticed, Observe, RunEnded, RunStarted

WAITS_S = (1.0, 2.0, 4.0)
"""Before each further try, where the service asks for no other; all of them fit into `LAST_S`."""
LAST_S = 8.0
"""How long the end of a run waits for what is on its way."""
MOST_CALLS = 20
"""At once; 45 MB each where Apprise does it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """What came of a call."""

    name: str
    """The channel's."""
    reached: bool
    words: str
    """What came back last."""


class Courier:
    """Starts calls and hears how they ended. Mutable: it holds those that are on their way."""

    def __init__(self, *, waits_s: Sequence[float] = WAITS_S) -> None:
        self._waits_s = tuple(waits_s)
        self._calls: list[tuple[str, subprocess.Popen[str]]] = []
        self._ends: list[CallEnd] = []

    def send(self, name: str, job: Job) -> None:
        """Start a call; where too many are on their way already it is dropped, and told."""
        if len(self._calls) >= MOST_CALLS:
            self._fail(name, "too much to tell at once")
            return
        try:  # -P: nothing of the work tree is imported; a session of its own: Ctrl-C at the run ends no call
            call = subprocess.Popen(
                (sys.executable, "-P", program.__file__), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._fail(name, f"no process can be started: {error.strerror}")
            return
        with contextlib.suppress(OSError), cast("IO[str]", call.stdin) as stdin:
            stdin.write(json.dumps({**job, "waits_s": self._waits_s}))
        call.stdin = None  # it is closed; what was said is read when the process has ended
        self._calls.append((name, call))

    def _fail(self, name: str, words: str) -> None:
        self._ends.append(CallEnd(name=name, reached=False, words=words))

    def take_ends(self) -> tuple[CallEnd, ...]:
        """Return what came of calls that have ended since this was called last."""
        for name, call in [pair for pair in self._calls if pair[1].poll() is not None]:
            self._hear(name, call)
        found, self._ends = tuple(self._ends), []
        return found

    def _hear(self, name: str, call: subprocess.Popen[str], cut: str = "") -> None:
        self._calls.remove((name, call))
        said, _ = call.communicate()
        last = said.splitlines()[-1:] or ([] if cut else ["it ended without a word"])
        words = "; ".join((*last, *([cut] if cut else [])))
        self._ends.append(CallEnd(name=name, reached=not call.returncode, words=words))

    def close(self, wait_s: float) -> None:
        """Wait for what is on its way, for so many seconds at most; the rest is given up."""
        until = time.monotonic() + wait_s
        for name, call in self._calls.copy():
            cut = ""
            try:
                call.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                cut = "given up at the end of the run"
                os.killpg(call.pid, signal.SIGKILL)  # with the program that it started
            self._hear(name, call, cut)


def find_missing_part(job: Job) -> str:
    """Return why a job cannot be done on this machine; empty where nothing is known of that."""
    if "words" in job:
        return "" if shutil.which(job["words"][0]) else f"there is no program {job['words'][0]}"
    return "" if find_spec("apprise") else f"Apprise is not installed: {advise_extra('notify')}"


class Newsroom:
    """Tells channels what is worth a call. Mutable: it follows the run.

    Args:
        channels: The user's own.
        environ: Where the values of ``${NAME}`` come from.
        redact: Takes secrets out of what is sent.
    """

    def __init__(
        self, channels: Sequence[Channel], environ: Mapping[str, str], redact: Callable[[str], str], courier: Courier
    ) -> None:
        self._channels, self._environ, self._redact, self._courier = channels, environ, redact, courier
        self._watcher = Watcher()
        self._odd: dict[str, None] = {}
        self._told: set[str] = set()
        self._has_ended = False

    def observe(self, event: Event) -> None:
        """Take an event; returns at once."""
        if isinstance(event, RunStarted):
            for channel in self._channels:  # what can never be sent is told at the start
                self.check(channel)
        self._has_ended = self._has_ended or isinstance(event, RunEnded)
        if news := self._watcher.find_news(event):
            self._tell(news)

    def check(self, channel: Channel) -> None:
        """Note what keeps a channel from being told, as far as that is known before."""
        self._render(channel, TRIAL)

    def fail(self, error: Exception) -> None:
        """Tell that a run came to an end of which no event speaks."""
        if not self._has_ended:
            self._tell(self._watcher.make_failure(str(error)))

    def _tell(self, news: News) -> None:
        news = replace(news, details=self._redact(news.details))
        for channel in self._channels:
            if news.occasion in channel.on:
                self.tell(channel, news)

    def tell(self, channel: Channel, news: News) -> None:
        """Tell one channel, whatever it wants to be told of."""
        if job := self._render(channel, news):
            self._courier.send(channel.name, job)

    def _render(self, channel: Channel, news: News) -> Job | None:
        try:
            job = render_news(channel, news, self._environ)
        except KeyError as error:
            self._odd[f"{channel.name}: the variable {error.args[0]} is not set"] = None
            return None
        if words := find_missing_part(job):
            self._odd[f"{channel.name}: {words}"] = None
        return None if words else job

    def take_failures(self) -> tuple[Noticed, ...]:
        """Return what could not be told, each once."""
        lost = [f"{answer.name}: {answer.words}" for answer in self._courier.take_ends() if not answer.reached]
        new = [words for words in (*self._odd, *lost) if words not in self._told]
        self._told.update(new)
        return tuple(Noticed(text=f"nobody is notified by {words}", warning=True) for words in dict.fromkeys(new))


TRIAL = News(occasion="test", text="this is what a run would tell you", details="")


@contextmanager
def open_newsroom(
    channels: Sequence[Channel], environ: Mapping[str, str], redact: Callable[[str], str], tell: Observe
) -> Iterator[Newsroom]:
    """Follow a run; at its end what is on its way has a moment, and what failed is told.

    Args:
        channels: The user's own.
        environ: For ``${NAME}``.
        tell: Told what failed.
    """
    courier = Courier()
    room = Newsroom(channels, environ, redact, courier)
    try:
        yield room
    except Exception as error:
        room.fail(error)
        raise
    finally:
        courier.close(LAST_S)
        for failure in room.take_failures():
            tell(failure)
