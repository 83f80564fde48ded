"""Waiting for what another process or thread does: the one place where a test sleeps."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest


def wait_until(condition: Callable[[], Any], *, by: "subprocess.Popen[Any] | None" = None) -> None:
    """Look again and again until something holds; fail after two minutes.

    Args:
        condition: Says whether it does.
        by: Who is to bring it about; once that process has ended it never will.
    """
    began = time.monotonic()
    while not condition():
        if by is not None and by.poll() is not None and not condition():
            pytest.fail(f"ended before: {by.communicate()}")
        waited = time.monotonic() - began
        if waited > 120:
            pytest.fail("waited in vain")
        time.sleep(min(0.1, max(0.01, waited / 10)))  # to look may start a process, or a relay
