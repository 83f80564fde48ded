"""Ledger: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Ledger",
    width=28,
    rate=0,
    sort=common.by_date,
    show_money=common.show_brackets,
)


def render(rows):
    return common.render(rows, LAYOUT)
