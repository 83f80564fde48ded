"""Changes that a phase makes to its own check: a test that was there, a rule of a test, a coverage floor, CI.

Adding lines to a test that was there is work as any other. A file that an item names is the plan's own change.
"""

import re
from collections.abc import Sequence
from itertools import takewhile

from relay.base.words import count, list_some
from relay.gate.places import cut_rule, find_rules
from relay.git.names import render_path, with_parents
from relay.git.objects import load_blob, read_entries
from relay.git.repository import Repo
from relay.git.status import PathChange
from relay.git.trees import EXECUTABLE, FILE
from relay.plan.model import Phase
from relay.plan.paths import find_command_paths
from relay.store.history import read_plan_commits

_NAMED = 5
_MAX_BYTES = 1_000_000
_TEST_FILE = re.compile(
    r"(^|/)(tests?|specs?|__tests__)/|(^|/)test_|(^|/)conftest\.py$|[._-](test|spec)s?\.\w+$", re.IGNORECASE
)
_CHECK = re.compile(r"test|check|spec|lint|verif|valid", re.IGNORECASE)
_CI = re.compile(
    r"\.(?:github|forgejo|gitea)/workflows/.*|\.circleci/.*|\.buildkite/.*|\.woodpecker.*|jenkinsfile"
    r"|(?:\.gitlab-ci|\.travis|\.drone|azure-pipelines.*|bitbucket-pipelines|appveyor)\.ya?ml",
    re.IGNORECASE,
)
_SKIPS = re.compile(
    r"\bskip(?:[iI]f|[uU]nless|[tT]est)?\b|\bxfail\b|expectedFailure|\b(?:it|test|describe)\.(?:skip|todo)|#\[ignore"
)
_FLOOR = re.compile(r"(?:fail[-_]under|minimum_coverage|branches|functions|lines|statements)\W{1,4}(\d+(?:\.\d+)?)")
_IMPORT = re.compile(r"\s*(?:from\s.+\simport\b|import\b|use\s|using\s|#include\b|(?:const|let|var)\s.+=\s*require\()")
"""A line that a new test changes beside its own."""
_PROSE = (".md", ".mdx", ".rst", ".txt", ".adoc")
_COVERED = re.compile(r"fail[-_]under|minimum_coverage|coverageThreshold|thresholds")


def describe_changed_checks(
    repo: Repo, phase: Phase, plan_path: str, changes: Sequence[PathChange], commands: Sequence[str]
) -> str:
    """Return a sentence on how the changes of a commit change what checks it; empty if they do not.

    Args:
        plan_path: To find the phase's earlier commits: what it made itself, it may change.
        changes: The commit's own, from its parent on.
        commands: The gate.
    """
    named = {path.rstrip("/") for item in phase.items for path in item.paths}
    plain = {FILE, EXECUTABLE}
    changed = [c for c in changes if c.old_mode in plain and named.isdisjoint(with_parents((c.path,)))]
    said = {c.path: words for c in changed if (words := _describe(repo, c, commands))}
    mine = _find_own(repo, phase, plan_path, tuple(said)) if said else frozenset[str]()
    parts = [f"{render_path(path)} ({words})" for path, words in sorted(said.items()) if path not in mine]
    return f"the check was changed: {list_some(parts, _NAMED)}" if parts else ""


def _find_own(repo: Repo, phase: Phase, plan_path: str, paths: tuple[str, ...]) -> frozenset[str]:
    """Return those of some paths that the phase's earlier commits made."""
    unfinished = {"handoff", "amended"}
    open_ones = takewhile(lambda commit: commit.status in unfinished, read_plan_commits(repo, plan_path))
    own = [commit.commit for commit in open_ones if commit.phase == phase.id]
    base = repo.find_commit(f"{own[-1]}^") if own else None  # a shallow clone may lack it
    return frozenset(paths).difference(read_entries(repo, base, paths)) if base else frozenset()


def _describe(repo: Repo, change: PathChange, commands: Sequence[str]) -> str:
    path = change.path
    if _CI.fullmatch(path):
        return "CI"
    before, after = _read(repo, change.old_object_id), _read(repo, change.object_id)
    if _is_lower(before, after):
        return "a coverage floor"
    if rules := [
        rule
        for rule in find_rules(path, commands)
        if cut_rule(path, before, rule) not in {"", cut_rule(path, after, rule)}
    ]:
        return f"the rule {list_some(rules)}"
    tested = {
        one for command in commands for one in find_command_paths(command) if _CHECK.search(one.rpartition("/")[2])
    }
    if not ((_TEST_FILE.search(path) and not path.endswith(_PROSE)) or path in tested):
        return ""
    if not change.object_id:
        return "removed"
    old, new = before.splitlines(), after.splitlines()
    lost = sum(not _IMPORT.match(line) for line in set(old) - set(new))
    skipped = any(_SKIPS.search(line) for line in set(new) - set(old))
    return f"{count(lost, 'line')} changed" if lost else "tests skipped" if skipped else ""


def _read(repo: Repo, blob: str) -> str:
    return load_blob(repo, blob)[:_MAX_BYTES].decode("utf-8", "replace") if blob else ""


def _is_lower(before: str, after: str) -> bool:
    if not _COVERED.search(before):
        return False
    floors, now = (sorted(map(float, _FLOOR.findall(text))) for text in (before, after))
    return len(now) < len(floors) or any(new < old for old, new in zip(floors, now, strict=False))
