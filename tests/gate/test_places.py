"""Where a command of a plan runs, and what a path of an item means there."""

import subprocess

import pytest

from relay.base.errors import PlanError
from relay.gate.model import CommandCheck, Outcome
from relay.gate.needs import find_lack, find_test_command
from relay.gate.places import (
    Ground,
    check_folders,
    describe_moved,
    describe_places,
    find_place,
    open_ground,
    settle_phase,
    settle_plan,
)
from relay.gate.shell_line import proves_nothing, swallows_exit
from relay.plan.check import check_plan
from relay.plan.model import find_meaning
from relay.plan.parse import parse_plan
from relay.plan.paths import find_command_modules, find_command_paths, place, split_place

API = "packages/api"
SCRIPT = '{"scripts": {"test": "jest", "lint": "eslint ."}}'
FILES = {
    "package.json": '{"scripts": {"test": "jest"}}',
    "Makefile": "lint:\n\truff check .\n",
    "tests/test_root.py": "",
    "tests/test_both.py": "",
    "src/x.py": "",
    f"{API}/package.json": SCRIPT,
    f"{API}/Makefile": "test: all\n\ttrue\n",
    f"{API}/tests/test_core.py": "",
    f"{API}/tests/test_both.py": "",
    f"{API}/app/core.py": "",
    f"{API}/scripts/check.sh": "",
    "docs/plans/PLAN.md": "",
    "rust/Cargo.toml": "",
    "py/pyproject.toml": "",
    "tests/deep/er/test_a.py": "",
}


def read_of(files):
    folders = {"/".join(path.split("/")[:n]) for path in files for n in range(1, path.count("/") + 1)}
    return lambda path: files.get(path, "" if path in folders else None)


PLACES = [
    # the plan's directory, the command, where it runs, and the file that says so
    (API, "npm test", API, f"{API}/package.json"),
    (API, "make test", API, f"{API}/Makefile"),
    (API, "make lint", "", "Makefile"),
    (API, "make -s", API, f"{API}/Makefile"),
    (API, "python3 -m unittest tests.test_core", API, f"{API}/tests/test_core.py"),
    (API, "pytest tests/test_core.py::test_a -q", API, f"{API}/tests/test_core.py"),
    (API, "pytest tests/test_root.py", "", "tests/test_root.py"),
    (API, "pytest tests/test_both.py", API, f"{API}/tests/test_both.py"),
    (API, f"pytest {API}/tests/test_core.py", "", f"{API}/tests/test_core.py"),
    (API, "bash scripts/check.sh", API, f"{API}/scripts/check.sh"),
    (API, "bash scripts/other.sh", API, ""),  # not there yet, and more of its way is
    (API, "pytest tests/deep/test_new.py", "", ""),
    (API, "npx jest", API, f"{API}/package.json"),
    (API, "pytest -q", API, f"{API}/tests"),
    (API, "cargo test", "", ""),
    ("rust", "cargo test", "rust", "rust/Cargo.toml"),
    ("py", "ruff check . && mypy", "py", "py/pyproject.toml"),
    ("docs/plans", "pytest tests/test_new.py", "", ""),
    # it says so itself
    (API, "cd packages/web && npm test", "packages/web", ""),
    (API, "npm --prefix packages/web test", "", ""),
    (API, "make -C packages/api test", "", ""),
]


def test_a_command_runs_in_the_plans_directory_if_its_own_files_are_there_and_else_at_the_root():
    read = read_of(FILES)
    found = {(folder, command): find_place(command, folder, read) for folder, command, *_ in PLACES}
    wrong = [f"{row}: {found[row[:2]]}" for row in PLACES if found[row[:2]] != row[2:]]
    assert wrong == []


def test_the_place_is_a_part_of_the_command_whatever_the_directory_is_called_and_the_command_holds():
    commands = [
        "npm test",
        "a || b",
        "a; b # c",
        "a & wait",
        "pytest 2>&1 | tail",
        "cat <<E\nx\nE",
        "( a; b )",
        "a && b",
    ]
    folders = ["packages/api", "a b/ü", "it's", 'a"b', "-x", ".", "$HOME", "a;b", "x && rm -rf y"]
    for folder in folders:
        for command in commands:
            placed = place(command, f"./{folder}/")
            assert split_place(placed)[0] == folder, placed
            assert place(placed, "elsewhere") == placed  # it says so itself
            assert swallows_exit(placed) == swallows_exit(command), placed
            assert proves_nothing(placed) == proves_nothing(command), placed
    for command in ["cd .. && x", "cd /etc && x", "cd ~/x && y", "cd $X && y", "cd a b && x", "cd a; x", "cd `x` && y"]:
        assert split_place(command) == ("", command)
    assert find_command_paths("cd packages/api && pytest tests/a.py") == {"packages/api/tests/a.py"}
    assert find_command_modules("cd p && python3 -m unittest tests.test_a") == {"p/tests/test_a.py"}


