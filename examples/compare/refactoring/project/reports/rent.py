"""Rent: one line for each entry, with tax."""

TITLE = "Rent"
WIDTH = 24
RATE = 0


def format_date(text):
    year, month, day = (int(part) for part in text.split("-"))
    return f"{day:02}.{month:02}.{year}"


def round_cents(amount):
    sign = -1 if amount < 0 else 1
    return sign * int((abs(amount) + 50) // 100)


def format_money(cents):
    whole, part = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}{whole:,}.{part:02}"


def pad(text, width):
    if len(text) > width:
        return text[: width - 1] + "~"
    return text + " " * (width - len(text))


def render(rows):
    lines = [TITLE, "=" * len(TITLE)]
    total = 0
    for row in sorted(rows, key=lambda row: row["name"]):
        if not row["cents"] > 0:
            continue
        tax = round_cents(row["cents"] * RATE)
        total += row["cents"] + tax
        amount = format_money(row["cents"] + tax)
        lines.append(pad(row["name"], WIDTH) + " " + format_date(row["date"]) + " " + amount.rjust(14))
    lines.append(pad("Total", WIDTH) + " " * 12 + format_money(total).rjust(14))
    return "\n".join(lines)
