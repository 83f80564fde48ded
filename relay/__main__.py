"""`python -m relay` and the `relay` command."""

import sys

from relay.cli.boundary import run_guarded
from relay.cli.main import relay
from relay.cli.screen import prepare_streams


def main() -> int:
    """Run the command line and return its exit code."""
    prepare_streams()
    argv = sys.argv[1:]
    return run_guarded(lambda: relay.main(args=argv, prog_name="relay", standalone_mode=False), argv)


if __name__ == "__main__":
    sys.exit(main())
