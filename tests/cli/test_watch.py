"""A run seen from another terminal: by its log alone, whatever becomes of log and run."""

import io
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import ExitCode
from relay.cli.views.last_run import find_work, tell_work
from relay.cli.views.narrate import LOST
from relay.cli.views.shapes import make_view
from relay.cli.watch import REFRESH_S, follow, is_run_alive, keep_page
from relay.git.notes import lock_worktree
from relay.git.repository import open_repo
from relay.insight.telemetry.log import LogTail, RunLogs, list_own_logs, list_runs, open_log
from relay.session.events import RunEnded, TextShown
from relay.session.records import LoggedEvent
from relay.store.attempts import AttemptStart, open_attempt
from tests.cli.documents import read_document
from tests.effort import take_each

LOG = (Path(__file__).parent / "recorded.jsonl").read_bytes()
ENDED = LOG.splitlines()[-1]
OPEN = LOG.removesuffix(ENDED + b"\n")
PLAN = "# P\n\n## Phase 1 — Hello\nVerify: `true`\n- [ ] 1.1 Say hello\n"


def write_log(root, data, run_id="aaaa1111"):
    folder = root / ".relay/sessions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{run_id}.jsonl").write_bytes(data)
    return folder / f"{run_id}.jsonl"


def read_all(root, run_id="aaaa1111"):
    with LogTail(root, run_id) as log:
        return list(log.read())


def watch(root, *, alive, pause):
    """Follow the log in plain lines; return them with the exit code."""
    stream = io.StringIO()
    with RunLogs(root, LogTail(root, "aaaa1111")) as log, make_view(json=False, stream=stream, environ={}) as view:
        code = follow(log, view, alive, pause)
    return code, stream.getvalue().splitlines()


def test_a_finished_run_is_shown_to_its_end_with_its_own_exit_code(relay, project, recorded):
    """The same lines that the run itself wrote, at their own times; as JSON the same facts."""
    path = write_log(project, LOG)
    before = path.read_bytes(), path.stat().st_mtime_ns
    ran = relay("watch", "aaaa")
    assert (ran.code, ran.err) == (recorded[-1][1].exit_code, "")
    lines = ran.out.splitlines()
    at = time.strftime("%H:%M:%S", time.localtime(recorded[0][0]))
    assert lines[0].startswith(f"{at} relay run: PLAN.md on main")
    assert lines[-1] == "next: relay run"
    told = [json.loads(line) for line in relay("watch", "--json").out.splitlines()]
    assert [(one["at"], one["event"]) for one in told] == [(at, type(event).__name__) for at, event in recorded]
    assert before == (path.read_bytes(), path.stat().st_mtime_ns)
    assert not (project / ".git/relay").exists()


def test_without_a_log_and_without_such_a_run_it_is_said(relay, project):
    assert relay("watch").err == (
        "Error: no run has left a log here\nHint: relay run starts one; relay status shows the plan\n"
    )
    write_log(project, LOG)
    ran = relay("watch", "zzzz")
    assert (ran.code, ran.err) == (1, "Error: no run 'zzzz' has left a log here\nHint: the last ones: aaaa1111\n")


def test_what_is_written_meanwhile_is_shown_and_a_torn_line_waits(tmp_path):
    """Also behind the removal of the file: relay goes on writing to it."""
    path = write_log(tmp_path, OPEN[:-30])
    with path.open("ab", buffering=0) as file:
        steps = iter(
            (lambda: file.write(OPEN[-30:]), path.unlink, lambda: file.write(ENDED), lambda: file.write(b"\n"))
        )
        code, lines = watch(tmp_path, alive=lambda: True, pause=lambda _: next(steps)())
    assert (code, next(steps, None)) == (0, None)
    assert lines[-1] == "next: relay run"


