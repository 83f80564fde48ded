"""Lets the modules of this room import each other, whatever directory the tests are started from."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))


from rigs.crash.tracer import Starter, open_starter


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    """What starts and traces relay for all rigs of a worker: it imports everything once."""
    with open_starter() as made:
        yield made
