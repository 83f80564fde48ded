"""The list of what a run requires, in the order in which a user can repair what is missing.

`relay run` and `relay plan` require one finding after the other, in parts: between them they take the repository and
open the sandbox. `run --dry-run` requires the same without that, and `relay doctor` shows it.
"""

from collections.abc import Iterable, Iterator, Mapping

from relay.git.status import Status
from relay.runners.base import RunnerKind
from relay.sandbox.run import Sandbox
from relay.session.spend import Meter
from relay.setup.context import RunRequest
from relay.setup.preconditions import (
    Finding,
    check_approval,
    check_caps,
    check_clean,
    check_git,
    check_hooks,
    check_identity,
    check_key,
    check_plan_file,
    check_program,
    check_repository,
    check_signature,
    find_out,
    require,
)
from relay.setup.runners import list_kinds


def check_all(request: RunRequest) -> Iterator[Finding]:
    """Look at everything that a run requires, as far as it can be known without taking or opening anything."""
    yield from check_apart(request)
    yield from check_untaken(request)
    yield from check_taken(request)
    yield from check_enclosed(request)


def check_apart(request: RunRequest, known: Mapping[str, RunnerKind] | None = None) -> Iterator[Finding]:
    """Look at what git has no part in.

    Args:
        known: All runners there are; None: those that relay knows and the user's own.
    """
    repo, settings, environ = request.repo, request.settings, request.environ
    kinds: list[RunnerKind] = []

    def find_runners() -> str:
        kinds.extend(list_kinds(request, known))
        for kind in kinds:
            kind.require(environ, settings)
        return ", ".join(request.runners)

    yield find_out(find_runners, name="runner")
    yield check_program(repo.root, settings, environ)
    if request.kind.commits_phases:
        yield check_approval(repo, settings, environ)
    if kinds:
        yield check_key(kinds, environ, settings, request.runners)


def check_untaken(request: RunRequest) -> Iterator[Finding]:
    """Look whether the repository is fit to be taken."""
    yield check_git(request.repo)
    yield check_repository(request.repo)
    yield check_plan_file(request.repo, request.plan_path)


def check_taken(request: RunRequest, status: Status | None = None, meter: Meter | None = None) -> Iterator[Finding]:
    """Look at what a run looks at once it has taken the repository.

    Args:
        status: How the work tree differs; None: nobody has taken it, and git is asked.
        meter: The plan's; None: it is made.
    """
    repo = request.repo
    yield check_identity(repo)
    yield check_signature(repo)
    if request.needs_clean:
        yield check_clean(repo, request.plan_path, status)
    yield check_caps(request, meter)


def check_enclosed(request: RunRequest, sandbox: Sandbox | None = None) -> Iterator[Finding]:
    """Look at what depends on what a sandbox shows; None: that is not known."""
    if request.kind.commits_phases:
        yield check_hooks(request.repo, request.settings, request.environ, sandbox)


def require_all(findings: Iterable[Finding]) -> None:
    """Stop at the first thing that is missing; what comes behind it is not looked at.

    Raises:
        RelayError: What the finding says.
    """
    for finding in findings:
        require(finding)
