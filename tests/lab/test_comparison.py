"""What a relay would have done, by hand and in general."""

import pytest

from relay.insight.transcripts.library import Course, RelayedTally
from relay.session.events import ResponseReceived, SessionStarted
from relay.session.prices import Rates
from relay.session.records import LoggedEvent
from relay.session.usage import Usage

RATES = Rates(input=3, output=15, write_5m=3.75, write_1h=6, read=0.3)
LINE = 90_000


def begin(tally, phase="conversation"):
    started = SessionStarted(session_id="s", phase_id=phase, title="", number=1, reason="")
    tally.take(LoggedEvent(at=0, event=started))


def go(tally, prompt, output=1_000, model="m"):
    usage = Usage(input_tokens=prompt, output_tokens=output)
    event = ResponseReceived(
        turn=1,
        model=model,
        usage=usage if prompt else None,
        cost_usd=None,
        fill_tokens=usage.context_tokens if prompt else None,
        soft_tokens=LINE,
        hard_tokens=LINE,
        window_tokens=200_000,
        stop_reason="",
        duration_s=0,
    )
    tally.take(LoggedEvent(at=0, event=event))


def test_by_hand():
    tally = RelayedTally(lambda *_: RATES)
    go(tally, 5_000)  # outside of any context: not of the conversation
    begin(tally)
    for prompt in (20_000, 80_000, 95_000, 0, 97_000):  # 0: unknown, no turn of this
        go(tally, prompt)
    begin(tally, "sub-agents")
    go(tally, 70_000)
    begin(tally)
    go(tally, 30_000)  # behind a compaction
    found = tally

    def price(*turns):
        return pytest.approx(sum(read * 0.3 + write * 3.75 + 1_000 * 15 for read, write in turns) / 1e6)

    same = ((0, 20_000), (21_000, 59_000), (81_000, 14_000))
    assert found.line_tokens == LINE
    assert found.was == Course(
        peak_tokens=98_000,
        prompt_tokens=322_000,
        usd=price(*same, (96_000, 1_000), (20_000, 10_000)),
        context_tokens=31_000,
    )
    assert found.least == Course(
        resets=1,
        peak_tokens=96_000,
        prompt_tokens=248_000,
        usd=price(*same, (0, 26_000), (27_000, 0)),
        context_tokens=28_000,
    )
    assert (found.most.resets, found.most.prompt_tokens) == (1, 195_000 + 51_000 + 52_000)


def test_without_a_turn_nothing_is_known_and_without_a_price_no_cost():
    tally = RelayedTally(lambda *_: RATES)
    assert (tally.line_tokens, tally.was) == (None, Course())
    begin(tally)
    go(tally, 10_000, model="")
    go(tally, 12_000)
    assert (tally.was.usd, tally.least.usd, tally.was.prompt_tokens) == (None, None, 22_000)
