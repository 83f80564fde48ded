"""AGENTS.md discovery: Codex's algorithm, its vectors, and hostile repositories."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.secrecy import Hidden
from relay.config import Settings
from relay.setup.rules import RuleFile, Rules, load_folder_rules, load_repository_rules, load_rules


def make(base: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    base = tmp_path / "repo"
    (base / ".git").mkdir(parents=True)
    (base / "a" / "b").mkdir(parents=True)
    return base


CUT, LARGE = "a/AGENTS.md is cut to 3 of 6 bytes: 7 are for all rules", "x" * 40 * 1024
LEFT_OUT = (
    "AGENTS.md is cut to 32,768 of 40,960 bytes: 32,768 are for all rules",
    "a/AGENTS.md is left out: the 32,768 bytes for rules are used up",
)
BLANK = "AGENTS.override.md is blank; no other file of its directory is read"
NAMES = {"fallback_names": ("", "CLAUDE.md", "AGENTS.md", "CLAUDE.md")}
VECTORS: dict[str, tuple[dict[str, str], dict[str, Any], str, tuple[str, ...]]] = {
    "from the root down":
        ({"AGENTS.md": "1", "a/AGENTS.md": "2", "a/b/AGENTS.md": "3", "c/AGENTS.md": "no"}, {}, "1\n\n2\n\n3", ()),
    "a budget of seven bytes":
        ({"AGENTS.md": "root", "a/AGENTS.md": "abcdef"}, {"max_bytes": 7}, "root\n\nabc", (CUT,)),
    "a large file of the root":
        ({"AGENTS.md": LARGE, "a/AGENTS.md": "nested"}, {}, LARGE[: 32 * 1024], LEFT_OUT),
    "a blank override silences its directory":
        ({"AGENTS.override.md": " \n", "AGENTS.md": "full", "a/AGENTS.md": "nested"}, {}, "nested", (BLANK,)),
    "the first regular file of a directory wins":
        ({"AGENTS.override.md": "1", "AGENTS.md": "no", "a/AGENTS.md/x": "", "a/CLAUDE.md": "2"}, NAMES, "1\n\n2", ()),
    "the nearest .git is the root":
        ({"AGENTS.md": "0", "a/.git": "gitdir: x", "a/AGENTS.md": "1", "a/b/AGENTS.md": "2"}, {}, "1\n\n2", ()),
}  # fmt: skip
"""By name: the files of a repository, what is asked for, the rules, the warnings. Source: Codex."""


def test_rules_are_found_as_codex_finds_them(tmp_path: Path) -> None:
    for number, (name, (files, asked, text, warnings)) in enumerate(VECTORS.items()):
        base = tmp_path / str(number)
        (base / ".git").mkdir(parents=True)
        (base / "a" / "b").mkdir(parents=True)
        make(base, {**files})
        rules = load_rules(base / "a" / "b", **asked)
        assert (rules.text, rules.warnings) == (text, warnings), name


def test_the_user_s_file_comes_first_outside_the_budget(root: Path, tmp_path: Path) -> None:
    """It alone has no separator."""
    make(tmp_path / "home", {"AGENTS.override.md": " ", "AGENTS.md": "\n mine \n"})
    rules = load_rules(root, user_dir=tmp_path / "home", max_bytes=0)
    assert (rules.text, [file.path for file in rules.files]) == ("mine", [str(tmp_path / "home/AGENTS.md")])
    make(root, {"AGENTS.md": "root", "a/AGENTS.md": "abcdef"})
    rules = load_rules(root / "a", max_bytes=7, user_dir=tmp_path / "home")
    assert rules.text == "mine\n\n--- project-doc ---\n\nroot\n\nabc"
    assert rules.files[-1] == RuleFile(path="a/AGENTS.md", bytes_used=3, bytes_total=6, truncated=True)


ODD = (
    ("be brief".encode("utf-16"), "be brief"),
    (b"\xfe\xff\0b\0e", "be"),
    (b"one\ncaf\xe9", "one\ncaf\ufffd"),
)


def test_what_is_no_plain_utf_8_is_read_all_the_same(root: Path) -> None:
    for content, text in ODD:
        make(root, {"AGENTS.md": content})
        assert load_rules(root).text == text


def test_a_link_inside_the_project_is_followed(root: Path) -> None:
    make(root, {"docs/agents.md": "linked"})
    (root / "AGENTS.md").symlink_to("docs/agents.md")
    (root / "a" / "AGENTS.md").symlink_to("no-such-file")
    assert load_rules(root / "a").text == "linked"


def test_a_link_to_what_the_project_must_not_see_is_left_out(root: Path) -> None:
    inside = (".git/config", "a/.env.local", "a/.NETRC", "a/hidden/x.yaml", ".relay/x", ".npmrc")
    make(root, {"../secret": "s", "CLAUDE.md": "fallback", **dict.fromkeys(inside, "token")})
    for target in ("../secret", "/etc/passwd", *inside):
        (root / "AGENTS.md").symlink_to(target)
        rules = load_rules(root, fallback_names=("CLAUDE.md",), hidden=Hidden(places=("a/hidden",)))
        assert rules.text == "fallback", target
        assert "AGENTS.md is a link to " in rules.warnings[0]
        (root / "AGENTS.md").unlink()


def test_a_hard_link_is_left_out_unless_all_its_names_are_those_of_rules(root: Path) -> None:
    """Nobody can say which other name it has: a hidden file's, or one in another directory."""
    make(root, {".env": "key", "CLAUDE.md": "be brief", "a/AGENTS.md": "own"})
    (root / "AGENTS.md").hardlink_to(root / ".env")
    rules = load_rules(root / "a", fallback_names=("CLAUDE.md",))
    assert rules.text == "be brief\n\nown"
    assert rules.warnings == (
        "AGENTS.md has another name elsewhere (a hard link), which may be a hidden file's; it is left out",
    )

    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").hardlink_to(root / "CLAUDE.md")
    assert (load_rules(root / "a").text, load_rules(root / "a").warnings) == ("be brief\n\nown", ())


