"""The meaning of a commit hook's refusal, and hooks and gates tried without a commit.

A session can repair some refusals; others need a person, and then the message names the setting.
"""

import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.hints import Command
from relay.base.secrecy import is_secret_name
from relay.base.words import list_some, shorten
from relay.gate.model import CommandCheck, GateResult, Outcome, compare_gate
from relay.gate.run import NO_NETWORK, explain, run_gate
from relay.git.config_guard import guard
from relay.git.hooks import HookResult, HookRun, Hooks, make_hook_run, only_forbids_branch
from relay.git.identity import get_identity
from relay.git.repository import Repo
from relay.git.status import read_status
from relay.git.trees import find_tree
from relay.plan.text import STATE_DIR
from relay.run.commit.candidate import Refused
from relay.run.commit.gates import find_handed, open_gate_hooks, open_hooks, render_gate, reveal, start_anew
from relay.sandbox.visibility import find_restrictions
from relay.session.events import GateFinished, GateStarted, Observe
from relay.setup.context import GateFiles, RunContext, RunRequest
from relay.store.commit import CommitEnd, CommitOutcome, CommitRequest, judge_message
from relay.tools.workspace import Workspace

_SKIP = 'hooks = "skip" in your own settings (RELAY_HOOKS=skip) commits without your hooks'
_LINE_CHARS = 160
_TELLING = re.compile(r"fail|error|✖|✗|refuse|must|not allowed", re.IGNORECASE)
"""Managers of hooks go on after the hook that refused, so its line is not the last."""
_MISSING = re.compile(r"not found|No such file or directory|Permission denied|cannot execute")
_ENDED = re.compile(r"exited with (\d+)\Z")

_CAUSES = (
    (
        NO_NETWORK,
        "it wants the network, which hooks do not have here",
        "run it once yourself, which fills its cache (git hook run {hook}); ",
    ),
    (
        re.compile(r"read-only file system|EROFS|attempt to write a readonly database", re.IGNORECASE),
        "it writes where it may only read",
        "paths.write in your own settings lets it write there; ",
    ),
    (
        re.compile(r"^fatal: cannot (?:run|exec) ", re.MULTILINE),  # git, of the hook itself
        "it cannot be started: the program of its first line is missing or hidden here, or ends in a carriage return",
        "relay gate --hooks tries it; paths.read in your own settings shows it a directory; ",
    ),
    (
        re.compile(
            r"exited with 12[67]$|^\S*python\S*: No module named|^`pre-commit` not found|^Executable `[^`]+` not found"
            r"|^Can't find lefthook in PATH",
            re.MULTILINE,
        ),
        "a program of it is missing here, or hidden from it",
        "paths.read in your own settings shows it a directory, relay doctor --sandbox lists visible directories; ",
    ),
    (
        re.compile(r"exited with (?:137|143)$|No space left on device", re.MULTILINE),
        "it was killed, or the disk is full",
        "run this again; ",
    ),
    (
        re.compile(r"\Athe \S+ hook timed out"),
        "it takes longer than gate_timeout_s",
        "gate_timeout_s gives it more; ",
    ),
)
"""No session can repair these: it would spend its attempts on a machine that it cannot change."""
_STEP = re.compile(r"(?P<name>[^.]\S.{0,200}?)\.{3,}(?:\(.*\))?Failed")
_PASSED_STEP = re.compile(r"\.{3,}(?:\(.*\))?(?:Passed|Skipped|Failed)$")
"""The form of pre-commit's lines about its hooks. Source: pre-commit 4.3, commands/run.py."""
_FRAME = re.compile(
    r"- (?:hook id|exit code|duration|files were modified)|husky - |\s*$|\[?(?:FAILED|STARTED)\]?|[✖✗] .*:$"
)
"""Lines of managers of hooks that report a failure without its reason."""
ON_BRANCH = Command(words=("run", "--branch"))
_FORBIDS = "forbids commits on this branch and agrees on another one"
_TAKES_ALONG = "goes on in a branch of the plan's own, with all open work"
_MESSAGE = (
    "commit_subject gives relay's own subjects another form; signoff = true in your own settings adds your "
    'Signed-off-by line; hooks = ["pre-commit"] there leaves your message hooks out'
)


def explain_hook(refused: CommitOutcome) -> Refused:
    """Return a hook's refusal; its output follows a line of relay about its end."""
    hook, output, look = refused.hook, refused.output, Command(words=("gate", "--hooks"))
    if refused.is_of_branch:
        words = f"the {hook} hook {_FORBIDS}: {find_telling(output)}"
        return Refused(for_user=words, ways=(ON_BRANCH, f" {_TAKES_ALONG}; {_SKIP}"), then=ON_BRANCH)
    if found := _find_cause(hook, output):
        cause, line, ways = found
        words = f"the {hook} hook refused, and no session can repair that: {cause}: {line}"
        return Refused(for_user=words, ways=ways, then=look)
    words = f"a commit hook refused: {find_telling(output)}"
    if hook != "pre-commit":  # it has refused relay's own words too
        return Refused(for_user=words, ways=_MESSAGE, then=look)
    return Refused(for_user=words, for_model=output, ways=_SKIP, then=look, once=True)


