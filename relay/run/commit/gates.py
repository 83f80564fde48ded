"""Runs a phase's gate and the user's commit hooks in the sandbox."""

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from relay.base.errors import RepoError
from relay.base.redaction import find_handed_values
from relay.base.tree import find_stat, read_file
from relay.base.values import dataclass
from relay.base.words import list_some, render_output
from relay.config import Settings
from relay.gate.evidence import REFUSED
from relay.gate.model import (
    CommandCheck,
    GateMemory,
    GateResult,
    Outcome,
    Verdict,
    compare_gate,
    find_flaky,
    find_unexplained,
)
from relay.gate.needs import find_lack
from relay.gate.run import run_gate
from relay.git.config_guard import guard
from relay.git.hooks import HookResult, HookRun, Hooks, copy_git_dir, get_hooks_dir, has_hook
from relay.git.identity import find_identity
from relay.git.names import find_plan_branch
from relay.git.objects import read_entries, write_paths_tree
from relay.git.repository import Repo
from relay.git.trees import ABSENT, EXECUTABLE, FILE, find_mode
from relay.git.worktrees import list_changed
from relay.sandbox.places import find_real
from relay.sandbox.policy import WritableCopy
from relay.sandbox.run import Sandbox
from relay.session.events import CheckResult, GateFinished, GateStarted, Noticed
from relay.setup.context import GateFiles, RunContext
from relay.setup.ignored import find_unseen
from relay.setup.workspace import read_handed
from relay.store.branches import PREFIX, name_branch
from relay.tools.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class GateTask:
    """A gate to run."""

    phase_id: str
    """For the events."""
    commands: Sequence[str]
    """Without commands, the gate is green and proves nothing."""
    files: GateFiles
    """Those of the commit that the gate judges."""
    baseline: GateResult | None = None
    """The same commands before the phase; None if unknown, and then nothing red is excused."""
    own: Collection[str] | None = None
    """The commands of the phase itself; None if all are."""
    is_unfinished: bool = False
    """Whether the phase has open items: a handoff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRun:
    """The result of a gate."""

    result: GateResult
    verdict: Verdict
    installed: tuple[str, ...] = ()
    """Directories of packages that the commands saw as sessions left them."""
    unseen: tuple[str, ...] = ()
    """Of a red gate: what sessions made or changed, git ignores, and the commands did not see so."""
    links: tuple[str, ...] = ()
    """The commit's links that the commands did not see, because they lead to what no commit has."""
    rewritten: Mapping[str, tuple[str, bytes]] = field(default_factory=dict, hash=False)
    """``path: (mode, bytes)`` of the commit's files that the commands rewrote."""
    flaky: tuple[CommandCheck, ...] = ()
    """The red results, in this phase so far, of commands that were green on the same files."""


def run_phase_gate(ctx: RunContext, task: GateTask) -> GateRun:
    """Run a phase's gate on the files of its commit, and emit events about it.

    Raises:
        ConfigError: A setup command failed in the tree of the gate.
        RepoError: That tree cannot be made.
        SandboxError: The sandbox failed.
    """
    if not task.commands:
        verdict = Verdict(green=True, for_model="", for_user="no verify command")
        return GateRun(result=GateResult(commands=()), verdict=verdict)
    repo, files = ctx.repo, task.files
    key = find_content(repo, files.tree, (ctx.plan_path, ctx.ledger_path))
    with ctx.open_gate(files) as gate, start_anew(repo, gate.workspace.sandbox) as anew:
        if gate.is_new:
            ctx.memory.forget()
        known = {} if gate.installed else ctx.memory.recall(key, task.commands)
        commands = tuple(command for command in task.commands if command not in known)
        ctx.observe(GateStarted(phase_id=task.phase_id, baseline=files.is_baseline, commands=commands))
        act = partial(
            run_gate,
            sandbox=reveal(gate.repo, ctx.settings, anew),
            limits=replace(gate.workspace.limits, timeout_s=ctx.settings.gate_timeout_s),
            should_stop=ctx.workspace.should_stop,
            root=ctx.workspace.root,
            handed=find_handed(gate.repo, ctx.settings, ctx.environ),
        )
        place = key, gate.installed
        result, again = act(commands), dict[str, CommandCheck]()
        rewritten = _find_rewritten(gate.repo, files.paths)
        tried = () if files.is_baseline or task.is_unfinished else _choose_again(ctx.memory, task, result, place)
        if tried:
            gate.reset()
            again = {check.command: check for check in act(tried).commands}
            rewritten |= _find_rewritten(gate.repo, files.paths)
        _note_flaky(ctx, task, result, again, place)
    ran = {**known, **{check.command: check for check in result.commands}, **again}
    result = GateResult(commands=tuple(ran[command] for command in task.commands), evidence=result.evidence)
    verdict = compare_gate(task.baseline, result, own=task.own, unchecked=ctx.unchecked)
    kept = f"\nnot run again, because it has just passed: {list_some([f'`{command}`' for command in known])}"
    _warn_of_refused(ctx, result)
    ctx.observe(
        GateFinished(
            phase_id=task.phase_id,
            baseline=files.is_baseline,
            passed=verdict.green,
            summary=verdict.for_user + (kept if known else ""),
            duration_s=sum(check.duration_s for check in result.commands if check.command not in known),
            expected="" if verdict.green else _expect(task, result),
            checks=render_checks(result),
            evidence=result.evidence,
        )
    )
    return GateRun(
        result=result,
        verdict=verdict,
        installed=gate.installed,
        unseen=() if verdict.green or files.is_baseline else find_unseen(repo, gate.repo),
        links=gate.links,
        rewritten=rewritten,
        flaky=tuple(ctx.memory.flaky.get(task.phase_id, ())),
    )


