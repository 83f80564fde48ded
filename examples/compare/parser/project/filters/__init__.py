"""A filter language; see docs/SPEC.md."""


class FilterError(Exception):
    """A text that is no filter."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"{message} at column {column}")
        self.message = message
        self.column = column
