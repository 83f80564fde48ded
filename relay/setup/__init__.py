"""Preconditions of a run and its collaborators: this room checks the former and makes the latter.

Begin with `open.py`, which makes the values that `context.py` names:

    context.py        the request for a run, its collaborators, and its end
    open.py           takes the repository and makes all collaborators
    place.py          repository, settings and plan around the current directory
    preconditions.py  each precondition, and the order of the checks
    program.py        keeps relay's own code out of reach of sessions
    workspace.py      the sandbox of tools and commands; the setup commands that install packages
    rules.py          AGENTS.md
    skills.py         .agents/skills: each by name and one line
    observers.py      who is told of events; the first words of a run, and its notes for `relay status`

All sessions share:

    session.py        drives one session of any kind, and accounts for its cost

Commands without a run:

    doctor.py         shows all preconditions
    project.py        AGENTS.md for a new project, from its files
    trials.py         tries a model on its endpoint, or an installed agent
"""
