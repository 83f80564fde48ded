"""Customs: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Customs",
    width=24,
    rate=21,
    sort=common.by_name,
    keep=common.is_debt,
    round_cents=common.round_half_even,
)


def render(rows):
    return common.render(rows, LAYOUT)
