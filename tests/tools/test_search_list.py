"""`search` and `list` ask git inside the sandbox: newest first, bounded, nothing that is ignored unless asked for."""

import os
import time

import pytest

from relay.sandbox.policy import Level
from relay.session.values import ToolResult


@pytest.fixture
def bench(bench, open_box):
    """A reader's tools: a runner asks git by `bash`."""
    return bench.plan(lambda _: ToolResult(text=""), sandbox=open_box(bench.root, Level.READ_ONLY))


def age(path, seconds):
    now = time.time()
    os.utime(path, (now - seconds, now - seconds))


@pytest.fixture
def tree(bench):
    root = bench.root
    (root / "src" / "b.ts").write_text("const needle = 1\n")
    (root / "src" / "deep").mkdir()
    (root / "src" / "deep" / "c.py").write_text("x\nneedle\nneedle again\n")
    (root / "ignored").mkdir()
    (root / "ignored" / "d.py").write_text("needle ignored\n")
    (root / "x.log").write_text("needle log\n")
    age(root / "src" / "b.ts", 10)
    age(root / "src" / "deep" / "c.py", 20)
    age(root / "src" / "a.py", 30)
    age(root / "src", 5)
    return bench


def test_hits_come_by_file_newest_first(tree):
    assert tree.ok("search", pattern="needle") == (
        "src/b.ts\n1: const needle = 1\nsrc/deep/c.py\n2: needle\n3: needle again"
    )


def test_ignored_files_are_searched_when_named(tree):
    assert tree.ok("search", pattern="needle", path="ignored") == "ignored/d.py\n1: needle ignored"
    assert tree.ok("search", pattern="needle", path="x.log") == "x.log\n1: needle log"
    assert tree.ok("search", pattern="absent", path="ignored") == "No line matches."


def test_path_and_glob_narrow_a_search(tree, subtests):
    for path, glob, files in [
        ("src", "*.py", ["src/deep/c.py"]),
        ("", "*.{py,ts}", ["src/b.ts", "src/deep/c.py"]),
        ("", "src/*.ts", ["src/b.ts"]),
        ("", "src/**/*.py", ["src/deep/c.py"]),
        ("src/deep", "", ["src/deep/c.py"]),
        ("src/b.ts", "", ["src/b.ts"]),
        ("src", "./**/c.*", ["src/deep/c.py"]),
    ]:
        with subtests.test(path=path, glob=glob, files=files):
            text = tree.ok("search", pattern="needle", path=path, glob=glob)
            assert [line for line in text.split("\n") if "needle" not in line] == files


def test_patterns_are_pcre(tree):
    assert tree.ok("search", pattern=r"(?i)NEEDLE(?= a)") == "src/deep/c.py\n3: needle again"
    assert tree.ok("search", pattern=r"=\s\d") == "src/b.ts\n1: const needle = 1"


def test_patterns_that_cannot_be_are_refused(tree, subtests):
    for pattern in ["(", "a\nb", "", "a\0b", "*"]:
        with subtests.test(pattern=pattern):
            tree.refused("search", pattern=pattern)


@pytest.mark.parametrize("value", ["--open-files-in-pager=touch${IFS}pwned", "-O", "--help", "-f/etc/passwd"])
def test_nothing_the_model_says_becomes_an_option(tree, value):
    tree.call("search", pattern=value, glob=value)
    tree.call("search", pattern="needle", path=value)
    tree.call("list", path=value)
    tree.call("list", glob=value)
    assert not (tree.root / "pwned").exists()


def test_pathspec_magic_in_names_is_taken_literally(tree):
    folder = tree.root / ":(exclude)x[ab]*"
    folder.mkdir()
    (folder / "e.py").write_text("needle\n")
    assert ":(exclude)x[ab]*/e.py" in tree.ok("search", pattern="needle", path=":(exclude)x[ab]*")
    assert ":(exclude)x[ab]*/e.py" in tree.ok("search", pattern="needle", path=":(exclude)x[ab]*", glob="*.py")
    assert tree.ok("list", path=":(exclude)x[ab]*") == "e.py"


@pytest.mark.timeout(120)
def test_patterns_that_backtrack_for_ever_are_given_up(tree):
    (tree.root / "evil.txt").write_text("a" * 50_000 + "\n")
    tree.call("search", pattern=r"^(?:a|aa|a?a)*$(?<!a)b")
    tree.call("search", pattern=r"(a+)+(b|c)\1")


