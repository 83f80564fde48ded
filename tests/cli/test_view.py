"""A run on the screen, in its three shapes."""

import contextlib
import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
import typing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.interrupts import Urgency
from relay.cli.views.board import Board
from relay.cli.views.draw import draw
from relay.cli.views.live import LiveView
from relay.cli.views.narrate import LOST, STOPPING, Narrator
from relay.cli.views.shapes import PlainView, make_view
from relay.session import events
from relay.session.events import Noticed, PlanShown, TextShown, ToolStarted
from relay.session.records import parse_record
from relay.session.usage import Usage
from tests.any_event import any_event
from tests.effort import take_turns, try_each

HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold]x[/nope]\u202e\udc80\r\nsecond" + "y" * 100_000


def play(view, recorded):
    with view:
        for _, event in recorded:
            view.observe(event)


NOON = time.mktime((2026, 11, 22, 12, 0, 5, 0, 0, -1))


def plain(recorded):
    """Return the lines; each has its time but for the last, which say how it ended."""
    stream = io.StringIO()
    play(make_view(json=False, stream=stream, environ={}, clock=lambda: NOON), recorded)
    lines = stream.getvalue().splitlines()
    assert all(line.startswith("12:00:05 ") for line in lines[:-3])
    return [line.removeprefix("12:00:05 ") for line in lines]


def test_plain_lines_of_a_run(recorded):
    """One fact per line, in stable words."""
    lines = plain(recorded)
    first = "relay run: PLAN.md on main, model claude-opus-5-5, sandbox bwrap, costs at most $20.00"
    assert lines[0] == f"{first} (run r-20261121-022614); Ctrl-C finishes the turn and hands over, twice stops now"
    assert lines[1:9] == [
        "rehearsed: a script plays the model",
        "plan: 1 of 3 phases done, 2 of 8 boxes ticked",
        "warning: AGENTS.md: 1,204 bytes were cut, the budget is 32 KiB",
        "phase 2 session 1 — Issuance endpoint (session ab12cd34ef56)",
        "why: phase 2 is the first open phase and nothing is in the way",
        "baseline gate of phase 2 runs: pytest -q tests/test_keys.py",
        "baseline gate of phase 2 is red after 1.4 s — pytest -q tests/test_keys.py: exit 4, no tests ran",
        "turn 1: context 13,690 of 100,000 tokens (13%, Orient), $0.03, 4.2 s",
    ]
    for line in (
        "claimed 2.1 POST /orgs/{id}/keys returns the key once — api/keys.py",
        "retry 1 in 4.0 s — HTTP 529 overloaded_error: Overloaded (request req_01)",
        "cache miss (messages changed): 9,800 of 44,000 tokens read",
        "soft line crossed: 102,430 of 100,000 tokens; relay asks the session to hand over",
        "phase 2 session ended: handoff — the soft line was crossed (241,400 tokens in, 4,530 out, $0.52)",
        "commit 3f9c2ab7 handoff — relay: phase 2 — Issuance endpoint (items 2.1 2.2)",
        "plan put back after bash changed it — 1 line changed",
        "turn 1: context 14,500 of 100,000 tokens (14%, Orient), cost unknown, 4.2 s",
    ):
        assert line in lines
    assert lines[-3:] == [
        "plan: 2 of 3 phases done, 6 of 8 boxes ticked",
        "done: phase 2 is done; 1 of 3 phases is left (spent unknown)",
        "next: relay run",
    ]


def test_json_lines_are_the_events(recorded):
    """Every line parses back to the event that was observed."""
    stream = io.StringIO()
    play(make_view(json=True, stream=stream, environ={}, clock=lambda: 7.0), recorded)
    records = [record for line in stream.getvalue().splitlines() if (record := parse_record(line))]
    assert [(record.at, record.event) for record in records] == [(7.0, event) for _, event in recorded]
    assert {record.scope.run_id for record in records} == {"r-20261121-022614"}


@pytest.mark.parametrize("as_json", [True, False])
def test_hostile_text_is_inert_in_lines(as_json):
    """No escape, no control character, no bidirectional override, and one event stays one line or line per line."""
    stream = io.StringIO()
    hostile = [(0.0, Noticed(text=HOSTILE)), (0.0, ToolStarted(call_id="x", name=HOSTILE, summary=HOSTILE))]
    play(make_view(json=as_json, stream=stream, environ={}), hostile)
    lines = stream.getvalue().split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    if as_json:
        assert json.loads(lines[0])["text"] == HOSTILE
    else:
        assert lines[0][8:].startswith(" note: [bold]x[/nope]\\u202e\\x80 secondyyy")
        assert all(len(line) < 2_100 for line in lines)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_stream_that_breaks_ends_the_view_and_not_the_run(as_json, recorded):
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", encoding="utf-8")
    play(make_view(json=as_json, stream=stream, environ={}), recorded)
    with contextlib.suppress(BrokenPipeError):
        stream.close()


