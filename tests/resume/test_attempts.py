"""A session that was cut off is no attempt of its own, and an attempt all the same."""

from relay.cli.views.narrate import Narrator
from relay.session.events import SessionStarted
from tests.resume.conftest import LUNCH, REST


def test_attempts_count_on_where_attempts_do_not(stage, cut_off):
    cut_off()
    stage.run(LUNCH, all_=False)
    blocked = stage.seen(SessionStarted)[0]
    stage.run(REST, all_=False)
    rest = stage.seen(SessionStarted)[0]
    assert [(attempt.number, attempt.tries) for attempt in (blocked, rest)] == [(1, 2), (2, 3)]
    assert Narrator().tell(rest)[0].text.startswith("phase 1 session 2, try 3 — Hello (session ")
