"""How long a plan takes to read, by its number of items.

Run ``python benchmarks/parse_plan.py``. Doubling the items must about double the seconds; the last column shows by how
much they grew. Each figure is the best of three readings of processor time, so that a busy machine does not count.
"""

import argparse
import time

from relay.plan.parse import parse_plan

_ITEMS_PER_PHASE = 20
_NESTED_EACH = 5


def write_plan(items: int) -> str:
    """Return a plan with this many items, written as a person would write it."""
    lines = ["# Migrate the store", "Verify: `pytest -q`", ""]
    for number in range(items):
        if number % _ITEMS_PER_PHASE == 0:
            lines += ["", f"## Phase {number // _ITEMS_PER_PHASE + 1} — Tables", "Verify: `pytest -q tests`", ""]
        indent = "  " if number % _NESTED_EACH == 1 else ""
        lines.append(f"{indent}- [ ] Move table {number} to the `new_store` — app/store/table_{number}.py")
    return "\n".join((*lines, ""))


def measure(text: str) -> float:
    """Return the seconds that one reading takes."""
    took = []
    for _ in range(3):
        parse_plan.cache_clear()
        started = time.process_time()
        parse_plan(text)
        took.append(time.process_time() - started)
    return min(took)


def main() -> None:
    """Print one line per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=20_000, help="the largest number of items")
    most = parser.parse_args().most
    parse_plan(write_plan(1))
    print(f"{'items':>8} {'KiB':>8} {'seconds':>9} {'per item':>10} {'growth':>7}")
    items, before = 625, 0.0
    while items <= most:
        text = write_plan(items)
        seconds = measure(text)
        growth = f"{seconds / before:.2f}" if before else "–"
        size = len(text.encode()) / 1024
        print(f"{items:>8} {size:>8.0f} {seconds:>9.3f} {seconds / items * 1e6:>7.1f} µs {growth:>7}")
        items, before = items * 2, seconds


if __name__ == "__main__":
    main()
