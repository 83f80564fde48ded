"""What the tools and commands of a run work on, in a sandbox that is proven to hold."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from relay.base.interrupts import Interrupts
from relay.base.tree import read_start
from relay.base.walk import open_ignored
from relay.git.config_guard import find_tree_files
from relay.plan.files import MAX_PLAN_BYTES, STATE_DIR, find_protected
from relay.sandbox.openings import hold_doors
from relay.sandbox.policy import Level
from relay.sandbox.run import open_sandbox
from relay.setup.context import RunRequest
from relay.setup.policy import get_hidden, get_mechanism, get_unreadable, make_limits, make_policy
from relay.setup.preconditions import check_program, require
from relay.setup.rules import Rules, load_repository_rules
from relay.tools.workspace import Workspace


@contextmanager
def open_workspace(request: RunRequest, rules: Rules, interrupts: Interrupts) -> Iterator[Workspace]:
    """Open the sandbox of a run's tools and commands, as the kind of its sessions has it, and close it again.

    Args:
        rules: Their files are nobody's to write, whatever they are called.

    Raises:
        RelayError: No sandbox holds here, or the settings do not fit the machine.
    """
    root, settings = request.repo.root, request.settings
    named = (file.path for file in rules.files if not file.path.startswith("/"))
    protected = tuple(dict.fromkeys((*find_protected(request.plan_path), *named)))
    configuration = find_tree_files(request.repo)
    policy = make_policy(request.repo, settings, protected, request.environ, _read_plan(root / request.plan_path))
    mechanism = get_mechanism(settings)
    level = Level.WORKSPACE_WRITE if request.kind.writes else Level.READ_ONLY
    closed = not mechanism.confines or settings.network.whole  # then nothing has to lead out
    with (
        hold_doors(() if closed else settings.network.hosts, () if closed else settings.localhost) as held,
        open_sandbox(
            replace(policy, doors=held.doors), level, mechanism=mechanism, inquiries=held.inquiries
        ) as sandbox,
    ):
        yield Workspace(
            root=root,
            sandbox=sandbox,
            protected=(*protected, *configuration),
            configuration=configuration,
            outputs_dir=root / STATE_DIR / "outputs",
            should_stop=lambda: interrupts.stop_now,
            limits=make_limits(settings, timeout_s=settings.command_timeout_s),
            hidden=request.repo.hidden,
            spills="spill" not in settings.ablate,
        )


@contextmanager
def open_own_workspace(request: RunRequest) -> Iterator[Workspace]:
    """Open what a session of this request would have for the user's own command: without a session, a key or a lock.

    Raises:
        RelayError: What a run would stop with for the sandbox's sake.
    """
    root, settings, environ = request.repo.root, request.settings, request.environ
    require(check_program(root, settings, environ))
    hidden = get_hidden(request.repo, settings, environ)
    unreadable = get_unreadable(root, settings, environ)
    rules = Rules() if "rules" in settings.ablate else load_repository_rules(root, settings, unreadable)
    with open_ignored(root, (STATE_DIR,)):
        pass  # relay makes it before a command could, as a run does
    interrupts = Interrupts()
    try:
        with open_workspace(replace(request, repo=replace(request.repo, hidden=hidden)), rules, interrupts) as opened:
            yield opened
    finally:
        interrupts.close()


def _read_plan(path: Path) -> str:
    """Return the plan's text, whatever it is worth; empty where there is none yet."""
    try:
        return (read_start(path, MAX_PLAN_BYTES) or b"").decode(errors="replace")
    except OSError:
        return ""