def find_telling(output: str) -> str:
    """Return the line that says most about a hook's refusal, after the name of the failed step.

    Args:
        output: The hook's output after relay's line about its end.
    """
    lines = [line.strip() for line in output.strip().splitlines()]
    for at, line in enumerate(lines):
        if step := _STEP.fullmatch(line):
            said = next((below for below in takewhile(_is_no_step, lines[at + 1 :]) if not _FRAME.match(below)), "")
            return shorten(f"{step['name']}: {said or 'failed'}", _LINE_CHARS)
    telling = (line for line in lines[1:] if _TELLING.search(line) and not _FRAME.match(line))
    return shorten(next(telling, (lines or [""])[-1]), _LINE_CHARS)


def _is_no_step(line: str) -> bool:
    return not _PASSED_STEP.search(line)


def find_hook_causes(refused: CommitOutcome) -> tuple[str, ...]:
    """Return the cause of a refusal that no session can repair, and what the user can do."""
    if refused.is_of_branch:
        return (f"it {_FORBIDS}: relay run --branch {_TAKES_ALONG}",)
    found = _find_cause(refused.hook, refused.output)
    return (f"{found[0]}: {found[2]}",) if found else ()


def _find_cause(hook: str, output: str) -> tuple[str, str, str] | None:
    """Return the cause, the line that shows it, and the user's remedy; None if a session may repair it."""
    for pattern, cause, ways in _CAUSES:
        if found := pattern.search(output):
            start = output.rfind("\n", 0, found.start()) + 1
            ended, *said = output[start:].splitlines()
            line = next(filter(_MISSING.search, said), ended) if start == 0 else ended
            return cause, shorten(line.strip(), _LINE_CHARS), ways.format(hook=hook) + _SKIP
    return None


def render_hook_gate(phase_id: str, ended: CommitOutcome) -> GateFinished:
    """Return a hook's result as a gate event, for the screen, the log and the notes of the run."""
    check = render_hook(ended)
    passed = check.status is Outcome.PASSED
    summary = f"the {check.command} refused{' nothing' if passed else ''}"
    return render_gate(phase_id, GateResult(commands=(check,)), passed=passed, summary=summary)


def render_hook(ended: CommitOutcome) -> CommandCheck:
    """Return a hook's result in the form of a verify command's."""
    first, _, said = ended.output.partition("\n")
    code = _ENDED.search(first)
    exit_code = int(code[1]) if code else None
    return CommandCheck(
        command=f"{ended.hook} hook",
        exit_code=exit_code,
        status=Outcome.TIMED_OUT if code is None else Outcome.FAILED if exit_code else Outcome.PASSED,
        duration_s=ended.hook_s,
        output_tail=said,
    )


_WANTS_MORE = re.compile(
    r"\A[^\n]*\n*\Z|\bstag(?:ed|ing)\b|no (?:path|files?)\b|nothing to|^usage:", re.IGNORECASE | re.MULTILINE
)
"""Output of a hook that says nothing, or that nothing is staged: it may agree once there is something to commit."""


def require_hooks(ctx: RunContext, phase_id: str, sample: CommitRequest) -> None:
    """Refuse to begin if a hook refuses the current files or relay's own lines of a message: no session repairs that.

    The hooks run once per run, with nothing staged, unless a commit of the run has passed them.

    Args:
        sample: The phase's commit without a session's words.

    Raises:
        RepoError: One refuses.
    """
    if ctx.memory.knows_hooks:
        return
    head = ctx.repo.head()
    files = GateFiles(head=head, tree=find_tree(ctx.repo, head) if head else ctx.repo.empty_tree, is_baseline=True)
    with open_gate_hooks(ctx, files) as hooks:
        if hooks is None:
            return
        names = tuple(f"{name} hook" for name in ctx.settings.hooks if name in (hooks.names or ()))
        ctx.observe(GateStarted(phase_id="", baseline=True, commands=names))
        tree = hooks.tree or ctx.repo
        tried = _try_all(tree, hooks, sample, index=tree.git_dir / "index")
    if ctx.workspace.should_stop():
        return
    for one in tried:
        is_red = one.end is CommitEnd.HOOK_REFUSED
        is_silent = one.hook != "pre-commit" and not one.output.partition("\n")[2].strip()
        wants_more = is_red and bool(_WANTS_MORE.search(one.output)) and not (one.is_of_branch or is_silent)
        expected = "as nothing is staged yet" if wants_more else ""
        ctx.observe(replace(render_hook_gate("", one), baseline=True, expected=expected))
        if is_red and not wants_more:
            refused = explain_hook(one)
            words = f"phase {phase_id} was not begun, because no commit could be made: {refused.for_user}"
            raise RepoError(words, hint=refused.ways)
    ctx.memory.knows_hooks = all(one.end is CommitEnd.COMMITTED for one in tried)