@pytest.mark.nightly
def test_a_run_that_was_killed_is_told_from_one_that_is_silent(project, environ):
    """The kernel's lock tells it; another run's log means that this one is over too."""
    write_log(project, OPEN)
    repo = open_repo(project, environ)
    with lock_worktree(repo):
        assert is_run_alive(repo, "aaaa1111")
        write_log(project, OPEN, run_id="bbbb2222")
        assert not is_run_alive(repo, "aaaa1111")
    assert not is_run_alive(repo, "bbbb2222")
    with lock_worktree(repo):
        pass  # who looked holds nothing
    alive = iter((True, True, False))
    code, lines = watch(project, alive=lambda: next(alive), pause=lambda _: None)
    assert (code, lines[-1]) == (ExitCode.STOPPED, LOST)


def test_a_log_in_which_nothing_stands_yet_is_nobodys(project, environ):
    """That of a phase's own run is there a moment before it says whose it is; the run that started it goes on."""
    write_log(project, b"", run_id="cccc3333")
    assert list(list_own_logs(project)) == ["cccc3333"]
    write_log(project, OPEN)
    write_log(project, b"", run_id="bbbb2222")
    repo = open_repo(project, environ)
    with lock_worktree(repo):
        assert is_run_alive(repo, "aaaa1111")
    assert list(list_own_logs(project)) == ["aaaa1111", "bbbb2222", "cccc3333"]


def test_what_was_written_between_two_looks_at_a_run_that_ends_is_not_missed(tmp_path):
    path = write_log(tmp_path, OPEN)

    def end():
        with path.open("ab") as file:
            file.write(ENDED + b"\n")
        return False

    code, lines = watch(tmp_path, alive=end, pause=lambda _: pytest.fail("nothing to wait for"))
    assert (code, lines[-1]) == (0, "next: relay run")


def test_the_end_of_a_phase_beside_others_is_not_the_end_of_the_run(tmp_path):
    """Each phase's own run has an end in its log."""
    write_log(tmp_path, LOG)

    class Beside(RunLogs):
        def read(self):
            ended = RunEnded(exit_code=4, reason="", next_command="", spent_usd=None)
            yield "2", LoggedEvent(at=1.0, event=ended)
            yield "", LoggedEvent(at=2.0, event=replace(ended, exit_code=0))

    with Beside(tmp_path, LogTail(tmp_path, "aaaa1111")) as log:
        assert follow(log, make_view(json=True, stream=io.StringIO()), lambda: True, lambda _: None) == 0


def test_ctrl_c_leaves_the_run_alone(program, project, environ):
    write_log(project, OPEN)
    with lock_worktree(open_repo(project, environ)):
        watching = subprocess.Popen([*program, "watch"], cwd=project, env=environ, stdout=subprocess.PIPE)
        assert watching.stdout is not None
        while not watching.stdout.readline().endswith(
            b"session 2 \xe2\x80\x94 Issuance endpoint (session cd34ef56ab12)\n"
        ):
            pass
        watching.send_signal(signal.SIGINT)
        watching.communicate()
    assert watching.returncode == 0


@given(st.lists(st.integers(0, len(LOG)), max_size=12))
def test_however_the_log_grows_the_same_is_read(tmp_path_factory, cuts):
    """Line for line what one look at the whole has, in whatever pieces it comes."""
    root = tmp_path_factory.mktemp("log")
    path = write_log(root, b"")
    found: list[LoggedEvent] = []
    with LogTail(root, "aaaa1111") as log:
        for end in (*sorted(cuts), len(LOG)):
            path.write_bytes(LOG[:end])
            found += log.read()
    assert found == read_all(root)
    assert isinstance(found[-1].event, RunEnded)


def test_foreign_lines_and_an_emptied_log_do_no_harm(tmp_path):
    path = write_log(tmp_path, b'\x00\xff{"v":9}\n[' * 3 + b"[" * 100_000 + b"\n" + LOG)
    assert read_all(tmp_path) == read_all(write_log(tmp_path / "x", LOG).parents[2])
    with LogTail(tmp_path, "aaaa1111") as log:
        assert list(log.read())
        path.write_bytes(ENDED + b"\n")
        assert [type(record.event) for record in log.read()] == [RunEnded]


