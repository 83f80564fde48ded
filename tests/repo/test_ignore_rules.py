"""What is told of git's ignore rules is what git says; where they are not simple git is asked."""

import os
import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.git import ignore_rules
from relay.git.config_guard import guard
from relay.git.ignore_rules import find_ignorable, list_ignored
from relay.git.repository import open_repo
from relay.git.status import find_ignored, find_unwelcome
from relay.store.environment import read_environment

LISTING = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
SIMPLE = ["*.o", "build", "build/", "*", "a", "b/", "x.o", "*.pyc", "# b", "", "d/", "*.o\r"]
ANY = [
    *SIMPLE,
    "/a",
    "a/b",
    "*.p[xy]",
    "!a",
    "!*.o",
    "**/a",
    "a/**",
    "b/*.o",
    "?",
    "*.o ",
    "\\a",
    "A",
    "é",
    "a*",
    "/",
    "//",
    "*.o/",
]
NAMES = st.sampled_from(["a", "b", "build", "x.o", "y.pyc", "A", "c d", "é", ".gitkeep"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


def make_rules(kinds):
    lines = st.lists(st.sampled_from(kinds), max_size=3).map("\n".join)
    return st.dictionaries(st.sampled_from(["", "a/", "b/a/", "build/"]), lines, max_size=3)


@pytest.fixture(scope="module")
def place(template, tmp_path_factory):
    top = tmp_path_factory.mktemp("rules")
    shutil.copytree(template, top / "box", symlinks=True)
    environ = {"PATH": os.environ["PATH"], "HOME": str(top / "box/home"), "GIT_CONFIG_NOSYSTEM": "1"}
    return open_repo(top / "box/work", environ)


def lay_out(repo, tracked, others, rules):
    """Make a work tree of these files; what stands in another's place is left out."""
    for entry in repo.root.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for path in ["tracked", *tracked, *others, *(f"{folder}.gitignore" for folder in rules)]:
        file = repo.root / path
        if not any(parent.is_file() for parent in file.parents) and not file.is_dir():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(rules.get(path.removesuffix(".gitignore"), "") if path.endswith(".gitignore") else "x")
    repo.git.run("read-tree", "--empty")
    repo.git.run("add", "-f", "--", "tracked", *(path for path in tracked if (repo.root / path).is_file()))


def ask(repo):
    return {os.fsdecode(name).rstrip("/") for name in repo.git.run(*LISTING).split(b"\0")[:-1]}


@given(st.sets(PATHS, max_size=4), st.sets(PATHS, max_size=5), make_rules(SIMPLE) | make_rules(ANY), PATHS)
def test_what_is_told_is_what_git_says(place, tracked, others, rules, wanted):
    lay_out(place, tracked, others, rules)
    found = list_ignored(place, guard(place).config)
    assert found is None or found == ask(place)
    is_there = bool(place.git.run("ls-files", "--", wanted))
    told = is_there or find_ignorable(place, guard(place).config, [wanted])
    words = ("--no-literal-pathspecs", "check-ignore", "-q", f"./{wanted}")
    assert told or place.git.probe(*words).code != 0


@pytest.fixture
def silent(box, tmp_path):
    """A repository whose git answers nothing once its configuration is known."""
    shim = tmp_path / "silent"
    shim.write_text("#!/bin/sh\nexit 3\n")
    shim.chmod(0o755)
    repo = box.open()
    guard(repo)
    return replace(repo, git=replace(repo.git, program=str(shim)))


def test_simple_rules_are_read_without_git(box, silent):
    box.write(".git/info/exclude", "/local\n*.py[co]\n")
    box.write("build/x/y")
    box.write("src/build/z")
    box.write("deep/a.log")
    box.write(".relay/.gitignore", "*\n")
    box.write(".relay/events/1")
    roots = {"build", "src/build", "deep", "deep/a.log", ".relay", ".relay/.gitignore", ".relay/events"}
    assert read_environment(silent).roots == ask(box.open()) == roots
    assert find_unwelcome(silent, ("src/new.py", "docs/deep/new.md")) == frozenset()
    box.write("new.txt")
    assert find_ignored(silent, ("new.txt",)) == ()


def set_excludes(box, value):
    box.git("config", "core.excludesFile", value)


ODD = {
    "an exception": lambda box: box.write(".gitignore", "*.new\n!a.new\n"),
    "a class of letters": lambda box: box.write(".gitignore", "*.ne[w]\n"),
    "a place": lambda box: box.write(".gitignore", "/src/*.new\n"),
    "other letters": lambda box: box.write(".gitignore", "*.NEW\n"),
    "a rule further down": lambda box: box.write("src/.gitignore", "?.new\n"),
    "rules that nothing can read": lambda box: (box.root / "src/.gitignore").mkdir(),
    "rules without an end": lambda box: box.write(".gitignore", "#" * (1 << 17)),
    "the user's own": lambda box: (set_excludes(box, "~/mine"), (box.home / "mine").write_text("**/a.new\n")),
    "the user's own in their usual place": lambda box: (
        (box.home / ".config/git").mkdir(parents=True),
        (box.home / ".config/git/ignore").write_text("a.new\n"),
    ),
    "another user's": lambda box: set_excludes(box, "~root/mine"),
    "rules of a hidden file": lambda box: (
        box.git("update-index", "--skip-worktree", ".gitignore"),
        (box.root / ".gitignore").unlink(),
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_of_what_is_not_simple_git_is_asked(box, name):
    ODD[name](box)
    repo = box.open()
    assert find_ignorable(repo, guard(repo).config, ["src/a.new"]) == ("src/a.new",)
    box.write("src/a.new")
    assert list_ignored(repo, guard(repo).config) in (None, ask(repo))


def test_of_another_repository_or_too_many_files_git_is_asked(box, monkeypatch):
    repo = box.open()
    assert list_ignored(repo, guard(repo).config) == frozenset()
    monkeypatch.setattr(ignore_rules, "_MOST_ENTRIES", 4)
    assert list_ignored(repo, guard(repo).config) is None
    monkeypatch.undo()
    box.write("vendor/.git/HEAD")
    assert list_ignored(repo, guard(repo).config) is None
