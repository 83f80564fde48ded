"""The stock of a shop; see docs/SPEC.md."""


class StockError(Exception):
    """What a client asks for cannot be."""


class VersionError(StockError):
    """The database is of a later version."""


class UnknownError(StockError):
    """There is no such item or reservation."""


class ConflictError(StockError):
    """The reservation is another one, or is over."""


class ShortageError(StockError):
    """Fewer are available."""
