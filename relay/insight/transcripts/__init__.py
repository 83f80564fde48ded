"""Read transcripts of other agents as relay's own events, so that the same figures apply, and as turns.

`library.OpenTranscript` detects the format of a file and yields its events one at a time, in memory that does not grow
with the file. Each format has a module. Readers are lenient: they count unknown lines and never fail. Every context is
a session of its own: the conversation up to a compaction, the context on its summary, a sub-agent. Facts that a
transcript does not have are unknown. `conversation` keeps what was said, and `digest` makes a planner's text of it.
"""
