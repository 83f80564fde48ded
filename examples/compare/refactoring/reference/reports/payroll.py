"""Payroll: one line for each entry, with tax."""

from reports import common

LAYOUT = common.Layout(
    title="Payroll",
    width=24,
    rate=0,
    sort=common.by_name,
)


def render(rows):
    return common.render(rows, LAYOUT)
