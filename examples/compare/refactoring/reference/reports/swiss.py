"""Swiss branch: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Swiss branch",
    width=24,
    rate=8,
    sort=common.by_name,
    show_money=common.show_apostrophe,
)


def render(rows):
    return common.render(rows, LAYOUT)
