"""A run, understood from its event log.

telemetry writes, keeps, finds and exports the log; database holds its events as tables, over which figures.sql says
where tokens, time and money went; figures reads that into values; report renders them as a page. transcripts
reads the sessions of other agents, as events and as turns.
"""
