"""Large items: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Large items",
    width=24,
    rate=19,
    sort=common.by_largest,
    keep=common.is_large,
)


def render(rows):
    return common.render(rows, LAYOUT)
