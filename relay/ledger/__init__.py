"""Claims that outlive a session: an append-only YAML list next to the plan.

Three kinds of entries, told apart by ``event``::

    - event: "claim"
      id: "c1"
      claim: "ids are random, not sequential"
      because: "two services write them"
      rests_on: []                      # ids of earlier claims
      sources: [{path: "db/schema.py", blob: "1f3c…", lines: "10-24"}]
    - event: "conflict"
      id: "n1"
      claims: ["c1", "c4"]
      because: "both cannot hold"
    - event: "status"
      id: "c1"                          # a claim: in, out, stale; a conflict: resolved
      status: "out"
      because: "measured otherwise"

A claim can only rest on earlier ones, so what rests on what has no cycles. The file is read as a stream of
parser events with every scalar as text: nothing becomes a date or a number, and neither aliases nor deep
nesting get anywhere (the C loader's object layer crashes on deep nesting, measured with PyYAML 6.0.3).

The snapshot for a prompt never exceeds its budget, and a claim of lower rank never pushes out one of higher rank.
"""

from relay.ledger.append import append_entry
from relay.ledger.model import Claim, ClaimStatus, Conflict, Entry, Ledger, Source, StatusChange
from relay.ledger.parse import parse_ledger
from relay.ledger.snapshot import render_snapshot

__all__ = [
    "Claim",
    "ClaimStatus",
    "Conflict",
    "Entry",
    "Ledger",
    "Source",
    "StatusChange",
    "append_entry",
    "parse_ledger",
    "render_snapshot",
]
