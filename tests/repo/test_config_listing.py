"""The configuration is asked for again when anything that it comes from has changed, and only then."""

import os
from dataclasses import replace

import pytest

from relay.git.config_guard import find_own_filters, guard, read_listing

FILTER = '[filter "evil"]\n\tclean = touch executed\n'


def count_calls(repo, tmp_path):
    """Return the repository with a git that notes each start, and the file it notes them in."""
    log, shim = tmp_path / "calls", tmp_path / "git-that-counts"
    shim.write_text(f'#!/bin/sh\necho "$@" >>{log}\nexec {repo.git.program} "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    log.touch()
    return replace(repo, git=replace(repo.git, program=str(shim))), log


def include(box, section, path):
    with (box.root / ".git/config").open("a", encoding="utf-8") as file:
        file.write(f"[{section}]\n\tpath = {path}\n")


def test_an_unchanged_configuration_is_asked_for_once(box, tmp_path):
    repo, log = count_calls(box.open(), tmp_path)
    assert len({read_listing(repo) for _ in range(5)}) == 1
    assert len(log.read_text().splitlines()) == 1
    include(box, "include", "../shared.cfg")  # which may appear
    for _ in range(3):
        read_listing(repo)
    assert len(log.read_text().splitlines()) == 4


CHANGES = {
    "its own": lambda box: box.git("config", "filter.evil.clean", "touch executed"),
    "the user's": lambda box: (box.home / ".gitconfig").write_text(FILTER, encoding="utf-8"),
    "the user's other": lambda box: (
        (box.home / ".config/git").mkdir(parents=True),
        (box.home / ".config/git/config").write_text(FILTER, encoding="utf-8"),
    ),
    "of the work tree": lambda box: (box.root / ".git/config.worktree").write_text(FILTER, encoding="utf-8"),
    "included": lambda box: (include(box, "include", "../inside.cfg"), box.write("inside.cfg", FILTER)),
    "by the branch": lambda box: (
        include(box, 'includeIf "onbranch:other"', "../branch.cfg"),
        box.write("branch.cfg", FILTER),
        read_listing(box.open()),
        box.git("switch", "-q", "-c", "other"),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_configuration_is_asked_for_again(box, name):
    box.git("config", "extensions.worktreeConfig", "true")
    repo = box.open()
    before = [guard(repo) for _ in range(3)]
    CHANGES[name](box)
    guarded = guard(repo)
    assert find_own_filters(before[-1].config) == set()
    assert b"filter.evil.clean" in read_listing(repo)
    if not name.startswith("the user's"):
        assert ("filter.evil.clean", "") in guarded.git.settings


def test_a_change_of_as_many_bytes_in_the_same_moment_is_seen(box):
    include(box, "include", "../inside.cfg")
    file = box.write("inside.cfg", FILTER)
    repo = box.open()
    found, old = file.stat(), [read_listing(repo) for _ in range(3)]
    with file.open("r+b") as same:
        same.write(FILTER.replace("evil", "good").encode())
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert b"filter.evil.clean" in old[-1]
    assert b"filter.good.clean" in read_listing(repo)


def test_a_file_of_the_user_s_that_leads_into_the_work_tree_is_not_trusted_to_stay(box, tmp_path):
    box.write("dotfiles/gitconfig", "[core]\n")
    (box.home / ".gitconfig").unlink(missing_ok=True)
    (box.home / ".gitconfig").symlink_to(box.root / "dotfiles/gitconfig")
    repo, log = count_calls(box.open(), tmp_path)
    for _ in range(3):
        read_listing(repo)
    assert len(log.read_text().splitlines()) == 3
