"""Checks before a session is paid: can a gate fail, and can a commit hold the files? Also phases that only land."""

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from relay.base.errors import PlanError, within
from relay.base.hints import Command, Hint, TypedPath
from relay.base.words import list_some, shorten
from relay.config import Settings
from relay.gate.model import CommandCheck, Outcome
from relay.gate.needs import (
    find_lack,
    find_missing_files,
    find_missing_program,
    find_near,
    may_be_made,
    may_come,
    read_missed,
    suggest,
)
from relay.gate.places import open_ground, settle_phase, settle_plan
from relay.gate.shell_line import check_command, find_lines, proves_nothing
from relay.git.message import CommitText, read_text, read_texts
from relay.git.names import find_plan_branch, list_paths, render_path
from relay.git.objects import find_base, find_fork, list_marks, read_entries
from relay.git.repository import Repo
from relay.plan.check import find_obscurity
from relay.plan.lineage import find_lineage
from relay.plan.model import Phase, Plan
from relay.plan.paths import find_command_modules, find_command_paths, split_place
from relay.plan.text import find_plan_folder
from relay.prompts.package_data import EXAMPLE, INSTEAD, is_example
from relay.run.commit.candidate import Refused
from relay.run.commit.gates import GateRun
from relay.run.commit.omissions import LeftOut, clean_paths, find_hopeless, find_protected_targets, render_left_out
from relay.sandbox.places import INSTALLED
from relay.session.events import Noticed
from relay.setup.context import PlanFiles, RunContext
from relay.store import trailers
from relay.store.attempts import OpenAttempt
from relay.store.history import find_added, find_text
from relay.store.plan_versions import parse_at
from relay.store.ref_notes import read_notes
from relay.store.snapshot import TreeSnapshot
from relay.store.worktree_notes import find_home
from relay.tools.workspace import ALWAYS_PROTECTED

_SHOWN_CHARS = 120
_WORD = re.compile(r"[^\s;&|<>()'\"`=:]+")
CHECK = Command(words=("check",))


def get_commands(settings: Settings, phase: Phase) -> tuple[str, ...]:
    """Return the gate of a phase: the settings' commands, then the document's, then its own.

    Raises:
        PlanError: A command does more than its reader can see; none runs then.
    """
    commands = tuple(dict.fromkeys((*settings.verify, *phase.verify)))
    for command in commands:
        if words := find_obscurity(command):
            line = phase.line if command in phase.verify else 0
            raise PlanError(f"a verify command of phase {phase.id} {words}", line=line)
    return commands


def settle_in(repo: Repo, plan_path: str, plan: Plan, rev: str | None) -> Plan:
    """Return a plan with the directories of its commands and paths, as a commit decides about them.

    Args:
        rev: The commit that a phase starts from; None without any.

    Raises:
        PlanError: A directory that the plan names is out of the repository.
    """
    with within(plan_path):
        return settle_plan(open_ground(repo.root, repo, plan_path, rev), plan)


def list_own(phase: Phase, commands: Sequence[str]) -> frozenset[str]:
    """Return the gate's commands that must be green at the phase's end, even if they were red before.

    These are the commands of the phase itself, and those that name a file which an item makes: they are red because the
    work is not done.
    """
    made = clean_paths(path for item in phase.items for path in item.targets)
    named = {one: find_command_paths(one) | find_command_modules(one) for one in commands}
    return frozenset(phase.own_verify).union(one for one, paths in named.items() if not made.isdisjoint(paths))


