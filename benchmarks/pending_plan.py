"""What the pending plan costs a session: each save, each finding, each amendment, by what was noted before.

Run ``python benchmarks/pending_plan.py``. Processor time, the best of nine. A save must cost the same in every row.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from parse_plan import write_plan

from relay.ledger.model import Claim, Ledger, Source, append_entry
from relay.plan.parse import parse_plan
from relay.run.commit.candidate import PendingPlan
from relay.tools.claims import AttemptNotes, run_amend

_ITEMS = 64
_ROWS = ((0, 0), (10, 0), (20, 0), (40, 0), (200, 0), (0, 4), (40, 4))


def record(ledger: Ledger, number: int) -> Ledger:
    """Return a ledger with a finding as a session would record it."""
    source = Source(path=f"app/store/table_{number}.py", lines="10-24")
    words = f"table {number} has no index"
    claim = Claim(id=ledger.make_id("c", (words,)), claim=words, because="read its migration", sources=(source,))
    return append_entry(ledger, claim)


def amend(notes: AttemptNotes, number: int) -> None:
    """Add an item to a phase as a session would."""
    run_amend(notes, {"phase": "2", "change": f"- [ ] Move view {number} — app/view_{number}.py", "why": "left out"})


def measure(work: Callable[[], object]) -> float:
    """Return the milliseconds that one call takes."""
    took = []
    for _ in range(9):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return min(took) * 1e3


def measure_row(records: int, amendments: int) -> tuple[float, float, float]:
    """Return the milliseconds of a save, of one more finding and of one more amendment."""
    plan = parse_plan(write_plan(_ITEMS))
    notes = AttemptNotes(plan=plan, phase=plan.phases[0])
    notes.claims.update({"1.1": "12 tests passed", "1.2": "12 tests passed"})
    start = PendingPlan(head=plan, plan=plan, ledger=Ledger())
    for number in range(records):
        start = replace(start, ledger=record(start.ledger, number))
    for number in range(amendments):
        amend(notes, number)

    def save() -> None:
        pending = replace(start, plan=notes.plan.tick(notes.claims))
        pending.render_files("PLAN.md", "PLAN.ledger.yaml")
        assert pending.claimed_ids == ("1.1", "1.2")

    return (
        measure(save),
        measure(lambda: record(start.ledger, records)),
        measure(lambda: amend(replace(notes), amendments)),
    )


def main() -> None:
    """Print one line per number of notes."""
    print(f"a plan of {_ITEMS} items, two of them claimed; milliseconds")
    print(f"{'records':>8} {'amendments':>11} {'save':>7} {'one record':>11} {'one amend':>10}")
    for records, amendments in _ROWS:
        save, record, change = measure_row(records, amendments)
        print(f"{records:>8} {amendments:>11} {save:>7.2f} {record:>11.2f} {change:>10.2f}")


if __name__ == "__main__":
    main()
