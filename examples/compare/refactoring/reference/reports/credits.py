"""Credit notes: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Credit notes",
    width=24,
    rate=19,
    sort=common.by_date,
    keep=common.is_credit,
)


def render(rows):
    return common.render(rows, LAYOUT)
