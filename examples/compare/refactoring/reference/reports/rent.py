"""Rent: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Rent",
    width=24,
    rate=0,
    sort=common.by_name,
    keep=common.is_debt,
)


def render(rows):
    return common.render(rows, LAYOUT)
