"""Profiles of agents (`agents.toml` and the user's settings), and what they become: a found program, a home directory.

Nothing of a profile comes from a repository. The home is a new directory in the sandbox's private place. It holds the
files of the profile and nothing of the user's: relay hides the places of credentials in the user's own home.
"""

import json
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from relay.base.errors import RunnerError
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.config.agents import AgentSettings
from relay.runners.messages.endpoint import FAMILIES, Family, get_key_name
from relay.sandbox.toolchains import MODULES, find_package
from relay.session.prices import normalize_model

NO_KEY = "held-by-relay"
"""Stands where an agent wants to have a key; the gateway puts in the real one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How an agent is told of an endpoint of one family."""

    family: str
    """``anthropic``, ``openai`` or ``gemini``; `relay.runners.messages.endpoint` says what each is."""
    arguments: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEngine:
    """The program that does the work of an agent whose own one only speaks the protocol for it."""

    program: str
    """What a person starts, and logs in with."""
    package: str
    """Of npm: the one that is run."""
    field: str = "version"
    """Of its package.json."""
    tested: str
    variable: str = ""
    """Names another program in its place; empty where it is the one on PATH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One agent."""

    name: str
    """For ``--runner``."""
    title: str
    package: str
    """What a user types to install the tested version; empty where nobody knows."""
    program: str
    """Found on PATH."""
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """Other programs that it starts, by their names."""
    tested: str
    """The version that the agent told of itself when this profile was tried."""
    engine: AgentEngine | None = None
    """None where the agent does the work itself."""
    own_tokens: int = 0
    """What its first request has besides relay's words, about."""
    env: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    """Path below the home directory, and text."""
    ways: tuple[Way, ...] = (Way(family="anthropic"),)
    """Arguments, variables and files on top of these for each kind of endpoint that it speaks to."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """For session/new."""
    mode: str = ""
    """Of the session; empty for the one that it starts with."""
    login: str = "key"
    """How it asks its model: see `relay.config.agents.LOGINS`."""
    credentials: tuple[str, ...] = ()
    """What holds a login: names of variables, and files below the user's home directory."""
    hosts: tuple[str, ...] = ()
    """Of the vendor, which a login is for."""
    takes_server: bool = True
    """session/new gives it relay's tools; else its own files or arguments do."""
    names_sessions: bool = False
    """It asks another model for a title unless there is one."""

    @property
    def tunnelled(self) -> bool:
        """Whether it asks its vendor itself."""
        return self.login == "tunnel"

    @property
    def usage(self) -> str:
        """``exact`` where relay's gateway counts it, ``~`` where the agent tells it."""
        return "~" if self.tunnelled else "exact"

    @property
    def way(self) -> str:
        """How a user gets it."""
        unknown = f"put {self.program} on PATH, or name another program: agents.{self.name}.program"
        return f"{self.package} installs it" if self.package else unknown

    @property
    def tools(self) -> str:
        """How relay's own tools reach it."""
        texts = (*self.arguments, *(text for _, text in self.files))
        return "MCP" if self.takes_server or any("{server}" in text for text in texts) else "extension"

    @property
    def is_lent(self) -> bool:
        """Whether it has the user's login, not a key that relay holds."""
        return self.login != "key"


def _parse_way(table: Mapping[str, Any]) -> Way:
    return Way(
        family=table["family"],
        arguments=tuple(table.get("arguments", ())),
        **{part: tuple(table.get(part, {}).items()) for part in ("env", "files")},
    )


def _parse_profile(name: str, table: Mapping[str, Any]) -> Profile:
    """Read one table of `agents.toml`; its names are those of `Profile`."""
    made: dict[str, Any] = {part: tuple(value) if isinstance(value, list) else value for part, value in table.items()}
    made |= {part: tuple(table.get(part, {}).items()) for part in ("env", "files")}
    if "ways" in table:
        made["ways"] = tuple(map(_parse_way, table["ways"]))
    if "engine" in table:
        made["engine"] = AgentEngine(**table["engine"])
    return Profile(name=name, **made)


