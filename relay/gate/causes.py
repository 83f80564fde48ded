"""Why a command may fail in the sandbox and not outside of it: what its output names, and what the sandbox keeps back.

Nothing here is certain: a program may fail for its own reasons and name what it does not have all the same. So only
what is there on this machine is said, with the setting that gives it to commands.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from relay.base.values import dataclass
from relay.base.words import list_some, shorten
from relay.gate.model import Outcome
from relay.sandbox.toolchains import FIXED, find_hosts
from relay.sandbox.veil import Veil

MAX_CAUSES = 5
USER_FILE = "~/.config/relay/config.toml"
_SHOWN = 3
_MAX_FOUND = 500
"""Paths and names of one output that are looked at."""
_LOOKED_AT_CHARS = 200_000
_SHOWN_CHARS = 160

_PATH = re.compile(r"(?:(?<=[\s'\"`‘“(=\[:])|^)(?:/|~/|\.\./)[^\s'\"`’”<>|;,()\[\]{}*?$]{1,300}", re.MULTILINE)
_FILE = re.compile(r"[\w./-]{0,200}\.(?:env|netrc|pypirc)[\w.-]{0,40}|\.git-credentials")
_NAME = re.compile(r"\b[A-Z][A-Z0-9_]{2,80}\b")
_MODULE = re.compile(r"(?:No module named|Cannot find (?:module|package)) ['\"]?(@?[\w-]+(?:/[\w-]+)?)")
_REFUSED = re.compile(r"refused|ECONNREFUSED|(?:Can't|could not|couldn't|failed to) connect", re.IGNORECASE)
_PORT = re.compile(r"(?:127\.0\.0\.1|localhost|::1\]?)\W{0,3}[^\n]{0,40}?(?::|port[ =:]{1,3})\s?(\d{2,5})\b")
NO_NETWORK = re.compile(
    r"name resolution|name or service not known|could not resolve|resolve host|\bENOTFOUND|EAI_AGAIN|no such host"
    r"|getaddrinfo|nodename nor servname|dns error|failed to lookup address|network is unreachable|ENETUNREACH"
    r"|No address associated with hostname|error sending request for url|ERR_SOCKET|failed to download"
    # What package managers say of the switches that relay sets, in the order of its table of tools.
    r"|network connectivity is disabled|\(from versions: none\)|No matching distribution found"
    r"|all attempts to connect to|ENOTCACHED|only-if-cached|NO_OFFLINE_(?:META|TARBALL)"
    r"|network access (?:has|have) been disabled|--offline was specified"
    r"|DNSResolveFailed|ERR_PNPM_\w*RESOLVE_LATEST"
    r"|could not be found in registry index|could not find `[\w-]+` in registry|\bnpm:\S+ was not found"
    r"|disabled by GOPROXY=off|\boffline mode\b|could not reach host|network disabled",
    re.IGNORECASE,
)
"""What programs print that wanted the network and had none."""
_READ_ONLY = re.compile(r"read-only file system|EROFS", re.IGNORECASE)
_TRACED = re.compile(r"ptrace[^\n]{0,60}not permitted|PTRACE_TRACEME", re.IGNORECASE)
_SHELL_OWN = frozenset({"PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "DISPLAY", "MAIL", "TERM", "HOSTNAME"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A command that is not green."""

    command: str
    status: Outcome
    output: str
    missing: str
    """The program that was not there; empty when none was, or none is known."""
    timeout_s: float
    """What it was given."""


def find_causes(failure: Failure, veil: Veil | None) -> tuple[str, ...]:
    """Return a sentence on each thing that the sandbox kept from a command and that its output names.

    Args:
        veil: What its sandbox keeps back; None where that is nothing.
    """
    if failure.status in {Outcome.PASSED, Outcome.INTERRUPTED}:
        return ()
    causes = [] if failure.status is not Outcome.TIMED_OUT else [_name_time(failure.timeout_s)]
    if veil is not None:
        text = f"{failure.command}\n{failure.output[-_LOOKED_AT_CHARS:]}"
        causes += [words for look in _LOOKS for words in look(failure, text, veil)]
    return tuple(dict.fromkeys(causes))[:MAX_CAUSES]


def find_hindrance(failure: Failure, veil: Veil | None) -> str:
    """Return the first thing that the sandbox kept from a command and that it is surely red for; empty for none.

    That a program names a path, a variable or a module which is hidden from it may be by the way.
    """
    if failure.status is not Outcome.FAILED or veil is None:
        return ""
    text = f"{failure.command}\n{failure.output[-_LOOKED_AT_CHARS:]}"
    return next((words for look in _HINDRANCES for words in look(failure, text, veil)), "")


def _name_time(timeout_s: float) -> str:
    return f"gate_timeout_s gives verify commands more time than {timeout_s:.0f} s"


def _look_for_program(failure: Failure, _text: str, veil: Veil) -> Iterator[str]:
    if not failure.missing:
        return
    found = veil.find_program(failure.missing)
    if not found:
        return
    if veil.find_hidden(found):
        words = f"{found} is on this machine and hidden from commands: activate its environment before relay run"
        yield f"{words}, or name its directory in writable_dirs ({USER_FILE})"
    else:
        yield f"{found} is there and not on PATH: activate its environment before relay run, or write {found}"


def _look_for_sockets(_failure: Failure, text: str, veil: Veil) -> Iterator[str]:
    for place in _find_paths(text):
        if veil.is_socket(place):
            words = f"{place} is a Unix socket of this machine, and closed to commands"
            yield f'{words}; sockets = ["{place}"] in {USER_FILE} opens it'


