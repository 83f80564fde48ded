"""Runs the commands of a gate in the sandbox, and judges each by its exit code and its output.

A command may fail in the sandbox and not outside of it. `explain` compares the command's output with the files,
programs and services that the sandbox hides. The result is never certain: a program may fail for its own reasons and
still name a hidden file. So relay only names things that exist on this machine, each with the setting that opens it.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from secrets import token_hex

from relay.base.redaction import hide_values
from relay.base.words import list_some, render_output, shorten
from relay.gate.checker_output import find_failures, ran_no_tests, ran_tests
from relay.gate.evidence import VARIABLE, keep_evidence, open_evidence
from relay.gate.model import CommandCheck, GateResult, Outcome
from relay.gate.needs import find_missing_program
from relay.gate.shell_line import list_tests, may_run_nothing, swallows_exit
from relay.plan.text import OUTPUTS
from relay.sandbox.command import CommandResult, keep_output, reserve_output
from relay.sandbox.policy import Limits
from relay.sandbox.run import Sandbox
from relay.sandbox.toolchains import FIXED, find_hosts
from relay.sandbox.visibility import Restrictions, find_restrictions

TAIL_CHARS = 4_000
"""About a thousand tokens for each command that failed."""

_MISSING = frozenset({126, 127})
"""Exit codes of POSIX shells: found but not executable, not found."""


def run_gate(
    commands: Sequence[str],
    *,
    sandbox: Sandbox,
    limits: Limits,
    should_stop: Callable[[], bool],
    root: Path,
    handed: Sequence[str] = (),
) -> GateResult:
    """Run every command, also after one that fails: a repair needs to know all that is red.

    Each runs as ``bash -o pipefail -c <command>`` at the root, so that ``pytest | tail`` fails when pytest does.

    Args:
        sandbox: At the level the commands need; tests usually write. Its scratch directory should be new: no commit has
            the files that a session left there.
        should_stop: Polled; true ends the running command and skips the rest.
        root: The work tree that keeps the full output of commands that print much, and the files that they leave.
        handed: Values that are removed from the commands' output, see `relay.base.redaction.find_handed_values`.

    Raises:
        SandboxError: The sandbox could not be set up.
    """
    left = open_evidence(sandbox.private.tmp)

    def run(command: str) -> CommandCheck:
        if should_stop():
            status = Outcome.INTERRUPTED
            return CommandCheck(command=command, exit_code=None, status=status, duration_s=0.0, output_tail="")
        spool = reserve_output(root, f"gate-{token_hex(4)}.txt")
        result = sandbox.run(
            ["bash", "-o", "pipefail", "-c", command],
            limits=limits,
            should_stop=should_stop,
            spool=spool,
            extra_env={VARIABLE: str(sandbox.tmp / left.name)},
        )
        output = hide_values(render_output(result.output).strip("\n"), handed)
        cut = result.total_bytes > limits.keep_bytes
        whole = len(output) <= TAIL_CHARS and not cut
        if spool is not None and whole:
            spool.unlink(missing_ok=True)
        elif spool is not None and not _keep_output(spool, b"" if cut else result.output, handed):
            spool = None
        check = CommandCheck(
            command=command,
            exit_code=result.exit_code,
            status=_judge(command, result, output),
            duration_s=result.duration_s,
            output_tail=_cut_tail("\n".join((output, *(f"[{note}]" for note in result.notes)))),
            output_sha256=hashlib.sha256(output.encode("utf-8", "replace")).hexdigest(),
            failures=() if result.exit_code == 0 else find_failures(output),
            handle="" if spool is None or whole else f"{OUTPUTS}/{spool.name}",
            ran_tests=ran_tests(output) or bool(list_tests(command)),
        )
        return explain(check, output, find_restrictions(sandbox), limits.timeout_s)

    ran = tuple(map(run, commands))
    return GateResult(commands=ran, evidence=keep_evidence(root, left, handed))


def _keep_output(spool: Path, output: bytes, handed: Sequence[str]) -> bool:
    """Keep the full output without the values that were handed out; return whether it is kept.

    Args:
        output: The output, if it was whole in memory.
    """
    if spool.exists() and not handed:
        return True
    data = spool.read_bytes() if spool.exists() else output
    text = hide_values(data.decode("utf-8", "surrogateescape"), handed)
    return bool(data) and keep_output(spool, text.encode("utf-8", "surrogateescape"))


def _judge(command: str, result: CommandResult, output: str) -> Outcome:
    if result.interrupted:
        return Outcome.INTERRUPTED
    if result.timed_out:
        return Outcome.TIMED_OUT
    if result.exit_code in _MISSING:
        return Outcome.MISSING
    if ran_no_tests(output) or (may_run_nothing(command) and not output.strip()):
        return Outcome.NO_TESTS
    if result.exit_code != 0:
        return Outcome.FAILED
    return Outcome.SWALLOWED if swallows_exit(command) else Outcome.PASSED


def _cut_tail(output: str) -> str:
    """Keep the last lines; of a single endless line its end."""
    if len(output) <= TAIL_CHARS:
        return output
    tail = output[-TAIL_CHARS:]
    return f"…\n{tail.partition(chr(10))[2] or tail}"


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
_REFUSED = re.compile(r"refused|ECONNREFUSED|(?:Can't|could not|couldn't|failed to) connect", re.IGNORECASE)
_PORT = re.compile(r"(?:127\.0\.0\.1|localhost|::1\]?)\W{0,3}[^\n]{0,40}?(?::|port[ =:]{1,3})\s?(\d{2,5})\b")
NO_NETWORK = re.compile(
    r"name resolution|name or service not known|could not resolve|resolve host|\bENOTFOUND|EAI_AGAIN|no such host"
    r"|getaddrinfo|nodename nor servname|dns error|failed to lookup address|network is unreachable|ENETUNREACH"
    r"|No address associated with hostname|error sending request for url|ERR_SOCKET|failed to download"
    # Messages of package managers under the offline switches that relay sets, in the order of its table of tools.
    r"|network connectivity is disabled|\(from versions: none\)|No matching distribution found"
    r"|all attempts to connect to|ENOTCACHED|only-if-cached|NO_OFFLINE_(?:META|TARBALL)"
    r"|network access (?:has|have) been disabled|--offline was specified"
    r"|DNSResolveFailed|ERR_PNPM_\w*RESOLVE_LATEST"
    r"|could not be found in registry index|could not find `[\w-]+` in registry|\bnpm:\S+ was not found"
    r"|disabled by GOPROXY=off|\boffline mode\b|could not reach host|network disabled",
    re.IGNORECASE,
)
"""Messages of programs that wanted the network and had none."""
_READ_ONLY = re.compile(r"read-only file system|EROFS", re.IGNORECASE)
_TRACED = re.compile(r"ptrace[^\n]{0,60}not permitted|PTRACE_TRACEME", re.IGNORECASE)
_SHELL_OWN = frozenset({"PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "DISPLAY", "MAIL", "TERM", "HOSTNAME"})


def explain(check: CommandCheck, output: str, restrictions: Restrictions | None, timeout_s: float) -> CommandCheck:
    """Add a sentence per file, service or program that the sandbox hides and the output of a red command names.

    Its hindrance is the first of these that certainly makes it red: a program may name a path, a variable or a module
    that is hidden from it without needing it.

    Args:
        output: All that was kept of it.
        restrictions: What the sandbox hides; None if nothing is hidden.
        timeout_s: The command's time limit.
    """
    if check.status in {Outcome.PASSED, Outcome.INTERRUPTED}:
        return check
    late = f"gate_timeout_s gives verify commands more time than {timeout_s:.0f} s"
    causes, hindrances = [late] * (check.status is Outcome.TIMED_OUT), list[str]()
    if restrictions is not None:
        text = f"{check.command}\n{output[-_LOOKED_AT_CHARS:]}"
        hindrances += [words for look in _HINDRANCES for words in look(text, restrictions)]
        causes += _look_for_program(find_missing_program(check), restrictions)
        causes += [*(words for look in _LOOKS for words in look(text, restrictions)), *hindrances]
    hindrance = hindrances[0] if hindrances and check.status is Outcome.FAILED else ""
    return replace(check, causes=tuple(dict.fromkeys(causes))[:MAX_CAUSES], hindrance=hindrance)


def _look_for_program(missing: str, restrictions: Restrictions) -> Iterator[str]:
    found = restrictions.find_program(missing) if missing else ""
    if found and restrictions.find_hidden(found):
        words = f"{found} is on this machine and hidden from commands: activate its environment before relay run"
        yield f"{words}, or name its directory in paths.write ({USER_FILE})"
    elif found:
        yield f"{found} is there and not on PATH: activate its environment before relay run, or write {found}"


def _look_for_sockets(text: str, restrictions: Restrictions) -> Iterator[str]:
    for place in _find_paths(text):
        if restrictions.is_socket(place):
            words = f"{place} is a Unix socket of this machine, and closed to commands"
            yield f'{words}; network.sockets = ["{place}"] in {USER_FILE} opens it'


def _look_for_paths(text: str, restrictions: Restrictions) -> Iterator[str]:
    found = [place for place in _find_paths(text) if not restrictions.is_socket(place)]
    hidden = list(dict.fromkeys(filter(None, map(restrictions.find_hidden, found))))
    if hidden:
        words = f"{list_some([shorten(place, _SHOWN_CHARS) for place in hidden], _SHOWN)} on this machine"
        yield f"hidden from commands: {words}; paths.write in {USER_FILE} shows a directory, and lets them write it"


def _look_for_secrets(text: str, restrictions: Restrictions) -> Iterator[str]:
    named = dict.fromkeys(islice((found[0] for found in _FILE.finditer(text)), _MAX_FOUND))
    if masked := [path for path in named if restrictions.is_masked(path)]:
        words = f"{list_some(masked, _SHOWN)} may hold secrets and is hidden from commands"
        yield f'{words}; env_file = "{masked[0]}" in {USER_FILE} shows it to verify commands'


def _look_for_variables(text: str, restrictions: Restrictions) -> Iterator[str]:
    named = dict.fromkeys(islice((found[0] for found in _NAME.finditer(text)), _MAX_FOUND))
    dropped = [name for name in named if name in restrictions.dropped and name not in _SHELL_OWN]
    if given := [name for name in dropped if name not in restrictions.refused][:_SHOWN]:
        listed = ", ".join(f'"{name}"' for name in given)
        one = "it" if len(given) == 1 else "them"
        words = f"{', '.join(given)}: set here and not given to commands"
        yield f"{words}; env = [{listed}] in {USER_FILE} gives {one} (or RELAY_ENV={','.join(given)})"
    if barred := [name for name in dropped if name in restrictions.refused][:_SHOWN]:
        yield f"{', '.join(barred)}: set here and never given to commands, because it may hold a key or start code"
    if made := [f"{name}={FIXED[name]}" for name in named if name in FIXED][:_SHOWN]:
        without = " ".join(f"-u {words.partition('=')[0]}" for words in made)
        yield f"{', '.join(made)}: set by relay for commands; `env {without} COMMAND` runs one without"
    absent = [name for name in named if name not in restrictions.dropped]
    if absent and (masked := restrictions.find_masked_names().intersection(absent)):
        listed = ", ".join(sorted(masked)[:_SHOWN])
        words = f"{listed}: set in .env, which is hidden from commands"
        yield f'{words}; env_file = ".env" in {USER_FILE} shows it to verify commands'


def _look_for_services(text: str, restrictions: Restrictions) -> Iterator[str]:
    if restrictions.network or not _REFUSED.search(text):
        return
    ports = dict.fromkeys(islice((int(found[1]) for found in _PORT.finditer(text)), _MAX_FOUND))
    if there := [str(port) for port in ports if restrictions.find_listener(port)][:_SHOWN]:
        words = f"a service of this machine listens on port {', '.join(there)}, and commands do not reach it"
        yield f"{words}; network.localhost = [{', '.join(there)}] in {USER_FILE} lets them"


def _look_for_network(text: str, restrictions: Restrictions) -> Iterator[str]:
    if not restrictions.network and (found := NO_NETWORK.search(text)):
        listed = ", ".join(f'"{host}"' for host in find_hosts(text)) or '"…"'
        words = f"commands have no network (`{found[0]}`): install what they download before relay run"
        yield f"{words}, or network.hosts = [{listed}] ({USER_FILE}); --network opens all of it"


def _look_for_writes(text: str, restrictions: Restrictions) -> Iterator[str]:
    lines = [line for line in text.split("\n") if _READ_ONLY.search(line)]
    paths = [place for line in lines for place in _find_paths(line)]
    outside = [place for place in dict.fromkeys(paths) if not f"{place}/".startswith(f"{restrictions.root}/")]
    if outside:
        words = f"only read by commands: {list_some(outside, _SHOWN)}"
        yield f"{words}; paths.write in {USER_FILE} lets them write a directory"
    elif lines:
        yield "git's directory, the plan and rules are only read by commands"


def _look_for_tracing(text: str, _: Restrictions) -> Iterator[str]:
    if _TRACED.search(text):
        yield "commands cannot trace processes (ptrace); no setting lets them"


def _find_paths(text: str) -> Sequence[str]:
    found = (re.sub(r"\A/+", "/", match[0].rstrip(".:")) for match in islice(_PATH.finditer(text), _MAX_FOUND))
    return tuple(dict.fromkeys(place for place in found if len(place) > 1))


_LOOKS: tuple[Callable[[str, Restrictions], Iterator[str]], ...] = (
    _look_for_paths,
    _look_for_secrets,
    _look_for_variables,
)
_HINDRANCES = (_look_for_network, _look_for_services, _look_for_sockets, _look_for_writes, _look_for_tracing)
