"""Profiles of agents (`agents.toml` and the user's settings), and what they become: a found program, a home directory.

Nothing of a profile comes from a repository. The home is a new directory in the sandbox's private place. It holds the
files of the profile and nothing of the user's: relay hides the places of credentials in the user's own home.
"""

import errno
import hashlib
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from msgspec import convert

from relay.base.errors import RunnerError
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.base.walk import open_regular, read_bytes
from relay.config.agents import AgentSettings
from relay.git.command import clean_path
from relay.sandbox.toolchains import find_package
from relay.session.prices import normalize_model

NO_KEY = "held-by-relay"
"""Stands in place of an API key; the gateway puts in the real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSetup:
    """How an agent is told its endpoint, for one family of endpoints."""

    family: str
    """``anthropic``, ``openai`` or ``gemini``, as in `relay.runners.messages.endpoint`."""
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    files: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One agent."""

    name: str
    """Value of ``--runner``."""
    title: str
    package: str
    """The command that installs the tested version; empty if unknown."""
    program: str
    """Name on PATH."""
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Names of other programs that it starts."""
    tested: str
    """The version that the agent reported when this profile was tried."""
    engine: str = ""
    """The program that a person starts and logs in with, if the agent's own one is only an adapter; else empty."""
    own_tokens: int = 0
    """About how many tokens its first request has besides relay's text."""
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Path below the home directory, and text."""
    effort: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variables that tell it a session's effort; without them it has its own."""
    setups: tuple[EndpointSetup, ...] = (EndpointSetup(family="anthropic"),)
    """Additional arguments, variables and files for each family of endpoints it can use."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Parameters of session/new."""
    mode: str = ""
    """Mode of the session; empty for the agent's default."""
    login: str = "key"
    """How the agent reaches its model: see `relay.config.agents.LOGINS`."""
    credentials: tuple[str, ...] = ()
    """Places that hold a login: names of variables, and files below the user's home directory."""
    hosts: tuple[str, ...] = ()
    """Hosts of the vendor, for the login."""
    takes_server: bool = True
    """Whether session/new passes relay's tools; else the agent's files or arguments do."""
    reads_first: bool = False
    """Whether it edits no file that it has not read by its own tool, so that relay has to show it none."""
    brings: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """Folders of the user's home that it can get a copy of, each by name: folder, tool, variables to set to 1."""
    bring: tuple[str, ...] = ()
    """Those that the user has chosen."""
    names_sessions: bool = False
    """Whether the session needs a title, so that the agent does not ask another model for one."""

    @property
    def tunnelled(self) -> bool:
        """Whether the agent reaches its vendor itself."""
        return self.login == "tunnel"

    @property
    def usage(self) -> str:
        """``exact`` if relay's gateway counts, ``~`` if the agent reports."""
        return "~" if self.tunnelled else "exact"

    @property
    def installation(self) -> str:
        """How a user gets it."""
        unknown = f"put {self.program} on PATH, or name another program: agents.{self.name}.program"
        return f"{self.package} installs it" if self.package else unknown

    @property
    def tools(self) -> str:
        """How relay's own tools reach it."""
        texts = (*self.arguments, *self.files.values())
        return "MCP" if self.takes_server or any("{server}" in text for text in texts) else "extension"

    @property
    def has_login(self) -> bool:
        """Whether it has the user's login, not a key that relay holds."""
        return self.login != "key"


PROFILES: Mapping[str, Profile] = {
    name: convert({"name": name, **table}, Profile)
    for name, table in tomllib.loads(Path(__file__).with_name("agents.toml").read_text(encoding="utf-8")).items()
}


