"""One session of an attempt, from its first message to its commit or its handoff note.

Begin with `session.py`:

    start.py    the state and the message that the session starts from
    preload.py  small files that the phase names, in that message
    session.py  the session, driven to its end; knows no git, sandbox or endpoint
    keeper.py   a checkpoint after each call that changed something, and the ledger meanwhile
"""
