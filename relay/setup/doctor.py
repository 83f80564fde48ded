"""The checks of `relay doctor`; each finding stands alone, so that one failure does not hide the next."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from relay.base.errors import ConfigError, PlanError, RelayError, RepoError, SandboxError
from relay.base.hints import PLAN, RUN, Caller, Command, Hint
from relay.base.interrupts import Interrupts
from relay.base.secrecy import NOTHING_NAMED
from relay.base.values import dataclass
from relay.base.words import count
from relay.config import Settings, find_user_dir
from relay.config.keys import KEYS
from relay.git.names import list_paths
from relay.git.repository import Repo, open_repo
from relay.git.status import read_status
from relay.git.worktrees import list_ignored
from relay.plan.model import Plan
from relay.plan.text import find_ledger_path, find_protected
from relay.prompts.package_data import EXAMPLE, INSTEAD, is_example
from relay.runners.base import RunnerKind, Surroundings
from relay.runners.registry import get_kind, list_runners
from relay.sandbox.bwrap import find_bwrap
from relay.sandbox.policy import Level, Mechanism
from relay.sandbox.run import find_way, probe
from relay.session.values import SessionKind
from relay.setup.context import RunRequest
from relay.setup.observers import describe_settings, describe_tracked
from relay.setup.place import Place, find_settings, get_place, load_plan
from relay.setup.preconditions import (
    Finding,
    State,
    check_all,
    check_key,
    check_program,
    check_rules,
    find_out,
    make_missing,
)
from relay.setup.project import find_packages
from relay.setup.rules import load_repository_rules
from relay.setup.workspace import get_hidden, make_policy, open_own_workspace

_BY_WEIGHT = (State.MISSING, State.WARNING, State.INFO, State.OK)
ENDPOINT_TIMEOUT_S = 10.0
"""Longest wait for an endpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings."""

    findings: tuple[Finding, ...]
    """The gravest first."""
    caller: Caller
    """Writes the hints."""
    settings: tuple[tuple[str, str, str], ...]
    """Key, value and origin of each setting; empty if a setting is invalid."""
    following: Hint
    """The command to type next if nothing is missing."""

    @property
    def missing(self) -> tuple[Finding, ...]:
        """Findings without which `relay run` cannot work."""
        return tuple(finding for finding in self.findings if finding.state is State.MISSING)

    @property
    def next_command(self) -> str:
        """The one command to type next; where something is missing, the first line of the advice about it."""
        advice = next((finding.hint for finding in self.missing if finding.hint), "")
        return self.caller.write(advice if self.missing else self.following).partition("\n")[0]


def examine(cwd: Path, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Report:
    """Run all checks; never raises for what it finds.

    Args:
        cwd: The current directory.
        flags: Settings that were typed.
    """
    findings: list[Finding] = []
    repo: Repo | None = None
    try:
        repo = open_repo(cwd, environ)
    except RepoError as error:
        findings.append(make_missing("repository", error))
    root = repo.root if repo else cwd
    settings, place, plan, about = _examine_settings(root, environ, flags)
    chosen = settings or Settings()
    request = _make_request(repo, chosen, place, plan, environ) if repo else None
    runner = request.runners[0] if request else chosen.runner
    if request:
        needed = tuple(check_all(request))
    else:  # what needs no repository
        kind = _get_kind(chosen.runner, chosen)
        needed = check_program(root, chosen, environ), check_key((kind,), environ, chosen, (chosen.runner,))
    # What was found of the plan says more than the check of its file.
    findings += [about if finding.name == "plan" == about.name and not finding.error else finding for finding in needed]
    findings += [about] if about.name not in {finding.name for finding in needed} else []
    idle = describe_settings(chosen, environ)
    findings.extend(Finding(name="settings", state=State.WARNING, words=words) for words in idle)
    if settings is not None and not any(finding.error for finding in needed if finding.name in {"runner", "key"}):
        findings.append(_ask_endpoint(_get_kind(runner, settings), settings, environ))
    if repo is not None:
        findings.extend(_examine_untracked(repo, chosen.plan))
        findings.extend(_examine_sandbox(repo, settings, environ))
        if unused := [path for path in chosen.copy if not list_ignored(repo, path)]:
            words = f"the setting copy names {list_paths(unused)}, but git ignores no such file"
            findings.append(Finding(name="work trees", state=State.WARNING, words=words))
    if request is not None:
        findings.extend(_examine_servers(request))
    try:
        hidden = get_hidden(repo, chosen, environ) if repo else NOTHING_NAMED
        findings.append(check_rules(load_repository_rules(root, chosen, hidden, find_user_dir(environ))))
    except ConfigError as error:
        findings.append(make_missing("rules", error))
    return Report(
        findings=tuple(sorted(findings, key=lambda finding: _BY_WEIGHT.index(finding.state))),
        caller=Caller(folder=os.path.relpath(cwd, root)),
        settings=tuple(
            (name, render_value(getattr(chosen, name)), chosen.origins.get(name, "default")) for name in KEYS
        )
        if settings
        else (),
        following=_follow(plan, place),
    )


def _follow(plan: Plan | None, place: Place | None) -> Hint:
    """Return the command for a new plan, for a check of a plan that cannot be read, or for a run."""
    if plan is None and place is not None and place.plan_file.exists():
        return Command(words=("check",))
    return RUN if plan and not is_example(plan) and not all(phase.done for phase in plan.phases) else PLAN


def _make_request(
    repo: Repo, settings: Settings, place: Place | None, plan: Plan | None, environ: Mapping[str, str]
) -> RunRequest:
    """Return the request of `relay run`."""
    return RunRequest(
        kind=SessionKind.RUN,
        repo=place.repo if place else repo,
        settings=settings,
        plan_path=place.plan_name if place else settings.plan,
        environ=environ,
        phases=tuple(phase for phase in plan.phases if not phase.done) if plan else (),
    )


def _examine_untracked(repo: Repo, plan_path: str) -> Iterator[Finding]:
    """Yield a warning about the user's files that no commit has and git does not ignore."""
    own = {plan_path, find_ledger_path(plan_path)}
    try:
        left = [path for path in read_status(repo).untracked if path not in own]
    except RepoError:
        return  # the repository's own finding says it
    for place, files in find_packages(left).items():
        words = f"{place} ({count(files, 'file')}): git does not ignore it, so each step of a run looks through it"
        more = "gates see it, and no commit of relay will hold it"
        hint = f"put {place} into .gitignore"
        yield Finding(name="changes", state=State.WARNING, words=f"{words}; {more}", hint=hint)
        left = [path for path in left if not path.startswith(place)]
    if left:
        words = f"{count(len(left), 'file')} in no commit: gates do not see them, and no commit of relay will hold them"
        hint = "git add and commit what the project needs; .gitignore names the rest"
        yield Finding(name="changes", state=State.WARNING, words=f"{words} ({list_paths(left)})", hint=hint)