@try_each()
@given(told=st.tuples(*map(any_event, typing.get_args(events.Event))))
def test_every_event_is_told_and_changes_the_board_or_is_passed_over_on_purpose(recorded, told):
    """An event that the words do not know fails here: they look its type up and find nothing."""
    for event in told:
        assert all(isinstance(line.text, str) for line in Narrator().tell(event))
        board = make_board(recorded, 12)
        board.apply(event, 1.0)
        assert draw(board, now=2.0, width=80, height=24)


def make_board(recorded, upto=None):
    board = Board(started_at=recorded[0][0])
    for at, event in recorded[:upto]:
        board.apply(event, at)
    return board


def at_event(recorded, kind, nth=0):
    return [i for i, (_, event) in enumerate(recorded) if isinstance(event, kind)][nth] + 1


def test_the_screen_of_a_session_at_80_columns(recorded):
    """Phases and boxes, gauge with its lines, spend against the cap, the tool, the last words."""
    upto = at_event(recorded, ToolStarted, 4)
    board = make_board(recorded, upto)
    frame = [line.plain.rstrip() for line in draw(board, now=recorded[upto - 1][0] + 12, width=80, height=21)]
    assert frame == [
        "─" * 80,
        "relay run  PLAN.md on main · claude-opus-5-5 · sandbox bwrap                31 s",
        "rehearsed: a script plays the model",
        "",
        "  [x] 1  Schema & migration                                                  2/2",
        "▸ [ ] 2  Issuance endpoint                                                   0/4",
        "        [ ] 2.1 POST /orgs/{id}/keys returns the key once — api/keys.py",
        "        [ ] 2.2 Store only the hash — api/keys.py",
        "        [ ] 2.3 Rate-limit issuance per org — api/limits.py",
        "        [ ] 2.4 Document the endpoint — docs/keys.md",
        "  [ ] 3  Verification middleware                                             0/2",
        "",
        "context  ███████████████░░░░░░░░░░░┃░░▌ Execute 58k/100k  58%, stops at 110k",
        "cache    ████████████████████░░░░░░░░░  70% of the input (52k of 73k)",
        "spend    █░░░░░░░░░░░░░░░░░░░░░░░░░░░░  $0.60 of $20.00  this run $0.19",
        "tick     2.1 tests/test_keys.py::test_issue passes                          12 s",
        "┆ The table exists, so issuance comes first. I will look at how the API",
        "┆ registers its routes before I add one.",
        "┆ Routes are registered in api/app.py by a decorator.",
        "┆ I'll add api/keys.py with the POST handler and return the key once.",
    ]


def test_what_is_claimed_is_not_counted_as_ticked(recorded):
    board = make_board(recorded, at_event(recorded, events.GateStarted, 1))
    [line] = [line.plain for line in draw(board, now=1.0, width=80, height=21) if "Issuance" in line.plain]
    assert line.endswith("  0/4, 2 claimed")


def test_what_a_command_prints_stands_below_it_until_it_ends(recorded):
    """Its last line, made safe; a small screen has neither that nor the cache."""
    board = make_board(recorded, at_event(recorded, ToolStarted, 4))
    board.apply(ToolStarted(call_id="x", name="bash", summary="make"), 5.0)
    board.apply(events.OutputShown(line="\x1b[31m41 passed, 2 to go"), 6.0)
    frame = [line.plain for line in draw(board, now=7.0, width=80, height=21)]
    assert "         │ 41 passed, 2 to go" in frame
    small = [line.plain for line in draw(board, now=7.0, width=80, height=9)]
    assert not any(line.startswith(("cache", "         │")) for line in small)
    board.apply(events.GateStarted(phase_id="2", baseline=False, commands=("make",)), 8.0)
    assert not any("41 passed" in line.plain for line in draw(board, now=9.0, width=80, height=21))


