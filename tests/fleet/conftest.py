"""The repositories of tests/repo, jobs in linked work trees beside them, and a queue on a real PostgreSQL."""

import contextlib
import fcntl
import subprocess
import tempfile
from pathlib import Path

import pytest

from relay.fleet.engine import find_url, run_database
from tests.repo.conftest import box, new_box, template

__all__ = ["box", "new_box", "template"]


WATCHER = """\
read -r _
pid=$(head -n 1 "$1/database/postmaster.pid" 2>&1) && grep -qs postgres "/proc/$pid/comm" && kill -QUIT "$pid"
while grep -qs postgres "/proc/$pid/comm"; do sleep 0.1; done
rm -rf "$1"
"""
"""Waits until the one that holds its input has gone, however it ended, and ends the database that is left then."""


@contextlib.contextmanager
def open_place():
    """Give a place for a database: as root it is another user's. Neither outlives this process, even a killed one."""
    with tempfile.TemporaryDirectory(prefix="relay-fleet-") as top:
        Path(top).chmod(0o755)
        argv = ["sh", "-c", WATCHER, "sh", top]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True):
            yield Path(top, "database")


@pytest.fixture(scope="session")
def new_database(arranged):
    """Return a function that makes a database's files; PostgreSQL makes them once, which takes it half a second."""
    kept = arranged / "database"
    with (arranged / "database.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not kept.exists():
            with open_place() as made:
                with run_database(made):
                    pass
                subprocess.run(["cp", "-a", made, kept], check=True)  # with their owner
    return lambda place: subprocess.run(["cp", "-a", kept, place], check=True)


@pytest.fixture(scope="session")
def database(new_database):
    with open_place() as place:
        new_database(place)
        with run_database(place) as url:
            assert find_url(place) == url
            yield url
        assert find_url(place) is None
