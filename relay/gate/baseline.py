"""The gate as it was before a phase, as a leg's trailer carries it; outputs and times are not kept."""

import json

from relay.gate.model import CommandCheck, GateResult, Outcome


def render_baseline(result: GateResult) -> str:
    """Return one line: a list of command, status and exit code for each command."""
    return json.dumps([[check.command, check.status, check.exit_code] for check in result.commands])


def parse_baseline(text: str) -> GateResult | None:
    """Undo `render_baseline`; None when the value is missing or not relay's."""
    try:
        rows = json.loads(text)
        checks = tuple(
            CommandCheck(command=str(command), status=Outcome(status), exit_code=code, duration_s=0.0, output_tail="")
            for command, status, code in rows
        )
    except (ValueError, TypeError):
        return None
    return GateResult(commands=checks)
