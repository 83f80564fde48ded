"""A run: its phases one after the other or side by side, each from where it goes on to its commit on the branch.

`phases/` chooses the next phase, gives it a tree of relay's own, and lands what it has committed; `planning/` is
the session that writes the plan. For one phase read `loop.py` first. It calls the others in this order:

    loop.py       each round asks git for the state, settles what was left, drives a session and decides what comes next
    resume.py     settles what a killed run, a power loss or a person left
    selection.py  the next phase of the request, and the hours of the run (``--not-before``, ``--until``)
    rungs.py      the model and effort of a phase, and their change in mid-phase
    attempt/      a session of the phase: its start, its way to the end, the checkpoints of its work
    commit/       the commit step: gate, checks, review, one commit
    review.py     the two sessions of a review, and their findings
    explore.py    a session's question, answered by a session inside it
    reader.py     what the sessions that only read have in common

Three modules are of commands beside it:

    rewind.py     `relay rewind`: back to the green tree before a phase
    follow.py     `relay pr --follow`: what came back on a request becomes a phase
"""
