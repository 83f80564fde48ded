"""What has to hold and what is given before any session: the one place where collaborators are made.

Begin with `open.py`, which makes what `context.py` names:

    context.py        what a run is asked for, its collaborators, how it ends
    open.py           all of them made, in the order in which a user can repair what is missing
    place.py          repository, settings and plan around the current directory
    checklist.py      what has to hold, in order
    preconditions.py  each thing of that
    logins.py         what would do where there is no key
    program.py        relay's own code is out of reach for sessions
    approval.py       a person has read the repository's setup commands
    installation.py   which install what sessions need
    repository.py     taken: fit, locked, made good
    policy.py         what commands may touch
    workspace.py      what tools work on, in a sandbox that holds
    rules.py          AGENTS.md
    runners.py        who runs the sessions
    account.py        what the plan has cost so far
    observers.py      who is told of what happens
    run_notes.py      how it ended, for the next look
    announcement.py   what a run says first

What all sessions share:

    session.py        one, of whatever kind
    taping.py         on tape
    replay.py         and played from it again
    pause.py          waiting while a person has it paused

And what a person looks at without a run:

    doctor.py         everything above
    agents.py         the agents on this machine
    agent_trial.py    one of them tried
    model_trial.py    a model tried on its endpoint
"""
