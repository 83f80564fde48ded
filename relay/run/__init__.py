"""One phase, from where it goes on to its commit; planning/ is the session that writes the plan before that.

Read `loop.py` first; it goes through the rooms in this order:

    resume/  what an earlier run, a power loss or a person left is put in order
    leg/     a session of the phase: what it starts from, how it is driven, what keeps its work
    commit/  the commit step: gate, checks, review, one commit
    review/  fresh sessions that look at a change

and is begun and ended by the modules beside it; the last three are commands of a person's:

    loop.py          ask, settle, leg, decide: round by round
    selection.py     which phase is next
    ends.py          how a run ends that has nothing left to do
    hours.py         when it begins and when it has to stop
    gate_trial.py    a gate without a session
    review_range.py  a review of what is committed
    rewind.py        back to the green tree before a phase
"""
