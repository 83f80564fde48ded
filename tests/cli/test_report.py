"""`relay report`: what it says of a run is what the endpoint counted."""

import json
import os
import re
from dataclasses import asdict, replace

import pytest

from relay.base.errors import ExitCode
from relay.insight.telemetry.log import HEAD_BYTES, find_logs, list_logs
from relay.session.events import Event, RunEnded, RunStarted, TextShown
from relay.session.records import LoggedEvent, render_record
from relay.session.usage import Usage

PHASES = 4


def call(name, **given):
    return {"tools": [{"name": name, "input": given}]}


def make_phase(n):
    """Read the rules twice, write the phase's file, one that it does not name, and tick."""
    return [
        {"text": "I look at the rules.", **call("read", path="AGENTS.md")},
        call("read", path="AGENTS.md"),
        call("write", path=f"part{n}.txt", content=f"part {n}\n" * 20),
        call("write", path=f"stray{n}.txt", content="stray\n"),
        call("record", claim=f"Parts have one file, {n}", because="it reads best", kind="decision", sources=[]),
        call("tick", item=f"{n}.1", evidence="it is there"),
        {"text": f"Commit: Make part {n}"},
    ]


def make_plan():
    phases = (
        f"## Phase {n} — Part {n}\n\n- [ ] Write part {n} — part{n}.txt\n\nVerify: `test -s part{n}.txt`\n"
        for n in range(1, PHASES + 1)
    )
    return "# Parts\n\n" + "\n".join(phases)


@pytest.fixture
def built(stage):
    """Return a stage on which all phases were built."""
    stage.write("PLAN.md", make_plan())
    stage.write("AGENTS.md", "Write short files.\n" * 30)
    stage.commit()
    script = {"sessions": [{"turns": make_phase(n)} for n in range(1, PHASES + 1)]}
    assert stage.run(json.dumps(script)).exit_code == ExitCode.DONE
    return stage


def count(requests):
    """Add up what the server's own log says was used."""
    total = Usage()
    for request in requests:
        used = request.usage
        if used is None:
            continue
        written = used.get("cache_creation") or {}
        total += Usage(
            input_tokens=used["input_tokens"],
            cache_read_tokens=used.get("cache_read_input_tokens") or 0,
            cache_write_5m_tokens=written.get("ephemeral_5m_input_tokens", 0),
            cache_write_1h_tokens=written.get("ephemeral_1h_input_tokens", 0),
            output_tokens=used["output_tokens"],
        )
    return total