def _examine_settings(
    root: Path, environ: Mapping[str, str], flags: Mapping[str, Any]
) -> tuple[Settings | None, Place | None, Plan | None, Finding]:
    """Load the settings with those of the plan; the finding is about either of them."""
    try:
        place = get_place(plan=None, environ=environ, needs_repo=False)
        settings = find_settings(flags, environ, root, plan=None)
    except ConfigError as error:
        return None, None, None, make_missing("settings", error)
    try:
        plan = load_plan(place)
        settings = find_settings(flags, environ, root, plan=plan, plan_name=place.plan_name)
    except PlanError as error:
        return settings, place, None, Finding(name="plan", state=State.WARNING, words=str(error), hint=error.hint)
    except ConfigError as error:
        return settings, place, None, make_missing("settings", error)
    words = f"{place.plan_name}: {count(len(plan.phases), 'phase')}"
    about = Finding(name="plan", state=State.OK, words=words)
    if is_example(plan):
        about = Finding(name="plan", state=State.WARNING, words=f"{place.plan_name}: {EXAMPLE}", hint=INSTEAD)
    return settings, place, plan, about


def _get_kind(name: str, settings: Settings) -> RunnerKind:
    return get_kind(name, origin=settings.origins.get("runner", "default"), known=list_runners(settings))


