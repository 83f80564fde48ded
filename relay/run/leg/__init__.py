"""A leg: one session of a phase, from what it starts from to the commit it asks for or the baton it leaves.

Begin with `session.py`:

    start.py        what it starts from
    session.py      the session, driven to its end; knows no git, sandbox or endpoint
    parts.py        what a run gives to it
    keeper.py       a snapshot after every call that changed something
    claim_watch.py  the ledger meanwhile
    plan_view.py    the plan as it is shown meanwhile
"""
