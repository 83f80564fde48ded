"""The commit step: what a session claims becomes true here or nowhere.

Begin with `step.py`, which goes through the others:

    step.py         what is checked, in which order, and the commit
    candidate.py    what is offered, and the answer; plan and ledger as the commit would have them
    readiness.py    which commands are the gate, and whether they can show anything; a phase that is only landed
    gates.py        the gate and the user's hooks in the sandbox
    omissions.py    what the commit would not hold, and warnings about boxes whose gate is green
    disclosures.py  secrets that the change would disclose, and files that run by themselves on a person's machine
    review.py       fresh sessions look at the change
    message.py      the commit's message
    hooks.py        what a hook's refusal means, and the hooks tried without a commit
    plan_commit.py  the commits of the plan and the ledger alone
"""
