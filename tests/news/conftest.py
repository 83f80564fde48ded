"""An endpoint for news."""

from collections.abc import Iterator

import pytest

from tests.news.listener import Listener, listen


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setenv("NO_PROXY", "*")
    with listen() as found:
        yield found
