"""The files of each tool that commands see, and the environment that commands get.

Commands see these files read-only: a session that could write a tool's shared cache would reach the builds of the next
one. A writable layer lies over each cache (`relay.sandbox.view`). If the machine makes no layers, a tool that cannot
work without writing gets an empty cache. The table of tools is `toolchains.toml`; its text for
readers is `docs/reference/toolchains.md`.

The environment is an allow-list. A deny-list leaks: it would have to know each variable by which a tool runs code
(`LD_PRELOAD`, `BASH_ENV`, `GIT_CONFIG_*`, `PYTHONSTARTUP`, `NODE_OPTIONS`).
"""

import functools
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType

from msgspec import convert

from relay.base.values import dataclass
from relay.git.command import clean_path
from relay.sandbox.policy import Policy

MODULES = "node_modules"


def find_package(program: Path) -> Path:
    """Return the directory that holds a program with the files that it loads.

    For an npm package this is the topmost `node_modules`, for a virtual environment and for Python its own directory.
    """
    parts, above = program.parts, program.parent.parent
    if MODULES in parts:
        return Path(*parts[: parts.index(MODULES) + 1])
    is_python = program.name.startswith("python") and any(above.glob("lib/python3*/os.py"))
    return above if (is_python and above.name) or (above / "pyvenv.cfg").is_file() else program.parent


_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A directory of a tool, such as a cache, which a variable can move."""

    place: str
    """Path below the home directory; ``.cache`` stands for XDG_CACHE_HOME if that is set."""
    variable: str = ""
    """The variable that names it; empty if there is none, or `ROOTS` has it."""
    written: bool = True
    """Whether the tool has to write there even if it needs nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """The files, variables and hosts of a tool."""

    name: str
    kept: tuple[str, ...] = ()
    """Paths below the home directory; narrow if a neighbour holds credentials (~/.cargo/credentials.toml)."""
    stores: tuple[Store, ...] = ()
    offline: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """Variables by which the tool fails at once without a network, or uses the files that it has."""
    hosts: tuple[str, ...] = ()
    """Its default hosts for downloads."""
    asks: str = ""
    """Regex for the tool's "could not reach host" error. If several tools match, the first one wins."""


ROOTS: Mapping[str, str] = MappingProxyType(
    {
        "CARGO_HOME": ".cargo",
        "DOTNET_ROOT": ".dotnet",
        "GOPATH": "go",
        "GRADLE_USER_HOME": ".gradle",
        "NVM_DIR": ".nvm",
        "PYENV_ROOT": ".pyenv",
        "RUSTUP_HOME": ".rustup",
        "VOLTA_HOME": ".volta",
    }
)
"""Variables that move a directory of the home directory, with the paths below it that are named here."""

PLACES = ("CONDA_PREFIX", "GEM_HOME", "GOROOT", "JAVA_HOME", "VIRTUAL_ENV")
"""Variables that each name a whole directory that commands need."""


@functools.cache
def load_tools() -> tuple[Tool, ...]:
    """Return the tools of `toolchains.toml`, in its order."""
    import tomllib

    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return convert([{"name": name, **table} for name, table in tables.items()], tuple[Tool, ...])


def find_stores(home: Path | None, env: Mapping[str, str]) -> tuple[tuple[Store, Path], ...]:
    """Return the stores with the places that this user has them at, whether or not they exist.

    Args:
        home: The home directory; None for the stores that variables name only.
        env: relay's environment.
    """
    stores = [store for tool in load_tools() for store in tool.stores]
    return tuple((store, place) for store in stores if (place := _find_store(store, home, env)) is not None)


def _find_store(store: Store, home: Path | None, env: Mapping[str, str]) -> Path | None:
    if not store.variable:
        return _find_kept(store.place, home, env)
    named, cache = env.get(store.variable, ""), env.get("XDG_CACHE_HOME", "")
    if named.startswith("/"):
        return Path(named)
    if store.place.startswith(".cache/") and cache.startswith("/"):
        return Path(cache) / store.place.removeprefix(".cache/")
    return home / store.place if home else None


def list_usable(
    home: Path | None, env: Mapping[str, str], *, writable: Collection[Path] | None = None
) -> dict[str, str]:
    """Return the stores that tools can use, by the variable that names each.

    Args:
        home: The home directory.
        env: relay's environment.
        writable: The stores that commands may write; None for all.
    """
    found = [(store, place) for store, place in find_stores(home, env) if store.variable and os.access(place, os.F_OK)]
    return {s.variable: str(p) for s, p in found if not s.written or writable is None or p in writable}


def list_kept(home: Path | None, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the paths that tools need in the home directory, or where the user moved them, without their stores."""
    found = [_find_kept(name, home, env) for tool in load_tools() for name in tool.kept]
    found += [Path(env[name]) for name in PLACES if env.get(name, "").startswith("/")]
    return tuple(place for place in found if place is not None)


def _find_kept(name: str, home: Path | None, env: Mapping[str, str]) -> Path | None:
    for variable, root in ROOTS.items():
        moved = env.get(variable, "")
        if moved.startswith("/") and f"{name}/".startswith(f"{root}/"):
            return Path(moved, name[len(root) :].lstrip("/"))
    return home / name if home else None


def list_offline() -> dict[str, str]:
    """Return the variables that tell every tool that there is no network."""
    return {name: value for tool in load_tools() for name, value in tool.offline.items()}


def find_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of the tool that printed this "could not reach host" error; empty for another text."""
    return next((tool.hosts for tool in load_tools() if tool.hosts and re.search(tool.asks, text)), ())


PASSED = frozenset({"LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "SOURCE_DATE_EPOCH"})
"""Variables that are passed on, with every LC_* name."""

LOCATIONS = (*PLACES, *ROOTS)
"""Variables with the directory of a toolchain; passed on if absolute."""

VERSIONS = frozenset({"PYENV_VERSION", "RUSTUP_TOOLCHAIN", "GOTOOLCHAIN"})

FIXED = {
    "CI": "1",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""No command waits for a person, and a test run leaves no bytecode behind."""

NEVER = re.compile(
    r"(LD|DYLD|PYTHON|GIT|SSH|ANTHROPIC|BASH_FUNC)_?.*"
    r"|.*_API_KEY|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|PS4|IFS|NODE_OPTIONS|PERL5\w+|RUBY\w+|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS"
)
"""Variables that are never passed on, even if listed: they run code, redirect git or are relay's own key."""


def build_env(policy: Policy, *, home: Path, tmp: Path, stores: Mapping[str, str] = _NONE) -> dict[str, str]:
    """Return the environment of a command.

    Args:
        policy: relay's own environment, the names that the user passes on, and whether there is a network.
        home: Home directory inside the sandbox.
        tmp: Temporary directory inside the sandbox.
        stores: The user's caches that tools may use, by the variable that names each.
    """
    env, pass_env = policy.env, policy.pass_env
    listed = {*PASSED, *VERSIONS, *(name for name in pass_env if not NEVER.fullmatch(name))}
    passed = {name: value for name, value in env.items() if name in listed or name.startswith("LC_")}
    places = {name: env[name] for name in LOCATIONS if env.get(name, "").startswith("/")}
    return {
        "npm_config_cache": str(tmp / ".cache" / "npm"),
        **stores,
        **({} if policy.reaches_hosts else list_offline()),
        **passed,
        **places,
        **FIXED,
        "PATH": clean_path(env.get("PATH", os.defpath), None),  # a relative entry is in the hostile repository
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "XDG_CACHE_HOME": str(tmp / ".cache"),
    }