def _ask_endpoint(kind: RunnerKind, settings: Settings, environ: Mapping[str, str]) -> Finding:
    interrupts = Interrupts()
    given = Surroundings(
        environ=environ,
        settings=replace(settings, max_wait_s=0),
        observe=lambda _: None,
        interrupts=interrupts,
        endpoint_idle_s=ENDPOINT_TIMEOUT_S,
        for_models_only=True,
    )

    def ask() -> str:
        with kind.open(given) as runner:
            info = runner.get_model(settings.model)
        rehearsed = "; rehearsed: a script plays the model" if info.rehearsed else ""
        limits = f"window {info.window_tokens:,} tokens, answers up to {info.max_output_tokens:,}"
        signed = f"; signed with {info.credential}" if info.credential else ""
        return f"{info.id}: {limits} ({info.source}){rehearsed}{signed}"

    try:
        return find_out(ask, name="model")
    finally:
        interrupts.close()


def _examine_sandbox(repo: Repo, settings: Settings | None, environ: Mapping[str, str]) -> Iterator[Finding]:
    chosen = settings or Settings()
    try:
        policy = make_policy(repo, chosen, find_protected(chosen.plan), environ)
    except (ConfigError, RepoError) as error:
        if isinstance(error, ConfigError):  # the check of the hooks shows a RepoError already
            yield make_missing("settings", error)
        return
    hiding = replace(repo, hidden=get_hidden(repo, chosen, environ))
    for words in describe_tracked(hiding):
        yield Finding(
            name="hidden", state=State.WARNING, words=words, hint="git rm --cached keeps the file; rotate what it held"
        )
    if chosen.sandbox != "auto":
        words = "switched off" if chosen.sandbox == "off" else "only this container confines commands"
        yield Finding(name="sandbox", state=State.WARNING, words=f"{words}, by your settings")
        return
    try:
        acts = probe(policy)
    except SandboxError as error:
        yield make_missing("sandbox", error)
        return
    holding: set[str] = set()
    for level in dict.fromkeys(act.level for act in acts):
        tried = tuple(act for act in acts if act.level == level)
        held = all(act.holds for act in tried)
        holding |= {level} if held else set()
        words = f"{Mechanism.BWRAP}, {level}: {sum(act.holds for act in tried)} of {len(tried)} trials as required"
        state = State.OK if held else State.INFO
        yield Finding(
            name="sandbox",
            state=state,
            words=words,
            details=tuple(
                f"{'' if act.holds else 'NOT '}{act.expected}: {act.act}{'' if act.holds else f': {act.happened}'}"
                for act in tried
            ),
        )
    hint = find_way(repo.root, has_bwrap=find_bwrap() is not None)
    if Level.WORKSPACE_WRITE not in holding:
        planning = "works" if Level.READ_ONLY in holding else "refuses too"
        words = (
            f"no sandbox works here for {Level.WORKSPACE_WRITE}: `relay run` refuses (--sandbox off: commands run "
            f"without protection, and every commit says so); `relay plan` {planning}"
        )
        yield Finding(name="sandbox", state=State.MISSING, words=words, hint=hint)
    elif Level.READ_ONLY not in holding:
        words = f"no sandbox works here for {Level.READ_ONLY}: `relay plan` refuses"
        yield Finding(name="sandbox", state=State.MISSING, words=words, hint=hint)


def _examine_servers(request: RunRequest) -> Iterator[Finding]:
    """Start each tool server of the user once, and list its tools."""
    known, hint = request.settings.mcp_servers, "a phase that names it stops before its first session"
    if not known:
        return
    from relay.tools.servers import ask_servers

    try:
        with open_own_workspace(request) as workspace:
            served = ask_servers(tuple(known), known, workspace, request.environ)
    except RelayError as error:
        yield Finding(name="servers", state=State.WARNING, words=f"no server was started: {error}", hint=error.hint)
        return
    for words in served.notes:
        yield Finding(name="servers", state=State.OK, words=words.removeprefix("Tools: "))
    for words in served.missing:
        yield Finding(name="servers", state=State.WARNING, words=words.removeprefix("Tools: "), hint=hint)


def render_value(value: Any) -> str:
    """Return a setting's value as a person would type it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(render_value(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {render_value(item)}" for name, item in value.items()) or "none"
    text = getattr(value, "text", None)
    if text is None and isinstance(value, Struct):
        return render_value({name: part for name, part in asdict(value).items() if part not in {None, ()}})
    return f"{value:g}" if isinstance(value, float) else str(text or value)
