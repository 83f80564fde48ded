"""Where an agent's program is on this machine, and the home directory that it is given.

The home is a new directory in the sandbox's private place, with the files of the profile and nothing of the user's:
relay hides the places of credentials in the user's own.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from relay.base.errors import RunnerError
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.runners.agents.profiles import Profile, Way
from relay.runners.messages.endpoint import FAMILIES, Family, get_key_name
from relay.sandbox.toolchains import MODULES, find_package
from relay.session.prices import normalize_model

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
