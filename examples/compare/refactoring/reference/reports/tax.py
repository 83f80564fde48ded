"""Tax due: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Tax due",
    width=20,
    rate=19,
    sort=common.by_name,
    round_cents=common.round_half_even,
)


def render(rows):
    return common.render(rows, LAYOUT)
