"""AGENTS.md discovery: Codex's algorithm, its vectors, and hostile repositories."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.setup.rules import RuleFile, load_rules


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


def test_files_are_read_from_the_root_down_to_the_working_directory(root: Path) -> None:
    make(root, {"AGENTS.md": "one", "a/AGENTS.md": "two", "a/b/AGENTS.md": "three", "other/AGENTS.md": "no"})
    rules = load_rules(root / "a" / "b")
    assert rules.text == "one\n\ntwo\n\nthree"
    assert [file.path for file in rules.files] == ["AGENTS.md", "a/AGENTS.md", "a/b/AGENTS.md"]
    assert (rules.warnings, rules.nearest_cut) == ((), False)


def test_vector_a_budget_of_seven_bytes(root: Path) -> None:
    make(root, {"AGENTS.md": "root", "a/AGENTS.md": "abcdef"})
    rules = load_rules(root / "a", max_bytes=7)
    assert rules.text == "root\n\nabc"
    assert rules.files[1] == RuleFile(path="a/AGENTS.md", bytes_used=3, bytes_total=6, truncated=True)
    assert rules.warnings == ("a/AGENTS.md is cut to 3 of 6 bytes: 7 are for all rules",)
    assert rules.nearest_cut


def test_vector_a_large_root_file_leaves_the_nested_one_out(root: Path) -> None:
    make(root, {"AGENTS.md": "x" * 40 * 1024, "a/AGENTS.md": "nested"})
    rules = load_rules(root / "a")
    assert rules.text == "x" * 32 * 1024
    assert rules.files[1] == RuleFile(path="a/AGENTS.md", bytes_used=0, bytes_total=6, omitted=True)
    assert "a/AGENTS.md is left out: the 32,768 bytes for rules are used up" in rules.warnings
    assert rules.nearest_cut


def test_vector_the_user_s_file_alone_has_no_separator(root: Path, tmp_path: Path) -> None:
    make(tmp_path / "home", {"AGENTS.md": "\n mine \n"})
    rules = load_rules(root, global_dir=tmp_path / "home", max_bytes=0)
    assert rules.text == "mine"
    assert [file.path for file in rules.files] == [str(tmp_path / "home" / "AGENTS.md")]


def test_vector_a_blank_override_silences_its_directory(root: Path) -> None:
    make(root, {"AGENTS.override.md": " \n", "AGENTS.md": "full", "a/AGENTS.md": "nested"})
    rules = load_rules(root / "a")
    assert rules.text == "nested"
    assert rules.warnings == ("AGENTS.override.md is blank; no other file of its directory is read",)


def test_the_user_s_file_comes_first_outside_the_budget(root: Path, tmp_path: Path) -> None:
    make(tmp_path / "home", {"AGENTS.override.md": " ", "AGENTS.md": "mine"})
    make(root, {"AGENTS.md": "root", "a/AGENTS.md": "abc"})
    rules = load_rules(root / "a", max_bytes=7, global_dir=tmp_path / "home")
    assert rules.text == "mine\n\n--- project-doc ---\n\nroot\n\nabc"
    assert rules.warnings == ()


def test_a_blank_file_costs_nothing(root: Path) -> None:
    make(root, {"AGENTS.md": "    ", "a/AGENTS.md": "abcd"})
    assert load_rules(root / "a", max_bytes=4).text == "abcd"


def test_the_first_regular_file_of_a_directory_wins(root: Path) -> None:
    make(root, {"AGENTS.override.md": "override", "AGENTS.md": "no", "CLAUDE.md": "no", "a/CLAUDE.md": "fallback"})
    (root / "a" / "AGENTS.md").mkdir()
    names = ("", "CLAUDE.md", "AGENTS.md", "CLAUDE.md")
    assert load_rules(root / "a", fallback_names=names).text == "override\n\nfallback"
    assert load_rules(root / "a").text == "override"


def test_the_root_is_the_nearest_marker_file_or_directory(root: Path) -> None:
    make(root, {"AGENTS.md": "outer", "a/.git": "gitdir: elsewhere", "a/AGENTS.md": "inner", "a/b/AGENTS.md": "b"})
    assert load_rules(root / "a" / "b").text == "inner\n\nb"
    assert load_rules(root / "a" / "b", root_markers=("no-such",)).text == "b"
    assert load_rules(root / "a" / "b", root_markers=()).text == "b"
    assert load_rules(root / "a" / "b", root_markers=("", "a")).text == "outer\n\ninner\n\nb"


def test_a_split_character_is_replaced(root: Path) -> None:
    make(root, {"AGENTS.md": "aé"})
    assert load_rules(root, max_bytes=2).text == "a\ufffd"
    make(root, {"AGENTS.md": b"\xff\xfeabc"})
    assert load_rules(root).text == "\ufffd\ufffdabc"


def test_a_link_inside_the_project_is_followed(root: Path) -> None:
    make(root, {"docs/agents.md": "linked"})
    (root / "AGENTS.md").symlink_to("docs/agents.md")
    (root / "a" / "AGENTS.md").symlink_to("no-such-file")
    assert load_rules(root / "a").text == "linked"


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", ".git/config", "a/.env.local"])
def test_a_link_to_what_the_project_must_not_see_is_left_out(root: Path, target: str) -> None:
    make(root.parent, {"secret": "s"})
    make(root, {".git/config": "token", "a/.env.local": "key"})
    (root / "AGENTS.md").symlink_to(target)
    make(root, {"CLAUDE.md": "fallback"})
    rules = load_rules(root, fallback_names=("CLAUDE.md",))
    assert rules.text == "fallback"
    assert "AGENTS.md is a link to " in rules.warnings[0]


def test_a_linked_directory_does_not_lead_out_either(root: Path) -> None:
    make(root.parent, {"outside/AGENTS.md": "no"})
    (root / "docs").symlink_to(root.parent / "outside")
    (root / "AGENTS.md").symlink_to("docs/AGENTS.md")
    assert load_rules(root).text == ""


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
    rules = load_rules(root / "a", global_dir=tmp_path / "home")
    assert rules.text == "mine"
    assert "no project rules are loaded: " in rules.warnings[0]
    assert "a/AGENTS.md" in rules.warnings[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_such_a_file(root: Path) -> None:
    make(root, {"AGENTS.md": "root"})
    (root / "AGENTS.md").chmod(0)
    rules = load_rules(root)
    assert (rules.text, len(rules.warnings)) == ("", 1)


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
