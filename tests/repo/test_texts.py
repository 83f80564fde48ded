"""The plan as a commit has it, read from git's files or asked of git."""

import pytest

from relay.git.command import GitError
from relay.store.history import find_text


@pytest.fixture(params=["loose", "packed"])
def full_box(box, request):
    box.write("docs/PLAN.md", "# é\r\n")
    (box.root / "link").symlink_to("docs/PLAN.md")
    box.git("init", "-q", "module")
    box.git("-C", "module", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "--allow-empty", "-m", "x")
    box.git("-c", "advice.addEmbeddedRepo=false", "add", ".")
    box.commit()
    if request.param == "packed":
        box.git("gc", "-q")
    return box


def test_a_text_is_what_git_says(full_box):
    repo, head = full_box.open(), full_box.text("rev-parse", "HEAD")
    for rev in ("HEAD", head, head, full_box.text("rev-parse", "HEAD^{tree}")):
        assert find_text(repo, rev, "docs/PLAN.md") == "# é\r\n"
        assert find_text(repo, rev, "link") == "docs/PLAN.md"
        assert [find_text(repo, rev, path) for path in ("docs", "module", "none", "docs/PLAN.md/x")] == [None] * 4
    assert find_text(repo, None, "docs/PLAN.md") is None
    full_box.write("docs/PLAN.md", "newer\n")
    assert find_text(repo, full_box.commit(), "docs/PLAN.md") == find_text(repo, "HEAD", "docs/PLAN.md") == "newer\n"
    full_box.git("replace", "HEAD", head)
    assert find_text(repo, "HEAD", "docs/PLAN.md") == "# é\r\n"


def test_a_text_that_git_has_lost_is_not_absent(box):
    repo, blob = box.open(), box.text("rev-parse", "HEAD:src/app.py")
    file = box.root / ".git/objects" / blob[:2] / blob[2:]
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(GitError, match="cannot be read as"):
        find_text(repo, "HEAD", "src/app.py")
    file.write_bytes(kept)


def test_an_unborn_branch_has_no_text(new_box):
    assert find_text(new_box().open(), "HEAD", "PLAN.md") is None
