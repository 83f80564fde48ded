"""A session that was cut off has no number of its own, and counts as a try all the same."""

import pytest

from relay.cli.views.narrate import Narrator
from relay.session.events import SessionStarted
from tests.resume.conftest import LUNCH, REST


@pytest.mark.nightly
def test_tries_count_on_where_session_numbers_do_not(stage, cut_off):
    cut_off()
    stage.run(LUNCH, all_=False)
    blocked = stage.seen(SessionStarted)[0]
    stage.run(REST, all_=False)
    rest = stage.seen(SessionStarted)[0]
    assert [(session.number, session.tries) for session in (blocked, rest)] == [(1, 2), (2, 3)]
    assert Narrator().tell(rest)[0].text.startswith("phase 1 session 2, try 3 — Hello (session ")
