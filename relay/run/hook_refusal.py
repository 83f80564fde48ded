"""What a commit hook's refusal means: the session's to repair, or a person's, and then with which setting."""

import re

from relay.gate.causes import NO_NETWORK
from relay.run.candidate import Refused
from relay.words import shorten

_SKIP = 'hooks = "skip" in your own settings (RELAY_HOOKS=skip) commits without your hooks'
_LINE_CHARS = 160

_CAUSES = (
    (
        NO_NETWORK,
        "it wants the network, which hooks do not have here",
        "run it once yourself, which fills its cache (git hook run {hook}); ",
    ),
    (
        re.compile(r"read-only file system|EROFS|attempt to write a readonly database", re.IGNORECASE),
        "it writes where it may only read",
        "writable_dirs in your own settings lets it write there; ",
    ),
    (
        re.compile(r"exited with 12[67]$|^\S*python\S*: No module named", re.MULTILINE),
        "a program of it is missing here, or hidden from it",
        "readable_dirs in your own settings shows it a directory, relay sandbox --show lists what is visible; ",
    ),
    (
        re.compile(r"\Athe \S+ hook timed out"),
        "it takes longer than gate_timeout_s",
        "gate_timeout_s gives it more; ",
    ),
)
"""No session can repair these: asked to, it would spend its attempts on a machine that it cannot change."""
_MESSAGE = "commit_subject gives relay's own subjects another form; "


def explain_hook(hook: str, output: str) -> Refused:
    """Return what is told to whom when a hook refused.

    Args:
        hook: Its name.
        output: Its words, behind a line of relay's that says how it ended.
    """
    for pattern, cause, ways in _CAUSES:
        if found := pattern.search(output):
            start = output.rfind("\n", 0, found.start()) + 1
            line = shorten(output[start:].split("\n", 1)[0].strip(), _LINE_CHARS)
            words = f"the {hook} hook refused, and no session can repair that: {cause}: {line}"
            return Refused(for_user=words, ways=ways.format(hook=hook) + _SKIP)
    last = (output.strip().splitlines() or [""])[-1]
    ways = _SKIP if hook == "pre-commit" else _MESSAGE + _SKIP
    return Refused(for_user=f"a commit hook refused: {last}", for_model=output, ways=ways)
