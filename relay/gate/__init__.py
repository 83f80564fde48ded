"""The gate: run verify commands in the sandbox and judge what they say.

A phase is done when its commands pass, not when somebody says so. A command passes when it exits 0 *and* that exit
code means something: a test runner that found nothing to run, or a shell line that throws the code away, proves
nothing and is not green.
"""

from relay.gate.model import CommandCheck, GateResult, Status, Verdict
from relay.gate.run import run_gate
from relay.gate.shell_line import check_command
from relay.gate.verdict import compare_gate

__all__ = ["CommandCheck", "GateResult", "Status", "Verdict", "check_command", "compare_gate", "run_gate"]
