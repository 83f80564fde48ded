"""`make crash`: every kill point, kills in a row, failing calls; a table of what came of it."""

import argparse
import errno
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rigs.crash.rig import Rig, open_rig
from rigs.crash.tracer import Fault, find_obstacle

Faults = tuple[Fault, ...]
Listed = tuple[str, int, list[Any]]
"""A row, how many trials it has, and the faults of one."""
ROWS = {
    "before": "killed before a call",
    "after": "killed after a call",
    "torn": "killed in the middle of a write",
    "chain": "2-3 kills in a row",
    "enospc": "ENOSPC, once or from a call on",
    "eio": "EIO, once or from a call on",
}


def list_trials(rig: Rig, row: str, chains: int) -> Iterator[Faults]:
    """Yield all trials of one row."""
    every = range(1, rig.reference.count + 1)
    match row:
        case "before" | "after":
            yield from ((Fault(at=at, mode=row[0]),) for at in every)
        case "torn":
            yield from ((Fault(at=at, mode="t"),) for at in rig.reference.writes)
        case "chain":
            yield from (rig.make_chain(seed) for seed in range(chains))
        case _:
            error = errno.ENOSPC if row == "enospc" else errno.EIO
            for at, mode in itertools.product(every, "eE"):
                yield (Fault(at=at, mode=mode, error=error),)


def main() -> int:
    """Run the rows that were asked for; exit status 1 when anything did not hold."""
    parser = argparse.ArgumentParser(prog="python -m rigs.crash", description=__doc__)
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="row", help=", ".join(ROWS))
    parser.add_argument("--share", type=int, default=1, help="make every n-th trial only")
    parser.add_argument("--chains", type=int, default=1000, help="how many chains")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many trials at a time")
    parser.add_argument("--sandbox", choices=("auto", "off"), default="auto")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial after this time")
    parser.add_argument("--record", type=Path, default=Path("crash.jsonl"), help="gets a line for each trial; goes on")
    parser.add_argument("--list", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if unknown := set(asked.rows) - set(ROWS):
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}; allowed: {', '.join(ROWS)}")
    if obstacle := find_obstacle():
        print(f"nothing can be tested here: {obstacle}")  # noqa: T201  # a command
        return 1
    if asked.list is not None:
        return _work(asked)
    with tempfile.TemporaryDirectory() as folder:
        lists = [Path(folder, str(n)) for n in range(asked.jobs)]
        for path, share in zip(lists, _share_out(asked), strict=True):
            path.write_text(json.dumps(share), encoding="utf-8")
        command = [sys.executable, "-m", "rigs.crash", *sys.argv[1:]]
        jobs = [subprocess.Popen([*command, f"--list={path}"]) for path in lists]
        codes = [job.wait() for job in jobs]
    print_table(asked.record)
    return max(codes)


def _share_out(asked: argparse.Namespace) -> list[list[Listed]]:
    """Return each job's trials: all in one order that mixes rows and places, so that a part of them is a fair sample.

    One rig lists them, since the number of calls differs by a few from job to job. What the record has is not repeated.
    """
    with open_rig(sandbox=asked.sandbox) as rig:
        trials = [(row, list_trials(rig, row, asked.chains)) for row in asked.rows]
        listed = [(row, faults) for row, every in trials for faults in every]
    totals = Counter(row for row, _ in listed)
    random.Random(0).shuffle(listed)
    done = {(line["row"], json.dumps(line["faults"])) for line in read_record(asked.record)}
    left: list[Listed] = [(row, totals[row], [_render(fault) for fault in faults]) for row, faults in listed]
    left = [trial for trial in left[:: asked.share] if (trial[0], json.dumps(trial[2])) not in done]
    return [left[job :: asked.jobs] for job in range(asked.jobs)]


def _render(fault: Fault) -> list[int | str]:
    return [fault.at, fault.mode, fault.error]


def _work(asked: argparse.Namespace) -> int:
    """Make the trials of a list."""
    begun, failed, version = time.monotonic(), 0, find_version()
    trials: list[Listed] = json.loads(asked.list.read_text(encoding="utf-8"))
    with open_rig(sandbox=asked.sandbox) as rig:
        for row, total, faults in trials:
            if time.monotonic() - begun > asked.seconds:
                break
            trial = rig.try_faults(Fault(at=at, mode=mode, error=error) for at, mode, error in faults)
            failed += bool(trial.wrong)
            if trial.wrong:
                print(f"FAILED {row} {trial.faults} at {trial.hits}: {trial.wrong}", flush=True)  # noqa: T201
            line = {
                "row": row,
                "of": total,
                "faults": faults,
                "hits": trial.hits,
                "wrong": trial.wrong,
                "extra": trial.extra_answers,
                "version": version,
            }
            with asked.record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    return int(failed > 0)


def find_version() -> str:
    """Return what is tested and how, whatever else the repository holds: the trees, and whether files differ from them.

    A record of hours outlives commits that change neither.
    """
    git = ("git", "-C", str(Path(__file__).parents[2]))
    parts = ("relay", "rigs/crash")
    trees = subprocess.run([*git, "rev-parse", *(f"HEAD:{part}" for part in parts)], check=True, capture_output=True)
    changed = subprocess.run([*git, "status", "--porcelain", "--", *parts], check=True, capture_output=True).stdout
    return " ".join([*trees.stdout.decode().split(), *(["changed"] if changed else [])])


def read_record(record: Path) -> list[dict[str, Any]]:
    """Return the trials of a record that were made with this version."""
    text = record.read_text(encoding="utf-8") if record.exists() else ""
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    version = find_version()
    return [line for line in lines if line["version"] == version]


def print_table(record: Path) -> None:
    """Print what a record says of this version, as Markdown."""
    lines = read_record(record)
    print("| trial | trials | of | faults that happened | failed |\n| --- | ---: | ---: | ---: | ---: |")  # noqa: T201
    for row, words in ROWS.items():
        found = [line for line in lines if line["row"] == row]
        if found:
            hits, failed = sum(len(line["hits"]) for line in found), sum(bool(line["wrong"]) for line in found)
            most = max(line["of"] for line in found)  # differs by a few where a sweep went on
            print(f"| {words} | {len(found):,} | {most:,} | {hits:,} | {failed} |")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