def test_a_name_of_credentials_is_no_rules_file(root: Path) -> None:
    make(root, {".netrc": "key", ".env.example": "be brief"})
    rules = load_rules(root, fallback_names=(".netrc", ".env.example"))
    assert (rules.text, rules.warnings) == ("be brief", (".netrc may hold secrets; it is left out",))


def test_where_there_is_no_agents_md_the_rules_of_claude_then_those_of_gemini_are_read(root: Path) -> None:
    make(root, {"GEMINI.md": "two"})
    assert load_repository_rules(root, Settings()) == Rules(
        text="two", files=(RuleFile(path="GEMINI.md", bytes_used=3, bytes_total=3),)
    )
    make(root, {"CLAUDE.md": "one", "a/CLAUDE.md": "of a"})
    assert load_repository_rules(root, Settings()).text == "one"
    names = Settings().rules_fallback_names
    assert load_folder_rules(root, ["a/x.py"], max_bytes=100, fallback_names=names).text == "## a/CLAUDE.md\n\nof a"
    none = Settings(rules_fallback_names=(), origins={"rules_fallback_names": "relay.toml"})
    assert load_repository_rules(root, none) == Rules()
    make(root, {"AGENTS.md": "three"})
    assert load_repository_rules(root, Settings()).text == "three"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("@docs/rules.md\n", "docs/rules.md"),
        ("See @./docs/rules.md.\nAnd @docs/a.md, @docs/a.md\n", "./docs/rules.md, docs/a.md"),
        ("@../secret.md @~/.claude/mine.md @closed/a.md", "../secret.md, ~/.claude/mine.md"),
        ("@dataclass\n@docs and me@docs/a.md, `@docs/a.md`, @docs/none.md, @" + "a/" * 9_000, ""),
    ],
)
def test_an_import_is_not_read_and_is_named(root: Path, text: str, named: str) -> None:
    make(root, {"CLAUDE.md": text, "docs/rules.md": "r", "docs/a.md": "a", "../secret.md": "s"})
    (root / "closed").symlink_to("closed")
    rules = load_repository_rules(root, Settings())
    words = f"CLAUDE.md imports {named}, which relay does not read: put its rules into CLAUDE.md"
    assert rules.text == text
    assert rules.warnings == ((words,) if named else ())


def test_other_rules_are_named_with_the_setting_that_has_them_read(root: Path) -> None:
    """Where a repository has rules of its own, or the setting is made, nothing is said."""
    make(root, {".kiro/steering/product.md": "one"})
    said = load_repository_rules(root, Settings())
    assert (said.text, said.warnings) == (
        "",
        ("there is no AGENTS.md, and .kiro/steering cannot be read: put the important rules into AGENTS.md",),
    )
    make(root, {".cursorrules": "two"})
    way = 'rules_fallback_names = [".cursorrules"] in relay.toml has it read'
    assert load_repository_rules(root, Settings()).warnings == (
        f"there is no AGENTS.md, and .cursorrules is not read: {way}",
    )
    read = Settings(rules_fallback_names=(".cursorrules",), origins={"rules_fallback_names": "relay.toml"})
    assert load_repository_rules(root, read).text == "two"
    make(root, {"AGENTS.md": "three"})
    assert load_repository_rules(root, Settings()).warnings == ()


