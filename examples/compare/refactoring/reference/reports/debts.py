"""Debts: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Debts",
    width=30,
    rate=0,
    sort=common.by_largest,
    keep=common.is_debt,
)


def render(rows):
    return common.render(rows, LAYOUT)
