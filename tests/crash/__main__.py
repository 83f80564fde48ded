"""`make crash`: every kill point, kills in a row, failing calls, power cuts; a table of what came of it."""

import argparse
import errno
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.crash.rig import Rig, Trial, choose, open_rig
from tests.crash.tracer import Fault, find_obstacle

Faults = tuple[Fault, ...]


def list_trials(rig: Rig, row: str, *, share: int, start: int, chains: int) -> Iterator[Faults]:
    """Yield the trials of one row."""
    every = range(1, rig.reference.count + 1)
    match row:
        case "before":
            yield from ((Fault(at=at, mode="b"),) for at in choose(every, share, start))
        case "after":
            yield from ((Fault(at=at, mode="a"),) for at in choose(every, share, start))
        case "torn":
            yield from ((Fault(at=at, mode="t"),) for at in choose(rig.reference.writes, share, start))
        case "chain":
            yield from (rig.make_chain(seed) for seed in range(start, start + chains))
        case "enospc" | "eio":
            error = errno.ENOSPC if row == "enospc" else errno.EIO
            for at, mode in itertools.product(choose(every, share, start), "eE"):
                yield (Fault(at=at, mode=mode, error=error),)
        case _:
            raise SystemExit(f"there is no row {row!r}")


def main() -> int:
    """Run the rows that were asked for; exit status 1 when anything did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("rows", nargs="*", default=["before", "after", "torn", "chain", "enospc", "eio"])
    parser.add_argument("--share", type=int, default=1, help="make every n-th trial only")
    parser.add_argument("--start", type=int, default=0, help="first trial, from 0; for chains the first seed")
    parser.add_argument("--chains", type=int, default=1000, help="how many chains")
    parser.add_argument("--sandbox", choices=("auto", "off"), default="off")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop a row after this time")
    parser.add_argument("--record", type=Path, help="append one JSON line for each trial")
    asked = parser.parse_args()
    if obstacle := find_obstacle():
        print(f"nothing can be tested here: {obstacle}")  # noqa: T201  # a command
        return 1
    failed = 0
    with open_rig(sandbox=asked.sandbox) as rig:
        calls, writes = rig.reference.count, len(rig.reference.writes)
        print(f"{calls} calls change files, {writes} of them can be torn; sandbox {asked.sandbox}")  # noqa: T201
        for row in asked.rows:
            failed += run_row(rig, row, asked)
    return int(failed > 0)


def run_row(rig: Rig, row: str, asked: argparse.Namespace) -> int:
    """Run one row, print its line, return how many trials failed."""
    begun, trials, hits, failed = time.monotonic(), 0, 0, 0
    for faults in list_trials(rig, row, share=asked.share, start=asked.start, chains=asked.chains):
        if time.monotonic() - begun > asked.seconds:
            break
        trial = rig.try_faults(faults)
        trials, hits, failed = trials + 1, hits + len(trial.hits), failed + bool(trial.wrong)
        if trial.wrong:
            print(f"FAILED {row} {trial.faults} at {trial.hits}: {trial.wrong}", flush=True)  # noqa: T201
        if asked.record:
            _record(asked.record, row, trial)
    took = time.monotonic() - begun
    print(f"| {row} | {trials} | {hits} | {failed} | {took:.0f} s |", flush=True)  # noqa: T201  # a command
    return failed


def _record(path: Path, row: str, trial: Trial) -> None:
    faults = [[fault.at, fault.mode, fault.error] for fault in trial.faults]
    line = {"row": row, "faults": faults, "hits": trial.hits, "wrong": trial.wrong, "extra": trial.extra_answers}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    sys.exit(main())
