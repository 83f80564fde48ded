"""The paths of a plan's files, and their bytes as text and back. Pure.

A byte that is not UTF-8 becomes a lone surrogate, and that byte again on the way back; a byte-order mark and line
endings stay in the text. So reading and writing a file changes nothing in it.
"""

from pathlib import PurePosixPath

from relay.base.errors import PlanError

MAX_PLAN_BYTES = 8 * 1024 * 1024
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def require_utf8(data: bytes) -> str:
    """Return the text of a plan's bytes.

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
    """Return the text of a plan's or a ledger's bytes, whatever they are; different bytes have different texts."""
    return data.decode("utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Undo `decode_text`."""
    return text.encode("utf-8", "surrogateescape")


DEFAULT_PLAN = "PLAN.md"
"""The plan where no setting names another."""
LEDGER_SUFFIX = ".ledger.yaml"
STATE_DIR = ".relay"
"""Holds telemetry and spilled output, never state that matters."""


def find_ledger_path(plan_path: str) -> str:
    """Return the ledger's path, next to the plan: ``PLAN.md`` → ``PLAN.ledger.yaml``."""
    path = PurePosixPath(plan_path)
    return str(path.with_name(f"{path.stem}{LEDGER_SUFFIX}"))


def find_protected(plan_path: str) -> tuple[str, ...]:
    """Return the paths that no tool and no command may write, besides git's own directory and the rules files."""
    return (plan_path, find_ledger_path(plan_path), STATE_DIR, "relay.toml")