HOME_NAME = "home"
"""Name of the home directory, below the sandbox's temporary directory."""
_OWN_FAMILIES = (("claude", "anthropic"), ("gemini", "gemini"), ("gpt", "openai"), ("codex", "openai"))
"""Beginnings of models' names, and their families."""
MOST_BROUGHT_FILES = 1_000
MOST_BROUGHT_BYTES = 20_000_000
_MOST_LOGIN_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An agent on this machine."""

    program: Path
    """Resolved path."""
    shown: tuple[Path, ...]
    """Directories that it needs to see."""
    path: str
    """PATH for it."""


def get_installed(profile: Profile, environ: Mapping[str, str], root: Path | None = None) -> Installed:
    """Find an agent on this machine.

    Args:
        root: The repository; programs in it are refused.

    Raises:
        RunnerError: The agent, or a program that it starts, is not installed.
    """
    path = environ.get("PATH", "")
    found = [_get_program(name, profile, clean_path(path, root), root) for name in (profile.program, *profile.needs)]
    places = tuple(dict.fromkeys(find_package(place) for place in found))
    entries = (*(str(place.parent) for place in found[1:]), *clean_path(path, None).split(":"))
    return Installed(program=found[0], shown=places, path=":".join(dict.fromkeys(entries)))


def _get_program(name: str, profile: Profile, path: str, root: Path | None) -> Path:
    found = shutil.which(name, path=path)
    if found is None:
        what = f"{profile.title} needs {name}"
        if name == profile.program:
            is_near = profile.engine and shutil.which(profile.engine, path=path) is not None
            lacks = f"{profile.engine} is here, but the adapter by which relay speaks with it is not"
            what = lacks if is_near else f"{profile.title} is not installed"
        raise RunnerError(f"{what}: there is no {name} on PATH", hint=profile.installation)
    place = Path(found).resolve()
    if root is not None and place.is_relative_to(root):
        raise RunnerError(f"{name} is {place}, in the repository: relay starts no agent that a repository brings")
    return place


def find_family(model: str) -> str:
    """Return the family whose vendor makes a model, by its name; empty if the name does not tell."""
    bare = normalize_model(model)
    return next((name for prefix, name in _OWN_FAMILIES if bare.startswith(prefix)), "")


def make_home(profile: Profile, setup: EndpointSetup, place: Path, words: Mapping[str, str]) -> None:
    """Make the home directory with the profile's files.

    Args:
        place: The new directory, on the host.
        words: Values of ``{base}``, ``{model}``, ``{home}``.
    """
    place.mkdir(mode=0o700, exist_ok=True)
    for name, text in {**profile.files, **setup.files}.items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(fill(text, words))


def find_login(profile: Profile, environ: Mapping[str, str]) -> str:
    """Return the variable or file that holds the user's login with the agent's vendor; empty if there is none."""
    return next((name for name in profile.credentials if environ.get(name) or _find_file(name, environ)), "")


def _find_file(name: str, environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME", "")
    place = Path(home, name)
    return place if home.startswith("/") and place.is_file() else None


def copy_login(profile: Profile, environ: Mapping[str, str], place: Path) -> Mapping[str, str]:
    """Copy a login into the private home directory; return the variables that hold one.

    The copy is deleted with the directory, whatever the agent wrote to it.
    """
    for name in profile.credentials:
        found = _find_file(name, environ)
        data = read_start(found, _MOST_LOGIN_BYTES) if found else None
        if data is not None:
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch(mode=0o600)
            target.write_bytes(data)
    return {name: environ[name] for name in profile.credentials if environ.get(name)}


def read_brought(profile: Profile, environ: Mapping[str, str]) -> Iterator[tuple[str, bool, bytes]]:
    """Yield path, whether it is a program, and bytes of each file of the folders that the user has chosen.

    Raises:
        RunnerError: There is no such folder, it is too large, or something in it is no plain file.
    """
    count, left_bytes = 0, MOST_BROUGHT_BYTES
    for name in profile.bring:
        folder = profile.brings[name][0]
        source = Path(os.path.realpath(Path(environ.get("HOME", "/nonexistent"), folder)))
        where = f"{profile.title}: ~/{folder}"
        if not source.is_dir():
            raise RunnerError(f"{where} is not there", hint=f"agents.{profile.name}.bring names {name}")
        try:
            for file, handle in _walk_files(source):
                count += 1
                with os.fdopen(handle, "rb"):
                    is_program, data = bool(os.fstat(handle).st_mode & 0o100), read_bytes(handle, left_bytes + 1)
                left_bytes -= len(data)
                if count > MOST_BROUGHT_FILES or left_bytes < 0:
                    most = f"{MOST_BROUGHT_FILES:,} files and {MOST_BROUGHT_BYTES:,} bytes"
                    raise RunnerError(f"{where} is too large", hint=f"bring takes {most} in all")
                yield f"{folder}/{file}", is_program, data
        except OSError as error:
            words = "it is a link" if error.errno == errno.ELOOP else error.strerror
            raise RunnerError(
                f"{where}: {error.filename!r} cannot be copied: {words}",
                hint=f"put a copy of it there, or leave {name} out of agents.{profile.name}.bring",
            ) from None


def _walk_files(source: Path) -> Iterator[tuple[Path, int]]:
    """Yield the path of each file below a folder, and the file opened; the order is always the same.

    Raises:
        OSError: Something cannot be opened, or is a link or no file.
    """

    def refuse(error: OSError) -> None:
        raise error

    for here, folders, names, holder in os.fwalk(source, onerror=refuse):
        folders.sort()
        inside = Path(here).relative_to(source)
        for name in sorted((*names, *(each for each in folders if Path(here, each).is_symlink()))):
            yield inside / name, open_regular(name, holder)


def copy_brought(profile: Profile, environ: Mapping[str, str], place: Path) -> tuple[int, str]:
    """Copy the folders that the user has chosen into the private home; return the number of files, and a digest of all.

    The copy is gone with the session: nothing that the agent does reaches the originals, and no login beside them is
    shown.

    Raises:
        RunnerError: As `read_brought`.
    """
    count, found = 0, hashlib.sha256()
    for path, is_program, data in read_brought(profile, environ):
        count += 1
        found.update(f"{path}\0{hashlib.sha256(data).hexdigest()}\n".encode(errors="surrogateescape"))
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(0o500 if is_program else 0o400)
    return count, found.hexdigest()


def fill(text: str, words: Mapping[str, str]) -> str:
    """Fill in the fields of a profile's text; all other braces stay."""
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


