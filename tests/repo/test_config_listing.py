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


CHANGES = {
    "its own": lambda box: box.git("config", "filter.evil.clean", "touch executed"),
    "the user's": lambda box: (box.home / ".gitconfig").write_text(FILTER, encoding="utf-8"),
    "the user's other": lambda box: (
        (box.home / ".config/git").mkdir(parents=True),
        (box.home / ".config/git/config").write_text(FILTER, encoding="utf-8"),
    ),
    "included": lambda box: box.write("inside.cfg", FILTER),
    "included from an include": lambda box: box.write("deep/inner.cfg", FILTER),
    "included under a condition": lambda box: box.write("conditional.cfg", FILTER),
    "of the work tree": lambda box: (box.root / ".git/config.worktree").write_text(FILTER, encoding="utf-8"),
}


@pytest.fixture
def configured(box):
    box.git("config", "extensions.worktreeConfig", "true")
    include(box, "include", "../inside.cfg")
    include(box, "include", "../outer.cfg")
    include(box, 'includeIf "gitdir:**"', "../conditional.cfg")
    box.write("outer.cfg", "[include]\n\tpath = deep/inner.cfg\n")
    return box


def test_an_unchanged_configuration_is_asked_for_once(box, tmp_path):
    include(box, "include", box.home / "shared.cfg")
    include(box, 'includeIf "gitdir:**"', box.home / "conditional.cfg")
    (box.home / "shared.cfg").write_text("[include]\n\tpath = inner.cfg\n", encoding="utf-8")
    repo, log = count_calls(box.open(), tmp_path)
    listings = {read_listing(repo) for _ in range(5)}
    assert len(listings) == 1
    assert len(log.read_text().splitlines()) <= 2  # the second time the includes are known from the first on


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_configuration_is_asked_for_again(configured, name):
    repo = configured.open()
    before = [read_listing(repo) for _ in range(3)]
    CHANGES[name](configured)
    assert b"filter.evil.clean" not in before[-1]
    assert b"filter.evil.clean" in read_listing(repo)


def test_a_change_of_as_many_bytes_in_the_same_moment_is_seen(configured):
    repo = configured.open()
    file = configured.write("inside.cfg", FILTER)
    found, old = file.stat(), [read_listing(repo) for _ in range(3)]
    with file.open("r+b") as same:
        same.write(FILTER.replace("evil", "good").encode())
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert b"filter.evil.clean" in old[-1]
    assert b"filter.good.clean" in read_listing(repo)


@pytest.mark.parametrize("name", ["shared.cfg", "inner.cfg", ".gitconfig"])
def test_a_changed_file_of_the_user_s_is_seen(box, name):
    include(box, "include", box.home / "shared.cfg")
    (box.home / "shared.cfg").write_text("[include]\n\tpath = inner.cfg\n", encoding="utf-8")
    repo = box.open()
    before = [read_listing(repo) for _ in range(3)]
    with (box.home / name).open("a", encoding="utf-8") as file:
        file.write(FILTER)
    assert b"filter.evil.clean" not in before[-1]
    assert b"filter.evil.clean" in read_listing(repo)


def test_a_file_of_the_user_s_that_leads_into_the_work_tree_is_not_trusted_to_stay(box, tmp_path):
    box.write("dotfiles/gitconfig", "[core]\n")
    (box.home / ".gitconfig").unlink(missing_ok=True)
    (box.home / ".gitconfig").symlink_to(box.root / "dotfiles/gitconfig")
    repo, log = count_calls(box.open(), tmp_path)
    for _ in range(3):
        read_listing(repo)
    assert len(log.read_text().splitlines()) == 3


@pytest.mark.parametrize("ref", ["HEAD", "refs/heads/main"])
def test_a_configuration_that_goes_by_the_branch_is_asked_for_again(configured, ref):
    include(configured, 'includeIf "onbranch:other"', "../branch.cfg")
    configured.write("branch.cfg", FILTER)
    repo = configured.open()
    before = [read_listing(repo) for _ in range(3)]
    configured.git("branch", "other")
    configured.git("symbolic-ref", ref, "refs/heads/other")
    assert b"filter.evil.clean" not in before[-1]
    assert b"filter.evil.clean" in read_listing(repo)


def test_what_cannot_be_compared_is_asked_for_each_time(configured, tmp_path):
    include(configured, "include", "../pipe.cfg")
    include(configured, 'includeIf "future:condition"', "../later.cfg")
    repo, log = count_calls(configured.open(), tmp_path)
    for _ in range(3):
        read_listing(repo)
    assert len(log.read_text().splitlines()) == 3


def test_a_filter_that_appears_while_relay_runs_is_switched_off(configured):
    repo = configured.open()
    for _ in range(3):
        guard(repo)
    configured.write("inside.cfg", FILTER)
    guarded = guard(repo)
    assert find_own_filters(guarded.config) == {"evil"}
    assert ("filter.evil.clean", "") in guarded.git.settings