def test_folders_of_a_phase(root: Path) -> None:
    """From the root down, each once, the root's own not again; what a phase names need not be there."""
    make(root, {"AGENTS.md": "no", "a/AGENTS.md": "a", "a/b/AGENTS.override.md": "b\n", "a/b/AGENTS.md": "no"})
    make(root, {"a/b/x.py": "", "c/CLAUDE.md": "c", "d/AGENTS.md": "no", "e/RULES.md": "no"})
    paths = ("a/b/x.py", "a/b/new/y.py", "a", "c/new.py", "e/x", "../d/x", "/d/x", "x.py", ".")
    rules = load_folder_rules(root, paths, max_bytes=100, fallback_names=("CLAUDE.md", "RULES.md"))
    assert rules.text == "## a/AGENTS.md\n\na\n\n## a/b/AGENTS.override.md\n\nb\n\n## c/CLAUDE.md\n\nc"
    assert (rules.project_bytes, rules.warnings) == (4, ())
    assert load_folder_rules(root, paths, max_bytes=100).text.count("##") == 2


def test_folders_of_a_phase_share_what_is_left_of_the_budget(root: Path) -> None:
    make(root, {"a/AGENTS.md": "a", "a/b/AGENTS.md": "nearest"})
    rules = load_folder_rules(root, ("a/b/x.py",), max_bytes=4)
    assert rules.text == "## a/AGENTS.md\n\na\n\n## a/b/AGENTS.md\n\nnea"
    assert rules.warnings == ("a/b/AGENTS.md is cut to 3 of 7 bytes: 4 are for all rules",)
    rules = load_folder_rules(root, ("a/b/x.py",), max_bytes=0)
    assert (rules.text, len(rules.warnings)) == ("", 2)


def test_rules_of_a_folder_that_a_session_may_have_made_are_not_read(root: Path) -> None:
    make(root, {"a/AGENTS.md": "a", "a/b/AGENTS.md": "b"})
    rules = load_folder_rules(root, ("a/b",), max_bytes=100, find_strange=lambda paths: paths - {"a/AGENTS.md"})
    assert rules.text == "## a/AGENTS.md\n\na"
    assert rules.warnings == ("a/b/AGENTS.md may be a session's; it is not read",)


def test_a_folder_whose_rules_cannot_be_read_or_lead_out_is_said(root: Path, tmp_path: Path) -> None:
    make(tmp_path, {"outside/AGENTS.md": "no"})
    (root / "out").symlink_to(tmp_path / "outside")
    rules = load_folder_rules(root, ("out/x",), max_bytes=100)
    assert (rules.text, rules.warnings[0].partition(" to ")[0]) == ("", "out/AGENTS.md is a link")
    (root / "a/AGENTS.md").symlink_to("AGENTS.md")
    assert "no project rules are loaded: " in load_folder_rules(root, ("a",), max_bytes=100).warnings[0]


def test_a_pipe_or_a_device_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "AGENTS.md")
    (root / "AGENTS.override.md").symlink_to("/dev/zero")
    make(root, {"a/AGENTS.md": "nested"})
    assert load_rules(root / "a").text == "nested"


def test_a_huge_file_is_not_read_beyond_the_budget(root: Path) -> None:
    with (root / "AGENTS.md").open("wb") as stream:
        stream.write(b"head")
        stream.truncate(1 << 40)
    rules = load_rules(root, max_bytes=6)
    assert rules.text == "head\0\0"
    assert rules.files[0].bytes_total == 1 << 40


def test_one_unreadable_file_takes_the_project_s_rules_away_and_says_so(root: Path, tmp_path: Path) -> None:
    make(tmp_path / "home", {"AGENTS.md": "mine"})
    make(root, {"AGENTS.md": "root"})
    (root / "a" / "AGENTS.md").symlink_to("AGENTS.md")
    rules = load_rules(root / "a", user_dir=tmp_path / "home")
    assert rules.text == "mine"
    assert "no project rules are loaded: " in rules.warnings[0]
    assert "a/AGENTS.md" in rules.warnings[0]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), min_size=1, max_size=4), st.integers(0, 60))
def test_what_is_used_never_exceeds_the_budget(
    tmp_path_factory: pytest.TempPathFactory, contents: list[str], max_bytes: int
) -> None:
    here = tmp_path_factory.mktemp("repo")
    (here / ".git").mkdir()
    for content in contents:
        make(here, {"AGENTS.md": content})
        here /= "d"
    rules = load_rules(here.parent, max_bytes=max_bytes)
    assert sum(file.bytes_used for file in rules.files) <= max_bytes
    for file in rules.files:
        assert file.bytes_used <= file.bytes_total
        assert (file.truncated or file.omitted) == (file.bytes_used < file.bytes_total)