PROFILES: Mapping[str, Profile] = {
    name: _parse_profile(name, table)
    for name, table in tomllib.loads(Path(__file__).with_name("agents.toml").read_text(encoding="utf-8")).items()
}


HOME_NAME = "home"
"""Of the directory, below the sandbox's temporary one."""
_OWN_FAMILIES = (("claude", "anthropic"), ("gemini", "gemini"), ("gpt", "openai"), ("codex", "openai"))
"""What the names of models begin with, and whose they are."""
_MOST_LOGIN_BYTES = 256 * 1024
_NEAR = 4
"""Directories between a program and its package's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An agent as it was found."""

    program: Path
    """Resolved."""
    shown: tuple[Path, ...]
    """Directories that it needs to see."""
    path: str
    """PATH for it."""


def get_installed(profile: Profile, environ: Mapping[str, str], root: Path | None = None) -> Installed:
    """Return where an agent is.

    Args:
        root: The repository; a program in it is not the user's.

    Raises:
        RunnerError: It is not installed, or something that it starts is not.
    """
    found = [_get_program(name, profile, environ, root) for name in (profile.program, *profile.needs)]
    places = tuple(dict.fromkeys(find_package(place) for place in found))
    own = [str(place.parent) for place in found[1:]]
    entries = [entry for entry in environ.get("PATH", "").split(":") if entry.startswith("/")]
    return Installed(program=found[0], shown=places, path=":".join(dict.fromkeys([*own, *entries])))


def _get_program(name: str, profile: Profile, environ: Mapping[str, str], root: Path | None) -> Path:
    entries = [entry for entry in environ.get("PATH", "").split(":") if entry.startswith("/")]
    outside = [entry for entry in entries if root is None or not Path(entry).resolve().is_relative_to(root)]
    found = shutil.which(name, path=":".join(outside))
    if found is None:
        engine = profile.engine.program if profile.engine else ""
        what = f"{profile.title} needs {name}"
        if name == profile.program:
            is_near = engine and shutil.which(engine, path=":".join(outside)) is not None
            lacks = f"{engine} is here, but the adapter by which relay speaks with it is not"
            what = lacks if is_near else f"{profile.title} is not installed"
        raise RunnerError(f"{what}: there is no {name} on PATH", hint=profile.way)
    place = Path(found).resolve()
    if root is not None and place.is_relative_to(root):
        raise RunnerError(f"{name} is {place}, in the repository: relay starts no agent that a repository brings")
    return place


def find_package_version(program: Path) -> str:
    """Return the version of the npm package that a program belongs to; empty where it belongs to none."""
    packages = (folder / "package.json" for folder in list(program.parents)[:_NEAR])
    return next((_read_field(package, "version") for package in packages if package.is_file()), "")


def find_engine_version(profile: Profile, installed: Installed) -> str:
    """Return the version of the program that does an agent's work; empty where it is the agent's own, or unknown."""
    engine = profile.engine
    if engine is None:
        return ""
    own = dict(profile.env)
    if named := own.get(engine.variable) if engine.variable else shutil.which(engine.program, path=installed.path):
        return find_package_version(Path(named).resolve())
    places = (folder / MODULES / engine.package / "package.json" for folder in installed.program.parents)
    return next((_read_field(package, engine.field) for package in places if package.is_file()), "")


def _read_field(package: Path, name: str) -> str:
    try:
        found = json.loads(package.read_bytes())
    except (OSError, ValueError):
        return ""
    text = found.get(name) if isinstance(found, dict) else None
    return text if isinstance(text, str) and text.isprintable() else ""


def get_way(profile: Profile, environ: Mapping[str, str], model: str) -> tuple[Way, Family]:
    """Return how an agent is told of its endpoint: that whose key is there, and the model's own where several are.

    Raises:
        RunnerError: There is no key for any.
    """
    ways = [(way, family) for way in profile.ways for family in FAMILIES if family.name == way.family]
    get_key_name(environ, [family for _, family in ways])
    ready = [(way, family) for way, family in ways if any(environ.get(name) for name in family.keys)]
    own = find_family(model)
    return next((found for found in ready if found[0].family == own), ready[0])