def test_a_transfer_is_the_present_activity_until_it_ends(recorded):
    board = make_board(recorded, at_event(recorded, ToolStarted, 4))
    for at, count in ((5.0, 1), (9.0, 7)):
        board.apply(events.TransferShown(line=f"git fetch origin: Receiving objects ({count} of 9)"), at)
    [line] = [line.plain for line in draw(board, now=10.0, width=80, height=21) if "Receiving" in line.plain]
    assert "(7 of 9)" in line
    assert line.endswith("5 s")  # since it began
    board.apply(events.TransferShown(line=""), 11.0)
    assert not any("Receiving" in line.plain for line in draw(board, now=12.0, width=80, height=21))


def test_a_tool_that_an_agent_begins_before_the_answer_has_ended_is_the_present_activity(recorded):
    board = make_board(recorded, at_event(recorded, ToolStarted, 4))
    board.apply(events.RequestStarted(turn=9), 5.0)
    assert board.activity
    assert board.activity.name == "model"
    board.apply(ToolStarted(call_id="x", name="Bash", summary="make"), 6.0)
    board.apply(board.response, 7.0)
    assert (board.activity.name, board.activity.since) == ("Bash", 6.0)
    board.apply(events.RequestStarted(turn=10), 8.0)
    board.apply(board.response, 9.0)
    assert board.activity is None


def test_why_a_session_starts_is_left_out_where_the_line_above_says_it():
    for reason, shown in (("Phase 2 is next.", False), ("It was interrupted. Phase 2 is next.", True)):
        session = events.SessionStarted(session_id="s", phase_id="2", title="t", number=1, reason=reason)
        assert [line.text for line in Narrator().tell(session)][1:] == [f"why: {reason}"] * shown


def test_one_line_says_how_many_turns_are_left_to_the_line(recorded):
    """A small screen has none, and where it is unknown there is none."""
    board = make_board(recorded, at_event(recorded, ToolStarted, 4))
    assert board.response

    def look(turns_left, height=30):
        board.apply(replace(board.response, turns_left=turns_left), 6.0)
        lines = [line.plain.rstrip() for line in draw(board, now=7.0, width=80, height=height)]
        return [line for line in lines if line.startswith("ahead")]

    assert look(14) == ["ahead    ~14 turns to the line"]
    assert look(None) == look(14, height=9) == []


def test_the_board_shows_how_it_ended(recorded):
    """What is measured stays, what goes on gives way."""
    frame = [line.plain for line in draw(make_board(recorded), now=recorded[-1][0], width=80, height=30)]
    later = [line.plain for line in draw(make_board(recorded), now=recorded[-1][0] + 900, width=80, height=30)]
    assert later == frame
    assert frame[-2:] == ["done: phase 2 is done; 1 of 3 phases is left", "next: relay run"]


def test_unknown_is_said_and_never_zero(recorded):
    """Without usage and without prices neither the gauge nor the spend shows a number."""
    board = make_board(recorded, 3)
    board.apply(
        events.ResponseReceived(
            turn=1,
            model="m",
            usage=None,
            cost_usd=None,
            fill_tokens=None,
            soft_tokens=100_000,
            hard_tokens=110_000,
            window_tokens=1_000_000,
            stop_reason="end_turn",
            duration_s=1,
        ),
        1.0,
    )
    frame = [line.plain for line in draw(board, now=2, width=80, height=21)]
    assert "context  unknown; hands over at 100k" in frame
    assert any("$0.41 + unknown of $20.00" in line for line in frame)
    board.run = replace(board.run, spent_usd=None)
    assert "spend    unknown of $20.00" in [line.plain.rstrip() for line in draw(board, now=2, width=80, height=21)]


def big_plan(phases=40, items=12, current=20):
    return PlanShown(
        phases=tuple(
            {
                "id": str(p),
                "title": f"Phase title {p} " + "日本語" * 30,
                "items": [
                    {"id": f"{p}.{i}", "text": HOSTILE, "state": "done" if p < current else "open"}
                    for i in range(1, items + 1)
                ],
            }
            for p in range(1, phases + 1)
        )
    )


def test_a_plan_of_which_a_log_has_the_changes_is_shown_whole():
    plans = [big_plan(phases=3, items=2, current=current) for current in (1, 2, 4)]
    whole, changed = (Board(started_at=0), Narrator()), (Board(started_at=0), Narrator())
    shown = ()
    for plan in plans:
        event, shown = plan.since(shown), plan.phases
        for (board, narrator), told in ((whole, plan), (changed, event)):
            board.apply(told, 0)
            narrator.tell(told)
        assert changed[0].phases == plan.phases
        end = events.RunEnded(exit_code=0, reason="", next_command="", spent_usd=None)
        assert changed[1].tell(end) == whole[1].tell(end)


