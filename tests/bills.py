"""What a rehearsal server billed, and whether commits say so: list prices stand here again, apart from relay's."""

import subprocess
from decimal import Decimal
from pathlib import Path

from tests.endpoint.server import Endpoint

LIST_USD = {
    "claude-opus-5-5": ("4", "20", "5", "8", "0.20"),
    "claude-sonnet-5-5": ("2", "10", "2.5", "4", "0.1"),
    "claude-haiku-5-5": ("0.1", "0.5", "0.125", "0.20", "0.01"),
}
"""For a million tokens of input, output, writes for 5 minutes and for an hour, and reads, on the pricing page."""


def read_bill(server: Endpoint, model: str = "") -> Decimal:
    """Return the USD of all that a server did, or of the requests to one model; a refusal costs nothing."""
    millionths = Decimal(0)
    for one in server.requests:
        if one.usage and model in {"", one.body["model"]}:
            written = one.usage["cache_creation"]
            counts = (
                one.usage["input_tokens"],
                one.usage["output_tokens"],
                written["ephemeral_5m_input_tokens"],
                written["ephemeral_1h_input_tokens"],
                one.usage["cache_read_input_tokens"],
            )
            prices = map(Decimal, LIST_USD[one.body["model"]])
            millionths += sum(count * price for count, price in zip(counts, prices, strict=True))
    return millionths / 1_000_000


def read_costs(root: Path, rev: str = "HEAD") -> list[Decimal]:
    """Return the USD that the commits of a history say, newest first; an estimate is no number."""
    words = ("git", "-C", str(root), "log", "--format=%(trailers:key=Relay-Cost,valueonly,separator=%x20)", rev)
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [Decimal(line.removesuffix(" USD")) for line in shown.split("\n") if line]


def assert_paid(root: Path, server: Endpoint, rev: str = "HEAD", model: str = "") -> None:
    """Check that commits say what a server billed, no cent more or less; each rounds to a millionth of a dollar."""
    costs, billed = read_costs(root, rev), read_bill(server, model)
    assert billed > 0
    assert abs(sum(costs) - billed) <= len(costs) * Decimal("0.0000005"), (costs, billed)
