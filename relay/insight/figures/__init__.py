"""Where the tokens went: figures of turns, sessions, phases and runs, from events alone. Pure.

`fold.fold_records` reads a stream of events once, in memory that does not grow with it, and returns `values.Figures`.
A transcript of another agent has the same figures, because it is read into the same events.
"""
