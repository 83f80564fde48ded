"""A bug's log file: what a maintainer needs, and nothing that must not be pasted.

It holds the command line, versions and the traceback without local values; never the environment. Keys and
the values of variables that look like secrets are replaced before anything is written.
"""

import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from relay import __version__
from relay.base.redaction import redact_for_strangers


def save_bug_report(error: Exception, argv: list[str], environ: Mapping[str, str]) -> Path | None:
    """Write the report into the user's state directory, else the temporary one; None where neither can."""
    text = redact_for_strangers(render_bug_report(error, argv), environ)
    for folder in (find_state_dir(environ), Path(tempfile.gettempdir())):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            stamp = time.strftime("%Y%m%d-%H%M%S")
            handle, name = tempfile.mkstemp(prefix=f"relay-bug-{stamp}-", suffix=".log", dir=folder)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return Path(name)
        except OSError:
            continue  # the next place; None tells the caller that there was none
    return None


def render_bug_report(error: Exception, argv: list[str]) -> str:
    """Write the report; not redacted yet."""
    frames = "".join(traceback.format_exception(error, limit=-50))
    return (
        f"relay {__version__} bug report\n\n"
        f"command:  {' '.join(['relay', *argv])}\n"
        f"time:     {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n"
        f"python:   {platform.python_version()} ({sys.implementation.name})\n"
        f"platform: {platform.platform()}\n\n"
        f"{frames}"
    )


def find_state_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder for relay's logs: ``$XDG_STATE_HOME/relay``, else ``~/.local/state/relay``."""
    state, home = Path(environ.get("XDG_STATE_HOME", "")), Path(environ.get("HOME", ""))
    if state.is_absolute():
        return state / "relay"
    return home / ".local/state/relay" if home.is_absolute() else Path(tempfile.gettempdir())
