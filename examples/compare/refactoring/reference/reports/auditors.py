"""For the auditors: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="For the auditors",
    width=24,
    rate=19,
    sort=common.by_date,
    show_money=common.show_brackets,
)


def render(rows):
    return common.render(rows, LAYOUT)
