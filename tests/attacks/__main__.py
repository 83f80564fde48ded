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
    test_start,
    test_tools,
    test_voices,
)
from tests.attacks.conftest import USERS


def count_rows() -> dict[str, tuple[int, int]]:
    """Return for each table how many rows it has and how many tries they make for one user."""
    openings = (*test_openings.ATTACKS, *test_openings.SHARED)
    commands, tools = test_commands.ATTACKS, test_tools.ATTACKS
    reviewed = (*test_reviewers.FILES, *test_reviewers.COMMITS)
    voices = (*test_voices.VOICES, *test_voices.ANSWERS)
    return {
        "commands": (len(commands), sum(len(row.levels) for row in commands)),
        "what was opened": (len(openings), len(openings) * len(test_commands.BOTH)),
        "tool calls": (len(tools), sum(len(row.levels) for row in tools)),
        "files of a repository": (len(test_repository.REFUSED), len(test_repository.REFUSED)),
        "files of an archive": (len(test_archive.ATTACKS), len(test_archive.ATTACKS)),
        "changes to be reviewed": (len(reviewed), len(reviewed)),
        "pull requests": (len(test_pr.CONFIG), len(test_pr.CONFIG)),
        "tool servers": (len(test_servers.GONE_BAD), len(test_servers.GONE_BAD)),
        "other voices": (len(voices), len(voices)),
        "start": (len(test_start.ATTACKS), len(test_start.ATTACKS)),
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