def _choose_again(memory: GateMemory, task: GateTask, result: GateResult, place: object) -> tuple[str, ...]:
    """Return the red commands to run once more before a session is paid for them."""
    known = [command for command, red_on in memory.red_on.items() if red_on == place]
    return find_unexplained(task.baseline, result, task.files.paths, known_red=known)


def _note_flaky(
    ctx: RunContext, task: GateTask, result: GateResult, again: Mapping[str, CommandCheck], place: object
) -> None:
    """Remember and say which commands were red and green on the same files, in this gate or the last one.

    Args:
        again: Second results of some commands, in the same sandbox.
        place: Equal if the files that the gate saw are the same.
    """
    memory = ctx.memory
    turned = [check for check in result.commands if check.command in again and again[check.command].passed]
    for check in result.commands:
        if check.passed and memory.red_on.pop(check.command, None) == place:
            turned.append(check)
        elif check.failed and check not in turned:
            memory.red_on[check.command] = place
    memory.flaky.setdefault(task.phase_id, []).extend(turned)
    for words in find_flaky(turned):
        ctx.observe(Noticed(text=words, warning=True))


def _warn_of_refused(ctx: RunContext, result: GateResult) -> None:
    if refused := [
        f"{one['name']} ({why})" for one in result.evidence if (why := one.get("why", "")).startswith(REFUSED)
    ]:
        ctx.observe(Noticed(text=f"not kept of the gate's evidence: {list_some(refused)}", warning=True))


def find_content(repo: Repo, tree: str, drafts: Collection[str]) -> str:
    """Return what stands for the files of a tree but the plan and its ledger."""
    return write_paths_tree(repo, [(path, ABSENT, repo.zero_id) for path in drafts], start=tree)


def _find_rewritten(gate: Repo, paths: Collection[str]) -> dict[str, tuple[str, bytes]]:
    """Return the regular files among these that a gate rewrote; those that it removed are missing."""
    rewritten = {}
    for path in list_changed(gate, paths) if paths else ():
        mode, data = find_mode(find_stat(gate.root, path)), read_file(gate.root, path)
        if data is not None and mode in {FILE, EXECUTABLE}:
            rewritten[path] = (mode, data)
    return rewritten


def _expect(task: GateTask, result: GateResult) -> str:
    """Return why a red gate is expected; empty if it is a failure."""
    if task.is_unfinished:
        return "as expected: the phase is not finished"
    if not task.files.is_baseline:
        return ""
    if any(find_lack(check) or check.status in {Outcome.MISSING, Outcome.NO_TESTS} for check in result.commands):
        return "before the work: it checked nothing yet"
    red = [check.command for check in result.commands if check.status is not Outcome.PASSED]
    if task.own is not None and set(red) <= set(task.own):
        return "as expected: the work is not done yet"
    return "before the work, as expected: this phase need not repair red commands of the document"


def render_gate(phase_id: str, result: GateResult, *, passed: bool, summary: str) -> GateFinished:
    """Return the event of a tried gate or a commit hook."""
    return GateFinished(
        phase_id=phase_id,
        baseline=False,
        passed=passed,
        summary=summary,
        duration_s=sum(check.duration_s for check in result.commands),
        checks=render_checks(result),
        evidence=result.evidence,
    )


def render_checks(result: GateResult) -> tuple[CheckResult, ...]:
    """Return the result of each command in the form of the gate's event."""
    return tuple(
        CheckResult(
            command=check.command,
            status=str(check.status),
            exit_code=check.exit_code,
            duration_s=round(check.duration_s, 3),
            output=check.output_tail,
            output_sha256=check.output_sha256,
            causes=list(check.causes),
        )
        for check in result.commands
    )


def start_anew(repo: Repo, sandbox: Sandbox) -> Sandbox:
    """Return a new sandbox for a gate or a hook, in which git knows the user; the caller closes it."""
    user = find_identity(repo)
    return sandbox.start_anew((user.name, user.email)) if user else sandbox.start_anew()