_UNKNOWN = Profile(name="", title="", package="", program="", tested="")


def adapt_profile(name: str, own: AgentSettings, known: Mapping[str, Profile]) -> Profile:
    """Return the profile of an agent in the user's settings.

    Args:
        name: The user's name for it; the name of a known agent changes that agent.
        own: The settings.
        known: Profiles that it may build on.

    Raises:
        ValueError: It builds on an unknown profile, or names no program.
    """
    if own.like and own.like not in known:
        raise ValueError(f"like: found {own.like!r}; allowed: {', '.join(known)}")
    base = known.get(own.like or name, _UNKNOWN)
    program = own.program or base.program
    if not program:
        raise ValueError("program is missing, or like, the name of a known agent to build on")
    known_setups = {setup.family: setup for setup in base.setups}
    setups = tuple(known_setups.get(family) or EndpointSetup(family=family) for family in own.endpoints)
    options = _add_tools(base, own.bring)
    brought = {variable: "1" for folder in own.bring for variable in base.brings[folder][2:]}
    made = replace(
        base,
        name=name,
        title=base.title or name,
        package=own.install or base.package,
        program=program,
        arguments=base.arguments if own.arguments is None else own.arguments,
        needs=(*base.needs, *own.needs),
        env={**base.env, **brought, **own.env},
        files={**base.files, **own.files},
        mode=own.mode or base.mode,
        setups=setups or base.setups,
        credentials=own.credentials or base.credentials,
        hosts=own.hosts or base.hosts,
        bring=own.bring,
        options=options,
    )
    return _use_login(made, own.login) if own.login != "key" else made


def _add_tools(base: Profile, bring: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the options with the tools that the chosen folders need.

    Raises:
        ValueError: The profile has no such folder.
    """
    if unknown := [name for name in bring if name not in base.brings]:
        raise ValueError(f"bring: found {unknown[0]!r}; allowed: {', '.join(base.brings) or 'nothing, for this agent'}")
    tools = dict.fromkeys(base.brings[name][1] for name in bring)

    def add(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: add(inner, key) for key, inner in value.items()}
        return [*value, *tools] if name == "tools" else value

    return {key: add(value, key) for key, value in base.options.items()}


def _use_login(profile: Profile, login: str) -> Profile:
    """Return the profile with the user's login: without the placeholder key, and in a tunnel without the gateway.

    Raises:
        ValueError: The places of the login, or the vendor's hosts, are missing.
    """
    tunnelled = login == "tunnel"
    for name in ("credentials", *(["hosts"] if tunnelled else [])):
        if not getattr(profile, name):
            raise ValueError(f"{name} is missing, which login = {login} needs")
    first = profile.setups[0]
    setup = EndpointSetup(family=first.family) if tunnelled else replace(first, env=_drop(first.env, NO_KEY))
    words = (NO_KEY, "{base}") if tunnelled else (NO_KEY,)
    env, files = _drop(profile.env, *words), _drop(profile.files, *words)
    return replace(profile, login=login, env=env, files=files, setups=(setup,))


def _drop(texts: Mapping[str, str], *words: str) -> dict[str, str]:
    return {name: text for name, text in texts.items() if not any(word in text for word in words)}