@pytest.mark.parametrize(("width", "height"), take_turns([1, 20, 44, 80], [1, 37, 5, 9]))
def test_any_size_holds_the_frame_and_the_current_phase(recorded, width, height):
    """No line is wider or the frame higher than allowed; the current phase is on it as soon as there is room."""
    from rich.cells import cell_len

    board = make_board(recorded, 1)
    board.apply(big_plan(), 0)
    session = events.SessionStarted(session_id="s", phase_id="20", title="t", number=1, reason="")
    board.apply(session, 0)
    board.apply(TextShown(text=HOSTILE + "日本語" * 200), 0)
    beside = draw(make_jobs(recorded), now=65, width=width, height=height)
    alone = draw(board, now=65, width=width, height=height)
    for frame in ([line.plain for line in beside], [line.plain for line in alone]):
        assert len(frame) <= height
        assert all(cell_len(line) <= width for line in frame)
        assert all(line.isprintable() for line in frame)
    if width >= 20 and height >= 5:
        assert any(line.startswith("▸ [ ] 20") for line in frame)
    if width >= 20 and height >= 9:
        assert any(re.fullmatch(r" +… \d+ (phase|item)s?", line) for line in frame)


def test_a_tiny_screen_has_what_goes_on_and_how_full_the_context_is(recorded):
    """Below the head's own height too; that it is asked to stop is said on any."""
    board = make_board(recorded, 32)
    frame = [line.plain for line in draw(board, now=65, width=80, height=4)]
    assert [line.split()[0] for line in frame] == ["▸", "context", "spend", "tick"]
    board.lost = True
    assert LOST in [line.plain for line in draw(board, now=65, width=80, height=20)]
    board.stopping = Urgency.NOW
    assert [line.plain for line in draw(board, now=65, width=80, height=1)] == [STOPPING[Urgency.NOW]]


def run_on_terminal(source, environ, *, columns=80):
    """Run a program on a pseudo-terminal and return everything that it wrote."""
    leader, follower = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {"TERM": "xterm-256color", **environ}
    running = subprocess.Popen(
        [sys.executable, "-c", source], env=env, stdin=follower, stdout=follower, stderr=follower, close_fds=True
    )
    os.close(follower)
    out = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    os.close(leader)
    assert running.wait(60) == 0, out
    return out.decode()


PLAY = """
import sys, time
from relay.cli.views.shapes import make_view
from relay.session.events import *
with make_view(json=False, stream=sys.stdout) as view:
    view.observe(RunStarted(run_id="r", command="run", model="m", plan_path="PLAN.md", branch="main", sandbox="bwrap",
                            cap_usd=1.0, spent_usd=None, rehearsed=True))
    view.observe(ToolStarted(call_id="c", name="bash", summary="\\x1b[2Jmake"))
    time.sleep(0.4)
    view.observe(Noticed(text="\\x1b]0;owned\\x07kept"))
    view.observe(RunEnded(exit_code=4, reason="gate red", next_command="relay run", spent_usd=None))
"""


def test_a_terminal_gets_the_live_view_and_is_left_as_it_was(environ):
    """Facts stay, the live region is erased at the end, the cursor is never gone; hostile sequences never arrive."""
    out = run_on_terminal(PLAY, environ)
    assert all(after.startswith("\x1b[?25h") for after in out.split("\x1b[?25l")[1:]), "Ctrl-Z needs a cursor"
    assert "\x1b[2J" not in out
    assert "\x1b]0" not in out
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out)
    assert "rehearsed: a script plays the model" in shown
    assert "spend" in shown
    assert "note: kept" in shown
    assert {len(rule) for rule in re.findall("─{9,}", shown)} == {78}, "no room for the ^C that the terminal prints"
    assert "next: relay run" in shown.splitlines()[-1] or "next: relay run" in shown


