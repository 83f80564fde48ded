"""Experiments, which nothing but the command line imports.

An experiment works through the same plan in several ways, to see which way pays.

`arms` reads what each arm changes in a run. `experiment` keeps an experiment and its results below
``refs/relay/compare/``, so that a killed one goes on; `laboratory` works through its trials and counts what each made.
`trial` runs one in a clone of its own, which has no other trial in it. `judging` has it reviewed and its held-out
checks run, `record` writes the files, `experiment_page` the page; `comparing` and `statistics` say what may be
claimed. `tuning` reads what the logs of a repository tell of reset lines.
"""
