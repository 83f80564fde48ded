"""The bytes of a plan and a ledger as text and back.

A byte that is not UTF-8 becomes a lone surrogate, and that byte again on the way back; a byte-order mark and line ends
stay in the text. So a file that is read and written back is unchanged, whatever another program put into it.
"""

from relay.base.errors import PlanError

MAX_PLAN_BYTES = 8 * 1024 * 1024
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def require_utf8(data: bytes) -> str:
    """Return the text of a plan's bytes as its author has it on disk.

    Raises:
        PlanError: A byte is not UTF-8, or there are too many; the line is known, the path is not.
    """
    if len(data) > MAX_PLAN_BYTES:
        raise PlanError(f"this is larger than {MAX_PLAN_BYTES:,} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        hint = "this is UTF-16, as PowerShell writes it: save it as UTF-8" if data.startswith(UTF_16) else ""
        raise PlanError("this byte is not UTF-8; allowed: UTF-8 text", line=line, hint=hint) from None


def decode_text(data: bytes) -> str:
    """Return the text of a plan's or a ledger's bytes; any bytes have one, and no two the same."""
    return data.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Undo `decode_text`."""
    return text.encode("utf-8", "surrogateescape")