def _look_for_paths(_failure: Failure, text: str, veil: Veil) -> Iterator[str]:
    found = [place for place in _find_paths(text) if not veil.is_socket(place)]
    hidden = list(dict.fromkeys(filter(None, map(veil.find_hidden, found))))
    if hidden:
        words = f"{list_some([shorten(place, _SHOWN_CHARS) for place in hidden], _SHOWN)} on this machine"
        yield f"hidden from commands: {words}; writable_dirs in {USER_FILE} shows a directory, and lets them write it"


def _look_for_links(_failure: Failure, text: str, veil: Veil) -> Iterator[str]:
    for name in dict.fromkeys(islice((found[1] for found in _MODULE.finditer(text)), _MAX_FOUND)):
        if hidden := veil.find_linked(name):
            words = f"an installed package is really in {hidden}, which is hidden from commands"
            yield f"{words}; writable_dirs in {USER_FILE} shows it, and lets them write it"
            return


def _look_for_secrets(_failure: Failure, text: str, veil: Veil) -> Iterator[str]:
    named = dict.fromkeys(islice((found[0] for found in _FILE.finditer(text)), _MAX_FOUND))
    if masked := [path for path in named if veil.is_masked(path)]:
        words = f"{list_some(masked, _SHOWN)} may hold secrets and is hidden from commands"
        yield f'{words}; env_file = "{masked[0]}" in {USER_FILE} shows it to verify commands'


def _look_for_variables(_failure: Failure, text: str, veil: Veil) -> Iterator[str]:
    named = dict.fromkeys(islice((found[0] for found in _NAME.finditer(text)), _MAX_FOUND))
    dropped = [name for name in named if name in veil.dropped and name not in _SHELL_OWN]
    if given := [name for name in dropped if name not in veil.barred][:_SHOWN]:
        listed = ", ".join(f'"{name}"' for name in given)
        one = "it" if len(given) == 1 else "them"
        words = f"{', '.join(given)}: set here and not given to commands"
        yield f"{words}; env = [{listed}] in {USER_FILE} gives {one} (or RELAY_ENV={','.join(given)})"
    if barred := [name for name in dropped if name in veil.barred][:_SHOWN]:
        yield f"{', '.join(barred)}: set here and never given to commands, because it may hold a key or start code"
    if made := [f"{name}={FIXED[name]}" for name in named if name in FIXED][:_SHOWN]:
        without = " ".join(f"-u {words.partition('=')[0]}" for words in made)
        yield f"{', '.join(made)}: set by relay for commands; `env {without} COMMAND` runs one without"
    absent = [name for name in named if name not in veil.dropped]
    if absent and (masked := veil.find_masked_names().intersection(absent)):
        listed = ", ".join(sorted(masked)[:_SHOWN])
        words = f"{listed}: set in .env, which is hidden from commands"
        yield f'{words}; env_file = ".env" in {USER_FILE} shows it to verify commands'


def _look_for_services(_failure: Failure, text: str, veil: Veil) -> Iterator[str]:
    if veil.network or not _REFUSED.search(text):
        return
    ports = dict.fromkeys(islice((int(found[1]) for found in _PORT.finditer(text)), _MAX_FOUND))
    if there := [str(port) for port in ports if veil.find_listener(port)][:_SHOWN]:
        words = f"a service of this machine listens on port {', '.join(there)}, and commands do not reach it"
        yield f"{words}; localhost = [{', '.join(there)}] in {USER_FILE} lets them"


def _look_for_network(_failure: Failure, text: str, veil: Veil) -> Iterator[str]:
    if not veil.network and (found := NO_NETWORK.search(text)):
        listed = ", ".join(f'"{host}"' for host in find_hosts(text)) or '"…"'
        words = f"commands have no network (`{found[0]}`): install what they download before relay run"
        yield f"{words}, or network = {{ hosts = [{listed}] }} ({USER_FILE}); --network opens all of it"


def _look_for_writes(_failure: Failure, text: str, veil: Veil) -> Iterator[str]:
    lines = [line for line in text.split("\n") if _READ_ONLY.search(line)]
    paths = [place for line in lines for place in _find_paths(line)]
    outside = [place for place in dict.fromkeys(paths) if not f"{place}/".startswith(f"{veil.root}/")]
    if outside:
        words = f"only read by commands: {list_some(outside, _SHOWN)}"
        yield f"{words}; writable_dirs in {USER_FILE} lets them write a directory"
    elif lines:
        kept = "git's directory, the plan, rules and files with a second name elsewhere (pnpm's and uv's hard links)"
        yield f"{kept} are only read by commands"


def _look_for_tracing(_failure: Failure, text: str, _veil: Veil) -> Iterator[str]:
    if _TRACED.search(text):
        yield "commands cannot trace processes (ptrace); no setting lets them"


def _find_paths(text: str) -> Sequence[str]:
    found = (re.sub(r"\A/+", "/", match[0].rstrip(".:")) for match in islice(_PATH.finditer(text), _MAX_FOUND))
    return tuple(dict.fromkeys(place for place in found if len(place) > 1))


_LOOKS: tuple[Callable[[Failure, str, Veil], Iterator[str]], ...] = (
    _look_for_program,
    _look_for_sockets,
    _look_for_links,
    _look_for_paths,
    _look_for_secrets,
    _look_for_variables,
    _look_for_services,
    _look_for_network,
    _look_for_writes,
    _look_for_tracing,
)
_HINDRANCES = (_look_for_network, _look_for_services, _look_for_sockets, _look_for_writes, _look_for_tracing)
