"""Each check of `tests.shape.rules` finds what it is for, and lets pass what is right."""

import pytest

from tests.shape import rules

FROZEN = "@dataclass(frozen=True, slots=True, kw_only=True)\nclass A:\n"
CLOCK = "def test_a():\n    begun = time.monotonic()\n    work()\n"


def test_what_breaks_a_rule_is_found(subtests):
    for rule, broken in [
        (rules.find_slow_values, "from dataclasses import dataclass, field\n" + FROZEN + "    b: int\n"),
        (rules.find_slow_values, "from dataclasses import dataclass\n@dataclass(slots=True)\nclass A:\n    b: int\n"),
        (rules.find_git_starts, 'subprocess.run(("git", "gc"))'),
        (rules.find_git_starts, 'subprocess.run([\n    "git",\n    "gc",\n])'),
        (rules.find_git_starts, 'GIT = ("/usr/bin/git", "--no-pager")'),
        (rules.find_git_starts, 'shutil.which("git")'),
        (rules.find_git_starts, 'os.execlp("git", "git", "gc")'),
        (rules.find_destroyers, 'repo.git.run("stash")'),
        (rules.find_destroyers, 'git.run(\n    "reset",\n    "--hard",\n)'),
        (rules.find_destroyers, 'subprocess.run(("git", "gc"))'),
        (rules.find_destroyers, 'args = ("branch", "-D", name)\nguard(repo).git.probe(*args)'),
        (rules.find_destroyers, 'get_git(environ, root).run("push")'),
        (rules.find_destroyers, 'repo.git.ask("checkout")'),
        (rules.find_destroyers, 'repo.git.begin("clean")'),
        (rules.find_destroyers, 'whole.run("stash")'),
        (rules.find_destroyers, 'repo.git.overruled(settings).run("clean")'),
        (rules.find_timed_assertions, CLOCK + "    assert time.monotonic() - begun < 5\n"),
        (rules.find_sleeps, "def test_a():\n    while not done():\n        time.sleep(0.1)\n"),
        (rules.find_timed_assertions, CLOCK + "    took = perf_counter() - begun\n    assert 1 < took <= 5\n"),
        (rules.find_timed_assertions, CLOCK + "    best = min(9, begun)\n    assert best < 0.3\n"),
        (rules.find_timed_assertions, CLOCK + "    while a:\n        assert time.monotonic() < begun, 'late'\n"),
        (rules.find_timed_assertions, "def test_a():\n    assert run().duration_s < 5\n"),
    ]:
        with subtests.test(rule=rule, broken=broken):
            assert len(rule(broken)) >= 1


@pytest.mark.parametrize(
    ("rule", "right"),
    [
        (rules.find_git_starts, 'program.startswith("git")\nnames = ("a", "git")\n'),
        (rules.find_destroyers, 'repo.git.run("read-tree", head)'),
        (rules.find_destroyers, 'CONTEXTS = ("reset", "gc")'),
        (rules.find_timed_assertions, CLOCK + "    assert work() == 3\n"),
        (rules.find_sleeps, "def test_a():\n    assert run('time.sleep(1)', Interrupts(sleep=waits.append)) == 0\n"),
        (rules.find_timed_assertions, "def test_a():\n    assert clock.waits == [3.0]\n"),
    ],
)
def test_what_is_right_is_let_pass(rule, right):
    assert rule(right) == ()


def test_the_subcommands_given_to_git_are_read():
    source = (
        'repo.git.run("log", "-1")\ngit.probe(*args)\nhooks.run("x")\nget_git(a, b).run("init")\nit.begin("status")'
    )

    assert rules.find_git_words(source) == {"log", "*", "init", "status"}


def test_what_is_made_is_told_from_what_is_used():
    source = "A = 1\nb: int = 2\nclass C:\n    def d(self): ...\n@mark\ndef e(): ...\n__all__ = [f, g.h, 'i']\n"

    assert rules.list_names(source) == ("C", "d", "A", "b")
    assert rules.list_uses(source) == {"mark", "int", "f", "g", "h", "i"}
