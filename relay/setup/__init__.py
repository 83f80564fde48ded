"""What has to hold and what is given before any session: the one place where collaborators are made.

Begin with `open.py`, which makes what `context.py` names:

    context.py        what a run is asked for, its collaborators, how it ends
    open.py           makes all of them, in the order in which a user can repair what is missing
    place.py          repository, settings and plan around the current directory
    preconditions.py  what has to hold, and in which order it is checked
    program.py        keeps relay's own code out of reach for sessions
    installation.py   installs what sessions need
    repository.py     takes the repository: fit, locked, made good; waits while a person has the run paused
    workspace.py      what commands may touch, and what tools work on
    rules.py          AGENTS.md
    runners.py        who runs the sessions
    account.py        what the plan has cost so far
    observers.py      who is told of what happens; what a run says first, and how it ended, for `relay status`

What all sessions share:

    session.py        drives one, of whatever kind
    tape.py           records one, and plays it again

And what a person looks at without a run:

    doctor.py         everything above
    agents.py         the agents on this machine, and one of them tried
    model_trial.py    a model tried on its endpoint
"""