def require_gates(plan: Plan, settings: Settings, phases: Sequence[Phase], *, unchecked: bool) -> None:
    """Refuse phases whose ticks would say nothing.

    Args:
        settings: Their verify commands belong to every phase.
        phases: The phases to work on.
        unchecked: The user typed that phases without a gate may be ticked.

    Raises:
        PlanError: The plan is the example, a phase has no gate, or a command cannot fail.
    """
    if is_example(plan):
        raise PlanError(EXAMPLE, hint=INSTEAD)
    lines = find_lines(plan)
    for phase in phases:
        for command in get_commands(settings, phase):
            if proves_nothing(command):
                shown = shorten(" ".join(command.split()), _SHOWN_CHARS)
                words = f"the verify command `{shown}` {check_command(command) or 'checks nothing'}"
                raise PlanError(
                    f"{words}; nothing was started, because it would pass whatever a session does",
                    line=lines.get(command, 0),
                    hint="write one that fails while the work is not done, such as `pytest -q`",
                )
    bare = [phase for phase in phases if not get_commands(settings, phase)]
    if bare and not unchecked:
        names = list_some([phase.id for phase in bare])
        raise PlanError(
            f"phase{'s' if bare[1:] else ''} {names} {'have' if bare[1:] else 'has'} no verify command, so nothing "
            "would check the ticks",
            line=bare[0].line,
            hint=(
                "put a line Verify: `command` below the heading (",
                CHECK,
                " looks for one), or type --verify COMMAND or --unchecked",
            ),
        )


def require_programs(ctx: RunContext, plan: Plan, phase: Phase, baseline: GateRun) -> None:
    """Refuse a session whose gate needs a program or file that no session can make, or that the sandbox hides.

    With network, or without a sandbox, a session may install it.

    Args:
        baseline: The gate before the phase.

    Raises:
        PlanError: There is such a command.
    """
    _require_shown(ctx.files, phase, baseline)
    if not ctx.unchecked:
        _require_unhindered(ctx.files, phase, baseline)
        _require_run(ctx.files, plan, phase, baseline)
        _require_files(ctx.files, phase, baseline)
    if ctx.settings.network.hosts or not ctx.workspace.sandbox.mechanism.confines:
        return
    texts = [*(item.text for item in phase.open_items), *phase.open_paths]
    for check in baseline.result.commands:
        program = find_missing_program(check)
        if program and not may_be_made(program, texts):
            words = f"`{program}`, which its commands do not find and no item of the phase makes"
            advice = "; ".join(check.causes) or (
                "install it, activate the environment that has it, or correct the Verify: line"
            )
            words = f"its gate can never be green, because {_show(check)} needs {words}"
            raise _not_begun(ctx.files, phase, words, advice)


def require_room(ctx: RunContext, plan: Plan, phase: Phase, now: TreeSnapshot) -> None:
    """Refuse to begin a phase whose files no commit could hold; at the start of a run, warn of later phases.

    Args:
        now: The work tree as it is.

    Raises:
        PlanError: An item names an ignored file or the like, or a file that no session writes.
    """
    own = {ctx.plan_path, ctx.ledger_path}
    protected = (*ALWAYS_PROTECTED, *(path for path in ctx.workspace.protected if path not in own))
    _refuse(ctx.plan_path, phase, find_hopeless(ctx.repo, phase, ctx.repo.head(), now, protected))
    later = () if ctx.memory.passed else plan.phases[plan.phases.index(phase) + 1 :]
    for other in later:
        if taken := find_protected_targets(other, protected):
            words = f"phase {other.id} is to write files that only a person writes: {list_paths(taken)}"
            ctx.observe(Noticed(text=f"{words}; write it and tick the box, or this run stops there", warning=True))


def _refuse(plan_path: str, phase: Phase, found: tuple[LeftOut, ...]) -> None:
    if found:
        words, ways = render_left_out(found)
        words = f"no session was started for phase {phase.id}: {words}"
        raise PlanError(words, path=plan_path, line=phase.line, hint=ways)


