"""Experiments: the same plan, worked through in several ways, to see which way pays.

`arms` reads what each arm changes in a run. `experiment` keeps an experiment and its results below
``refs/relay/compare/``, so that a killed one goes on; `laboratory` works through its trials. `trial` runs one in a
clone of its own, which has no other trial in it. `measures` counts what a trial made, `judging` has it reviewed and its
held-out checks run, `record` writes the files. The statistics are in `relay.insight.figures`, the page in
`relay.insight.report`.
"""
