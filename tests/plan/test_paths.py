"""Which files and folders an item names."""

import pytest

from relay.plan.paths import find_command_modules, find_command_paths, find_paths, place
from relay.plan.text import describe_outside, find_plan_folder, find_protected


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Add `api_keys` table (id, org_id) — db/schema.py", ("db/schema.py",)),
        ("Generate migration — db/migrations/", ("db/migrations/",)),
        ("Wire it — `app/web.py`, `tests/test_web.py`", ("app/web.py", "tests/test_web.py")),
        ("Wire it -- Makefile, src/lib/keys.py", ("Makefile", "src/lib/keys.py")),
        ("Wire it – README", ("README",)),
        ("Wire it - src/a.py (new), b.toml and docs/", ("src/a.py", "b.toml", "docs/")),
        ("Wire it — the big one — src/a.py", ("src/a.py",)),
        ("Wire it — **`src/a.py`**.", ("src/a.py",)),
        ("Wire it — see above", ()),
        ("Wire it — src/a.py, then rest", ("src/a.py",)),
        ("T001 [P] [US1] Do it in src/x.py", ("src/x.py",)),
        ("Move (src/a.py) to lib/b.py, and stop.", ("src/a.py", "lib/b.py")),
        ("Fix `src/x.py:12` and `./y/z.py`", ("src/x.py", "y/z.py")),
        ("Edit `.gitignore`, `Dockerfile`, `app/[id]/page.tsx`", (".gitignore", "Dockerfile", "app/[id]/page.tsx")),
        ("Call `os.path`, `self.x`, `foo()`, `a b/c.py`, `-x/y`", ()),
        ("Run `pytest tests/test_x.py -q` first", ()),
        ("Read https://example.org/a.py and `https://example.org/b/c`", ()),
        ("Either and/or both, 1.0/2.0, w/ care, e.g. this", ()),
        ("Leave `/etc/passwd`, `../up.py`, `~/x.py`, `a/../b.py`", ()),
        ("Answer `/v1/keys`", ()),
        ("Same `a/b.py` twice — a/b.py", ("a/b.py",)),
        ("`unclosed src/a.py", ("src/a.py",)),
        ("``a/`b``", ()),
        (r"\`src/a.py` and `b/c`", ("src/a.py",)),
        ("a/b.py — `c/d`", ("a/b.py", "c/d")),
        ("`/`, `./`, `.`", ()),
        ("Edit `/src/x.cpp` — /lib/y.py", ("src/x.cpp", "lib/y.py")),
        ("Merge `origin/main`, see `acme/tool#34146`, `@/features`, `@scope/pkg`", ()),
    ],
)
def test_paths_are_found_where_people_put_them(text, paths):
    assert find_paths(text).named == paths


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("Do what `notes.md` says — `src/a.py`, ./docs/", ("src/a.py", "docs/")),
        ("`a/b.py` as before — a/b.py", ("a/b.py",)),
        ("Do what `notes.md` says in src/x.py", ()),
        ("Wire it — see `src/a.py`", ()),
        ("x — /etc/app.toml, a.py", ("a.py",)),
    ],
)
def test_what_an_item_makes_stands_in_its_tail(text, targets):
    assert find_paths(text).targets == targets


@pytest.mark.parametrize(
    ("command", "paths", "modules"),
    [
        ("pytest -q tests/a.py::test_b[x] ./tests/c/", {"tests/a.py", "tests/c"}, set()),
        ("python -m unittest tests.test_a", set(), {"tests/test_a.py"}),
        ("sh -c 'node test/all.js' && diff want.txt got.txt", {"test/all.js", "want.txt", "got.txt"}, set()),
        ("make check > out.log 2>&1; pytest --junitxml=junit.xml 2>err.txt", {"junit.xml"}, set()),
        ("cargo test --test it; cat /etc/hosts ../up.txt", set(), set()),
    ],
)
def test_files_that_a_command_names(command, paths, modules):
    """What it writes its output to is not among them."""
    assert find_command_paths(command) == paths
    assert find_command_modules(command) == modules


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("x — /etc/app.toml", ("/etc/app.toml",)),
        ("`../up.py` `a/../b`", ("../up.py", "a/../b")),
        ("`~/x.py`", ("~/x.py",)),
        ("`/v1/keys` is a route", ()),
    ],
)
def test_paths_that_leave_the_repository_are_refused(text, refused):
    assert find_paths(text).refused == refused


def test_plan_ledger_and_what_steers_relay_are_protected():
    assert find_protected("plans/KEYS.md") == ("plans/KEYS.md", "plans/KEYS.ledger.yaml", ".relay", "relay.toml")


@pytest.mark.parametrize(
    ("plan_path", "folder"),
    [("PLAN.md", ""), ("packages/api/PLAN.md", "packages/api"), ("/elsewhere/PLAN.md", "")],
)
def test_a_plan_has_a_folder_where_it_is_in_the_repository(plan_path, folder):
    assert find_plan_folder(plan_path) == folder


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [("packages/api", True), (".", True), ("../up", False), ("/etc", False), ("~/x", False), ("a/.git", False)],
)
def test_a_plan_names_only_directories_of_the_repository(folder, allowed):
    assert (describe_outside(folder) == "") == allowed


def test_a_refused_directory_is_shown_without_control_characters():
    assert "`In: a?b` names no place" in describe_outside("a\x1bb")


@pytest.mark.parametrize(
    ("command", "folder", "placed"),
    [
        ("pytest -q", "", "pytest -q"),
        ("cd api && pytest", "web", "cd api && pytest"),
        ("make a && make b", "web", "cd web && make a && make b"),
        ("make a || make b", "web/", "cd web && ( make a || make b )"),
        ("make a; make b  # both", "web", "cd web && ( make a; make b  # both\n)"),
        ("make", "-x", "cd ./-x && make"),
    ],
)
def test_a_command_says_in_which_directory_it_runs(command, folder, placed):
    assert place(command, folder) == placed