def test_a_report_is_the_server_s_own_log_to_the_token(built):
    """Totals, sources and what proves each tick; a run adds up from its phases and its sessions."""
    done = built.relay("report", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    truth, totals = count(built.server.requests), found["totals"]
    expected = asdict(replace(truth, thinking_tokens=totals["thinking_tokens"]))
    assert {name: totals[name] for name in expected} == expected
    assert truth.prompt_tokens > 5_000 * PHASES
    assert sum(totals["sources"].values()) == truth.prompt_tokens
    assert totals["turns"] == len([r for r in built.server.requests if r.usage is not None]) == 7 * PHASES
    for parts in (found["phases"], found["runs"][0]["sessions"]):
        assert len(parts) == PHASES
        assert sum(part["prompt_tokens"] for part in parts) == truth.prompt_tokens
        assert sum(part["output_tokens"] for part in parts) == truth.output_tokens
    # What relay knows of a prompt explains nearly all of it.
    assert totals["sources"].get("other", 0) < 0.02 * truth.prompt_tokens
    assert {"system", "tools", "rules", "plan", "environment", "history", "tool read"} <= set(totals["sources"])
    assert (totals["ticks"], totals["records"], totals["commits"]) == (PHASES, PHASES, PHASES)
    assert totals["duplicate_reads"] == PHASES
    assert [phase["drift"] for phase in found["phases"]] == [0.5] * PHASES
    assert found["log"]["skipped_lines"] == 0
    for n, tick in enumerate(found["ticks"], 1):
        assert (tick["items"], tick["phase_id"]) == ([f"{n}.1"], str(n))
        (check,) = tick["checks"]
        assert (check["command"], check["exit_code"]) == (f"test -s part{n}.txt", 0)
        assert len(check["output_sha256"]) == 64
        changed = {file["path"]: (file["added"], file["deleted"]) for file in tick["files"]}
        assert changed[f"part{n}.txt"] == (20, 0)
        assert changed[f"stray{n}.txt"] == (1, 0)


@pytest.mark.nightly
def test_a_person_reads_it_in_the_terminal(built):
    """What was done, why it stopped, what it cost, what needs you; each phase, and what proves its boxes."""
    text = built.relay("report", "--text").stdout
    truth = count(built.server.requests)
    assert text.startswith("relay: PLAN.md\n  Plan ")
    assert all(words in text for words in (
        f"\nWhat was done: {PHASES} phases done, none to go\n",
        f"\n  {PHASES} boxes ticked in {PHASES} commits, {PHASES} sessions, {7 * PHASES} turns\n",
        "\nWhy it stopped: ", "\nWhat it cost: $", "\nWhat needs you: ",
        f"\n  {truth.prompt_tokens:,} tokens in, ", f" of them from the cache, {truth.output_tokens:,} out\n",
        "50% !", " test -s part3.txt  passed      0 ", "stray4.txt",
    ))  # fmt: skip
    assert len(text.splitlines()) <= 60
    assert "svg" not in text
    listed = built.relay("report", "--list").stdout.splitlines()
    assert len(listed) == 1
    assert "run PLAN.md" in listed[0]
    run_id = listed[0].split()[0]
    for wanted in ("PLAN.md", "./PLAN.md", run_id, run_id[:-2], f".relay/sessions/{run_id}.jsonl"):
        shown = built.relay("report", "--text", wanted).stdout
        assert re.sub(r"\$[\d.]+ *", "$", shown) == re.sub(r"\$[\d.]+ *", "$", text)  # a run's money is its log's
    missing = built.relay("report", "NOTES.md")
    words = "no single run, and no plan with runs, is called 'NOTES.md'"
    assert (missing.returncode, words in missing.stderr) == (1, True)


def test_the_schema_is_of_lines_that_a_run_writes(stage):
    schema = json.loads(stage.relay("report", "--schema").stdout)
    assert schema["$defs"]["ToolFinished"]["properties"]["event"] == {"const": "ToolFinished"}


def test_without_a_log_it_says_what_writes_one(stage):
    done = stage.relay("report")
    assert (done.returncode, "no run has written a log here yet" in done.stderr) == (1, True)


def test_logs_are_found_by_id_plan_and_beginning(tmp_path):
    """Newest first; links, pipes and folders are no logs, and a torn one is listed without what it lost."""
    folder = tmp_path / ".relay" / "sessions"
    folder.mkdir(parents=True)

    def begin(name, at, *, plan="PLAN.md", commit=""):
        started = RunStarted(
            run_id=name, command="run", model="m", plan_path=plan, branch="main", sandbox="off", cap_usd=None,
            spent_usd=0, rehearsed=True, plan_commit=commit,
        )  # fmt: skip
        return f"{render_record(LoggedEvent(at=at, event=started))}\n"

    ended = RunEnded(exit_code=0, reason="done", next_command="", spent_usd=1)
    later: list[Event] = [TextShown(text="x" * HEAD_BYTES), ended]
    rest = "".join(f"{render_record(LoggedEvent(at=9, event=event))}\n" for event in later)
    folder.joinpath("r-1.jsonl").write_text(begin("r-1", 5) + rest)
    folder.joinpath("r-2.jsonl").write_text(begin("r-2", 7, plan="docs/PLAN.md"))
    folder.joinpath("r-3.jsonl").write_text(begin("r-3", 9)[:50] + "\n" + "[" * 9_999)
    folder.joinpath("notes.txt").touch()
    os.mkfifo(folder / "r-4.jsonl")
    folder.joinpath("r-5.jsonl").symlink_to("r-1.jsonl")
    found = list_logs(tmp_path)
    assert [(entry.run_id, entry.began) for entry in found] == [("r-3", None), ("r-2", 7.0), ("r-1", 5.0)]
    assert [bool(entry.ended) for entry in found] == [False, False, True]
    assert [entry.run_id for entry in find_logs(found, "")] == ["r-3"]
    assert [entry.run_id for entry in find_logs(found, "docs/../PLAN.md")] == ["r-1"]
    assert find_logs(found, "r-") == ()
    folder.joinpath("r-6.jsonl").write_text(begin("r-6", 11, commit="c2"))
    folder.joinpath("r-7.jsonl").write_text(begin("r-7", 12))
    assert [entry.run_id for entry in find_logs(list_logs(tmp_path), "PLAN.md")] == ["r-7", "r-6", "r-1"]
    folder.joinpath("r-1.jsonl").write_text(begin("r-1", 5, commit="c1"))
    assert [entry.run_id for entry in find_logs(list_logs(tmp_path), "PLAN.md")] == ["r-7", "r-6"]
    assert list_logs(tmp_path / "none") == ()
