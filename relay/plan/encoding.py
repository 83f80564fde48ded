"""The bytes of the files that only relay writes, as text and back.

A byte that is not UTF-8 becomes a lone surrogate, and that byte again on the way back; a byte-order mark and line ends
stay in the text. So a file that is read and written is the same file, whatever somebody else put into it.
"""


def decode_text(data: bytes) -> str:
    """Return the text of a plan's or a ledger's bytes; any bytes have one, and no two the same."""
    return data.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Undo `decode_text`."""
    return text.encode("utf-8", "surrogateescape")
