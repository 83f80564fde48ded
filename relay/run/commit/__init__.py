"""The commit step: relay checks the claims of a session, then commits code and ticks together, or refuses.

Begin with `step.py`, which calls the others:

    step.py            the order of the checks, and the commit with its message
    candidate.py       values: a session's work as it is offered, and the answer
    readiness.py       the commands of a gate, and whether a gate and a commit are possible; phases that only land
    gates.py           the gate and the user's hooks in the sandbox
    omissions.py       files that the commit would lack, and doubts about boxes whose gate is green
    changed_checks.py  what a change does to its own check: tests, rules, coverage floors, CI
    disclosures.py     secrets that the change would disclose, and files that run by themselves on a person's machine
    review.py          the review before the commit, and `relay review` of any range
    hooks.py           the meaning of a hook's refusal; hooks and gates tried without a commit
    plan_commit.py     commits of the plan or the ledger alone
"""
