"""What relay keeps in git: the open leg, snapshots, the phase's commit, history, what is put back.

Nothing here stashes, resets, cleans, checks out, pushes or forces. The user's index is written in one place only
(`relay.store.completion`), for the paths of a commit that has just been made.
"""
