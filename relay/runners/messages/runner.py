"""The Messages API as a kind of runner; what it needs is loaded when it is opened."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from relay.runners.base import Runner, RunnerKind, Surroundings

if TYPE_CHECKING:
    from relay.runners.messages.conversation import ApiRunner


def _get_key(environ: Mapping[str, str]) -> str:
    from relay.runners.messages.endpoint import get_key_name

    return get_key_name(environ)


@contextmanager
def _open(given: Surroundings) -> Iterator[Runner]:
    from relay.runners.messages.api import open_api
    from relay.runners.messages.connection import ApiConnection, make_dialect
    from relay.runners.messages.conversation import ApiRunner

    settings = given.settings
    with open_api(environ=given.environ, interrupts=given.interrupts, idle_timeout_s=settings.idle_timeout_s) as api:
        connection = ApiConnection(
            api=api,
            observe=given.observe,
            interrupts=given.interrupts,
            max_wait_s=settings.max_wait_s,
            dialect=make_dialect(settings.find_model(settings.model).compat),
        )
        yield _choose(ApiRunner(connection=connection, find_own=settings.find_model), settings.strategy)


def _choose(runner: "ApiRunner", strategy: str) -> Runner:
    if strategy == "reset":
        return runner
    from relay.runners.messages.strategies import Continuous

    return Continuous(runner=runner, strategy=strategy)


MESSAGES = RunnerKind(get_key=_get_key, open=_open)
