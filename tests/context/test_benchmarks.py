"""The benchmarks run and write what they say; the figures themselves are never asserted."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.effort import take_each

ROOT = Path(__file__).resolve().parents[2]


def run_quick(name, out):
    command = (sys.executable, str(ROOT / "benchmarks" / name), "--quick", "--out", str(out))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def check_strategies(tmp_path):
    """Four rows, a table, a plot; nothing but the wall time depends on the machine."""
    run_quick("context.py", tmp_path)

    rows = json.loads((tmp_path / "context.json").read_text())
    assert [row["strategy"] for row in rows] == ["reset", "none", "compact", "edit"]
    assert all(len(row["fill_tokens"]) == row["requests"] for row in rows)
    assert any("compacted" in note for row in rows for note in row["notes"])
    peaks = {row["strategy"]: max(row["fill_tokens"]) for row in rows}
    assert peaks["edit"] < peaks["none"], "the API cleared old results"
    lines = ET.parse(tmp_path / "context.svg").findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 4
    report = (tmp_path / "context.md").read_text()
    assert report.count("\n| ") == 6


def check_overhead(tmp_path):
    """A row for each setup, parts and the fixed prompt."""
    run_quick("overhead.py", tmp_path)

    found = json.loads((tmp_path / "overhead.json").read_text())
    assert [(row["kind"], row["setup"]) for row in found["calls"]] == [("write", "bare"), ("write", "relay")]
    assert found["git_processes"]["phase"] > 0
    assert "tokens for a runner" in (tmp_path / "overhead.md").read_text()


def check_three_phases(tmp_path):
    """Three commits, and a figure in every column."""
    run_quick("three_phases.py", tmp_path)

    (run,) = json.loads((tmp_path / "three_phases.json").read_text())["now"]
    assert run["first_request_s"] > 0
    assert run["input_tokens"] > 0
    assert "| now |" in (tmp_path / "three_phases.md").read_text()


def check_fleet(_tmp_path):
    """Each part with its figure, and the whole by them."""
    few = "--measure --riders 2 --takes 3 --latency-ms 20 --phases 20 --workers 4"
    command = (sys.executable, str(ROOT / "benchmarks/fleet.py"), *few.split())
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    parts = ("fetch: ", "push: ", "a phase that lands along: ", "the queue: ", "20 phases of ", "| as measured | 5 | ")
    assert [part for part in parts if f"\n{part}" not in f"\n{done.stdout}"] == []


CHECKS = [check_strategies, check_three_phases, check_overhead, check_fleet]


@pytest.mark.nightly
@pytest.mark.parametrize("check", take_each(2, CHECKS))
def test_a_benchmark_runs_and_writes_what_it_says(check, tmp_path):
    check(tmp_path)
