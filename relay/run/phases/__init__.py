"""The phases of a run: which is next, the tree it works in, the children that work side by side, and landing.

Read `parent.py` first: it works on one phase after the other in this process, or starts a child for each (`jobs.py`).
`worktrees.py` makes the trees, `landing.py` puts what a phase has committed on the plan's branch.
"""