def reveal(repo: Repo, settings: Settings, sandbox: Sandbox) -> Sandbox:
    """Make the user's `env_file` visible to a gate, unless it is a link."""
    return sandbox.reveal(repo.root / settings.env_file) if settings.env_file else sandbox


def find_handed(repo: Repo, settings: Settings, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values to redact in a gate's output: a session's test could print them."""
    return find_handed_values(read_handed(repo.root, settings, environ)) if settings.env_file else ()


@contextmanager
def open_gate_hooks(
    ctx: RunContext,
    files: GateFiles,
    *,
    may_make: Callable[[str], bool] = lambda _: True,
    recheck: Callable[[str, tuple[str, ...]], str | None] = lambda _tree, _paths: None,
) -> Iterator[Hooks | None]:
    """Yield the user's commit hooks, to be run in the tree of the gates: they see what a gate sees. None without hooks.

    Raises:
        ConfigError: A setup command failed there.
        RepoError: A hook of the user's checkout is not there and no commit says so, or one is elsewhere than the user's
            settings say.
    """
    users = ctx.home or ctx.repo
    if not (found := _find_hooks(users, ctx.settings) | _find_hooks(ctx.repo, ctx.settings)):
        yield None
        return
    with ctx.open_gate(files) as gate:
        if gate.is_new:
            ctx.memory.forget()
        for name in sorted(found - _find_hooks(gate.repo, ctx.settings)):
            place = get_hooks_dir(users, guard(users).config) / name
            path = place.relative_to(users.root).as_posix() if place.is_relative_to(users.root) else ""
            if not (path and files.head and read_entries(ctx.repo, files.head, (path,))):
                words = f"the {name} hook of this repository is not in relay's tree, and would not run: {place}"
                raise RepoError(words, hint='name it in the setting `copy`, or commit it; `hooks = "skip"` runs none')
        with open_hooks(ctx.repo, ctx.settings, gate.workspace, tree=gate.repo) as hooks:
            yield replace(hooks, may_make=may_make, recheck=recheck) if hooks else None


def _find_hooks(repo: Repo, settings: Settings) -> frozenset[str]:
    config = guard(repo).config
    return frozenset(name for name in settings.hooks if has_hook(repo, config, name))


@contextmanager
def open_hooks(
    repo: Repo,
    settings: Settings,
    workspace: Workspace,
    *,
    tree: Repo | None = None,
) -> Iterator[Hooks | None]:
    """Yield the user's commit hooks, to be run in the sandbox, each with its own git directory and scratch directory.

    They see nothing that a session left outside of the repository. None without hooks.

    Args:
        tree: The work tree in which they run, of this workspace; None for the repository's own.

    Raises:
        RepoError: The hooks are elsewhere than the user's settings say.
    """
    if not (names := _find_hooks(tree or repo, settings)):
        yield None
        return
    own = repo.branch or ""  # a hook judges the branch on which the commit will land
    plans = find_plan_branch(own)
    branch = plans if tree or plans != own else ""
    with start_anew(repo, workspace.sandbox) as fresh:
        run = partial(run_hook, workspace, tree or repo, fresh, branch=branch, timeout_s=settings.gate_timeout_s)
        elsewhere = "" if plans.startswith(PREFIX) else name_branch("", "")
        yield Hooks(run=run, scratch=fresh.private.tmp, tree=tree, names=names, elsewhere=elsewhere)


def run_hook(
    workspace: Workspace, repo: Repo, fresh: Sandbox, run: HookRun, *, branch: str, timeout_s: float
) -> HookResult:
    """Run a hook in the sandbox; paths of the scratch directory are translated, since it has another name there.

    Args:
        branch: The branch that HEAD names for the hook, if it does not name another one; empty for the work tree's own.
    """
    with tempfile.TemporaryDirectory(prefix="git-", dir=fresh.private.path, ignore_cleanup_errors=True) as folder:
        copy = Path(folder, "copy")
        shown = copy_git_dir(repo, copy, branch=run.branch or branch)
        git_copy = WritableCopy(dest=repo.common_dir, place=copy, shown=shown)
        outside, inside = str(fresh.private.tmp), str(fresh.tmp)
        for path, place in run.copies.items():
            if find_real(repo.root / path) == repo.root / path:
                fresh = fresh.put_copy(WritableCopy(dest=repo.root / path, place=place))

        def show(text: str) -> str:
            return fresh.show(text.replace(outside, inside))

        result = fresh.put_copy(git_copy).run(
            [show(argument) for argument in run.argv],
            limits=replace(workspace.limits, timeout_s=timeout_s),
            should_stop=workspace.should_stop,
            extra_env={name: show(value) for name, value in run.env.items()},
        )
    text = render_output(result.output).strip()
    ended = "timed out" if result.timed_out else f"exited with {result.exit_code}"
    words = f"the {run.name} hook {ended}\n{text[-4000:]}"
    ok = result.exit_code == 0
    return HookResult(ok=ok, output=words, duration_s=result.duration_s, timed_out=result.timed_out)
