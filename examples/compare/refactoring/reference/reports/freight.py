"""Freight: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Freight",
    width=18,
    rate=19,
    sort=common.by_newest,
)


def render(rows):
    return common.render(rows, LAYOUT)
