"""What relay keeps in git: the open attempt, snapshots, commits, history; where a plan stands, from git alone.

Nothing here stashes, resets, cleans, checks out, pushes or forces. Only `relay.store.completion` writes the user's
index, for the paths of a commit that was just made.
"""
