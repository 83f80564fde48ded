"""Export: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Export",
    width=24,
    rate=0,
    sort=common.by_name,
    show_date=common.show_iso,
)


def render(rows):
    return common.render(rows, LAYOUT)