@pytest.mark.parametrize("make", take_each(2, [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), Path.mkdir]))
def test_what_is_no_log_is_not_read(relay, project, make):
    (project / ".relay/sessions").mkdir(parents=True)
    make(project / ".relay/sessions/aaaa1111.jsonl")
    assert list_runs(project) == ()
    assert relay("watch", "aaaa1111").code == 1
    with pytest.raises(OSError, match=r"."):
        LogTail(project, "aaaa1111")


def test_status_says_what_a_run_at_work_does(relay, project, environ, commit):
    """From the end of its log: session, gauge, activity; the whole of a large log is not read."""
    (project / "PLAN.md").write_text(PLAN)
    commit()
    repo = open_repo(project, environ)
    open_attempt(repo, AttemptStart(session_id="abcd1234", phase_id="1", plan_path="PLAN.md"))
    lines = LOG.splitlines()
    upto = [i for i, line in enumerate(lines) if b'"ToolStarted"' in line][4]
    with write_log(project, b"").open("wb") as file:
        file.truncate(3 << 30)  # a hole: whoever reads all of it is ended by the test's time limit
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"\n".join(lines[: upto + 1]) + b"\n")
    assert "now    phase" not in relay("status").out
    with lock_worktree(repo):
        ran = relay("status")
        body = read_document("relay status", relay("status", "--json").out)
    said = ran.out.splitlines()
    assert said[-4] == "now    phase 2 session 1 — Issuance endpoint (session ab12cd34ef56, run r-20261121-022614)"
    assert said[-3] == "       context 58k of 100k tokens, 58%, Execute; stops at 110k"
    assert said[-2].startswith("       tick: 2.1 tests/test_keys.py::test_issue passes, ")
    assert said[-1] == "next   relay watch shows it live"
    assert (body["at_work"]["phase"], body["at_work"]["fill_tokens"], body["at_work"]["number"]) == ("2", 58220, 1)


@given(st.integers(0, len(LOG.splitlines())))
def test_the_end_of_a_log_tells_the_same_as_all_of_it(tmp_path_factory, upto):
    """Attempt, last answer and activity are those of the whole log's board; none once the run has ended."""
    from relay.cli.views.board import Board

    root = tmp_path_factory.mktemp("log")
    lines = LOG.splitlines(keepends=True)[:upto]
    write_log(root, b"".join(lines))
    board = Board(started_at=0.0)
    for record in read_all(root):
        board.apply(record.event, record.at)
    work = find_work(root)
    if work is None:
        assert board.ended or not board.responses
        return
    told = (work.board.session, work.board.response, work.board.activity)
    if board.session is not None:
        assert told == (board.session, board.response, board.activity)
    assert all(tell_work(work, now=0.0))


@pytest.mark.nightly
def test_a_long_log_is_never_held_as_a_whole(tmp_path):
    """What is cut off while its beginning is shown was not read yet."""
    with open_log(tmp_path, "long", clock=lambda: 1.0) as log:
        for _ in range(4_000):
            log.append(TextShown(text="x" * 1_000))
    with RunLogs(tmp_path, LogTail(tmp_path, "long")) as logs:
        found = logs.read()
        next(found)
        os.truncate(log.path, 2_000_000)
        assert 1_000 < sum(1 for _ in found) < 3_000


def test_the_page_is_the_report_of_the_run_and_grows_with_its_log(project, capsys):
    """While the run is at work a browser reads it again; afterwards it does not."""
    path, alive, pages = write_log(project, OPEN), [True], list[str]()
    place = project / ".relay/reports/aaaa1111.html"

    def end(seconds: float) -> None:
        assert seconds == REFRESH_S
        pages.append(place.read_text())
        path.write_bytes(LOG)
        alive[:] = [False]

    with RunLogs(project, LogTail(project, "aaaa1111")) as log:
        keep_page(project, "aaaa1111", log, lambda: alive[0], end)

    (first,), last = pages, place.read_text()
    assert 'http-equiv="refresh" content="5"' in first
    assert 'http-equiv="refresh"' not in last
    assert "still at work" in first
    assert "still at work" not in last
    assert capsys.readouterr().out == f"{place}\n"
