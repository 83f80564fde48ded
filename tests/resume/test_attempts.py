"""A session that was cut off is no leg of its own, and an attempt all the same."""

from relay.cli.views.narrate import Narrator
from relay.session.events import LegStarted
from tests.resume.conftest import LUNCH, REST


def test_attempts_count_on_where_legs_do_not(stage, cut_off):
    cut_off()
    stage.run(LUNCH, all_=False)
    blocked = stage.seen(LegStarted)[0]
    stage.run(REST, all_=False)
    rest = stage.seen(LegStarted)[0]
    assert [(leg.leg, leg.attempt) for leg in (blocked, rest)] == [(1, 2), (2, 3)]
    assert Narrator().tell(rest)[0].text.startswith("phase 1 leg 2, attempt 3 — Hello (session ")