def test_the_whole_command_runs_in_the_directory_or_nothing_of_it(tmp_path):
    def run(command):
        argv = ["bash", "-o", "pipefail", "-c", command]
        return subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)

    (tmp_path / "in side").mkdir()
    for command in ["pwd; pwd", "false || pwd", "pwd # (", "cat <<E\n$(pwd)\nE", "pwd && pwd | cat"]:
        ran = run(place(command, "in side"))
        assert set(ran.stdout.split("\n")) - {""} == {str(tmp_path / "in side")}, command
        assert run(place(command, "gone")).returncode != 0, command


PLAN = """\
---
relay: {verify: ["make lint"]}
---
# P

## Phase 1 — A
In: packages/api
Verify: `npm test`
- [ ] a — app/core.py, src/x.py, app/new.py, new.py, packages/api/app/core.py, lib/

## Phase 2 — B
Verify: `npm test`
- [ ] b — app/core.py
"""


@pytest.fixture
def root(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def settle(root, text, plan_path="PLAN.md"):
    return settle_plan(open_ground(root, None, plan_path, None), parse_plan(text))


def test_in_moves_the_commands_of_its_phase_and_the_front_matter_those_of_all(root):
    first, second = settle(root, PLAN).phases
    assert first.verify == ("make lint", "cd packages/api && npm test")
    assert first.own_verify == ("cd packages/api && npm test",)
    assert (second.verify, second.items[0].paths) == (("make lint", "npm test"), ("app/core.py",))
    first, second = settle(root, PLAN.replace('{verify: ["make lint"]}', '{verify: ["make lint"], in: py}')).phases
    assert first.verify == ("cd py && make lint", "cd packages/api && npm test")
    assert second.verify == ("cd py && make lint", "cd py && npm test")
    [back] = settle(root, "# A\nIn: .\nVerify: `npm test`\n- [ ] a — app/core.py\n", f"{API}/PLAN.md").phases
    assert (back.verify, back.items[0].paths) == (("cd . && npm test",), ("app/core.py",))


def test_paths_of_items_count_from_the_plans_directory_and_from_the_root(root):
    for text, plan_path in ((PLAN, "PLAN.md"), (PLAN.replace("In: packages/api\n", ""), f"{API}/PLAN.md")):
        [item] = settle(root, text, plan_path).phases[0].items
        wanted = ("app/core.py", "src/x.py", "app/new.py", "new.py", "app/core.py", "lib/")
        assert item.targets == item.paths == tuple(path if path == "src/x.py" else f"{API}/{path}" for path in wanted)
    settled = settle(root, PLAN)
    assert settle_phase(open_ground(root, None, "PLAN.md", None), settled.phases[0]) == settled.phases[0]
    [item] = settle(root, "# A\nVerify: `npm test`\n- [ ] a — src/x.py, new.py, lib/a.py\n", "docs/plans/PLAN.md").items
    assert item.paths == ("src/x.py", "new.py", "lib/a.py")


def test_a_directory_that_is_not_there_is_one_that_an_item_makes_by_its_path_from_the_root_or_named(root):
    for item, words in (
        ("app/core.py", "packages/apis, where a verify command runs, is no directory, and no item makes it"),
        ("packages/apis/app/core.py", ""),
        ("packages/", ""),
    ):
        plan = settle(root, f"# A\n\nIn: packages/apis\nVerify: `npm test`\n- [ ] a — {item}\n")
        found = [(one.line, one.message) for one in check_folders(plan, root)]
        assert found == ([(3, f"{words} (did you mean packages/api?)")] if words else []), item


def test_sessions_are_told_which_commands_run_elsewhere(root):
    first, second = settle(root, PLAN).phases
    [words] = describe_places(first)
    assert "`cd packages/api && npm test`" in words
    assert "make lint" not in words
    assert describe_places(second) == ()


HOSTILE = ["../x", "/etc", "~/x", "a/../../b", "`a/.git`", ".relay", "`a\u202eb`", "`a\x1b[31m`", ".."]


def test_in_stays_inside_the_repository_and_the_error_names_its_line(root):
    for value in HOSTILE:
        text = f"# A\nVerify: `t`\nIn: {value}\n- [ ] a — x.py\n"
        [found] = [one for one in check_plan(parse_plan(text)) if not one.warning]
        assert (found.line, "`In: packages/api`" in found.message, found.message.isprintable()) == (3, True, True), (
            value
        )
        with pytest.raises(PlanError) as refused:
            settle(root, text)
        assert refused.value.line == 3, value
    (root / "out").symlink_to("/usr")
    (root / "inner").symlink_to("packages/api")
    with pytest.raises(PlanError, match="by a link"):
        settle(root, "# A\nVerify: `t`\nIn: out\n- [ ] a — x.py\n")
    assert settle(root, "# A\nVerify: `t`\nIn: inner\n- [ ] a — x.py\n").phases[0].verify == ("cd inner && t",)
    for value in ("../x", "[a]", "''", "3", "~"):
        with pytest.raises(PlanError) as refused:
            parse_plan(f"---\nrelay: {{in: {value}}}\n---\n# A\n- [ ] a — x.py\n")
        assert refused.value.line == 2


def test_a_line_that_names_no_directory_is_prose_and_said():
    for value, warned in (("auth, billing", True), ("the year 2020", True), ("`my dir`", False), ("api", False)):
        plan = parse_plan(f"# A\nVerify: `t`\n**In:** {value}\n- [ ] a — x.py\n")
        assert [one.line for one in check_plan(plan)] == [3] * warned, value
        assert (plan.phases[0].find_wish("in")[0] == "") == warned


def test_in_is_a_part_of_what_a_phase_means():
    """So nothing that a session adds to a plan can move a gate: such an operation is refused."""
    with_in, front = PLAN.replace("In: packages/api", "In: py"), PLAN.replace('"make lint"]', '"make lint"], in: py')
    meanings = {find_meaning(parse_plan(text).phases[0]) for text in (PLAN, with_in, front)}
    assert len(meanings) == 3


def test_a_change_that_takes_a_command_away_from_its_own_files_is_told(root):
    """A new script beside the plan, or one that is gone, moves later gates; what the phase's items name is its own."""
    plan = parse_plan("# A\nVerify: `npm test`\n- [ ] a — x.py\n")
    with_it, without = dict(FILES), {path: text for path, text in FILES.items() if path != f"{API}/package.json"}
    neither = {path: text for path, text in without.items() if path != "package.json"}

    def tell(was, now, named=()):
        before, after = (Ground(root=root, folder=API, read=read_of(files)) for files in (was, now))
        return list(describe_moved(plan, before, after, named))

    assert tell(with_it, without) == [
        "the check was moved: `npm test` ran in packages/api (packages/api/package.json), now in the root"
    ]
    assert tell(without, with_it) == [
        "the check was moved: `npm test` ran in the root (package.json), now in packages/api"
    ]
    assert tell(without, with_it, {f"{API}/package.json"}) == tell(without, with_it, {API}) == []
    assert tell(neither, with_it) == tell(with_it, with_it) == []


def test_what_a_command_lacks_is_named_from_the_root():
    def lack(command, output, status=Outcome.FAILED, code=1):
        check = CommandCheck(command=command, exit_code=code, status=status, duration_s=0.0, output_tail=output)
        found = find_lack(check)
        return found and (found.words, found.files)

    assert lack("cd packages/web && npm test", "bash: line 1: cd: packages/web: No such file or directory") == (
        "directory packages/web",
        ("packages/web",),
    )
    assert lack("cd p && npm test", 'npm error Missing script: "test"') == (
        "such script (package.json) in p",
        ("p/package.json",),
    )
    assert lack("cd p && python3 -m unittest tests.test_a", "ModuleNotFoundError: No module named 'tests.test_a'") == (
        "tests/test_a.py in p",
        ("p/tests/test_a.py",),
    )
    words = "bash: line 1: scripts/x.sh: No such file or directory"
    assert lack("cd p && scripts/x.sh", words, Outcome.MISSING, 127) == ("scripts/x.sh in p", ("p/scripts/x.sh",))


def test_a_plans_own_directory_proposes_its_test_command_first(root):
    for plan_path, command, source in (
        (f"{API}/PLAN.md", "cd packages/api && make test", f"{API}/Makefile"),
        ("docs/plans/PLAN.md", "npm test", "package.json"),
        ("/elsewhere/PLAN.md", "npm test", "package.json"),
    ):
        found = find_test_command(root, plan_path)
        assert found is not None
        assert (found.command, found.source) == (command, source)
