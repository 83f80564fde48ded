"""A leg: one session of a phase, from what it starts from to the commit it asks for or the baton it leaves.

Begin with `session.py`:

    start.py    what it starts from
    session.py  the session, driven to its end; knows no git, sandbox or endpoint
    parts.py    what a run gives to it
    keeper.py   a checkpoint after every call that changed something; the ledger meanwhile
"""
