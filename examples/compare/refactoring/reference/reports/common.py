"""What all reports share: a table of entries, with what a report may want otherwise."""

from collections.abc import Callable
from dataclasses import dataclass


def by_name(row):
    return row["name"]


def by_date(row):
    return row["date"]


def by_newest(row):
    return -int(row["date"].replace("-", ""))


def by_amount(row):
    return row["cents"]


def by_largest(row):
    return -row["cents"]


def is_any(_row):
    return True


def is_credit(row):
    return row["cents"] < 0


def is_debt(row):
    return row["cents"] > 0


def is_large(row):
    return abs(row["cents"]) >= 10_000


def show_minus(cents):
    whole, part = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}{whole:,}.{part:02}"


def show_brackets(cents):
    text = show_minus(abs(cents))
    return f"({text})" if cents < 0 else f"{text} "


def show_apostrophe(cents):
    return show_minus(cents).replace(",", "'")


def round_half_up(amount):
    sign = -1 if amount < 0 else 1
    return sign * int((abs(amount) + 50) // 100)


def round_half_even(amount):
    whole, rest = divmod(abs(amount), 100)
    whole += rest > 50 or (rest == 50 and whole % 2)
    return -whole if amount < 0 else whole


def show_dots(text):
    year, month, day = text.split("-")
    return f"{int(day):02}.{int(month):02}.{int(year)}"


def show_iso(text):
    year, month, day = text.split("-")
    return f"{int(year)}-{int(month):02}-{int(day):02}"


@dataclass(frozen=True)
class Layout:
    title: str
    width: int
    rate: int
    sort: Callable
    keep: Callable = is_any
    show_money: Callable = show_minus
    round_cents: Callable = round_half_up
    show_date: Callable = show_dots


def pad(text, width):
    return text[: width - 1] + "~" if len(text) > width else text.ljust(width)


def render(rows, layout):
    lines = [layout.title, "=" * len(layout.title)]
    total = 0
    for row in sorted(rows, key=layout.sort):
        if not layout.keep(row):
            continue
        amount = row["cents"] + layout.round_cents(row["cents"] * layout.rate)
        total += amount
        shown = layout.show_money(amount).rjust(14)
        lines.append(f"{pad(row['name'], layout.width)} {layout.show_date(row['date'])} {shown}")
    lines.append(f"{pad('Total', layout.width)}{' ' * 12}{layout.show_money(total).rjust(14)}")
    return "\n".join(lines)
