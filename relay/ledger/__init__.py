"""Claims that outlive a session, and whether they still hold: an append-only YAML list next to the plan.

One entry is one line; ``event`` is its kind::

    - {event: "claim", id: "c4mzq7a", kind: "decision", claim: "ids are random", because: "two services write them",
       rests_on: ["c1aaaaa"], replaces: [], sources: [{path: "db/schema.py", lines: "10-24", blob: "1f3c…",
       text: "77ab…"}], phase: "1", session: "3cd30138", at: "2026-11-20T10:00:00Z"}
    - {event: "retract", of: "c4mzq7a", because: "measured otherwise", at: …}
    - {event: "confirm", of: "c4mzq7a", because: "read it again", sources: […], at: …}
    - {event: "nogood", id: "n3kd72p", claims: ["c4mzq7a", "c9…"], because: "both cannot hold", at: …}

(broken here for the page). An entry is one line because two branches that both append conflict in the last lines: with
``*.ledger.yaml merge=union`` in .gitattributes git takes both sides' lines, and that is the union of the entries by id.
It would cut entries of several lines apart, since it merges their common lines (tried with git 2.47), and a file per
claim would fill the work tree. As YAML and not JSON Lines the file can hold comments, and entries of several lines
that people write. Ids are hashes of the claim, its time and its session, so branches do not give out
the same id; an entry may stand above the one it names.

A session writes claims, confirmations and nogoods by its tool ``record``, a person all four by ``relay ledger``.

Whether a claim holds is never written down: `judge` answers it from all entries and from which sources have changed.

The file is read as a stream of parser events with every scalar as text: nothing becomes a date or a number, and aliases
and deep nesting are refused (the C loader's object layer crashes on deep nesting, measured with PyYAML 6.0.3).
"""