def find_family(model: str) -> str:
    """Return the family whose vendor makes a model, by its name; empty where that does not tell."""
    bare = normalize_model(model)
    return next((name for prefix, name in _OWN_FAMILIES if bare.startswith(prefix)), "")


def make_home(profile: Profile, way: Way, place: Path, words: Mapping[str, str]) -> None:
    """Make the home directory with the profile's files.

    Args:
        place: Of the new directory, on the host.
        words: What stands for ``{base}``, ``{model}``, ``{home}``.
    """
    place.mkdir(mode=0o700)
    for name, text in (*profile.files, *way.files):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(fill(text, words))


def find_login(profile: Profile, environ: Mapping[str, str]) -> str:
    """Return what holds the user's login with an agent's vendor: a variable, or a file's path; empty for nothing."""
    return next((name for name in profile.credentials if environ.get(name) or _find_file(name, environ)), "")


def _find_file(name: str, environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME", "")
    place = Path(home, name)
    return place if home.startswith("/") and place.is_file() else None


def lend_login(profile: Profile, environ: Mapping[str, str], place: Path) -> Mapping[str, str]:
    """Copy a login into the private home directory; return the variables that hold one.

    What the agent makes of its copy is thrown away with it.
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


def fill(text: str, words: Mapping[str, str]) -> str:
    """Return a text of a profile with what relay knows filled in; every other brace stays."""
    for name, value in words.items():
        text = text.replace(f"{{{name}}}", value)
    return text


_UNKNOWN = Profile(name="", title="", package="", program="", tested="")


def adapt_profile(name: str, own: AgentSettings, known: Mapping[str, Profile]) -> Profile:
    """Return the profile of an agent as the user's settings have it.

    Args:
        name: What the user calls it; that of a known agent says what is different about that one.
        own: The settings.
        known: Profiles that it may begin with.

    Raises:
        ValueError: It begins with an unknown one, or nothing says which program it is.
    """
    if own.like and own.like not in known:
        raise ValueError(f"like: found {own.like!r}; allowed: {', '.join(known)}")
    base = known.get(own.like or name, _UNKNOWN)
    program = own.program or base.program
    if not program:
        raise ValueError("program is missing, or like, the name of an agent whose profile it begins with")
    ways = tuple(_find_way(base, family) for family in own.endpoints)
    made = replace(
        base,
        name=name,
        title=base.title or name,
        package=own.install or base.package,
        program=program,
        arguments=base.arguments if own.arguments is None else own.arguments,
        needs=(*base.needs, *own.needs),
        env=(*base.env, *own.env),
        files=(*base.files, *own.files),
        mode=own.mode or base.mode,
        ways=ways or base.ways,
        credentials=own.credentials or base.credentials,
        hosts=own.hosts or base.hosts,
    )
    return _lend(made, own.login) if own.login not in {"", "key"} else made


def _lend(profile: Profile, login: str) -> Profile:
    """Return a profile that has the user's login, without the key that is none, and in a tunnel without the gateway.

    Raises:
        ValueError: Nothing says where the login is, or whose it is.
    """
    tunnelled = login == "tunnel"
    for name in ("credentials", *(["hosts"] if tunnelled else [])):
        if not getattr(profile, name):
            raise ValueError(f"{name} is missing, which login = {login} needs")
    first = profile.ways[0]
    way = Way(family=first.family) if tunnelled else replace(first, env=_drop(first.env, NO_KEY))
    words = (NO_KEY, "{base}") if tunnelled else (NO_KEY,)
    env, files = _drop(profile.env, *words), _drop(profile.files, *words)
    return replace(profile, login=login, env=env, files=files, ways=(way,))


def _drop(pairs: tuple[tuple[str, str], ...], *words: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in pairs if not any(word in text for word in words))


def _find_way(base: Profile, family: str) -> Way:
    return next((way for way in base.ways if way.family == family), Way(family=family))