def _require_shown(files: PlanFiles, phase: Phase, run: GateRun) -> None:
    """Refuse a gate that misses a file which the user has and no commit."""
    home, made = find_home(files.repo), clean_paths(phase.open_paths)
    for check in run.result.commands:
        if check.status is Outcome.PASSED:
            continue
        folder, rest = split_place(check.command)
        for name in sorted(clean_paths(_WORD.findall(rest)) & clean_paths(read_missed(check))):
            path = str(PurePosixPath(folder, name))
            is_users = path not in made and not files.repo.hidden.covers(path) and (home / path).is_file()
            if is_users and ".." not in path and not read_entries(files.repo, files.repo.head() or "", (path,)):
                words = f"{_show(check)} needs {render_path(path)}, which no commit has"
                words = f"its gate can never be green, because {words}"
                way = " && git commit) or have a verify command make it, and run again"
                hint: Hint = ("commit it (git add ", TypedPath(path=path), way)
                if not INSTALLED.isdisjoint(path.split("/")):
                    hint = (
                        'setup = ["…"] in relay.toml installs packages in relay\'s trees; with bubblewrap, and without '
                        "setup, they have copies of yours (relay help several-phases)"
                    )
                raise _not_begun(files, phase, words, hint)


def _require_unhindered(files: PlanFiles, phase: Phase, run: GateRun) -> None:
    """Refuse a gate that the sandbox makes red: it would be excused in each phase, or red for good."""
    for check in run.result.commands:
        if check.hindrance:
            words = f"the sandbox makes {_show(check)} red, whatever is done: {check.hindrance}"
            way = "--unchecked goes on with it red, and ticks items that nothing checks"
            way = f"`relay gate` shows its output, `relay help checks` how to open what it needs; {way}"
            raise _not_begun(files, phase, words, way)


def _require_run(files: PlanFiles, plan: Plan, phase: Phase, run: GateRun) -> None:
    """Refuse a gate that checks nothing, unless the phase makes what it lacks: its red says nothing about the work.

    A document's command may stay red until a later phase makes what it lacks.
    """
    for check in run.result.commands:
        lack = find_lack(check)
        if lack is None:
            continue
        words = f"{_show(check)} did not run: there is no {lack.words}"
        named = lack.files or tuple(find_command_paths(check.command))
        is_excused = check.status is Outcome.FAILED and check.command not in phase.own_verify
        makers = [other for other in plan.phases if not other.done] if is_excused else [phase]
        if not any(may_come(path, makers, "") for path in named) and not (lack.files and _is_new(files.repo.root)):
            causes = f"{'; '.join(check.causes)}; " if check.causes else ""
            way = f"{causes}correct the Verify: line, or name the file in an item; --unchecked goes on all the same"
            if (folder := find_plan_folder(files.plan_path)) and not split_place(check.command)[0]:
                way = f"it runs at the root: `In: {folder}` below the heading runs it beside the plan; {way}"
            raise _not_begun(files, phase, f"{words}, and no item of the phase makes it", way)


def _is_new(root: Path) -> bool:
    """Return whether the repository has nothing but dotfiles, documents and settings: a session makes the manifest."""
    names = [path.name for path in root.iterdir()]
    return all(name.startswith(".") or name.endswith((".md", ".toml", ".yaml")) for name in names)


def _require_files(files: PlanFiles, phase: Phase, run: GateRun) -> None:
    """Refuse a gate that tests a missing file which the phase does not make: it would test nothing."""
    for check in run.result.commands:
        for path in find_missing_files(check):
            near = find_near(path, files.repo.root)
            if not os.path.lexists(files.repo.root / path) and not may_come(path, [phase], near):
                words = f"{render_path(path)}, which does not exist and no item of the phase makes{suggest(near)}"
                words = f"its gate runs nothing, because {_show(check)} names {words}"
                way = "correct the Verify: line, or name the file in an item; --unchecked goes on all the same"
                raise _not_begun(files, phase, words, way)


def _not_begun(files: PlanFiles, phase: Phase, words: str, hint: Hint) -> PlanError:
    return PlanError(f"phase {phase.id} was not begun: {words}", path=files.plan_path, line=phase.line, hint=hint)


def _show(check: CommandCheck) -> str:
    return f"`{shorten(' '.join(check.command.split()), _SHOWN_CHARS)}`"


