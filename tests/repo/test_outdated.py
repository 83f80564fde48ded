"""Later items that a change makes wrong: files and symbols that it took away, with the new name where git sees it."""

import pytest

from relay.git.repository import open_repo
from relay.plan.parse import parse_plan
from relay.store.outdated import MAX_BYTES, find_outdated, is_amended

PLAN = """\
# P

## Phase 1 — Now
- [ ] Do — src/keys.py

## Phase 2 — Later
- [x] Was — src/keys.py
- [ ] Use `load_key` of it — src/keys.py
- [ ] Read `Store.load()` — src/old/
- [ ] Leave `os.path` and `render` — docs/new.md, src/stays.py
"""
LONG = "".join(f"line {n}\n" for n in range(40))
BEFORE = {
    "src/keys.py": f"def load_key(name):\n    return name\n\n{LONG}",
    "src/old/a.py": f"class Store:\n    def load(self):\n        pass\n{LONG}",
    "src/old/b.py": f"b = 1\n{LONG}",
    "src/stays.py": "import os.path\n\n\ndef render():\n    pass\n",
    "src/other.py": "",
}


@pytest.fixture
def look(stage):
    """Return what a change from the files above to others makes wrong."""

    def find(after, before=BEFORE, plan=PLAN):
        trees = []
        for files in (before, after):
            for old in stage.git("ls-files").splitlines():
                (stage.root / old).unlink(missing_ok=True)
            for path, text in files.items():
                stage.write(path, text)
            stage.git("add", "-A")
            trees.append(stage.git("write-tree").strip())
        first, second = trees
        return find_outdated(open_repo(stage.root), first, second, parse_plan(plan).phases[1:])

    return find


RENAMED = {("src/api_keys.py" if path == "src/keys.py" else path): text for path, text in BEFORE.items()}


def say(found):
    return [one.words for one in found]


def test_files_and_folders_that_are_gone_are_named_with_their_new_name(look):
    after = {path.replace("src/old/", "lib/"): text for path, text in RENAMED.items()}
    assert say(look(after)) == [
        "item 2.2 names src/keys.py, which is src/api_keys.py now",
        "item 2.3 names src/old/, which is lib now",
    ]
    assert say(look({"src/stays.py": BEFORE["src/stays.py"], "src/other.py": ""})) == [
        "item 2.2 names src/keys.py, which is gone",
        "item 2.2 names `load_key`, which src/keys.py defined before",
        "item 2.3 names src/old/, which is gone",
        "item 2.3 names `Store.load`, which src/old/a.py defined before",
    ]


def test_a_change_that_makes_nothing_wrong_is_silent(look):
    """Files that never were, a symbol that moved or stands in a file that the change does not touch, done items."""
    assert look(BEFORE) == ()
    moved = {**BEFORE, "src/keys.py": LONG, "src/other.py": "async def load_key(name):\n    pass\n"}
    assert look(moved) == ()
    assert (
        look({**BEFORE, "src/keys.py": "import x\n"}, {**BEFORE, "src/z.go": "func (s *Store) load_key(n int) {\n"})
        != ()
    )
    there = {**BEFORE, "src/z.go": "func (s *Store) load_key(n int) {\n}\n"}
    assert look({**there, "src/keys.py": LONG}, there) == ()


DEFINITIONS = [
    "async def load_key(name):",
    "    def load_key(self) -> None:",
    "class load_key(Base):",
    "load_key: Final = 3",
    "load_key = 3",
    "export default async function load_key(a) {",
    "export const load_key = () => 1",
    "pub(crate) unsafe fn load_key<T>() {",
    "func (s *Store) load_key() error {",
    "static const char *load_key(int a)",
    "    public Map<String, Key> load_key(int a) {",
    "interface load_key {",
    "type load_key struct {",
    "CREATE TABLE IF NOT EXISTS load_key (",
    "#define load_key 3",
    "  def self.load_key",
    "defp load_key(a) do",
    "sealed trait load_key",
]
USES = [
    "return load_key(3)",
    "    load_key(3)",
    "x = load_key",
    "# the function load_key",
    "if load_key == 3:",
    "load_key == 3",
]


def test_definitions_are_known_by_their_form_and_uses_are_none(look):
    """All in one file, each of a name of its own; the plan names them all."""
    named = [line.replace("load_key", f"load_key_{number}") for number, line in enumerate(DEFINITIONS)]
    items = [f"- [ ] Use `load_key_{number}` of it — src/keys.py" for number in range(len(named))]
    plan = "\n".join(["# P", "## Phase 1", "- [ ] Do — a", "## Phase 2", *items, ""])
    uses = [use.replace("load_key", f"load_key_{number}") for number in range(len(named)) for use in USES]
    whole, rest = "".join(f"{line}\n" for line in named), "".join(f"{use}\n" for use in uses)
    lost = look({**BEFORE, "src/keys.py": rest}, {**BEFORE, "src/keys.py": f"a\n{whole}{rest}"}, plan)
    told = {f"item 2.{n + 1} names `load_key_{n}`, which src/keys.py defined before" for n in range(len(named))}
    assert {*say(lost)} == told
    assert look({**BEFORE, "src/keys.py": f"b\n{whole}"}, {**BEFORE, "src/keys.py": f"a\n{whole}{rest}"}, plan) == ()


def test_prose_large_files_and_bytes_define_nothing(look):
    plain = {**BEFORE, "src/keys.py": ""}
    others = {"src/keys.md": "", "src/k.py": f"{'x' * MAX_BYTES}", "b.py": "\0\n"}
    assert (
        look({**plain, **others}, {**plain, **{path: f"def load_key():\n{text}" for path, text in others.items()}})
        == ()
    )


@pytest.mark.nightly
def test_a_phase_that_was_told_in_a_line_of_its_own_is_not_wrong_any_more(look):
    [found] = look(RENAMED)
    told = ("src/keys.py is src/api_keys.py now", "it is in src/api_keys.py", "keys.py moved")
    for note in (*told, "hello"):
        amended = parse_plan(f"{PLAN}### Notes\n- amended: {note}\n")
        assert is_amended(found, parse_plan(PLAN), amended) is (note in told), note
        assert not is_amended(found, amended, amended)
        assert not is_amended(found, amended, parse_plan("## Phase 1\n- [ ] Other — a.py\n"))
