"""Find the user's name and address in git's configuration; store commits as the user, signed if that is asked for."""

import os
import re
import shlex
import tempfile
from collections.abc import Mapping

from relay.base.errors import RepoError
from relay.base.values import dataclass
from relay.git.command import Git, GitError
from relay.git.config_guard import Guarded, find_value, guard, read_listing
from relay.git.notes import write_note
from relay.git.objects import render_now, write_unsigned
from relay.git.repository import Repo

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
        parts = ("NAME", self.name), ("EMAIL", self.email)
        return {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in parts}

    def begin_commit(self) -> dict[str, str]:
        """Return the same for a commit that is written now, with its author's date, as hooks are told."""
        return {**self.environment, "GIT_AUTHOR_DATE": render_now()}


def find_identity(repo: Repo, environ: Mapping[str, str] | None = None) -> Identity | None:
    """Return git's author from the configuration or ``GIT_AUTHOR_*``; None when neither names one.

    Without a configured address git makes one up from the host's name; that is not an identity.

    Raises:
        GitError: Git cannot say.
    """
    environ = os.environ if environ is None else environ
    given = {name: environ[name] for name in _VARIABLES if name in environ}
    key = read_listing(repo), *given.items(), *repo.git.env.items()
    if key not in _known:
        said = _ask_identity(repo.git.overruled((("user.useConfigOnly", "true"),)), given)
        match = _IDENT.fullmatch(said)
        is_known = match is not None and match["name"] and match["email"]
        _known[key] = Identity(name=match["name"], email=match["email"]) if match and is_known else None
    return _known[key]


_known: dict[tuple[object, ...], Identity | None] = {}
"""By configuration and environment."""


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


def render_signoff(repo: Repo, *, wanted: bool) -> tuple[tuple[str, str], ...]:
    """Return the trailer of the user's sign-off, which certifies where the code is from; nothing if it is not wanted.

    Raises:
        RepoError: As `get_identity`.
    """
    return (("Signed-off-by", str(get_identity(repo))),) if wanted else ()


TIMEOUT_S = 30.0
"""Longer than any key needs; then a program that waits for a person is killed."""

_DEFAULT_PROGRAMS = {"openpgp": "gpg", "x509": "gpgsm", "ssh": "ssh-keygen"}
_WRAPPER = "sign"
_QUIET = {"openpgp": "--batch --no-tty --pinentry-mode=error", "x509": "--batch --no-tty --pinentry-mode=error"}


def write_user_commit(
    repo: Repo, guarded: Guarded, tree: str, parents: tuple[str, ...], message: bytes, identity: Mapping[str, str]
) -> str:
    """Store a commit object as the user, signed when ``commit.gpgSign`` says so.

    Args:
        identity: Environment that names author and committer.

    Raises:
        RepoError: Signing is asked for but does not work without a prompt.
    """
    if not guarded.flag("commit.gpgsign", default=False):
        return write_unsigned(repo, tree, parents, message, identity)
    args = ["commit-tree", tree, *(part for parent in parents for part in ("-p", parent)), "-F", "-"]
    git = _make_signing_git(repo, guarded)
    result = git.probe(*args, "-S", stdin=message, env=identity, timeout_s=TIMEOUT_S)
    if result.code:
        raise RepoError(
            f"commit.gpgSign is on, but the commit cannot be signed without a prompt: {result.words}",
            hint="unlock the key for the run, or: git config commit.gpgSign false",
        )
    return result.out.decode().strip()


def check_signing(repo: Repo) -> str | None:
    """Return why commits cannot be signed as the configuration asks; None when they can, or need not be.

    It signs a commit that is not kept, so that a run does not fail after its first phase.
    """
    guarded = guard(repo)
    if not guarded.flag("commit.gpgsign", default=False):
        return None
    message = b"relay: can commits be signed?\n"
    try:
        with tempfile.TemporaryDirectory(prefix="relay-signing-") as objects:
            identity = {**get_identity(repo).environment, "GIT_OBJECT_DIRECTORY": objects}
            write_user_commit(repo, guarded, repo.empty_tree, (), message, identity)
    except RepoError as error:
        return str(error)
    return None


def _make_signing_git(repo: Repo, guarded: Guarded) -> Git:
    """Return a git that signs with the user's own program without asking; the repository's choice does not count."""
    form = (find_value(guarded.config, "gpg.format") or "openpgp").lower()
    names = (f"gpg.{form}.program", "gpg.program") if form == "openpgp" else (f"gpg.{form}.program",)
    values = [find_value(guarded.config, name, trusted_only=True) for name in names]
    program = next((value for value in values if value), _DEFAULT_PROGRAMS.get(form, "gpg"))
    if form in _QUIET:
        # Git takes no options for the signing program.
        write_note(repo, _WRAPPER, f'#!/bin/sh\nexec {shlex.quote(program)} {_QUIET[form]} "$@"\n', executable=True)
        program = str(repo.relay_dir / _WRAPPER)
    # An empty value overrules the repository's choice; leaving it out would not.
    key_command = find_value(guarded.config, "gpg.ssh.defaultkeycommand", trusted_only=True)
    settings = [("gpg.program", program), ("gpg.ssh.defaultKeyCommand", key_command or "")]
    return guarded.git.overruled([*settings, (f"gpg.{form}.program", program)])
