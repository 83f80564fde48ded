"""The stock of a shop; see docs/SPEC.md."""


class StockError(Exception):
    """What a client asks for cannot be."""
