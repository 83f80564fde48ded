"""Find the user's name and address in git's configuration."""

import os
import re
from collections.abc import Mapping

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.command import Git, GitError
from relay.git.repository import Repo

RELAY_IDENTITY: Mapping[str, str] = {
    "GIT_AUTHOR_NAME": "relay",
    "GIT_AUTHOR_EMAIL": "relay@localhost",
    "GIT_COMMITTER_NAME": "relay",
    "GIT_COMMITTER_EMAIL": "relay@localhost",
}
"""Author of everything under ``refs/relay/``; never of a commit on a branch."""

_IDENT = re.compile(r"(?P<name>.*) <(?P<email>[^<>]*)> \d+ [+-]\d+\n?", re.DOTALL)
_DOES_NOT_KNOW = 128
_VARIABLES = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A name and an address, as in a commit."""

    name: str
    email: str

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make git use it as author and committer."""
        return {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in self._parts()}

    def _parts(self) -> tuple[tuple[str, str], ...]:
        return ("NAME", self.name), ("EMAIL", self.email)


def find_identity(repo: Repo, environ: Mapping[str, str] | None = None) -> Identity | None:
    """Return git's author from the configuration or ``GIT_AUTHOR_*``; None when neither names one.

    Without a configured address git makes one up from the host's name; that is not an identity.

    Raises:
        GitError: Git cannot say.
    """
    environ = os.environ if environ is None else environ
    given = {name: environ[name] for name in _VARIABLES if name in environ}
    said = _ask_identity(repo.git.overruled((("user.useConfigOnly", "true"),)), given)
    match = _IDENT.fullmatch(said)
    if match is None or not match["name"] or not match["email"]:
        return None
    return Identity(name=match["name"], email=match["email"])


def _ask_identity(git: Git, env: Mapping[str, str]) -> str:
    result = git.probe("var", "GIT_AUTHOR_IDENT", env=env)
    if result.code not in {0, _DOES_NOT_KNOW}:
        raise GitError(f"git var failed: {result.words}")
    return "" if result.code else result.out.decode(errors="surrogateescape")


def get_identity(repo: Repo) -> Identity:
    """Return git's author.

    Raises:
        RepoError: Neither configuration nor environment names the user.
    """
    found = find_identity(repo)
    if found is None:
        raise RepoError(
            "git does not know who you are, so relay cannot commit",
            hint='git config --global user.name "Your Name" && git config --global user.email you@example.org',
        )
    return found
