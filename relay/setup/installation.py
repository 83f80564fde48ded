"""The setup step: commands with network that install what sessions need, before the first and when a lock file changed.

They run confined as a session's commands do, but reach public hosts by HTTPS, unless the user's `network` says more or
less. What they leave in the environment's directories (`node_modules`, `.venv`) sessions and gates see; a file that git
knows they must not change, because it would be taken for work of a phase.
"""

import os
from collections.abc import Mapping
from dataclasses import replace

from relay.base.errors import ConfigError, RepoError
from relay.config import Settings
from relay.config.network import CLOSED, EVERY
from relay.git.names import list_paths
from relay.git.repository import Repo
from relay.git.status import read_status
from relay.sandbox.links import separate_tree
from relay.sandbox.openings import hold_doors
from relay.sandbox.output import render_output
from relay.sandbox.policy import Level
from relay.sandbox.run import Sandbox, open_sandbox
from relay.session.events import HostAsked, Observe, SetupFinished, SetupStarted
from relay.store.environment import digest_setup, is_set_up, save_set_up
from relay.tools.workspace import Workspace

_TAIL_CHARS = 4_000


def ensure_set_up(repo: Repo, settings: Settings, workspace: Workspace, observe: Observe) -> None:
    """Run the setup commands unless they have run for these lock files; a stop that is asked for ends it early.

    Raises:
        ConfigError: One of them failed.
        RepoError: They changed files that git knows.
        SandboxError: The sandbox could not be set up, or packages not be parted from those of other projects.
    """
    if not settings.setup or is_set_up(repo, digest_setup(repo, settings.setup)):
        return
    for tree in workspace.sandbox.guarded:
        separate_tree(repo.root / tree)  # else nothing that is installed there would be kept
    before = _look(repo)
    mechanism = workspace.sandbox.mechanism
    whole = settings.network.whole or not mechanism.confines
    hosts = () if whole else settings.network.hosts or (EVERY,)
    with hold_doors(hosts, () if whole else settings.localhost) as held:
        policy = replace(workspace.sandbox.policy, doors=held.doors)
        with open_sandbox(policy, Level.WORKSPACE_WRITE, mechanism=mechanism, inquiries=held.inquiries) as sandbox:
            for command in settings.setup:
                if not _run(command, settings, workspace, sandbox, observe):
                    return
    _require_same(before, _look(repo))
    save_set_up(repo, digest_setup(repo, settings.setup))


def _run(command: str, settings: Settings, workspace: Workspace, sandbox: Sandbox, observe: Observe) -> bool:
    """Run one command; False when a stop was asked for."""
    network = settings.network.text if settings.network != CLOSED else "every public host"
    observe(SetupStarted(command=command, network=network))
    result = replace(sandbox, hear=workspace.sandbox.hear).run(
        ["bash", "-o", "pipefail", "-c", command],
        limits=replace(workspace.limits, timeout_s=settings.gate_timeout_s),
        should_stop=workspace.should_stop,
    )
    output = "\n".join((render_output(result.output).strip("\n"), *(f"[{note}]" for note in result.notes)))
    for asked in sandbox.inquiries.take():
        observe(HostAsked(host=asked.host, refused=asked.refused))
    tail = output[-_TAIL_CHARS:]
    observe(SetupFinished(command=command, exit_code=result.exit_code, duration_s=result.duration_s, output=tail))
    if result.interrupted:
        return False
    if result.exit_code != 0:
        how = "took too long (gate_timeout_s)" if result.timed_out else f"failed with exit {result.exit_code}"
        raise ConfigError(
            f"setup: `{command}` {how}; nothing was sent to a model\n{tail}",
            hint=f"relay sandbox --network -- {command!r} tries it; a host that was refused is named above",
        )
    return True


def _look(repo: Repo) -> Mapping[str, tuple[int, int]]:
    """Return what git sees of the work tree beside HEAD, each with what changes when it is written."""
    marks = {}
    for entry in read_status(repo).entries:
        try:
            found = os.lstat(repo.root / entry.path)
            marks[entry.path] = (found.st_size, found.st_mtime_ns)
        except OSError:
            marks[entry.path] = (-1, 0)
    return marks


def _require_same(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> None:
    if changed := [path for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]:
        raise RepoError(
            f"the setup commands changed what git would take for work of a phase: {list_paths(changed)}",
            hint="look at git status, keep or undo it; use a command that installs what is locked (npm ci, uv sync "
            "--frozen), and let git ignore what it makes",
        )
