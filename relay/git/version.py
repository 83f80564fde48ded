"""Which git it is: a call that is made anyway says so, and is a process less."""

import re
from dataclasses import replace

from relay.base.errors import RepoError
from relay.git.command import Git, GitResult

MINIMUM_GIT = (2, 39, 1)
"""``git hook run`` and ``core.fsync`` came with 2.36. Before 2.39.1 (January 2023) a ``.gitattributes`` can write into
the memory of git, which reads it outside of the sandbox (CVE-2022-23521; likewise CVE-2022-41903)."""

_TRACED = {"GIT_TRACE2_EVENT": "2", "GIT_TRACE2_EVENT_BRIEF": "1"}
"""Has git say on stderr what it does, and first which version it is. Source: api-trace2."""
_EVENT = b'{"event":"'

_said: dict[str, bytes] = {}
"""By program."""


def probe_traced(git: Git, *args: str) -> GitResult:
    """Run git as `Git.probe` does, and note which version it says that it is."""
    result = git.probe(*args, env=_TRACED)
    lines = result.err.splitlines(keepends=True)
    if version := next((line for line in lines if line.startswith(_EVENT + b"version")), None):
        _said[git.program] = version
    return replace(result, err=b"".join(line for line in lines if not line.startswith(_EVENT)))


def get_version(git: Git) -> tuple[int, ...]:
    """Return the version of git, asked for where no call has said it yet.

    Raises:
        RepoError: It is too old.
    """
    if git.program not in _said:
        _said[git.program] = git.run("version")
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", _said[git.program].rpartition(b'"exe"')[2])
    version = tuple(int(part or 0) for part in found.groups()) if found else (0, 0)
    if version < MINIMUM_GIT:
        shown, wanted = (".".join(map(str, numbers)) for numbers in (version, MINIMUM_GIT))
        raise RepoError(f"git {shown} is too old; relay needs {wanted} or newer", hint="install a newer git")
    return version
