"""Where the tokens went: figures of turns, sessions, phases and runs, from the tables of `figures.sql`.

`read.read_figures` reads a stream of events and returns `values.Figures`. A transcript of another agent has the same
figures, because it is read into the same events.
"""
