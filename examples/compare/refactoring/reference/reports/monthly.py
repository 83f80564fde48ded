"""Monthly closing: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Monthly closing",
    width=24,
    rate=7,
    sort=common.by_date,
)


def render(rows):
    return common.render(rows, LAYOUT)
