"""What refreshing a prompt in the cache through a slow gate could save in USD: `results/warmth.md`.

A refresh is a read of the whole prompt at 90 % of an entry's lifetime. It pays if the gate is red and the session goes
on: then the next request reads the prompt instead of writing it again. With the baseline gate seen (60 s of answer and
a gate of 6 minutes are more than 300 s) relay takes entries of an hour, which outlive these gates.
"""

from relay.runners.messages.context_window import LONG_TTL_S, SHORT_TTL_S
from relay.session.prices import find_price
from relay.session.spend import USUAL_ANSWER_S

TOKENS = 100_000
DUE_SHARE = 0.9
RED_SHARE = 0.5
"""Of gates: half are red, as the run assumed of its first."""


def find_saving(model: str, gate_s: float, lifetime_s: float) -> float:
    """Return the expected saving of one gate in USD, negative for a loss."""
    price = find_price(model)
    assert price is not None
    rates = price.find_rates(TOKENS)
    if USUAL_ANSWER_S + gate_s <= lifetime_s:
        return 0.0  # nothing would be lost
    write = rates.write_1h if lifetime_s == LONG_TTL_S else rates.write_5m
    refreshes = int((USUAL_ANSWER_S + gate_s) // (DUE_SHARE * lifetime_s))
    return TOKENS / 1e6 * (RED_SHARE * (write - rates.read) - refreshes * rates.read)


def main() -> None:
    """Print the table."""
    print("| model | gate | entries of 5 min | `auto`, once a gate or the baseline has run |")
    print("|---|---|---|---|")
    for model in ("claude-opus-5-5", "claude-sonnet-5-5", "claude-opus-5", "claude-haiku-4-5"):
        for minutes in (6, 12, 30):
            gate_s = minutes * 60.0
            auto = LONG_TTL_S if (USUAL_ANSWER_S + gate_s) > SHORT_TTL_S else SHORT_TTL_S
            short, own = (find_saving(model, gate_s, ttl) for ttl in (SHORT_TTL_S, auto))
            print(f"| {model} | {minutes} min | ${short:.2f} | ${own:.2f} |")


if __name__ == "__main__":
    main()
