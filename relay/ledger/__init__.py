"""Claims that outlive a session, and whether they still hold: an append-only YAML list next to the plan.

One entry is one line, told apart by ``event``::

    - {event: "claim", id: "c4mzq7a", kind: "decision", claim: "ids are random", because: "two services write them",
       rests_on: ["c1aaaaa"], replaces: [], sources: [{path: "db/schema.py", lines: "10-24", blob: "1f3c…",
       text: "77ab…"}], phase: "1", session: "3cd30138", at: "2026-11-20T10:00:00Z"}
    - {event: "retract", of: "c4mzq7a", because: "measured otherwise", at: …}
    - {event: "confirm", of: "c4mzq7a", because: "read it again", sources: […], at: …}
    - {event: "nogood", id: "n3kd72p", claims: ["c4mzq7a", "c9…"], because: "both cannot hold", at: …}

(broken here for the page). A line is an entry, because two branches that both append meet in the last lines: with
``*.ledger.yaml merge=union`` in .gitattributes git takes both sides' lines, and that is the union of the entries by
id. Entries of several lines would be cut apart by it, since it merges the lines that they have in common (tried with
git 2.47), and a file for each claim would fill the work tree. As YAML and not JSON Lines it can hold comments and what
older relays and people wrote in several lines. Ids come from what is claimed, when and in which session, so branches do
not give out the same one; no entry has to stand behind what it names.

A source may name what it cites, in a Python file: ``{path: "db/keys.py", symbol: "Keys.make", lines: "10-24", blob: …,
text: …}``. The name is looked up again then, wherever it stands by now; the lines are where it stood. ``copies: "2"``
says that the cited text stood in the file twice.

Whether a claim holds is never written down: `judge` answers it from all entries and from which sources have changed.
A claim is in when some justification of it holds (what it rests on is in; a later look needs nothing else) and nothing
that replaces it is in. The answer is the well-founded one: there is exactly one, in whatever order the entries stand,
and claims that depend on their own absence are found by it and told.

The file is read as a stream of parser events with every scalar as text: nothing becomes a date or a number, and neither
aliases nor deep nesting get anywhere (the C loader's object layer crashes on deep nesting, measured with PyYAML 6.0.3).
"""

from relay.ledger.belief import Belief, ClaimStatus, Judgement, judge
from relay.ledger.model import Claim, Confirmation, Entry, Kind, Ledger, Nogood, Retraction, Source, Stamp
from relay.ledger.parse import append_entry, merge_entries, parse_ledger
from relay.ledger.snapshot import Topic, render_snapshot

__all__ = [
    "Belief",
    "Claim",
    "ClaimStatus",
    "Confirmation",
    "Entry",
    "Judgement",
    "Kind",
    "Ledger",
    "Nogood",
    "Retraction",
    "Source",
    "Stamp",
    "Topic",
    "append_entry",
    "judge",
    "merge_entries",
    "parse_ledger",
    "render_snapshot",
]
