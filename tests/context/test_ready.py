"""The sandbox of a session's next command is made while the model is asked, where that leaves time for it."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from relay.runners.messages.context_window import LEAST_READY_S


@pytest.mark.parametrize(("took_s", "times"), [(LEAST_READY_S, 3), (LEAST_READY_S / 2, 0)])
def test_it_is_made_for_a_model_that_takes_its_time(talk, turns, took_s, times):
    """How long that is the first answer tells."""
    made: list[None] = []
    sandbox = SimpleNamespace(make_ready=lambda: made.append(None))
    session = talk([{"turns": turns(3)}], sandbox=sandbox)
    ticks = itertools.count()
    slow = replace(session.runner.connection, clock=lambda: next(ticks) * took_s)
    session.runner = replace(session.runner, connection=slow)
    session.renew()

    session.advance()

    assert (len(session.requests), len(made)) == (4, times)
