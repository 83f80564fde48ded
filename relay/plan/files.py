"""Which files belong to a plan, by name alone. Pure."""

from pathlib import PurePosixPath

DEFAULT_PLAN = "PLAN.md"
"""The plan where no setting names another."""
LEDGER_SUFFIX = ".ledger.yaml"
STATE_DIR = ".relay"
"""Telemetry and spilled output; never state that matters."""


def find_ledger_path(plan_path: str) -> str:
    """Return the ledger's path, next to the plan: ``PLAN.md`` → ``PLAN.ledger.yaml``."""
    path = PurePosixPath(plan_path)
    return str(path.with_name(f"{path.stem}{LEDGER_SUFFIX}"))


def find_protected(plan_path: str) -> tuple[str, ...]:
    """Return what no tool and no command may write, besides git's own directory and the rules files."""
    return (plan_path, find_ledger_path(plan_path), STATE_DIR, "relay.toml")
