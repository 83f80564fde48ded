"""Skills of a repository: each by name and one line, all within a budget, whatever stands in their files."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.secrecy import Hidden
from relay.config import Settings
from relay.session.usage import estimate_tokens
from relay.setup.rules import Rules, load_repository_rules
from relay.setup.skills import FOLDER, MAX_BYTES, MAX_SKILLS, MAX_TOKENS, load_skills, render_skills

TITLE = "# Skills: before work that one fits, read .agents/skills/NAME/SKILL.md\n"


def make_skill(root: Path, name: str, text: str | bytes | None = None) -> Path:
    file = root / FOLDER / name / "SKILL.md"
    file.parent.mkdir(parents=True)
    given = f"---\nname: {name}\ndescription: Does {name}.\n---\n\n# Body\n" if text is None else text
    file.write_bytes(given if isinstance(given, bytes) else given.encode())
    return file


def test_a_skill_is_its_name_its_description_and_the_hash_of_its_file(tmp_path: Path) -> None:
    folded = "\ufeff---\r\nname: pdf\r\ndescription: >\r\n  Fills\r\n  forms.\r\nlicense: MIT\r\n---\r\nBody"
    file = make_skill(tmp_path, "pdf", folded)
    make_skill(tmp_path, "a-11y")
    (tmp_path / FOLDER / "README.md").write_text("no skill")
    (tmp_path / FOLDER / "empty").mkdir()

    skills, warnings = load_skills(tmp_path)

    assert render_skills(skills) == "- a-11y: Does a-11y.\n- pdf: Fills forms."
    assert (skills[1].path, skills[1].sha256) == (
        ".agents/skills/pdf/SKILL.md",
        hashlib.sha256(file.read_bytes()).hexdigest(),
    )
    assert warnings == ()


def test_where_there_are_none_or_they_are_switched_off_nothing_is_said(tmp_path: Path) -> None:
    assert load_skills(tmp_path) == ((), ())
    make_skill(tmp_path, "relay")  # of `relay init --skill`
    assert load_skills(tmp_path) == ((), ())
    make_skill(tmp_path, "pdf")
    assert load_repository_rules(tmp_path, Settings(ablate=("skills",))) == Rules()
    assert [skill.name for skill in load_repository_rules(tmp_path, Settings(ablate=("rules",))).skills] == ["pdf"]


NO_SKILL: list[tuple[str | bytes, str]] = [
    ("# Title", "does not begin with front matter"),
    ("---\nname: pdf\n", "does not begin with front matter"),
    ("---\n---\n", "a `name`"),
    ("---\n- pdf\n---\n", "a `name`"),
    ("---\nname: doc\ndescription: x\n---\n", "a `name`"),
    ("---\nname: pdf\n---\n", "no `description`"),
    ("---\nname: pdf\ndescription: [x]\n---\n", "no `description`"),
    ('---\nname: pdf\ndescription: "\\u202e \\e"\n---\n', "no `description`"),
    ("---\nname: pdf\ndescription: &a x\n---\n", "an anchor, an alias or a tag"),
    ("---\nname: pdf\ndescription: !!python/object:os.x {}\n---\n", "an anchor, an alias or a tag"),
    ("---\nname: pdf\ndescription: [[[[[[[x]]]]]]]\n---\n", "nested more than 5 levels deep"),
    (f"---\nname: pdf\ndescription: {'x' * 9_000}\n---\n", "has 9,024 characters; allowed: 8,000"),
    (f"---\nname: pdf\ndescription: x\n---\n{'x' * MAX_BYTES}", f"more than {MAX_BYTES:,} bytes"),
    (b"---\nname: \xff\n---\n", "a `name`"),
]


def test_a_file_that_is_no_skill_is_left_out_and_said(tmp_path: Path) -> None:
    for number, (text, fault) in enumerate(NO_SKILL):
        make_skill(tmp_path / str(number), "pdf", text)
        skills, (warning,) = load_skills(tmp_path / str(number))
        assert skills == ()
        assert warning.startswith("the skill .agents/skills/pdf ")
        assert fault in warning


def test_links_pipes_second_names_and_hidden_files_are_left_out(tmp_path: Path) -> None:
    outside = make_skill(tmp_path / "outside", "linked")
    root = tmp_path / "root"
    make_skill(root, "hidden")
    for name in ("file", "pipe", "hard"):
        (root / FOLDER / name).mkdir()
    (root / FOLDER / "linked").symlink_to(outside.parent)
    (root / FOLDER / "file/SKILL.md").symlink_to(outside)
    (root / FOLDER / "hard/SKILL.md").hardlink_to(outside)
    os.mkfifo(root / FOLDER / "pipe/SKILL.md")

    skills, warnings = load_skills(root, Hidden(places=(f"{FOLDER}/hidden",)))

    assert skills == ()
    assert [warning.split()[2].rpartition("/")[2] for warning in warnings] == [
        "file", "hard", "hidden", "linked", "pipe",
    ]  # fmt: skip
    (tmp_path / "other").mkdir()
    (tmp_path / "other/.agents").symlink_to(tmp_path / "outside/.agents")
    assert load_skills(tmp_path / "other") == ((), (".agents/skills is a link: no skill is read",))


def test_a_name_that_is_not_plain_is_left_out(tmp_path: Path) -> None:
    for name in ("Up", "a--b", "a\n- pdf", "ü"):
        make_skill(tmp_path, name)
    assert load_skills(tmp_path)[0] == ()


@given(st.lists(st.text(min_size=1, max_size=400), min_size=1, max_size=40))
def test_all_lines_with_their_title_stay_within_the_budget(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    """Each is one printable line; those that do not fit are said."""
    root = tmp_path_factory.mktemp("root")
    for number, text in enumerate(texts):
        quoted = '"' + "".join(f"\\U{ord(c):08x}" for c in text if not "\ud800" <= c <= "\udfff") + '"'
        make_skill(root, f"skill-{number:02}", f"---\nname: skill-{number:02}\ndescription: {quoted}\n---\n")
    skills, warnings = load_skills(root)
    lines = render_skills(skills)
    assert estimate_tokens(TITLE + lines) <= MAX_TOKENS
    assert not skills or (all(map(str.isprintable, lines.split("\n"))) and lines.count("\n") == len(skills) - 1)
    assert len(skills) == len(texts) or warnings


def test_descriptions_are_cut_before_a_skill_is_left_out(tmp_path: Path) -> None:
    for number in range(MAX_SKILLS + 1):
        name = f"s{number:03}"
        make_skill(tmp_path, name, f"---\nname: {name}\ndescription: {'word ' * 40}\n---\n")
    skills, warnings = load_skills(tmp_path)
    assert 10 < len(skills) < MAX_SKILLS
    assert {len(skill.line) for skill in skills} == {50}
    assert warnings == (
        f"skills from .agents/skills/s{len(skills):03} on are left out: 300 tokens are for all of them",
    )
