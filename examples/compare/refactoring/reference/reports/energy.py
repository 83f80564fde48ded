"""Energy: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Energy",
    width=20,
    rate=19,
    sort=common.by_date,
)


def render(rows):
    return common.render(rows, LAYOUT)
