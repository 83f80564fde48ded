"""What `relay doctor` looks at; each finding stands for itself, so that one failure does not hide the next."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.errors import ConfigError, PlanError, RelayError, RepoError, RunnerError, SandboxError

if TYPE_CHECKING:
    from relay.config import Settings
    from relay.git.repository import Repo
    from relay.sandbox.probe import ProbeAct

ENDPOINT_TIMEOUT_S = 10.0
"""How long an endpoint may take to answer before the doctor goes on without it."""


class State(StrEnum):
    """How good a finding is."""

    OK = "ok"
    MISSING = "missing"
    """`relay run` does not work without it."""
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    words: str
    details: tuple[str, ...] = ()
    hint: str = ""
    """What to do; empty when nothing is to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was looked at."""

    findings: tuple[Finding, ...]
    settings: tuple[tuple[str, str, str], ...]
    """Key, value and origin; empty when the settings do not hold."""

    @property
    def missing(self) -> tuple[Finding, ...]:
        """What `relay run` needs and does not have."""
        return tuple(finding for finding in self.findings if finding.state is State.MISSING)


def examine(cwd: Path, environ: Mapping[str, str]) -> Report:
    """Look at everything; never raises for what it finds."""
    from relay.git.repository import open_repo

    findings: list[Finding] = []
    repo: Repo | None = None
    try:
        repo = open_repo(cwd, environ)
        findings.extend(_examine_repo(repo))
    except RepoError as error:
        findings.append(_missing("repository", error))
    root = repo.root if repo else cwd
    settings, finding = _examine_settings(root, environ)
    findings.append(finding)
    findings.extend(_examine_model(settings, environ))
    if repo is not None:
        findings.extend(_examine_sandbox(repo, settings, environ))
    findings.append(_examine_rules(root, settings))
    return Report(findings=tuple(findings), settings=tuple(_iter_settings(settings)) if settings else ())


def _missing(name: str, error: RelayError) -> Finding:
    return Finding(name=name, state=State.MISSING, words=str(error), hint=error.hint or "")


def _examine_repo(repo: "Repo") -> Iterator[Finding]:
    from relay.git.identity import find_identity
    from relay.git.operations import check_state

    version = repo.git.run("version").decode(errors="replace").strip().removeprefix("git version ")
    yield Finding(name="git", state=State.OK, words=version)
    trouble = check_state(repo)
    branch = repo.branch
    if trouble:
        yield Finding(name="repository", state=State.MISSING, words=f"{repo.root}: {trouble}")
    elif branch is None:
        words = f"{repo.root}: HEAD is detached; relay commits on a branch"
        yield Finding(name="repository", state=State.MISSING, words=words, hint="git switch -c <name>")
    else:
        yield Finding(name="repository", state=State.OK, words=f"{repo.root} on {branch}")
    identity = find_identity(repo)
    yield Finding(
        name="identity",
        state=State.OK if identity else State.MISSING,
        words=str(identity) if identity else "git does not know who you are",
        hint="" if identity else 'git config --global user.name "Your Name"; git config --global user.email you@…',
    )


def _examine_settings(root: Path, environ: Mapping[str, str]) -> "tuple[Settings | None, Finding]":
    """Gather the settings with those of the plan, which is looked at on the way."""
    from relay.setup.place import find_settings, get_place, load_plan

    try:
        place = get_place(plan=None, environ=environ, needs_repo=False)
        settings = find_settings({}, environ, root, plan_settings={})
    except ConfigError as error:
        return None, _missing("settings", error)
    try:
        plan = load_plan(place)
        settings = find_settings({}, environ, root, plan_settings=plan.settings)
    except PlanError as error:
        return settings, Finding(name="plan", state=State.WARNING, words=str(error), hint=error.hint or "")
    except ConfigError as error:
        return settings, _missing("settings", error)
    words = f"{place.plan_name}: {len(plan.phases)} {'phase' if len(plan.phases) == 1 else 'phases'}"
    return settings, Finding(name="plan", state=State.OK, words=words, hint="")


def _examine_model(settings: "Settings | None", environ: Mapping[str, str]) -> Iterator[Finding]:
    from relay.runners.messages.api import require_key

    name = next((key for key in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN") if environ.get(key)), "")
    try:
        require_key(environ)
    except RunnerError as error:
        yield _missing("key", error)
        return
    yield Finding(name="key", state=State.OK, words=f"{name} is set")
    if settings is not None:
        yield _ask_endpoint(settings, environ)


def _ask_endpoint(settings: "Settings", environ: Mapping[str, str]) -> Finding:
    from relay.interrupts import Interrupts
    from relay.runners.messages.api import open_api

    interrupts = Interrupts()
    try:
        with open_api(environ=environ, interrupts=interrupts, idle_timeout_s=ENDPOINT_TIMEOUT_S) as api:
            info = api.get_model(settings.model)
    except RunnerError as error:
        return _missing("model", error)
    finally:
        interrupts.close()
    rehearsed = "; rehearsed: a script plays the model" if info.rehearsed else ""
    words = f"{info.id}: window {info.window_tokens:,} tokens, answers up to {info.max_output_tokens:,}"
    return Finding(name="model", state=State.OK, words=f"{words} ({info.source}){rehearsed}")


def _examine_sandbox(repo: "Repo", settings: "Settings | None", environ: Mapping[str, str]) -> Iterator[Finding]:
    from relay.config import Settings as Defaults
    from relay.plan.files import find_protected
    from relay.sandbox.bwrap import find_advice, find_bwrap
    from relay.sandbox.install import find_install_command
    from relay.sandbox.probe import probe
    from relay.setup.open import make_policy

    chosen = settings or Defaults()
    policy = make_policy(repo, chosen, find_protected(chosen.plan), environ)
    if chosen.sandbox == "off":
        yield Finding(name="sandbox", state=State.WARNING, words="switched off by your settings")
        return
    try:
        acts = probe(policy)
    except SandboxError as error:
        yield _missing("sandbox", error)
        return
    groups = dict.fromkeys((act.level, act.mechanism) for act in acts)
    holding: set[str] = set()
    for level, mechanism in groups:
        tried = tuple(act for act in acts if (act.level, act.mechanism) == (level, mechanism))
        held = all(act.holds for act in tried)
        details = tuple(_render_act(act) for act in tried)
        first = held and level not in holding
        holding |= {level} if held else set()
        words = f"{mechanism}, {level}: {sum(act.holds for act in tried)} of {len(tried)} acts as they must be"
        state = State.OK if held else State.INFO
        yield Finding(name="sandbox", state=state, words=words, details=details if first or not held else ())
    yield from _miss_levels(holding, find_install_command() or "install bubblewrap; relay has no other mechanism here")
    program = find_bwrap()
    if program is not None and (advice := find_advice(program)) is not None:
        yield Finding(name="sandbox", state=State.INFO, words=advice)


def _render_act(act: "ProbeAct") -> str:
    """Write ``refused: write outside``; an act that went wrong keeps everything that is known about it."""
    if act.holds:
        return f"{act.expected}: {act.act}"
    return f"NOT {act.expected}: {act.act}: {act.happened}"


def _miss_levels(holding: set[str], hint: str) -> Iterator[Finding]:
    """Name the levels that nothing on this machine holds, and what of relay goes without."""
    from relay.sandbox.policy import Level

    if Level.WORKSPACE_WRITE not in holding:
        planning = "works" if Level.READ_ONLY in holding else "refuses too"
        words = (
            f"nothing on this machine holds {Level.WORKSPACE_WRITE}: `relay run` refuses (--sandbox off: commands run "
            f"without protection, and every commit says so); `relay plan` {planning}"
        )
        yield Finding(name="sandbox", state=State.MISSING, words=words, hint=hint)
    elif Level.READ_ONLY not in holding:
        words = f"nothing on this machine holds {Level.READ_ONLY}: `relay plan` refuses"
        yield Finding(name="sandbox", state=State.MISSING, words=words, hint=hint)


def _examine_rules(root: Path, settings: "Settings | None") -> Finding:
    from relay.config import Settings as Defaults
    from relay.setup.rules import load_rules

    chosen = settings or Defaults()
    rules = load_rules(
        root,
        max_bytes=chosen.rules_max_bytes,
        fallback_names=chosen.rules_fallback_names,
        root_markers=chosen.rules_root_markers,
        global_dir=Path(chosen.rules_global_dir) if chosen.rules_global_dir else None,
    )
    words = ", ".join(f"{file.path} ({file.bytes_used:,} of {file.bytes_total:,} bytes)" for file in rules.files)
    if rules.nearest_cut:
        hint = "shorten it, or raise rules_max_bytes: a run does not start on rules that are cut"
        return Finding(name="rules", state=State.MISSING, words=words, details=rules.warnings, hint=hint)
    return Finding(
        name="rules",
        state=State.WARNING if rules.warnings else State.OK if words else State.INFO,
        words=words or "no AGENTS.md here",
        details=rules.warnings,
        hint="" if words else "relay init writes one to start from",
    )


def _iter_settings(settings: "Settings") -> Iterator[tuple[str, str, str]]:
    for field in fields(settings):
        if field.name != "origins":
            value = getattr(settings, field.name)
            yield field.name, _render_value(value), settings.origins.get(field.name, "default")


def _render_value(value: Any) -> str:
    """Write a setting's value as a person would type it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(_render_value(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_render_value(item)}" for name, item in value.items()) or "none"
    if is_dataclass(value):
        text = getattr(value, "text", None) or getattr(value, "model", None)
        return str(text or value)
    return f"{value:g}" if isinstance(value, float) else str(value)
