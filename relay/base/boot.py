"""The machine's start, as the kernel names it."""

from pathlib import Path


def find_boot_id() -> str:
    """Return an id that changes when the machine starts anew; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
