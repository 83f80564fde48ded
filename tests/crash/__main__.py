"""`make crash`: every kill point, kills in a row, failing calls; a table of what came of it."""

import argparse
import errno
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.crash.rig import Rig, open_rig
from tests.crash.tracer import Fault, find_obstacle

Faults = tuple[Fault, ...]
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
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("rows", nargs="*", default=list(ROWS), metavar="row", help=", ".join(ROWS))
    parser.add_argument("--share", type=int, default=1, help="make every n-th trial only")
    parser.add_argument("--chains", type=int, default=1000, help="how many chains")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many trials at a time")
    parser.add_argument("--sandbox", choices=("auto", "off"), default="off")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no trial after this time")
    parser.add_argument("--record", type=Path, default=Path("crash.jsonl"), help="gets a line for each trial")
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if unknown := set(asked.rows) - set(ROWS):
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}; allowed: {', '.join(ROWS)}")
    if obstacle := find_obstacle():
        print(f"nothing can be tested here: {obstacle}")  # noqa: T201  # a command
        return 1
    if asked.job is not None:
        return _work(asked)
    asked.record.unlink(missing_ok=True)
    jobs = [
        subprocess.Popen([sys.executable, "-m", "tests.crash", *sys.argv[1:], f"--job={n}"]) for n in range(asked.jobs)
    ]
    codes = [job.wait() for job in jobs]
    print_table(asked.record)
    return max(codes)


def _work(asked: argparse.Namespace) -> int:
    """Make this job's trials: all in one order that mixes rows and places, so that a part of them is a fair sample."""
    begun, failed = time.monotonic(), 0
    with open_rig(sandbox=asked.sandbox) as rig:
        trials = [(row, faults) for row in asked.rows for faults in list_trials(rig, row, asked.chains)]
        totals = Counter(row for row, _ in trials)
        random.Random(0).shuffle(trials)
        for row, faults in trials[:: asked.share][asked.job :: asked.jobs]:
            if time.monotonic() - begun > asked.seconds:
                break
            trial = rig.try_faults(faults)
            failed += bool(trial.wrong)
            if trial.wrong:
                print(f"FAILED {row} {trial.faults} at {trial.hits}: {trial.wrong}", flush=True)  # noqa: T201
            line = {
                "row": row,
                "of": totals[row],
                "faults": [[fault.at, fault.mode, fault.error] for fault in faults],
                "hits": trial.hits,
                "wrong": trial.wrong,
                "extra": trial.extra_answers,
            }
            with asked.record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    return int(failed > 0)


def print_table(record: Path) -> None:
    """Print what a record says, as Markdown."""
    text = record.read_text(encoding="utf-8") if record.exists() else ""
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    print("| trial | trials | of | faults that happened | failed |\n| --- | ---: | ---: | ---: | ---: |")  # noqa: T201
    for row, words in ROWS.items():
        found = [line for line in lines if line["row"] == row]
        if found:
            hits, failed = sum(len(line["hits"]) for line in found), sum(bool(line["wrong"]) for line in found)
            print(f"| {words} | {len(found):,} | {found[0]['of']:,} | {hits:,} | {failed} |")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
