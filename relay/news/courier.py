"""Calling: in a thread of its own, tried again where it fails, never waited for but for a moment at the end."""

import contextlib
import http.client
import queue
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from relay.config.news import Channel
from relay.news.forms import Errand, Post, render_news
from relay.news.occasions import News, Watcher
from relay.session.events import Event, Noticed, Observe, RunEnded, RunStarted

WAITS_S = (2.0, 10.0, 30.0)
"""Before each further try."""
TIMEOUT_S = 10.0
"""For each step of a request, and for a program."""
LAST_S = 8.0
"""How long the end of a run waits for what is on its way."""
MOST_WAITING = 100
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_Job = tuple[Channel, Post | Errand]


class GivenUpError(Exception):
    """A call that would fail again in the same way; the message says why."""


class Courier:
    """Takes jobs and does them one after the other. Mutable: threads share it."""

    def __init__(self, *, waits_s: Sequence[float] = WAITS_S, timeout_s: float = TIMEOUT_S) -> None:
        self._waits, self._timeout = tuple(waits_s), timeout_s
        self._jobs: queue.Queue[_Job | None] = queue.Queue(MOST_WAITING)
        self._failed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._form = ""
        self._thread: threading.Thread | None = None
        self._opener = urllib.request.build_opener(_NoRedirect)  # not on the thread: it goes through the environment

    def send(self, channel: Channel, job: Post | Errand) -> None:
        """Take a job, at once; where too many wait already, it is dropped and told."""
        if self._thread is None:
            self._form = channel.form
            self._thread = threading.Thread(target=self._work, name="news", daemon=True)
            self._thread.start()
        try:
            self._jobs.put_nowait((channel, job))
        except queue.Full:
            self._failed.put(f"{channel.form}: too much to tell at once")

    def take_failures(self) -> tuple[str, ...]:
        """Return why jobs were given up, since this was called last."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._failed.get_nowait())
        return tuple(found)

    def close(self, wait_s: float) -> None:
        """Try what waits once more without waiting between, for so many seconds at most; the rest is given up."""
        if self._thread is None:
            return
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._jobs.put_nowait(None)
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._failed.put(f"{self._form}: no answer by the end of the run")

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            channel, what = job
            self._form = channel.form
            for wait in (*self._waits, None):
                failure = self._try(what)
                if not failure:
                    break
                if wait is None or isinstance(failure, GivenUpError):
                    self._failed.put(f"{channel.form}: {failure}")
                    break
                self._closing.wait(wait)

    def _try(self, what: Post | Errand) -> Exception | None:
        try:
            if isinstance(what, Errand):
                _start(what, self._timeout)
            else:
                _post(self._opener, what, self._timeout)
        except (GivenUpError, OSError, http.client.HTTPException, ValueError) as error:
            return error
        return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a header with a secret goes where the user sent it, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


def _post(opener: urllib.request.OpenerDirector, post: Post, timeout_s: float) -> None:
    request = urllib.request.Request(post.url, data=post.body, headers=dict(post.headers), method="POST")  # noqa: S310  # http and https only
    try:
        with opener.open(request, timeout=timeout_s):
            return
    except urllib.error.HTTPError as error:
        error.close()
        words = f"answered with {error.code}"
        raise OSError(words) if error.code in _AGAIN else GivenUpError(words) from None
    except urllib.error.URLError as error:
        raise OSError(f"cannot be reached: {error.reason}") from None


def _start(call: Errand, timeout_s: float) -> None:
    try:
        done = subprocess.run(
            call.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=timeout_s, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise GivenUpError(_name_missing(call)) from None
    except subprocess.TimeoutExpired:
        raise GivenUpError(f"{call.words[0]} did not end") from None
    if done.returncode:
        raise OSError(f"{call.words[0]} failed with exit status {done.returncode}")


def _name_missing(call: Errand) -> str:
    return f"there is no program {call.words[0]}"


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
                job = self._render(channel, _TRIAL)
                if isinstance(job, Errand) and not shutil.which(job.words[0]):
                    self._odd[f"{channel.form}: {_name_missing(job)}"] = None
        self._has_ended = self._has_ended or isinstance(event, RunEnded)
        if news := self._watcher.find_news(event):
            self._tell(news)

    def fail(self, error: Exception) -> None:
        """Tell that a run came to an end of which no event speaks."""
        if not self._has_ended:
            self._tell(self._watcher.make_failure(str(error)))

    def _tell(self, news: News) -> None:
        news = replace(news, details=self._redact(news.details))
        for channel in self._channels:
            if news.occasion in channel.on and (job := self._render(channel, news)):
                self._courier.send(channel, job)

    def _render(self, channel: Channel, news: News) -> Post | Errand | None:
        try:
            return render_news(channel, news, self._environ)
        except KeyError as error:
            self._odd[f"{channel.form}: the variable {error.args[0]} is not set"] = None
        except ValueError as error:
            self._odd[f"{channel.form}: {error}"] = None
        return None

    def take_failures(self) -> tuple[Noticed, ...]:
        """Return what could not be told, each once."""
        new = [words for words in (*self._odd, *self._courier.take_failures()) if words not in self._told]
        self._told.update(new)
        return tuple(Noticed(text=f"nobody is notified by {words}", warning=True) for words in dict.fromkeys(new))


_TRIAL = News(occasion="done", text="", details="")


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
