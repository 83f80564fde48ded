"""Travel: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Travel",
    width=22,
    rate=7,
    sort=common.by_newest,
)


def render(rows):
    return common.render(rows, LAYOUT)
