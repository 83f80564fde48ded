"""The endpoint with the real SDK and with raw HTTP in front of it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.endpoint.table import Table, playing


@pytest.fixture
def play() -> Iterator[Callable[..., Table]]:
    """Serve a script's text."""

    def start(script: str, **given: Any) -> Any:
        return serve(parse_script(script), **given)

    with playing(start) as play:
        yield play
