"""Suppliers: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Suppliers",
    width=32,
    rate=19,
    sort=common.by_name,
)


def render(rows):
    return common.render(rows, LAYOUT)