def _try_all(repo: Repo, hooks: Hooks, sample: CommitRequest, *, index: Path) -> list[CommitOutcome]:
    """Run the hooks as for a commit, on copies of an index; their changes are dropped.

    Returns:
        The result of each hook that ran, with its output even if it agrees.
    """
    ran: dict[str, HookResult] = {}

    def run_pre_commit(hooks: Hooks) -> HookResult:
        scratch = Path(tempfile.mkdtemp(prefix="hook-", dir=hooks.scratch))
        if index.is_file():
            shutil.copyfile(index, scratch / "index")
        author = get_identity(repo).begin_commit()
        config = guard(repo).config
        return hooks.run(make_hook_run(repo, config, "pre-commit", (), index=scratch / "index", author=author))

    def note(wanted: HookRun) -> HookResult:
        ran[wanted.name] = hooks.run(wanted)
        return ran[wanted.name]

    forbids_branch = False
    if "pre-commit" in (hooks.names or ()):
        ran["pre-commit"] = run_pre_commit(hooks)
        forbids_branch = only_forbids_branch(hooks, ran["pre-commit"], run_pre_commit)
    judged = judge_message(repo, sample, replace(hooks, run=note))
    return [
        judged
        if judged and name == judged.hook
        else CommitOutcome(
            end=CommitEnd.COMMITTED if result.ok else CommitEnd.HOOK_REFUSED,
            output=result.output,
            hook=name,
            hook_s=result.duration_s,
            is_of_branch=name == "pre-commit" and forbids_branch,
        )
        for name, result in ran.items()
    ]


def try_gate(
    request: RunRequest, workspace: Workspace, phase_id: str, commands: Sequence[str], observe: Observe
) -> GateFinished:
    """Run commands as a phase's gate, emit events, and return the result.

    Raises:
        SandboxError: The sandbox could not be set up.
    """
    observe(GateStarted(phase_id=phase_id, baseline=False, commands=tuple(commands)))
    with start_anew(request.repo, workspace.sandbox) as fresh:
        result = run_gate(
            commands,
            sandbox=reveal(request.repo, request.settings, fresh),
            limits=replace(workspace.limits, timeout_s=request.settings.gate_timeout_s),
            should_stop=workspace.should_stop,
            root=workspace.root,
            handed=find_handed(request.repo, request.settings, request.environ),
        )
    verdict = compare_gate(None, result)
    finished = render_gate(phase_id, result, passed=verdict.green, summary=verdict.for_user)
    observe(finished)
    return finished


def try_hooks(
    request: RunRequest, workspace: Workspace, sample: CommitRequest, observe: Observe
) -> GateFinished | None:
    """Run the commit hooks on the staged files and a message, in the same way; None without hooks.

    Raises:
        SandboxError: The sandbox could not be set up.
    """
    repo, settings = request.repo, request.settings
    with open_hooks(repo, settings, workspace) as hooks:
        if hooks is None:
            return None
        names = [name for name in settings.hooks if name in (hooks.names or ())]
        observe(GateStarted(phase_id="", baseline=False, commands=tuple(f"{name} hook" for name in names)))
        tried = _try_all(repo, hooks, sample, index=repo.git_dir / "index")
    checks = tuple(_explain(workspace, settings.gate_timeout_s, one) for one in tried)
    red = [check.command for check in checks if check.status is not Outcome.PASSED]
    summary = f"the {list_some(red)} refused" if red else "no hook refused"
    finished = render_gate("", GateResult(commands=checks), passed=not red, summary=summary)
    observe(finished)
    return finished


def _explain(workspace: Workspace, timeout_s: float, tried: CommitOutcome) -> CommandCheck:
    check = render_hook(tried)
    if tried.end is not CommitEnd.HOOK_REFUSED:
        return check
    check = explain(check, tried.output, find_restrictions(workspace.sandbox), timeout_s)
    return replace(check, causes=(*check.causes, *find_hook_causes(tried)))


def find_uncommitted(request: RunRequest) -> tuple[str, ...]:
    """Return the files that commands see now and no commit has; a run's gate sees only its commit's files."""
    status = read_status(request.repo)
    own = (request.plan_path, request.files.ledger_path)
    named = dict.fromkeys((*status.changed, *status.untracked))
    seen = (path for path in named if not is_secret_name(path.rpartition("/")[2]))
    return tuple(path for path in seen if path not in own and not path.startswith(f"{STATE_DIR}/"))
