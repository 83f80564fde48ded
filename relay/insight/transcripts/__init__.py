"""Transcripts of other agents, read only, as the events that relay's own log has; so the same figures apply.

`library.OpenTranscript` tells the format of a file and returns its events one at a time, in memory that does not grow
with the file; a module each knows one format and is lenient: what it does not know is counted, never fatal. Every
context is a session (leg) of its own: the conversation up to a compaction, what follows on its summary, a sub-agent.
What a transcript does not say is unknown.
"""
