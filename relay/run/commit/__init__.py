"""The commit step: what a session claims becomes true here or nowhere.

Begin with `step.py`, which goes through the others:

    step.py          what is checked, in which order, and the commit
    candidate.py     what is offered, and the answer
    pending_plan.py  plan and ledger as the commit would have them
    readiness.py     which commands are the gate, and whether they can show anything
    gates.py         the gate and the user's hooks in the sandbox
    omissions.py     what the commit would not hold
    disclosure.py    secrets that the change would disclose
    doubts.py        what speaks against boxes whose gate is green
    autorun.py       what runs by itself on a person's machine
    landing_leg.py   what differs where a finished phase is only brought onto what others landed
    review.py        fresh sessions look at the change
    message.py       the commit's message
    hook_refusal.py  what a hook's no means
    hook_trial.py    the hooks without a commit
    file_commit.py   a commit of one file that only relay commits
    plan_commit.py   the plan's and the ledger's own, and both as a commit has them
"""
