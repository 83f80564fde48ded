"""Tasks for `relay lab compare`, each with held-out tests: make one, check all of them, or write a script that plays one.

    python examples/compare/kit.py make TASK DIR [--filler TOKENS]    a repository, and DIR.hidden with the tests
    python examples/compare/kit.py script TASK                        a rehearsal script that plays the reference
    python examples/compare/kit.py check [TASK]                       references pass, wrong solutions fail; no model

The filler is text that the plan says to read: it makes the first phase long, so that the context strategies differ.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TASKS = tuple(sorted(path.parent.name for path in HERE.glob("*/task.toml")))
FILLER_TOKENS = 60_000
FILE_BYTES = 36_000
"""What one call of `read` shows."""
IDENTITY = ("-c", "user.name=relay lab compare", "-c", "user.email=compare@localhost.invalid")


def load(task: str) -> dict[str, Any]:
    """Return the description of a task."""
    return tomllib.loads((HERE / task / "task.toml").read_text(encoding="utf-8"))


def copy(source: Path, target: Path) -> None:
    """Copy files over those that are there."""
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def write_filler(tokens: int) -> Iterator[str]:
    """Yield files of plain text that say nothing of the task, about four bytes a token, always the same ones."""
    chance = random.Random(29)
    words = "order invoice parcel branch window harbour ledger copper orchard signal bridge market garden letter".split()
    left = tokens * 4
    while left > 0:
        lines, size = ["# What users wrote", ""], 20
        while size < min(left, FILE_BYTES):
            lines.append(f"- {chance.randrange(10_000):05}: {' '.join(chance.choices(words, k=12))}.")
            size += len(lines[-1]) + 1
        left -= size
        yield "\n".join(lines) + "\n"


def list_filler(task: str, tokens: int) -> list[str]:
    """Return the paths of a task's filler."""
    return [load(task)["filler"].format(n=n) for n, _ in enumerate(write_filler(tokens), 1)]


def make(task: str, root: Path, tokens: int) -> None:
    """Make the repository of a task, with one commit, and its held-out tests beside it."""
    copy(HERE / task / "project", root)
    for path, text in zip(list_filler(task, tokens), write_filler(tokens), strict=True):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", load(task)["title"])):
        subprocess.run(["git", *IDENTITY, *words], cwd=root, check=True)
    copy(HERE / task / "hidden", root.with_name(f"{root.name}.hidden"))


def run_tests(root: Path, folder: Path) -> bool:
    """Return whether the tests in a folder pass for a tree."""
    argv = [sys.executable, "-B", "-m", "unittest", "discover", "-q", "-s", str(folder)]
    done = subprocess.run(argv, cwd=root, env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"}, capture_output=True)
    return done.returncode == 0


def check(task: str) -> list[str]:
    """Return what is wrong with a task."""
    found, hidden, told = [], HERE / task / "hidden", load(task)
    with tempfile.TemporaryDirectory() as place:
        base = Path(place, "base")
        copy(HERE / task / "project", base)
        if run_tests(base, hidden):
            found.append("the held-out tests pass before any work is done")
        right = Path(place, "right")
        copy(base, right)
        copy(HERE / task / "reference", right)
        if not (run_tests(right, right / "tests") and run_tests(right, hidden)):
            found.append("the reference does not pass")
        if len(told["wrong"]) < 3:
            found.append("fewer than three wrong solutions")
        for n, wrong in enumerate(told["wrong"]):
            tree = Path(place, str(n))
            copy(right, tree)
            text = (tree / wrong["file"]).read_text(encoding="utf-8")
            if wrong["old"] not in text:
                found.append(f"{wrong['name']}: {wrong['file']} has no such text")
            (tree / wrong["file"]).write_text(text.replace(wrong["old"], wrong["new"]), encoding="utf-8")
            if run_tests(tree, hidden):
                found.append(f"{wrong['name']}: the held-out tests pass")
            if not run_tests(tree, tree / "tests"):
                found.append(f"{wrong['name']}: the tests that the sessions know fail, so it proves little")
    return [f"{task}: {words}" for words in found]


def write_script(task: str, tokens: int) -> str:
    """Return a rehearsal script: a session for each phase that goes on to the last, and one that finds no fault."""
    told, model = load(task), "claude-opus-5-5"
    by_phase = [list(play(task, phase, paths, tokens)) for phase, paths in told["phases"].items()]
    sessions = [
        {
            "name": f"from phase {n}",
            "repeat": True,
            "when": {"first_message_contains": f"Carry out phase {n}"},
            "turns": [turn for turns in by_phase[n - 1 :] for turn in turns],
        }
        for n in range(1, len(by_phase) + 1)
    ]
    summary = {"last_message_contains": "replaced by a summary"}
    sessions += [
        {"name": "summary", "aside": True, "when": summary, "turns": [{"text": "The phases before are done."}]},
        {
            "name": "review",
            "repeat": True,
            "when": {"tools_include": ["report_findings"]},
            "turns": [{"tools": [{"name": "report_findings", "input": {"findings": []}}]}],
        },
    ]
    return json.dumps({"model": model, "sessions": sessions}, indent=1)


def play(task: str, phase: str, paths: list[str], tokens: int) -> Iterator[dict[str, Any]]:
    """Yield the turns of one phase: read, write what the reference has, claim, name the commit."""
    if phase == "1":
        for path in list_filler(task, tokens):
            yield {"tools": [{"name": "read", "input": {"path": path}}]}
    for path in paths:
        content = (HERE / task / "reference" / path).read_text(encoding="utf-8")
        yield {"tools": [{"name": "write", "input": {"path": path, "content": content}}]}
    plan = (HERE / task / "project/PLAN.md").read_text(encoding="utf-8")
    section = plan.partition(f"## Phase {phase} ")[2].partition("\n## ")[0]
    ids = [f"{phase}.{n}" for n in range(1, section.count("- [ ]") + 1)]
    yield {"tools": [{"name": "tick", "input": {"item": one, "evidence": "the tests of the phase pass"}} for one in ids]}
    yield {"text": f"Commit: Phase {phase} of the task"}


def main() -> int:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "script", "check"):
        command = commands.add_parser(name)
        command.add_argument("task", choices=TASKS, nargs="?" if name == "check" else None)
        if name == "make":
            command.add_argument("root", type=Path)
        if name != "check":
            command.add_argument("--filler", type=int, default=FILLER_TOKENS, metavar="TOKENS")
    args = parser.parse_args()
    if args.command == "make":
        make(args.task, args.root.resolve(), args.filler)
    elif args.command == "script":
        print(write_script(args.task, args.filler))
    else:
        faults = [words for task in ((args.task,) if args.task else TASKS) for words in check(task)]
        print("\n".join(faults) or f"{', '.join((args.task,) if args.task else TASKS)}: as it should be")
        return bool(faults)
    return 0


if __name__ == "__main__":
    sys.exit(main())
