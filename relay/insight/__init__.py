"""A run, understood from its event log.

telemetry writes, keeps, finds and exports the log; figures says where tokens, time and money went; report renders the
figures as a page; transcripts reads the sessions of other agents as relay's events.
"""
