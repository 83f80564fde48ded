"""Plan files that git ignores, that are links, or whose line ends git converts."""

import subprocess

import pytest

from relay.base.errors import PlanError
from relay.base.hints import AT_ROOT
from tests.effort import take_each


def read_committed(stage, path="PLAN.md"):
    done = subprocess.run(["git", "cat-file", "blob", f"HEAD:{path}"], cwd=stage.root, check=True, capture_output=True)
    return done.stdout


@pytest.mark.parametrize("name", take_each(2, ["plans/PLAN.md", "PLAN.md"]))
def test_a_plan_behind_a_symlink_is_refused_with_the_path_that_works(stage, finish, name):
    """Neither is the link replaced by a file nor the link's target taken for the plan's text."""
    stage.write("docs/PLAN.md", (stage.root / "PLAN.md").read_text())
    (stage.root / "PLAN.md").unlink()
    link, target = ("PLAN.md", "docs/PLAN.md") if name == "PLAN.md" else ("plans", "docs")
    (stage.root / link).symlink_to(target)
    stage.commit("link")
    stage.plan_path = name

    with pytest.raises(PlanError, match=f"{name} leads through a symbolic link to docs/PLAN.md") as caught:
        finish()

    assert AT_ROOT.write(caught.value.hint) == "--plan docs/PLAN.md"
    assert (stage.root / link).is_symlink()
    stage.plan_path = "docs/PLAN.md"
    assert finish() == ["docs/PLAN.md", "hello.txt"]
    assert (stage.root / link).is_symlink()
    assert stage.git("status", "--porcelain") == ""


def test_an_edited_plan_with_crlf_is_amended_and_ticked_in_place(stage, finish):
    """The blob has LF as git stores it with autocrlf, the file keeps CRLF, and each tick is one byte of it."""
    stage.git("config", "core.autocrlf", "true")
    edited = (stage.root / "PLAN.md").read_bytes().replace(b"\n", b"\r\n").replace(b"Say hello", b"Say a hello")
    (stage.root / "PLAN.md").write_bytes(edited)

    assert finish() == ["PLAN.md", "hello.txt"]
    assert [commit.status for commit in stage.commits()] == ["done", "amended"]
    ticked = edited.replace(b"- [ ] Say a hello", b"- [x] Say a hello")
    assert (stage.root / "PLAN.md").read_bytes() == ticked
    assert read_committed(stage) == ticked.replace(b"\r\n", b"\n")
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("attributes", "ends"),
    take_each(3, [("", b"\r\n"), ("* text=auto\n", b"\r\n"), ("*.md -text\n", b"\r\n"), ("*.md text\n", b"\n")]),
)
def test_a_plan_that_was_committed_with_crlf_before_its_conversion(stage, finish, attributes, ends):
    """Git leaves such a file as it is until somebody asks for LF: so does a tick, which changes one byte."""
    plan = (stage.root / "PLAN.md").read_bytes().replace(b"\n", b"\r\n")
    (stage.root / "PLAN.md").write_bytes(plan)
    stage.commit("crlf")
    stage.git("config", "core.autocrlf", "true")
    if attributes:
        stage.write(".gitattributes", attributes)
        stage.git("add", ".gitattributes")
        stage.git("commit", "-q", "-m", "attributes")

    assert finish() == ["PLAN.md", "hello.txt"]
    ticked = plan.replace(b"- [ ] Say hello", b"- [x] Say hello")
    assert (stage.root / "PLAN.md").read_bytes() == ticked
    assert read_committed(stage) == ticked.replace(b"\r\n", ends)
    assert stage.git("status", "--porcelain") == ""
