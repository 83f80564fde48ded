"""The rules of AGENTS.md that no linter checks, as functions from one file's text to what breaks a rule in it."""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache

Found = tuple[str, ...]
"""What breaks a rule, each as ``line: what``."""

_DESTROYERS = frozenset({
    "stash", "clean", "push", "checkout", "switch", "restore", "reset", "rm", "gc", "prune", "reflog", "filter-branch",
    "--hard", "--force", "-f", "-D", "-A", "--all",
})  # fmt: skip
_SUBCOMMANDS = _DESTROYERS | frozenset({
    "add", "am", "apply", "branch", "cat-file", "check-ignore", "check-ref-format", "checkout-index", "cherry-pick",
    "commit", "commit-tree", "config", "diff", "fetch", "hash-object", "init", "log", "ls-files", "ls-tree", "merge",
    "merge-base", "mktree", "mv", "notes", "pull", "read-tree", "rebase", "remote", "replace", "rev-list", "rev-parse",
    "revert", "show", "show-ref", "status", "submodule", "symbolic-ref", "tag", "update-index", "update-ref",
    "worktree", "write-tree",
})  # fmt: skip
"""Told to something that is not called git, they make it one."""
_ASKS = re.compile(r"\.(run|ask|probe|begin)\(")
_READS_CLOCK = re.compile(r"(^|\.)(time|monotonic|perf_counter|process_time|thread_time)(_ns)?$")
# What a text without it cannot break is not parsed for it: all of the repository is read by these rules.
_GIT = re.compile(r"""["'](\S*/)?git["']""")
_CLOCK = re.compile(r"\b(time|monotonic|perf_counter|process_time|thread_time)(_ns)?\(|\bduration_s\b")


_DESTROYS = re.compile(rf"""["']({"|".join(map(re.escape, sorted(_DESTROYERS)))})["']""")


@cache
def _parse(source: str) -> ast.Module:
    """Return the tree of a module, which stays: the collector would look through all of them again and again."""
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.freeze()
        gc.enable()


@cache
def _walk(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parse(source)))


def _note(found: Iterator[tuple[int, str]]) -> Found:
    return tuple(f"{line}: {what}" for line, what in sorted(set(found)))


def walk_functions(source: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every function, however deep."""
    return [n for n in _walk(source) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def list_names(source: str) -> Found:
    """Return what a module makes for others: functions, methods and classes without a decorator, and constants."""
    tree = _parse(source)
    made = [n for n in _walk(source) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    plain = (n.name for n in made if not (n.decorator_list and isinstance(n, ast.FunctionDef)))
    targets = (n.targets if isinstance(n, ast.Assign) else [n.target] for n in tree.body if hasattr(n, "value") and
               isinstance(n, ast.Assign | ast.AnnAssign))  # fmt: skip
    constants = (target.id for some in targets for target in some if isinstance(target, ast.Name))
    return tuple(name for name in (*plain, *constants) if not name.startswith("__"))


def list_uses(source: str) -> frozenset[str]:
    """Return the names that a module reads, also those that stand as a word of their own in a text."""
    nodes = _walk(source)
    read = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    read |= {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    return frozenset(read | {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)})


def find_slow_values(source: str) -> Found:
    """Find imports of the library's own ``dataclass`` where values are made."""
    if "@dataclass" not in source or "dataclasses" not in source:
        return ()
    names = [node for node in _walk(source) if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"]
    return _note((node.lineno, "dataclass") for node in names if "dataclass" in {a.name for a in node.names})


def find_git_starts(source: str) -> Found:
    """Find where git itself may be started: a list or tuple that begins with it, or a call about a program so named."""
    return _note(_find_git_starts(_parse(source))) if _GIT.search(source) else ()


def _find_git_starts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        said: list[ast.expr] = []
        if isinstance(node, ast.List | ast.Tuple):
            said = node.elts[:1]
        elif isinstance(node, ast.Call) and not ast.unparse(node.func).endswith(("with", "fix")):
            said = node.args[:1]
        for first in said:
            if isinstance(first, ast.Constant) and re.fullmatch(r"(\S*/)?git", str(first.value)):
                yield first.lineno, str(first.value)


def find_git_words(source: str) -> frozenset[str]:
    """Return the subcommands that a module gives to a `Git`; ``*`` for one that only running it would tell."""
    return frozenset(word for call in _find_git_calls(source) for word in _name_subcommand(call))


def _find_git_calls(source: str) -> list[ast.Call]:
    """Find ``X.run(…)`` and its like where X has git in its name, or is told one of git's subcommands."""
    if not _ASKS.search(source):
        return []
    calls = [n for n in _walk(source) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in {"run", "ask", "probe", "begin"}
        and (re.search(r"git\b", ast.unparse(call.func.value)) or not _SUBCOMMANDS.isdisjoint(_name_subcommand(call)))
    ]


def _name_subcommand(call: ast.Call) -> Iterator[str]:
    first = call.args[0] if call.args else None
    yield first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else "*"


def find_destroyers(source: str) -> Found:
    """Find words that make git destroy, anywhere in a module that gives commands to git.

    Anywhere: an argument list is often built some lines above the call.
    """
    if not _DESTROYS.search(source) or (not _find_git_calls(source) and not find_git_starts(source)):
        return ()
    return _note(
        (node.lineno, node.value)
        for node in _walk(source)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _DESTROYERS
    )


def find_sleeps(source: str) -> Found:
    """Find where a test itself sleeps; programs that it starts stand in texts."""
    calls = (n for n in (_walk(source) if "sleep(" in source else ()) if isinstance(n, ast.Call))
    return _note((n.lineno, "sleeps") for n in calls if ast.unparse(n.func) in {"time.sleep", "asyncio.sleep"})


def find_timed_assertions(source: str) -> Found:
    """Find assertions on a clock, or on a value that was computed from one."""
    functions = walk_functions(source) if _CLOCK.search(source) else ()
    return _note(found for function in functions for found in _find_timed(function))


def _find_timed(function: ast.AST) -> Iterator[tuple[int, str]]:
    times: set[str] = set()
    nodes = sorted(
        (n for n in ast.walk(function) if isinstance(n, ast.Assign | ast.AugAssign | ast.Assert)),
        key=lambda n: n.lineno,
    )
    for node in nodes:
        if isinstance(node, ast.Assert):
            if any(_bounds_time(inner, times) for inner in ast.walk(node.test)):
                yield node.lineno, ast.unparse(node.test)
        elif any(_is_time(inner, times) for inner in ast.walk(node.value)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            times |= {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}


def _bounds_time(node: ast.AST, times: set[str]) -> bool:
    return (
        isinstance(node, ast.Compare)
        and any(isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for operator in node.ops)
        and any(_is_time(inner, times) for inner in ast.walk(node))
    )


def _is_time(node: ast.AST, times: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return _READS_CLOCK.search(ast.unparse(node.func)) is not None
    if isinstance(node, ast.Attribute):
        return node.attr == "duration_s"
    return isinstance(node, ast.Name) and node.id in times
