"""Notifications of a run: which events are worth one, its form for each channel, and its sending.

Each call is a process of its own; the run waits for it only for a moment at the end. Details may hold any text.
"""

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
from pathlib import Path
from typing import IO, Any, cast

from relay.base.hints import advise_extra
from relay.base.values import dataclass
from relay.base.words import count_questions, fill_variables, render_duration, render_usd, shorten
from relay.config.news import Channel
from relay.session.events import (
    CapMoved,
    Event,
    GateFinished,
    JobMoved,
    Noticed,
    Observe,
    QuestionAsked,
    ResponseReceived,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SessionEnded,
)
from relay.session.usage import add_usd
from relay.session.values import SessionEnd

COST_SHARES = (0.5, 0.75, 0.9)
"""Shares of the cap; each is news once."""
LONG_WAIT_S = 300
"""A shorter wait is over before anybody has looked."""
DETAIL_CHARS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """One notification."""

    occasion: str
    """One of `relay.config.news.OCCASIONS`, or ``test``."""
    text: str
    """One line that reveals nothing of the repository."""
    details: str
    """One line with plan, branch, phase and reason; it may hold anything."""

    @property
    def title(self) -> str:
        return f"relay: {_TITLES[self.occasion]}"


class Watcher:
    """Follows a run. Mutable: it remembers the spend and its notifications."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._spent: float | None = None
        self._last: dict[str, SessionEnded] = {}  # by phase: several may run side by side
        self._waits = False
        self._cap: float | None = None
        self._told_shares = 0
        self._red: set[str] = set()
        self._has_told_stop = False

    def find_news(self, event: Event) -> News | None:
        """Return the notification for an event; None for most."""
        match event:
            case RunStarted():
                self._started, self._spent, self._cap = event, event.spent_usd, event.cap_usd
                self._told_shares = self._count_shares()  # an earlier run told of them
            case CapMoved():
                self._cap = event.cap_usd
                self._told_shares = self._count_shares()
            case SessionEnded():
                self._last[event.phase_id] = event
            case JobMoved():
                return self._move(event)
            case ResponseReceived():
                self._waits = self._has_told_stop = False
                return self._count(event.cost_usd)
            case RetryScheduled() if event.wait_s >= LONG_WAIT_S and not self._waits:
                self._waits = True  # one limit stops all jobs
                return self.make("limit", f"it waits for {render_duration(event.wait_s)}", event.reason)
            case GateFinished(passed=False, baseline=False, expected="") if event.phase_id not in self._red:
                self._red.add(event.phase_id)  # later ones are repairs
                words = f"a gate is red after {render_duration(event.duration_s)}"
                return self.make("red", words, f"phase {event.phase_id}: {event.summary}")
            case QuestionAsked():
                words = "it waits for your answer" if event.waits else "it goes on with what it assumes"
                return self.make("question", words, f"{event.question} (assumed: {event.assumed})")
            case RunEnded():
                return self._end(event)
            case _:
                pass
        return None

    def _count(self, cost_usd: float | None) -> News | None:
        self._spent = add_usd(self._spent, cost_usd)
        passed = self._count_shares()
        if passed <= self._told_shares:
            return None
        self._told_shares = passed
        return self.make("cost", f"{render_usd(self._spent)} of {render_usd(self._cap)} are spent", "")

    def _count_shares(self) -> int:
        """Return how many of `COST_SHARES` are spent; 0 where that is not known."""
        cap, spent = self._cap, self._spent
        return sum(spent >= share * cap for share in COST_SHARES) if cap and spent is not None else 0

    def _move(self, event: JobMoved) -> News | None:
        """Return the news of one stopped job: the others may go on all night. A limit stops all of them."""
        if event.state == "held":
            return None
        self._has_told_stop = False
        last = self._last.get(event.phase_id)
        if event.state != "stopped" or (last is not None and last.end is SessionEnd.LIMIT):
            return None
        self._has_told_stop = True
        self._last.pop(event.phase_id, None)
        occasion = "blocked" if last is not None and last.result == "blocked" else "stopped"
        return self.make(occasion, "one phase stopped", f"phase {event.phase_id}: {event.detail}")

    def _end(self, event: RunEnded) -> News | None:
        if event.exit_code and self._has_told_stop:
            return None
        if event.waits_for:
            return self.make("question", "one phase is done, the next one waits for your yes", event.waits_for)
        occasion = "done" if event.exit_code == 0 else "stopped"
        if event.exit_code:
            last = self._last.values()
            occasion = "blocked" if any(session.result == "blocked" for session in last) else occasion
            occasion = "limit" if any(session.end is SessionEnd.LIMIT for session in last) else occasion
        spent = render_usd(event.spent_usd, estimated=event.estimated)
        words = f"exit status {event.exit_code}, {spent} spent"
        words += f"; {count_questions(event.questions)}" if event.questions else ""
        return self.make(occasion, words, event.reason)

    def make(self, occasion: str, text: str, reason: str) -> News:
        """Return a notification of the run."""
        where = f"{self._started.plan_path} on {self._started.branch}" if self._started else ""
        shown = "".join(filter(str.isprintable, " ".join(reason.split())))  # nothing that hides or reorders text
        details = " · ".join(filter(None, (where, shown)))
        return News(occasion=occasion, text=text, details=shorten(details, DETAIL_CHARS))


_TITLES = {
    "done": "done",
    "blocked": "it needs you",
    "stopped": "stopped with work left",
    "limit": "a limit is reached",
    "red": "a gate is red",
    "cost": "a part of the budget is spent",
    "question": "a question for you",
    "test": "a test",
}


CallInput = Mapping[str, Any]
"""Input of `relay.news.call`: the ``words`` of a program, or ``url``, ``title``, ``text`` and ``kind`` for Apprise."""
_KINDS = {"done": "success", "blocked": "failure", "stopped": "failure", "red": "failure"}
_TAME = str.maketrans({"@": "\uff20", "<": "\u2039", ">": "\u203a"})
"""Chats notify whole channels for some words (``@everyone``, ``<!channel>``), and Apprise lets some of them through."""


def render_news(channel: Channel, news: News, environ: Mapping[str, str]) -> CallInput:
    """Write a notification in the form of a channel.

    Raises:
        KeyError: A variable in the address is not set.
    """
    text = f"{news.text} · {news.details}" if channel.details and news.details else news.text
    if channel.url:
        url, kind = fill_variables(channel.url, environ), _KINDS.get(news.occasion, "warning")
        return {"url": url, "title": news.title, "text": text.translate(_TAME), "kind": kind}
    if channel.command:
        given = {"{title}": news.title, "{text}": text, "{occasion}": news.occasion}
        # Only whole words are replaced, so a mark inside a text is never expanded.
        return {"words": [given.get(word, word) for word in channel.command]}
    return {"words": ["notify-send", "--app-name=relay", "--", news.title, text]}


WAITS_S = (1.0, 2.0, 4.0)
"""Waits before each further try, unless the service asks for another; all of them fit into `LAST_S`."""
LAST_S = 8.0
"""Seconds that the end of a run waits for open calls."""
_HOME = str(Path(__file__).parents[2])
_CALL = "import sys; sys.path.insert(0, sys.argv[1]); from relay.news.call import main; sys.exit(main())"
"""Starts this relay's call, whatever else is called relay, or nothing is installed."""
MOST_CALLS = 20
"""Simultaneous calls; Apprise takes 45 MB for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """The result of a call."""

    name: str
    """Name of the channel."""
    reached: bool
    words: str
    """The last line of its output."""


class Notifier:
    """Notifies channels of a run. Mutable: it follows the run, and holds the open calls.

    Args:
        channels: From the user's own settings.
        environ: For the values of ``${NAME}``.
        redact: Redacts secrets in outgoing text.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        environ: Mapping[str, str],
        redact: Callable[[str], str],
        *,
        waits_s: Sequence[float] = WAITS_S,
    ) -> None:
        self._channels, self._environ, self._redact, self._waits_s = channels, environ, redact, tuple(waits_s)
        self._watcher = Watcher()
        self._calls: list[tuple[str, subprocess.Popen[str]]] = []
        self._ends: list[CallEnd] = []
        self._told: set[str] = set()
        self._has_ended = False

    def observe(self, event: Event) -> None:
        """Handle an event; returns at once."""
        if isinstance(event, RunStarted):
            for channel in self._channels:  # report at the start what can never be sent
                self._render(channel, TRIAL)
        self._has_ended = self._has_ended or isinstance(event, RunEnded)
        if news := self._watcher.find_news(event):
            self._tell(news)

    def fail(self, error: Exception) -> None:
        """Notify of a run that ended without an event."""
        if not self._has_ended:
            self._tell(self._watcher.make("stopped", "it could not go on", str(error)))

    def _tell(self, news: News) -> None:
        news = replace(news, details=self._redact(news.details))
        for channel in self._channels:
            if news.occasion in channel.on:
                self.tell(channel, news)

    def tell(self, channel: Channel, news: News) -> None:
        """Notify one channel, whatever occasions it asks for."""
        if job := self._render(channel, news):
            self.send(channel.name, job)

    def _render(self, channel: Channel, news: News) -> CallInput | None:
        """Return the call's input; None if this machine cannot do it."""
        try:
            job = render_news(channel, news, self._environ)
        except KeyError as error:
            self._fail(channel.name, f"the variable {error.args[0]} is not set")
            return None
        if "words" in job and not shutil.which(job["words"][0]):
            self._fail(channel.name, f"there is no program {job['words'][0]}")
        elif "words" not in job and not find_spec("apprise"):
            self._fail(channel.name, f"Apprise is not installed: {advise_extra('notify')}")
        else:
            return job
        return None

    def _fail(self, name: str, words: str) -> None:
        self._ends.append(CallEnd(name=name, reached=False, words=words))

    def send(self, name: str, job: CallInput) -> None:
        """Start a call; beyond `MOST_CALLS` it fails."""
        if len(self._calls) >= MOST_CALLS:
            self._fail(name, "too much to tell at once")
            return
        try:  # -P: import nothing from the work tree; start_new_session: Ctrl-C at the run ends no call
            call = subprocess.Popen(
                (sys.executable, "-P", "-c", _CALL, _HOME), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._fail(name, f"no process can be started: {error.strerror}")
            return
        with contextlib.suppress(OSError), cast("IO[str]", call.stdin) as stdin:
            stdin.write(json.dumps({**job, "waits_s": self._waits_s}))
        call.stdin = None  # it is closed; the output is read at the end of the process
        self._calls.append((name, call))

    def take_ends(self) -> tuple[CallEnd, ...]:
        """Return the results of calls that have ended, or could not begin, since the last time."""
        for name, call in [pair for pair in self._calls if pair[1].poll() is not None]:
            self._hear(name, call)
        found, self._ends = tuple(self._ends), []
        return found

    def take_failures(self) -> tuple[Noticed, ...]:
        """Return notices of failed notifications, each once."""
        lost = dict.fromkeys(f"{end.name}: {end.words}" for end in self.take_ends() if not end.reached)
        new = [words for words in lost if words not in self._told]
        self._told.update(new)
        return tuple(Noticed(text=f"nobody is notified by {words}", warning=True) for words in new)

    def _hear(self, name: str, call: subprocess.Popen[str], cut: str = "") -> None:
        self._calls.remove((name, call))
        said, _ = call.communicate()
        last = said.splitlines()[-1:] or ([] if cut else ["it ended without a word"])
        words = "; ".join((*last, *([cut] if cut else [])))
        self._ends.append(CallEnd(name=name, reached=not call.returncode, words=words))

    def close(self, wait_s: float) -> None:
        """Wait for open calls, at most `wait_s` seconds; then kill them."""
        until = time.monotonic() + wait_s
        for name, call in self._calls.copy():
            cut = ""
            try:
                call.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                cut = "given up at the end of the run"
                os.killpg(call.pid, signal.SIGTERM)  # it kills the program that it started
            self._hear(name, call, cut)


TRIAL = News(occasion="test", text="this is what a run would tell you", details="")


@contextmanager
def open_notifier(
    channels: Sequence[Channel], environ: Mapping[str, str], redact: Callable[[str], str], tell: Observe
) -> Iterator[Notifier]:
    """Follow a run. At its end open calls have a moment, and failures are reported.

    Args:
        channels: From the user's own settings.
        environ: For ``${NAME}``.
        tell: Receives a notice per failure.
    """
    notifier = Notifier(channels, environ, redact)
    try:
        yield notifier
    except Exception as error:
        notifier.fail(error)
        raise
    finally:
        notifier.close(LAST_S)
        for failure in notifier.take_failures():
            tell(failure)
