"""The repositories of tests/repo, jobs in linked work trees beside them, and a queue on a real PostgreSQL."""

import shutil
import tempfile
from pathlib import Path

import pytest

from relay.fleet.database import find_url, run_database
from tests.repo.conftest import box, new_box, template

__all__ = ["box", "new_box", "template"]


@pytest.fixture(scope="session")
def database():
    top = Path(tempfile.mkdtemp(prefix="relay-fleet-"))
    top.chmod(0o755)  # as root the database is another user's
    with run_database(top / "database") as url:
        assert find_url(top / "database") == url
        yield url
    assert find_url(top / "database") is None
    shutil.rmtree(top)