def test_more_than_a_hundred_hits_are_counted(bench):
    (bench.root / "many.txt").write_text("needle\n" * 1_234)
    text = bench.ok("search", pattern="needle")
    assert text.count("needle") == 100
    assert text.endswith("… 1,134 more lines match; narrow path, glob or pattern")


def test_long_lines_are_shown_around_the_match(bench):
    (bench.root / "min.js").write_text("é" * 100_000 + "needle" + "é" * 100_000 + "\n")
    text = bench.ok("search", pattern="needle")
    assert "needle" in text
    assert len(text) < 400
    assert "�" not in text


def test_terminal_codes_in_files_are_not_shown(bench):
    (bench.root / "esc.txt").write_text("needle \x1b]0;title\x07\x1b[31mred\n")
    assert bench.ok("search", pattern="needle") == "esc.txt\n1: needle red"


def test_binary_files_and_outside_are_not_searched(bench):
    (bench.root / "b.bin").write_bytes(b"TOP-SECRET\0")
    (bench.root / "link").symlink_to("../outside")
    assert bench.ok("search", pattern="TOP-SECRET") == "No line matches."
    assert "out of the repository" in bench.refused("search", pattern="TOP-SECRET", path="link/secret.txt")
    assert "out of the repository" in bench.refused("search", pattern="TOP-SECRET", path="../outside")
    assert "out of the repository" in bench.refused("list", path="..")


def test_a_level_is_listed_with_directories_marked(tree):
    age(tree.root / "src" / "deep", 1)
    assert tree.ok("list", path="src") == "deep/\nb.ts\na.py"
    assert set(tree.ok("list").split("\n")) == {".gitignore", "AGENTS.md", "PLAN.md", "src/"}
    assert tree.ok("list", path="src/b.ts") == "src/b.ts"


def test_a_glob_lists_all_levels_newest_first(tree):
    assert tree.ok("list", glob="*.{py,ts}") == "src/b.ts\nsrc/deep/c.py\nsrc/a.py"
    assert tree.ok("list", path="src", glob="deep/*") == "src/deep/c.py"


def test_an_ignored_directory_is_listed_when_named(tree):
    assert tree.ok("list", path="ignored") == "d.py"
    assert "nothing here" in tree.ok("list", path="src", glob="*.nope")


def test_deleted_files_are_not_listed_and_tracked_ones_are_searched(tree):
    tree.git("add", ".")
    (tree.root / "src" / "b.ts").unlink()
    assert "b.ts" not in tree.ok("list", path="src")
    assert "b.ts" not in tree.ok("search", pattern="needle")
    assert "src/deep/c.py" in tree.ok("search", pattern="needle")


def test_more_than_a_hundred_entries_are_counted(bench):
    for number in range(150):
        (bench.root / "src" / f"f{number}.txt").touch()
    lines = bench.ok("list", path="src").split("\n")
    assert len(lines) == 101
    assert lines[-1] == "… 51 more; use glob"


def test_names_that_are_not_text_can_be_listed(bench):
    (bench.root / "src" / os.fsdecode(b"caf\xe9\n.txt")).write_text("needle\n")
    assert "caf" in bench.ok("list", path="src")
    assert "needle" in bench.ok("search", pattern="needle")


def test_a_hostile_configuration_runs_nothing(bench):
    """What a repository's config can make git execute stays off, or at least inside the sandbox."""
    config = bench.root / ".git" / "config"
    mark = bench.outside / "pwned"
    (bench.root / ".gitattributes").write_text("* diff=evil filter=evil\n")
    script = f"touch {mark} {bench.root}/pwned"
    with config.open("a") as stream:
        stream.write(f'[core]\n fsmonitor = "{script}"\n hooksPath = src\n pager = "{script}"\n')
        stream.write(f'[diff "evil"]\n textconv = "{script}"\n command = "{script}"\n')
        stream.write(f'[filter "evil"]\n clean = "{script}"\n process = "{script}"\n')
        stream.write(f'[grep]\n patternType = fixed\n column = false\n[alias]\n grep = "!{script}"\n')
    assert "def a" in bench.ok("search", pattern=r"def \w")
    assert "a.py" in bench.ok("list", path="src")
    assert not mark.exists()
    assert not (bench.root / "pwned").exists()


def test_braces_that_multiply_are_refused(bench):
    assert "braces" in bench.refused("list", glob="{a,b}" * 20)
