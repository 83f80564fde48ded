"""Count the attacks of the tables in this directory, and how often a run of the tests tries them.

    python -m tests.attacks

Single tests beside the tables (terminal, secrets, masked mechanism, …) are not in these figures; pytest counts them.
"""

import sys

from tests.attacks import (
    test_archive,
    test_commands,
    test_openings,
    test_planted,
    test_pr,
    test_repository,
    test_reviewers,
    test_servers,
    test_tools,
    test_voices,
)
from tests.attacks.conftest import USERS
from tests.sandbox.acts import PYTHON_ACTS


def count_rows() -> dict[str, tuple[int, int]]:
    """Return for each table how many rows it has and how many tries they make for one user."""
    commands, tools = test_commands.ACTS.keys() | PYTHON_ACTS.keys(), test_tools.CALLS
    openings, both = test_openings.ACTS, (*test_tools.READ, *test_tools.ABUSES)
    reviewed = (*test_reviewers.FILES, *test_reviewers.COMMITS)
    voices = (*test_voices.VOICES, *test_voices.ANSWERS)
    return {
        "commands": (len(commands), 2 * len(commands)),
        "what was opened": (len(openings), 2 * len(openings)),
        "tool calls": (sum(map(len, tools.values())) + len(both), sum(map(len, tools.values())) + 2 * len(both)),
        "files of a repository": (len(test_repository.REFUSED), len(test_repository.REFUSED)),
        "files of an archive": (len(test_archive.ATTACKS), len(test_archive.ATTACKS)),
        "changes to be reviewed": (len(reviewed), len(reviewed)),
        "pull requests": (len(test_pr.CONFIG), len(test_pr.CONFIG)),
        "tool servers": (len(test_servers.GONE_BAD), len(test_servers.GONE_BAD)),
        "other voices": (len(voices), len(voices)),
        "files that steer later": (len(test_planted.ATTACKS), 2 * len(test_planted.ATTACKS)),
        "git configuration": (len(test_repository.CONFIG), len(test_repository.CONFIG)),
    }


def main() -> None:
    """Print one line for each table, then the sum."""
    rows = count_rows()
    for name, (attacks, tries) in rows.items():
        sys.stdout.write(f"{name:24}{attacks:4} attacks{tries * len(USERS):6} tries\n")
    attacks, tries = (sum(pair[at] for pair in rows.values()) for at in (0, 1))
    sys.stdout.write(f"{'all':24}{attacks:4} attacks{tries * len(USERS):6} tries ({' and '.join(USERS)})\n")


if __name__ == "__main__":
    main()
