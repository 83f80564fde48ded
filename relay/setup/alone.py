"""The sandbox of a session, opened for a command of the user's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from relay.files.walk import open_ignored
from relay.interrupts import Interrupts
from relay.plan.files import STATE_DIR
from relay.setup import preconditions
from relay.setup.policy import get_hidden, get_unreadable
from relay.setup.preconditions import require
from relay.setup.request import RunRequest
from relay.setup.rules import Rules, load_repository_rules
from relay.setup.workspace import open_workspace
from relay.tools.workspace import Workspace


@contextmanager
def open_alone(request: RunRequest) -> Iterator[Workspace]:
    """Open what a session of this request would have, without a session, a key or a lock.

    Raises:
        RelayError: What a run would stop with for the sandbox's sake.
    """
    root, settings, environ = request.repo.root, request.settings, request.environ
    require(preconditions.check_program(root, settings, environ))
    hidden = get_hidden(root, settings, environ)
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