def find_merged(repo: Repo, attempt: OpenAttempt) -> CommitText | None:
    """Return the phase's own commit that a landing attempt merges; None for any other attempt."""
    return read_text(repo, attempt.merges) if attempt.merges else None


def is_untouched(attempt: OpenAttempt) -> bool:
    """Return whether no session has worked in a landing attempt."""
    return bool(attempt.merges) and not attempt.course.tries


def find_note(repo: Repo, attempt: OpenAttempt) -> str:
    """Return the note about the merge for each session of a landing attempt; empty for any other attempt.

    The attempt's first checkpoints, before any session, hold the note; the last of them adds the gate's result.
    Later checkpoints hold a session's handoff note instead, so this reads the first ones from the history.
    """
    if not attempt.merges or attempt.last_wip is None:
        return ""
    args = ("--first-parent", "--basic-regexp", "--grep=^relay: snapshot of phase ", attempt.last_wip.commit)
    texts = tuple(read_texts(repo.git, *args, *((f"^{attempt.base_head}",) if attempt.base_head else ()), "--"))
    saved = [notes for text in texts if (notes := read_notes(text)) is not None]
    return next((notes.handoff_note for notes in saved if notes.session == saved[-1].session), "")


def render_merge(merged: CommitText, digest: str) -> tuple[tuple[str, str], ...]:
    """Return the trailer with the merged commit and the results of both gates."""
    own = next(iter(merged.get(trailers.GATE).split()[1:2]), "none")
    return ((trailers.MERGE, f"{merged.commit} {own} {digest}"),)


def find_common(repo: Repo, plan_path: str, tip: str, own: str) -> str:
    """Return the commit at which a phase, done at `own`, left the plan's branch, which is at `tip`.

    If somebody rewrote that branch, this is the newest commit that was on it, by its reflog; if the log does not say,
    and the plan came with the rewritten commits, the commit that added the plan. Empty without one.
    """
    base = find_fork(repo, find_plan_branch(repo.branch or ""), own) or find_base(repo, tip, own)
    if find_text(repo, base, plan_path) is not None:
        return base or ""
    return find_added(repo, plan_path, rev=own) or base or ""


def list_landed(repo: Repo, attempt: OpenAttempt, plan: Plan) -> tuple[Phase, ...]:
    """Return the phases that others have finished since the attempt's phase began, with the plan's current ids."""
    base = find_common(repo, attempt.plan_path, attempt.base_head or "", attempt.merges) if attempt.merges else None
    text = find_text(repo, base, attempt.plan_path)
    if text is None:
        return ()
    before = parse_at(text, attempt.plan_path)
    now = find_lineage(before, plan).phases
    was_done = {now.get(phase.id) for phase in before.phases if phase.done}
    return tuple(phase for phase in plan.phases if phase.done and phase.id not in was_done)


def list_commands(repo: Repo, settings: Settings, attempt: OpenAttempt, plan: Plan, phase: Phase) -> tuple[str, ...]:
    """Return the phase's verify commands; when it lands, also those of the phases that it is merged onto.

    Args:
        settings: They have commands too.
        plan: HEAD's plan.
    """
    landed = [other for other in list_landed(repo, attempt, plan) if other.id != phase.id]
    ground = open_ground(repo.root, repo, attempt.plan_path, attempt.base_head)
    placed = (settle_phase(ground, one) for one in (phase, *landed))
    return tuple(dict.fromkeys(command for one in placed for command in get_commands(settings, one)))


def check_marks(repo: Repo, attempt: OpenAttempt, tree: str) -> Refused | None:
    """Refuse a commit with conflict markers of a merge, even if the gate is green."""
    if not attempt.carried.unmerged:
        return None
    if not (left := list_marks(repo, tree) - list_marks(repo, attempt.base_head or repo.empty_tree)):
        return None
    words = f"conflict markers are left in {list_paths(sorted(left))}"
    return Refused(for_user=words, for_model=f"Nothing was committed: {words}. Decide what belongs there.")