def test_a_terminal_that_becomes_narrower_keeps_no_half_board(environ):
    """It wraps the lines of the last frame; the next frame begins where the first of these rows is."""
    resized = PLAY.replace("time.sleep(0.4)", 'time.sleep(0.4); termios.tcsetwinsize(1, (24, 40)); print("NARROW")', 1)
    source = resized.replace("import sys", "import termios, sys")
    out = run_on_terminal(source, {**environ, "NO_COLOR": "1"}, columns=120)
    assert "spend" in out
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", out), "without colours there is a board"
    before, _, after = out.partition("NARROW")
    frame = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", before[before.index("─") :]).split("\r\n")
    wraps = sum((len(line) - 1) // 40 for line in frame if line)
    assert wraps >= 6
    assert after.partition("note: kept")[0].count("\x1b[1A") == len(frame) - 1 + wraps


def test_a_terminal_that_cannot_gets_plain_lines():
    """It keeps what is written there as a log, or has no signs or cursor for a board."""

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    class Latin(Terminal):
        encoding = "latin-1"

    terminal = {"TERM": "xterm", "CI": "false"}
    plain = ((Terminal(), {"TERM": "dumb"}), (Terminal(), {**terminal, "CI": "true"}), (Latin(), terminal))
    for stream, variables in plain:
        assert isinstance(make_view(json=False, stream=stream, environ=variables), PlainView), variables
    assert isinstance(make_view(json=False, stream=Terminal(), environ=terminal), LiveView)


def test_what_an_agent_does_by_itself_is_told_as_that():
    """It asks for a title before its first turn, and has sent again when relay hears of it."""
    event = events.ResponseReceived(
        turn=0, model="m", usage=Usage(input_tokens=9), cost_usd=0.01, fill_tokens=None, soft_tokens=1, hard_tokens=2,
        window_tokens=3, stop_reason="end_turn", duration_s=1.0,
    )  # fmt: skip
    assert Narrator().tell(event)[0].text == "request outside of the conversation, $0.01, 1.0 s"
    retry = events.RetryScheduled(attempt=1, wait_s=0.0, reason="HTTP 529 overloaded")
    assert Narrator().tell(retry)[0].text == "retry 1 — HTTP 529 overloaded"


def test_a_wait_before_the_run_began_counts_down_on_the_screen():
    """An endpoint that is overloaded when it is asked for the model."""
    board = Board(started_at=0.0)
    board.apply(events.RetryScheduled(attempt=2, wait_s=30.0, reason="HTTP 529 overloaded"), 10.0)
    first, wait = [line.plain for line in draw(board, now=15.0, width=80, height=30)]
    assert first.startswith("relay checks repository")
    assert wait == "retry    in 25 s, attempt 2 — HTTP 529 overloaded"
    board.stopping = Urgency.NOW
    assert STOPPING[Urgency.NOW] in [line.plain for line in draw(board, now=15.0, width=80, height=30)]
    board.stopping = Urgency.NONE
    board.apply(events.RetryScheduled(attempt=0, wait_s=60.0, reason="until 22:00, as asked (--not-before)"), 10.0)
    assert draw(board, now=15.0, width=80, height=30)[1].plain == "waits    55 s, until 22:00, as asked (--not-before)"


def make_jobs(recorded):
    """Eight phases side by side: two at work, one that stopped, one whose money is spent, one that comes after them."""
    board = make_board(recorded, 1)
    board.apply(big_plan(8, 1, 1), 0)
    for phase_id, state in (("2", "started"), ("5", "merging"), ("3", "stopped"), ("4", "waiting")):
        board.apply(events.JobMoved(phase_id=phase_id, state=state, detail=f"blocked: no key {HOSTILE}"), 0)
    board.apply(events.JobMoved(phase_id="8", state="held", detail=f"comes after 2, 5 {HOSTILE}"), 0)
    for at, event in recorded[: at_event(recorded, ToolStarted, 4)]:
        board.apply_job("2", event, at)
    return board


def test_what_does_not_fit_beside_is_left_out_in_the_order_of_its_worth(recorded):
    """What each job does goes last but for its name; how many phases are missing is said."""
    board = make_jobs(recorded)
    marks = {"rule": "─" * 60, "reason": "blocked: no key", "gauge": "context", "stopped": "[ ] 3", "now": "    tick"}
    kept: dict[str, int] = {}
    for height in range(24, 3, -1):
        frame = [line.plain for line in draw(board, now=65, width=60, height=height)]
        kept |= {name: height for name, mark in marks.items() if any(mark in line for line in frame)}
        shown = sum(line.startswith(("  [ ] ", "▸ ")) for line in frame)
        said = [int(found[1]) for line in frame if (found := re.match(r"  … (\d+) phase", line))]
        assert len(frame) <= height
        assert shown + sum(said) == 8 or height < 9, (height, frame)
    assert kept["reason"] > kept["gauge"] > kept["stopped"] > kept["now"]
    assert kept["reason"] >= kept["rule"] > kept["gauge"]
