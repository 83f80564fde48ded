"""One phase, from where it goes on to its commit; planning/ is the session that writes the plan before that.

Read `loop.py` first; it goes through the others in this order:

    loop.py       ask, settle, leg, decide: round by round; says how a run ends that has nothing left to do
    resume.py     puts in order what an earlier run, a power loss or a person left
    selection.py  which phase is next
    leg/          a session of the phase: what it starts from, how it is driven, what keeps its work
    commit/       the commit step: gate, checks, review, one commit
    review.py     fresh sessions that look at a change, and what they find

The others are commands, or options, of their own:

    hours.py         when a run begins and when it has to stop
    gate_trial.py    a gate without a session
    review_range.py  a review of commits
    rewind.py        back to the green tree before a phase
"""
