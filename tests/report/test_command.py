"""`relay report` as it is typed: a page in relay's own folder or where the user says, and nothing else is touched."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from relay.base.errors import ExitCode
from relay.git.names import name_jobs
from relay.insight.report.page import MARK
from relay.insight.telemetry.log import open_log
from relay.ledger.model import Claim, Ledger, Nogood, append_entry
from relay.session.events import RunStarted
from tests.report.reading import Reader
from tests.report.runs import play


def keep_log(stage, run_id, **given):
    """Leave a log as a run of that name would have."""
    with open_log(stage.root, run_id, clock=lambda: 1_700_000_000.0) as log:
        for event in play(run_id=run_id, **given):
            log.append(event)


def read(path):
    return " | ".join(Reader(path.read_text()).texts)


@pytest.fixture
def logged(stage):
    """Return a repository with the logs of two runs."""
    stage.write("PLAN.md", "# Plan\n\n## Phase 1 — One\n\n- [ ] a\n")
    stage.commit()
    keep_log(stage, "aaaa1111", phases=1, text="PLAN.md")
    keep_log(stage, "bbbb2222", phases=2, text="PLAN.md")
    return stage


def test_a_page_is_put_where_git_does_not_see_it(logged):
    page = logged.root / ".relay/reports/bbbb2222.html"
    for _ in range(2):
        done = logged.relay("report", "bbbb2222")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{page}\n"
        assert page.read_text().startswith(MARK)
    assert "2 phases done" in read(page)
    assert logged.git("status", "--porcelain") == ""


def test_all_runs_of_a_plan_are_added_up_and_a_page_shows_one_plan_or_run(logged):
    assert logged.relay("report", "PLAN.md").stdout == f"{logged.root}/.relay/reports/PLAN.md.html\n"
    assert "24 turns" in read(logged.root / ".relay/reports/PLAN.md.html")
    done = logged.relay("report", "aaaa", "bbbb")
    assert (done.returncode, "a page shows one run or plan" in done.stderr) == (1, True)
    assert json.loads(logged.relay("report", "--json", "aaaa", "bbbb").stdout)["totals"]["turns"] == 24


def test_without_a_name_it_is_about_the_plan_that_ran_last(logged):
    whole = logged.relay("report", "--text")
    assert (whole.returncode, whole.stderr) == (0, "")
    assert whole.stdout.startswith("relay: PLAN.md\n")
    assert whole.stdout == logged.relay("report", "PLAN.md", "--text").stdout
    assert whole.stdout != logged.relay("report", "bbbb2222", "--text").stdout
    assert len(json.loads(logged.relay("report", "--json").stdout)["runs"]) == 2


def test_a_run_has_its_jobs(logged):
    for run_id, at, branch in (("cccc3333", 1.0, "main"), ("dddd4444", 2.0, f"{name_jobs('main')}1")):
        with open_log(logged.root, run_id, clock=partial(float, 1_800_000_000.0 + at)) as log:
            for event in play(run_id=run_id, phases=1, text="PLAN.md"):
                log.append(replace(event, branch=branch) if isinstance(event, RunStarted) else event)
    assert list_branches(logged, "cccc3333") == ["main", f"{name_jobs('main')}1"]
    assert list_branches(logged, "dddd4444") == [f"{name_jobs('main')}1"]


def keep_logs_of_branches(logged, *branches):
    for at, branch in enumerate(branches, start=1):
        with open_log(logged.root, f"{at}" * 8, clock=partial(float, 1_800_000_000.0 + at)) as log:
            for event in play(run_id=f"{at}" * 8, phases=1, text="PLAN.md"):
                log.append(replace(event, branch=branch) if isinstance(event, RunStarted) else event)


def list_branches(logged, *words):
    return [run["branch"] for run in json.loads(logged.relay("report", "--json", *words).stdout)["runs"]]


def test_a_report_is_of_this_plan_and_not_of_another_that_began_at_the_same_commit_on_another_branch(logged):
    keep_logs_of_branches(logged, "relay/a", "relay/b", "main")
    assert list_branches(logged) == ["main"]
    assert list_branches(logged, "22222222") == ["relay/b"]


def test_a_plan_that_moved_to_another_branch_keeps_its_runs(logged):
    """Its commits came along, and name the sessions."""
    keep_logs_of_branches(logged, "start", "main")
    logged.write("PLAN.md", "# Plan\n\n## Phase 1 — One\n\n- [x] a\n")
    trailers = "Relay-Plan: PLAN.md\nRelay-Phase: 1\nRelay-Status: done\nRelay-Items: 1.1\nRelay-Session: 1-2"
    logged.commit(f"One\n\n{trailers}")
    assert list_branches(logged)[-2:] == ["start", "main"]


def test_a_file_of_the_users_is_not_written_over(logged):
    done = logged.relay("report", "-o", "PLAN.md")
    assert (done.returncode, "was not made by relay report" in done.stderr) == (1, True)
    assert logged.root.joinpath("PLAN.md").read_text().startswith("# Plan")
    for _ in range(2):
        assert logged.relay("report", "--output", "page.html").stdout == "page.html\n"
    assert logged.root.joinpath("page.html").read_text().startswith(MARK)
    done = logged.relay("report", "-o", "no/such/page.html")
    assert (done.returncode, "cannot be written" in done.stderr) == (1, True)


def test_a_link_that_a_repository_ships_is_not_written_through(logged, tmp_path):
    logged.root.joinpath(".relay/reports").symlink_to(tmp_path)
    done = logged.relay("report", "aaaa")
    assert (done.returncode, "cannot be written" in done.stderr) == (1, True)
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".html"]


def test_beliefs_are_those_of_the_plans_ledger_as_it_stands(logged):
    ledger = Ledger()
    for entry in (
        Claim(id="c1", claim="keys are random", because="two services write them"),
        Claim(id="c2", claim="keys are counted", because="they sort"),
        Nogood(id="n1", claims=("c1", "c2"), because="a key is one of them"),
    ):
        ledger = append_entry(ledger, entry)
    logged.write("PLAN.ledger.yaml", ledger.text)
    logged.relay("report", "aaaa")
    page = read(logged.root / ".relay/reports/aaaa1111.html")
    assert "n1: c1 and c2 cannot all hold: a key is one of them" in page
    assert "c1 | decision | keys are random" in page
    assert "claims" in page
    known = json.loads(logged.relay("report", "--json", "aaaa").stdout)["beliefs"]
    assert [found["id"] for found in known["decisions"]] == ["c1", "c2"]
    assert known["contradictions"] == [{"id": "n1", "claims": ["c1", "c2"]}]
    logged.write("PLAN.ledger.yaml", "}")
    done = logged.relay("report", "aaaa")
    assert (done.returncode, "the report leaves out PLAN.ledger.yaml" in done.stderr) == (0, True)


def test_the_log_is_written_as_tables_for_any_sql_tool(logged):
    """Each class of events is a table, and the figures are tables beside them; a file that is there stays."""
    place = logged.root.parent / "run.db"
    assert logged.relay("report", "bbbb2222", "--db", str(place)).stdout == f"{place}\n"
    with closing(sqlite3.connect(place)) as link:
        [(turns, prompts)] = link.execute("SELECT count(*), sum(prompt) FROM turns")
        [(whole,)] = link.execute("SELECT sum(tokens) FROM sources")
        [(asked,)] = link.execute("SELECT count(*) FROM ResponseReceived")
    assert turns == asked == 16
    assert prompts == whole
    before = place.read_bytes()
    refused = logged.relay("report", "bbbb2222", "--db", str(place))
    assert (refused.returncode, "is there already" in refused.stderr) == (ExitCode.USER, True)
    assert place.read_bytes() == before
