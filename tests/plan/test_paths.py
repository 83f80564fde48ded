"""Which files and folders an item or a command names, and where a command runs."""

from collections.abc import Set as AbstractSet

from relay.plan.paths import find_command_modules, find_command_paths, find_paths, place
from relay.plan.text import describe_outside, find_plan_folder, find_protected

PATHS = {
    "Add `api_keys` table (id, org_id) — db/schema.py": ("db/schema.py",),
    "Generate migration — db/migrations/": ("db/migrations/",),
    "Wire it — `app/web.py`, `tests/test_web.py`": ("app/web.py", "tests/test_web.py"),
    "Wire it -- Makefile, src/lib/keys.py": ("Makefile", "src/lib/keys.py"),
    "Wire it – README": ("README",),
    "Wire it - src/a.py (new), b.toml and docs/": ("src/a.py", "b.toml", "docs/"),
    "Wire it — the big one — src/a.py": ("src/a.py",),
    "Wire it — **`src/a.py`**.": ("src/a.py",),
    "Wire it — see above": (),
    "Wire it — src/a.py, then rest": ("src/a.py",),
    "T001 [P] [US1] Do it in src/x.py": ("src/x.py",),
    "Move (src/a.py) to lib/b.py, and stop.": ("src/a.py", "lib/b.py"),
    "Fix `src/x.py:12` and `./y/z.py`": ("src/x.py", "y/z.py"),
    "Edit `.gitignore`, `Dockerfile`, `app/[id]/page.tsx`": (".gitignore", "Dockerfile", "app/[id]/page.tsx"),
    "Call `os.path`, `self.x`, `foo()`, `a b/c.py`, `-x/y`": (),
    "Run `pytest tests/test_x.py -q` first": (),
    "Read https://example.org/a.py and `https://example.org/b/c`": (),
    "Either and/or both, 1.0/2.0, w/ care, e.g. this": (),
    "Leave `/etc/passwd`, `../up.py`, `~/x.py`, `a/../b.py`": (),
    "Answer `/v1/keys`": (),
    "Same `a/b.py` twice — a/b.py": ("a/b.py",),
    "`unclosed src/a.py": ("src/a.py",),
    "``a/`b``": (),
    r"\`src/a.py` and `b/c`": ("src/a.py",),
    "a/b.py — `c/d`": ("a/b.py", "c/d"),
    "`/`, `./`, `.`": (),
    "Edit `/src/x.cpp` — /lib/y.py": ("src/x.cpp", "lib/y.py"),
    "Merge `origin/main`, see `acme/tool#34146`, `@/features`, `@scope/pkg`": (),
}
TARGETS = {
    "Do what `notes.md` says — `src/a.py`, ./docs/": ("src/a.py", "docs/"),
    "`a/b.py` as before — a/b.py": ("a/b.py",),
    "Do what `notes.md` says in src/x.py": (),
    "Wire it — see `src/a.py`": (),
    "x — /etc/app.toml, a.py": ("a.py",),
}
REFUSED = {
    "x — /etc/app.toml": ("/etc/app.toml",),
    "`../up.py` `a/../b`": ("../up.py", "a/../b"),
    "`~/x.py`": ("~/x.py",),
    "`/v1/keys` is a route": (),
}
COMMANDS: dict[str, tuple[AbstractSet[str], AbstractSet[str]]] = {
    "pytest -q tests/a.py::test_b[x] ./tests/c/": ({"tests/a.py", "tests/c"}, set()),
    "python -m unittest tests.test_a": (set(), {"tests/test_a.py"}),
    "sh -c 'node test/all.js' && diff want.txt got.txt": ({"test/all.js", "want.txt", "got.txt"}, set()),
    "make check > out.log 2>&1; pytest --junitxml=junit.xml 2>err.txt": ({"junit.xml"}, set()),
    "cargo test --test it; cat /etc/hosts ../up.txt": (set(), set()),
}
PLACED = {
    ("pytest -q", ""): "pytest -q",
    ("cd api && pytest", "web"): "cd api && pytest",
    ("make a && make b", "web"): "cd web && make a && make b",
    ("make a || make b", "web/"): "cd web && ( make a || make b )",
    ("make a; make b  # both", "web"): "cd web && ( make a; make b  # both\n)",
    ("make", "-x"): "cd ./-x && make",
}
FOLDERS = {"packages/api": True, ".": True, "../up": False, "/etc": False, "~/x": False, "a/.git": False}


def test_paths_are_found_where_people_put_them():
    assert {text: find_paths(text).named for text in PATHS} == PATHS


def test_what_an_item_makes_stands_in_its_tail():
    assert {text: find_paths(text).targets for text in TARGETS} == TARGETS


def test_paths_that_leave_the_repository_are_refused():
    assert {text: find_paths(text).refused for text in REFUSED} == REFUSED


def test_files_that_a_command_names_are_those_that_it_reads():
    assert {text: (find_command_paths(text), find_command_modules(text)) for text in COMMANDS} == COMMANDS


def test_a_command_says_in_which_directory_of_the_repository_it_runs():
    assert {row: place(*row) for row in PLACED} == PLACED
    assert {folder: not describe_outside(folder) for folder in FOLDERS} == FOLDERS
    assert "`In: a?b` names no place" in describe_outside("a\x1bb")


def test_plan_ledger_and_what_steers_relay_are_protected():
    assert find_protected("plans/KEYS.md") == ("plans/KEYS.md", "plans/KEYS.ledger.yaml", ".relay", "relay.toml")
    folders = {"PLAN.md": "", "packages/api/PLAN.md": "packages/api", "/elsewhere/PLAN.md": ""}
    assert {plan: find_plan_folder(plan) for plan in folders} == folders
