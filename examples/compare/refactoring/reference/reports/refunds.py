"""Refunds: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Refunds",
    width=24,
    rate=19,
    sort=common.by_amount,
    keep=common.is_credit,
)


def render(rows):
    return common.render(rows, LAYOUT)
