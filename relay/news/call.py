"""Send one notification in a process of its own, so that a slow or hostile service cannot affect the run.

It reads a job as JSON from standard input, writes each answer as a line to standard output, and exits with 0 if the
notification was delivered. Its output names only the host of an address.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from relay.base.program import run_program

GIVE_UP_S = 90
"""Seconds after which a call ends by itself."""
MEMORY_BYTES = 512 << 20
"""Ten times Apprise's need; an answer of gigabytes ends the call at it."""
PROGRAM_S = 10.0
"""Time limit of a program for one try."""


def main() -> int:
    """Do a job; return the exit code."""
    job = json.load(sys.stdin)
    signal.alarm(GIVE_UP_S)
    if "words" not in job:
        return not tell_service(**job)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # `run_program` kills the program then
    return not start_program(**job)


def _hear(words: str) -> None:
    sys.stdout.write(f"{' '.join(words.split())}\n")
    sys.stdout.flush()


def start_program(*, words: Sequence[str], waits_s: Sequence[float]) -> bool:
    """Run a program, again after each wait while it fails; return whether it succeeded."""
    for wait_s in (*waits_s, None):
        try:
            code = run_program(words, env=os.environ, cwd=None, limit_s=PROGRAM_S, most_bytes=0).code
        except OSError as error:
            _hear(f"{words[0]} cannot be started: {error.strerror}")
            return False
        if code is None:
            _hear(f"{words[0]} did not end in {PROGRAM_S:g} s")
            return False
        _hear(f"{words[0]} ended with {code}")
        if not code or wait_s is None:
            return not code
        time.sleep(wait_s)
    raise AssertionError


def tell_service(*, url: str, title: str, text: str, kind: str, waits_s: Sequence[float]) -> bool:
    """Have Apprise notify a service; return whether the service took it."""
    with contextlib.suppress(ValueError):  # a lower limit holds already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    said: list[str] = []
    _try_again(waits_s, said)
    import apprise

    # Without Apprise's pictures, which it would fetch from another host.
    plain: Mapping[str, Any] = {
        "app_id": "relay",
        "app_desc": "relay",
        "app_url": "",
        "image_url_mask": "",
        "image_url_logo": "",
    }
    asset = apprise.AppriseAsset(http_redirects=False, async_mode=False, **plain)
    service = apprise.Apprise.instantiate(url, asset=asset)
    if service is None:
        _hear("Apprise knows no service of this address, or needs another package for it")
        return False
    target = apprise.Apprise(asset=asset)
    target.add(service)
    is_taken = bool(target.notify(body=text, title=title, notify_type=kind, body_format="text"))
    if is_taken or not said:
        _hear("it was taken" if is_taken else "it was not taken")
    return is_taken


def _try_again(waits_s: Sequence[float], said: list[str]) -> None:
    """Retry every HTTP request of this process that gets an error, and print which; add what is printed to `said`.

    Apprise makes its sessions itself and has no place for an adapter. Its own retries say nothing.
    """
    import requests.sessions
    from requests.adapters import HTTPAdapter
    from urllib3.util.retry import Retry

    class Tries(Retry):
        """Waits as long as the service says (Retry-After), else as long as `waits_s` says."""

        def get_backoff_time(self) -> float:
            return waits_s[len(self.history) - 1]

        def increment(self, *args: Any, **given: Any) -> Any:  # urllib3 passes both by name
            response, error = given.get("response"), given.get("error")
            words = f"answered with {response.status}" if response else f"no answer: {str(error).rpartition(': ')[2]}"
            said.append(words)
            _hear(words)
            return super().increment(*args, **given)

    tries = Tries(len(waits_s), status_forcelist=range(400, 600), allowed_methods=None, raise_on_status=False)
    adapter: Any = partial(HTTPAdapter, max_retries=tries)
    requests.sessions.HTTPAdapter = adapter  # type: ignore[attr-defined]  # a process of its own, which does nothing else
