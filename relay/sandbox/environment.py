"""The environment of a command: an allow-list, never a deny-list.

A deny-list leaks by construction: each tool that runs code from a variable (`LD_PRELOAD`, `BASH_ENV`, `GIT_CONFIG_*`,
`PYTHONSTARTUP`, `NODE_OPTIONS`) would have to be known.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from relay.sandbox.policy import Policy
from relay.sandbox.toolchains import PLACES, ROOTS, list_offline

_NO_STORES: Mapping[str, str] = MappingProxyType({})

PASSED = frozenset({"LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "SHELL", "SOURCE_DATE_EPOCH"})
"""Passed as they are, with every LC_* name."""

LOCATIONS = (*PLACES, *ROOTS)
"""Where a toolchain stands; passed when absolute."""

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
"""Not passed even when the user lists them: they run code, redirect git or are relay's own key."""


def build_env(policy: Policy, *, home: Path, tmp: Path, stores: Mapping[str, str] = _NO_STORES) -> dict[str, str]:
    """Return the environment of a command.

    Args:
        policy: relay's own environment, more names to pass, as the user listed them, and whether there is a network.
        home: Home directory inside the sandbox.
        tmp: Temporary directory inside the sandbox.
        stores: What tools may use of the user's caches, by the variable that names each.
    """
    env, pass_env = policy.env, policy.pass_env
    listed = {name for name in pass_env if not NEVER.fullmatch(name)}
    passed = {
        name: value for name, value in env.items() if name in PASSED | VERSIONS | listed or name.startswith("LC_")
    }
    places = {name: env[name] for name in LOCATIONS if env.get(name, "").startswith("/")}
    return {
        "npm_config_cache": str(tmp / ".cache" / "npm"),
        **stores,
        **({} if policy.reaches_hosts else list_offline()),
        **passed,
        **places,
        **FIXED,
        "PATH": clean_search_path(env.get("PATH", os.defpath)),
        "HOME": str(home),
        "TMPDIR": str(tmp),
        "XDG_CACHE_HOME": str(tmp / ".cache"),
    }


def clean_search_path(path: str) -> str:
    """Drop entries that are empty or relative: the current directory is the repository, which is hostile."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if part.startswith("/"))
