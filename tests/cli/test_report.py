"""`relay report`: what it says of a run is what the endpoint counted."""

import json
import os
from dataclasses import asdict, replace

import pytest

from relay.base.errors import ExitCode
from relay.insight.telemetry.log import HEAD_BYTES, find_logs, list_logs
from relay.session.events import Event, RunEnded, RunStarted, TextShown
from relay.session.records import LoggedEvent, render_record
from relay.session.usage import Usage
from tests.scripts import call

PHASES = 2


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


def test_without_a_log_it_says_what_writes_one_and_has_its_schema(stage):
    schema = json.loads(stage.relay("report", "--schema").stdout)
    assert schema["$defs"]["ToolFinished"]["properties"]["event"] == {"const": "ToolFinished"}
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
    assert [entry.run_id for entry in find_logs(found, "")] == ["r-2"]
    assert [entry.run_id for entry in find_logs(found[:1], "")] == ["r-3"]
    assert [entry.run_id for entry in find_logs(found, "docs/../PLAN.md")] == ["r-1"]
    assert find_logs(found, "r-") == ()
    folder.joinpath("r-6.jsonl").write_text(begin("r-6", 11, commit="c2"))
    folder.joinpath("r-7.jsonl").write_text(begin("r-7", 12))
    assert [entry.run_id for entry in find_logs(list_logs(tmp_path), "PLAN.md")] == ["r-7", "r-6", "r-1"]
    folder.joinpath("r-1.jsonl").write_text(begin("r-1", 5, commit="c1"))
    assert [entry.run_id for entry in find_logs(list_logs(tmp_path), "PLAN.md")] == ["r-7", "r-6"]
    assert list_logs(tmp_path / "none") == ()
