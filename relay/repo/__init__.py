"""Everything relay does to a git repository: reading it, snapshots under ``refs/relay/``, the phase commit.

Nothing here stashes, resets, cleans, checks out, pushes or forces. The user's index is written in one place only
(`relay.repo.finish`), for the paths of a commit that has just been made.
"""
