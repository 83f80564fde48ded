"""What it takes to show a gate what its commit is going to hold, in work trees of several sizes, beside `git status`.

    python benchmarks/gate_view.py [--files 1000,10000,100000] [--packages N] [--rounds N] [--quick] [--out DIR]

*list* is what git ignores, as a phase begins; *compare* is the work tree against the commit; *packages* is the look for
what sessions changed in `node_modules`;
*lay out* is what stands in the work tree's place where files differ.
Each round does all of them in turn, so that a busy machine slows all alike. Writes ``gate_view.md``.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from processes import git, make_repository

from relay.gate.stage import Layout, build_stage
from relay.git.repository import Repo, open_repo
from relay.store.environment import SessionChanges, SessionSpan, read_environment
from relay.store.snapshot import write_snapshot_tree
from relay.store.tree_difference import Intent, TreeDifference, find_tree_difference, read_committed

HERE = Path(__file__).resolve().parent
FILES_IN_A_FOLDER = 100
CHANGED = 10
"""Files in folders of their own that the user has begun to change: a gate sees them as the commit has them."""


def make_files(count: int, packages: int) -> dict[str, str]:
    """Return files of about 450 bytes, and what git ignores: two hundred more, and packages of fifty files."""
    names = (f"d{n // FILES_IN_A_FOLDER:04d}/f{n % FILES_IN_A_FOLDER:03d}.txt" for n in range(count))
    files = {name: f"{name}\n" * 32 for name in names}
    ignored = {f"cache/{n}.bin": "x\n" for n in range(200)}
    installed = {f"node_modules/p{n // 50:04d}/lib{n % 5}/f{n % 50:02d}.js": "x\n" for n in range(packages)}
    return {".gitignore": "/cache/\n/node_modules/\n", **files, **ignored, **installed}


def measure(root: Path, rounds: int) -> dict[str, float]:
    """Return the median of each step in milliseconds."""
    repo = open_repo(root)
    for number in range(CHANGED):
        (root / f"d{number:04d}" / "f000.txt").write_text("changed\n", encoding="utf-8")
    now, environment = write_snapshot_tree(repo), read_environment(repo)
    intent = Intent(head=repo.head(), paths=(), drafts=())
    found = find_tree_difference(repo, intent, now, environment)
    spans = (SessionSpan(start=time.time_ns()),)
    steps: dict[str, Callable[[], object]] = {
        "git status": lambda: git(root, "status", "--porcelain"),
        "list": lambda: read_environment(repo),
        "compare": lambda: find_tree_difference(repo, intent, now, environment),
        "packages": lambda: SessionChanges(root=str(root), spans=spans).look("node_modules"),
        "lay out": lambda: lay_out(repo, found),
    }
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            taken[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(times) for name, times in taken.items()}


def lay_out(repo: Repo, found: TreeDifference) -> None:
    """Lay out a stage and remove it."""
    with tempfile.TemporaryDirectory() as folder:
        files = read_committed(repo, found)
        extra = frozenset(found.extra)
        layout = Layout(
            root=repo.root,
            extra=extra,
            files=files,
            modes=found.modes,
            backdated=found.backdated,
            is_hidden=lambda _: False,
        )
        build_stage(layout, Path(folder, "stage"))


def render_report(sizes: dict[int, dict[str, float]], packages: int, rounds: int) -> str:
    """Return the report as Markdown."""
    names = list(next(iter(sizes.values())))
    lines = [f"| files | {' | '.join(names)} |", f"| ---: |{' ---: |' * len(names)}"]
    lines += [
        f"| {count:,} | {' | '.join(f'{found[name]:,.1f}' for name in names)} |" for count, found in sizes.items()
    ]
    table = "\n".join(lines)
    return f"""# What a gate is shown

`python benchmarks/gate_view.py` — {rounds} rounds, medians in milliseconds. Written by the benchmark. Folders of
{FILES_IN_A_FOLDER} files, {CHANGED} files that the user changed, 200 that git ignores, {packages:,} in `node_modules`.

{table}

*List* is done once for a phase, *compare* for each gate.
*Packages* is done for each gate once a session has run, and not for those that a layer keeps as they are.
*Lay out* is done where the work tree is not what the commit is going to hold.
"""


def main() -> None:
    """Measure each size and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", default="1000,10000,100000", help="sizes, separated by commas")
    parser.add_argument("--packages", type=int, default=50_000, help="files in node_modules")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one round of a small one, for a smoke test")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="directory for the results")
    options = parser.parse_args()
    counts, rounds = ("1000", 1) if options.quick else (options.files, options.rounds)
    packages = 500 if options.quick else options.packages
    sizes: dict[int, dict[str, float]] = {}
    for count in map(int, counts.split(",")):
        with make_repository(make_files(count, packages)) as root:
            sizes[count] = measure(root, rounds)
    report = render_report(sizes, packages, rounds)
    print(report)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gate_view.md").write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
