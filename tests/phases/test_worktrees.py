"""Work trees of jobs: made, handed on, taken away; nothing that only they hold is lost."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from relay.base.errors import RepoError
from relay.config import Settings
from relay.git.command import GitError
from relay.git.lock_journal import declare_locks
from relay.git.notes import lock_worktree, write_note
from relay.git.repository import open_repo
from relay.git.worktrees import list_worktrees, remove_worktree
from relay.plan.parse import parse_plan
from relay.run.carry import carry_over
from relay.run.phases.landing import find_landing, land
from relay.run.phases.worktrees import (
    ensure_job,
    find_jobs,
    find_lost,
    is_free,
    look_at_trees,
    name_job_branch,
    remove_free,
)
from relay.session.usage import Spent
from relay.setup.context import PlanFiles
from relay.store.attempts import NOWHERE, AttemptStart, find_owned_paths, open_attempt, read_attempt
from relay.store.checkpoints import WipRecord, save_wip
from relay.store.refs import find_attempt_ref
from relay.store.worktree_notes import find_home, find_made_places, find_other_trees, get_jobs_place, note_checked
from relay.store.worktree_notes import is_checked as find_checked
from tests.effort import take_each

START = AttemptStart(session_id="s-1", phase_id="1", plan_path="PLAN.md")
PLAN = """\
# Two

## Phase 1 — One
- [ ] Do it — one.txt

## Phase 2 — Two
After: none
- [ ] Do it — two.txt
"""


@pytest.fixture
def main(box, monkeypatch):
    monkeypatch.setenv("HOME", str(box.home))
    box.write("PLAN.md", PLAN)
    box.write(".gitignore", "*.local\nnode_modules/\n")
    box.commit("plan")
    return box.open()


def ensure(main, phase_id, *, copied=(), busy=(), start=""):
    job = ensure_job(
        look_at_trees(main, "PLAN.md", repair=True), phase_id, settings=Settings(copy=copied), busy=busy, start=start
    )
    assert job is not None
    return job


def finish(box, main, job):
    """Do a job's phase as its sessions would, and land it."""
    place = type(box)(root=job.repo.root, home=box.home)
    place.write(f"{job.phase_id}.txt")
    text = (place.root / "PLAN.md").read_text().split("## ")
    text[int(job.phase_id)] = text[int(job.phase_id)].replace("[ ]", "[x]")
    place.write("PLAN.md", "## ".join(text))
    place.commit(f"phase {job.phase_id}")
    land(main, job, find_landing(main, job))
    return place


def test_a_job_s_work_tree_lies_beside_the_repository_at_the_plan_s_tip(box, main):
    job = ensure(main, "1")
    assert job.repo.root == get_jobs_place(main.root) / "1"
    assert (job.repo.branch, job.repo.head()) == ("relay-jobs/main/1", main.head())
    assert find_home(job.repo) == main.root
    assert find_home(main) == main.root
    assert find_jobs(main, "PLAN.md") == (job,)
    assert box.text("status", "--porcelain") == ""
    assert not is_free(main, job)
    box.write("more.txt")
    tip = box.commit("more")
    assert ensure(main, "1").repo.root == job.repo.root  # it goes along while nothing is done in it
    assert (job.repo.head(), (job.repo.root / "more.txt").exists()) == (tip, True)
    assert list(remove_free(main, "PLAN.md")) == []
    assert job.repo.root.exists()
    with lock_worktree(job.repo):
        assert ensure_job(look_at_trees(main, "PLAN.md", repair=True), "1", settings=Settings(), busy=()) is None
    box.git("worktree", "lock", str(job.repo.root))  # by somebody, or by a git that was killed as it made it
    assert find_jobs(main, "PLAN.md") == ()


def test_a_clone_with_relays_refs_alone_goes_on_with_the_phase(box, main, new_box):
    """The branch may have gone on since."""
    job = ensure(main, "1")
    attempt = open_attempt(job.repo, START)
    box.write("newer.txt")
    box.commit("meanwhile")
    other = new_box()
    other.git("fetch", "-q", box.root, "main:refs/heads/main", "refs/relay/*:refs/relay/*", "--update-head-ok")
    other.git("reset", "-q", "--hard", "main")
    clone = other.open()
    assert find_lost(look_at_trees(clone, "PLAN.md"), parse_plan(PLAN)) == ("1",)
    there = ensure(clone, "1").repo
    found = read_attempt(there)
    assert found is not None
    assert (there.head(), found.session_id, found.place) == (main.head(), attempt.session_id, NOWHERE)
    assert find_lost(look_at_trees(clone, "PLAN.md"), parse_plan(PLAN)) == ()


def test_places_that_relay_made_are_known_to_each_work_tree(main):
    """Those of another clone beside it too, but no directory that is only called so."""
    job = ensure(main, "1")
    for name in ("other/.git", "other.relay/1", "notes.relay"):
        (main.root.parent / name).mkdir(parents=True)
    made = (get_jobs_place(main.root), main.root.parent / "other.relay")

    assert find_made_places(main, find_other_trees(main)) == tuple(sorted(made))
    assert find_other_trees(job.repo) == (main.root,)
    assert find_made_places(job.repo, (main.root,)) == tuple(sorted(made))


def test_a_free_one_is_handed_on_with_what_git_ignores_in_it(box, main):
    """The next phase finds the dependencies there; the branch that has landed is gone, and a killed relay's lock."""
    job = ensure(main, "1")
    place = finish(box, main, job)
    place.write("node_modules/a.js")
    assert is_free(main, job)
    with declare_locks(job.repo, lock := job.repo.git_dir / "HEAD.lock"):
        lock.touch()
    handed = ensure(main, "2")
    assert handed.repo.root == job.repo.root
    assert (handed.repo.branch, handed.repo.head()) == ("relay-jobs/main/2", main.head())
    assert ((handed.repo.root / "node_modules/a.js").exists(), lock.exists()) == (True, False)
    assert box.text("branch", "--list", "relay-jobs/*").split() == ["+", "relay-jobs/main/2"]


def test_a_phase_begins_where_it_is_said(box, main):
    """In a new work tree, and in one that was handed on with what has landed: that is not below it."""
    begun = box.text("rev-parse", "HEAD")
    job = ensure(main, "1")
    finish(box, main, job)
    beside = box.text("commit-tree", "-p", begun, "-m", "beside", f"{begun}^{{tree}}")
    handed = ensure(main, "2", start=beside)
    assert handed.repo.root == job.repo.root
    assert handed.repo.head() == beside
    assert not (handed.repo.root / "1.txt").exists()
    assert not is_free(main, handed)
    new = ensure(main, "3", start=begun)
    assert new.repo.head() == begun
    assert ensure(main, "3").repo.head() == main.head()


def test_one_that_holds_something_is_not_handed_on(box, main):
    job = ensure(main, "1")
    place = finish(box, main, job)
    place.write("1.txt", "the user's")
    assert ensure(main, "2").repo.root != job.repo.root
    place.git("checkout", "-q", "1.txt")
    place.write("notes.txt")
    assert ensure(main, "3").repo.root != job.repo.root
    (place.root / "notes.txt").unlink()
    with lock_worktree(job.repo):
        assert ensure(main, "4").repo.root != job.repo.root
    assert ensure(main, "5", busy={"1"}).repo.root != job.repo.root
    assert ensure(main, "6").repo.root == job.repo.root


def leave_half(main, place):
    """Leave the note that a relay leaves which is killed while git makes or takes away a work tree."""
    write_note(main, "worktree", str(place))


def test_one_that_was_half_made_when_relay_was_killed_is_made_whole(box, main):
    for far in ("begun", "named", "empty", "files", "torn"):
        whole = ensure(main, "1").repo
        own, place = whole.git_dir, whole.root
        leave_half(main, place)
        (own / "locked").write_text("initializing")
        (own / "index.lock").touch()
        shutil.rmtree(own / "relay")
        if far != "torn":
            (own / "index").unlink()
        else:
            (place / "PLAN.md").write_text(PLAN[:20])
        if far in {"begun", "named", "empty"}:
            for file in place.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        if far in {"begun", "named"}:
            (own / "HEAD").write_text("0" * 40 + "\n")
        if far == "begun":
            (own / "gitdir").unlink()
            place.rmdir()
        job = ensure(main, "1")
        assert job.repo.root == place, far
        assert type(box)(root=place, home=box.home).text("status", "--porcelain") == "", far
        assert (place / "PLAN.md").read_text() == PLAN, far
        assert len(list((box.root / ".git/worktrees").iterdir())) == 1, far
        assert not (main.relay_dir / "worktree").exists(), far


def test_one_that_was_half_removed_when_relay_was_killed_goes(box, main):
    """With its branch: all that it had has landed."""
    place_of_job = finish(box, main, ensure(main, "1"))
    for far in ("begun", "link", "files", "own", "folder", "named", "all"):
        job = ensure(main, "1")
        own, place = job.repo.git_dir, job.repo.root
        leave_half(main, place)
        if far in {"begun", "files"}:
            (place / "PLAN.md").unlink()
        if far in {"link", "files"}:
            (place / ".git").unlink()
        if far == "own":  # its ignore file went first
            place_of_job.write(".relay/outputs/one.txt")
        if far in {"folder", "named", "all"}:
            shutil.rmtree(place)
        if far == "named":
            (own / "gitdir").unlink()
            (own / "HEAD").unlink()
        if far == "all":
            shutil.rmtree(own)
        assert list(remove_free(main, "PLAN.md")) == [], far
        assert not place.exists(), far
        assert not list(box.root.glob(".git/worktrees/*")), far
        assert box.text("branch", "--list", "relay-jobs/*") == "", far


def test_a_git_that_failed_may_have_been_killed_half_way(main):
    """Relay was not, and goes on: the next one looks what became of it."""
    job = ensure(main, "1")
    (job.repo.root / "mine.txt").write_text("mine")
    assert not remove_worktree(main, job.repo.root)
    assert (main.relay_dir / "worktree").exists()
    assert ensure(main, "1") == job
    assert not (main.relay_dir / "worktree").exists()


def test_what_somebody_put_into_a_half_removed_one_stays(box, main):
    job = ensure(main, "1")
    place = finish(box, main, job)
    leave_half(main, place.root)
    (place.root / ".git").unlink()
    (place.root / "PLAN.md").unlink()
    place.write("mine.txt", "mine")
    place.write("1.txt", "mine too")
    [kept] = remove_free(main, "PLAN.md")
    assert (kept.place, "mine.txt" in kept.why) == (job.repo.root, True)
    assert ((place.root / "mine.txt").read_text(), (place.root / "1.txt").read_text()) == ("mine", "mine too")
    assert [tree.branch for tree in list_worktrees(main)] == ["main", "relay-jobs/main/1"]


def test_a_note_of_another_place_is_not_believed(box, main):
    """It may have come out of an archive."""
    box.git("worktree", "add", "-q", "-b", "side", box.root.parent / "7")
    leave_half(main, box.root.parent / "7")
    (box.root.parent / "7/.git").unlink()
    assert list(remove_free(main, "PLAN.md")) == []
    assert not (box.root.parent / "7/.git").exists()


def test_what_git_ignores_is_copied_and_nothing_else(box, main, tmp_path):
    """With modes, dates and links; no secrets but those that are named, no tool's cache, nothing that git tracks."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    box.write(".gitignore", ".env*\n*.local\nnode_modules/\n__pycache__/\n")
    box.commit("ignore")
    for path in ("a.local", "node_modules/deep/b.js", ".env", ".env.test", ".env~", "#.env#", "__pycache__/x.pyc"):
        box.write(path, path)
    (box.root / "node_modules/bin").symlink_to("deep/b.js")
    (box.root / "node_modules/out").symlink_to(secret)
    (box.root / "a.local").chmod(0o640)
    os.utime(box.root / "node_modules/deep/b.js", (1, 1))
    root = ensure(main, "1", copied=(".env.test", "PLAN.md", "missing")).repo.root
    found = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() and path.name != ".git"}
    found -= set(box.text("ls-files").split())
    kept = {"a.local", "node_modules/bin", "node_modules/out", "node_modules/deep/b.js", ".env.test"}
    assert found == kept
    assert (root / "a.local").stat().st_mode & 0o777 == 0o640
    assert (root / "node_modules/deep/b.js").stat().st_mtime == 1
    assert (root / "node_modules/out").readlink() == secret


def test_a_copy_follows_the_user_and_what_a_session_changed_stays(box, main):
    """However deep it is. Installed packages follow the user in any case: he has installed anew."""
    box.write(".gitignore", "*.local\nnode_modules/\n/out/\n")
    box.commit("ignore")
    for path in ("a.local", "b.local", "node_modules/deep/b.js", "out/a/b/c/d/first"):
        box.write(path, "first")
    job = ensure(main, "1")
    (job.repo.root / "out/a/b/c/d/result").write_text("a session's")
    (job.repo.root / "b.local").write_text("a session's")
    (job.repo.root / "node_modules/more.js").write_text("a session's")
    place = finish(box, main, job)
    assert (ensure(main, "2").repo.root, place.root) == (job.repo.root, job.repo.root)
    assert (job.repo.root / "node_modules/more.js").exists()
    place = finish(box, main, replace(job, phase_id="2"))
    for path in ("a.local", "b.local", "node_modules/deep/b.js", "out/more.txt"):
        (box.root / path).unlink(missing_ok=True)
        box.write(path, "second")
    box.write("PLAN.md", f"{PLAN}\n## Phase 3 — Three\n- [ ] Do it — three.txt\n")
    box.commit("more")
    ensure(main, "3")
    texts = [(job.repo.root / path).read_text() for path in ("a.local", "b.local", "node_modules/deep/b.js")]
    assert texts == ["second", "a session's", "second"]
    assert not (job.repo.root / "node_modules/more.js").exists()
    assert (job.repo.root / "out/a/b/c/d/result").read_text() == "a session's"


COPY_AND_DIE = """\
import os, signal, sys
from pathlib import Path
from relay.config import Settings
from relay.git.repository import open_repo
from relay.run.phases.worktrees import ensure_job, look_at_trees
made = []
def count(event, given):
    if event == "open" and str(given[0]).startswith("part-") and given[2] & os.O_CREAT:
        made.append(given)
        if len(made) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
ensure_job(look_at_trees(open_repo(Path(sys.argv[1])), "PLAN.md", repair=True), "1", settings=Settings(), busy=())
"""


@pytest.mark.parametrize("begun", take_each(2, [True, False]))
def test_a_copy_that_a_kill_left_half_made_is_made_anew(box, main, begun):
    """It is no session's work: the next run finds out that the copying did not come to its end."""
    box.write(".gitignore", "/out/\n/rest/\n")
    box.commit("ignore")
    names = [*(f"out/part-{number}" for number in range(5)), "rest/file"]
    for name in names:
        box.write(name, "x")
    subprocess.run([sys.executable, "-c", COPY_AND_DIE, main.root], cwd=Path(__file__).parents[2], check=False)
    own = get_jobs_place(main.root) / "1"
    assert len([*own.glob("out/*")]) == 2
    if begun:
        open_attempt(open_repo(own), START)

    job = ensure(main, "1")

    assert [name for name in names if not (job.repo.root / name).exists()] == []


def test_a_directory_that_is_lent_has_nothing_that_sessions_must_not_see(box, main, monkeypatch):
    monkeypatch.setattr("relay.setup.ignored.MOST_FILES", 1)
    box.write(".gitignore", "data/\n")
    box.commit("ignore")
    for path in ("data/a", "data/b", "data/deep/.env"):
        box.write(path, path)
    with pytest.raises(RepoError, match=r"data is too large to copy, and has data/deep/\.env") as caught:
        ensure(main, "1")
    assert "add data to paths.hide" in str(caught.value.hint)
    (box.root / "data/deep/.env").unlink()
    job = ensure(main, "1")
    assert list((job.repo.root / "data").iterdir()) == []


def test_what_is_not_a_directory_beside_the_repository_is_left_alone(box, main, monkeypatch):
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    beside = main.root.with_name(f"{main.root.name}.relay")
    beside.write_text("mine")
    for phase_id in ("1", "2"):
        assert ensure(main, phase_id).repo.root.is_relative_to(box.home / ".local/share/relay/trees"), phase_id
        assert beside.is_symlink() or beside.read_text() == "mine"
        beside.unlink()
        beside.symlink_to(box.home)


def test_what_no_commit_has_keeps_a_work_tree_and_is_named(box, main):
    """Without it the tree goes, with its branch; what relay kept there comes home. A copy is not only there."""
    swap = box.write("swap.local", "of an editor that is open")
    job = ensure(main, "1")
    swap.unlink()
    place = finish(box, main, job)
    for path in (".relay/.gitignore", ".relay/outputs/one.txt", ".relay/outputs/evidence/ab.png"):
        place.write(path, "*\n")
    only = place.write("only.local", "here")
    [kept] = remove_free(main, "PLAN.md")
    assert (kept.place, only.read_text()) == (job.repo.root, "here")
    assert kept.why == "git ignores only.local in it"
    only.unlink()
    hidden = place.write(".env", "here")
    assert [kept.why for kept in remove_free(main, "PLAN.md")] == ["no commit has .env in it"]
    hidden.unlink()
    assert list(remove_free(main, "PLAN.md")) == []
    assert not get_jobs_place(main.root).exists()
    assert [(box.root / ".relay/outputs" / name).read_text() for name in ("one.txt", "evidence/ab.png")] == ["*\n"] * 2
    assert box.text("branch", "--list", "relay-jobs/*") == ""
    assert len(list_worktrees(main)) == 1


def test_packages_that_git_does_not_ignore_keep_no_work_tree(box, main):
    """Relay copied them there, since a project may forget the line: else each phase would leave a tree."""
    box.write(".gitignore", "*.local\n")
    box.write("package.json", "{}")
    box.commit("no line")
    box.write("node_modules/a/package.json", "{}")
    job = ensure(main, "1")
    place = type(box)(root=job.repo.root, home=box.home)
    assert (place.root / "node_modules/a/package.json").exists()
    place.write("PLAN.md", PLAN.replace("[ ]", "[x]", 1))
    place.git("commit", "-qam", "phase 1")
    land(main, job, find_landing(main, job))
    assert list(remove_free(main, "PLAN.md")) == []
    assert not place.root.exists()
    assert (box.root / "node_modules/a/package.json").exists()


def test_what_git_could_not_remove_of_one_that_it_has_forgotten_goes_all_the_same(main, box, tmp_path, monkeypatch):
    """As a disk that fails once leaves it: git goes on behind a file that it cannot remove."""
    job = ensure(main, "1")
    place = type(box)(root=job.repo.root, home=box.home)
    place.write("PLAN.md", PLAN.replace("[ ]", "[x]", 1))
    place.git("commit", "-qam", "phase 1")
    land(main, job, find_landing(main, job))
    script = tmp_path / "bin/git"
    script.parent.mkdir()
    left = f'case "$*" in *"worktree remove"*) {{ mkdir {place.root} && echo > {place.root}/left; exit 255; }} ;; esac'
    script.write_text(f'#!/bin/sh\n{shutil.which("git")} "$@"\ncode=$?\n{left}\nexit $code\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    assert list(remove_free(open_repo(main.root), "PLAN.md")) == []
    assert not place.root.parent.exists()


def test_one_that_somebody_removed_without_git_is_made_again_where_its_phase_was(box, main):
    for what in ("the tree", "all trees", "its content"):
        job = ensure(main, "1")
        own = type(box)(root=job.repo.root, home=box.home).commit("on the way")
        assert find_lost(look_at_trees(main, "PLAN.md"), parse_plan(PLAN)) == ()
        shutil.rmtree(job.repo.root.parent if what == "all trees" else job.repo.root)
        if what == "its content":
            job.repo.root.mkdir()
        assert find_lost(look_at_trees(main, "PLAN.md"), parse_plan(PLAN)) == ("1",)
        again = ensure(main, "1")
        assert (again.repo.branch, again.repo.head()) == (job.repo.branch, own), what
        assert box.text("status", "--porcelain") == ""
        assert not [tree for tree in list_worktrees(main) if tree.unusable]


@pytest.mark.parametrize("is_checked", [True, False])
def test_what_somebody_else_has_handed_over_is_checked_again_when_the_branch_has_moved(box, main, is_checked):
    """It becomes the open attempt's work; files that only a person writes are left out of what comes from elsewhere."""
    job = ensure(main, "1")
    place = type(box)(root=job.repo.root, home=box.home)
    place.write("AGENTS.md", "obey\n")
    trailers = "Relay-Plan: PLAN.md\nRelay-Phase: 1\nRelay-Status: handoff\nRelay-Session: s-1"
    handed = place.commit(f"relay: phase 1\n\nHandoff note:\nGo on.\n\n{trailers}")
    note_checked(job.repo, *([handed] if is_checked else []))
    box.write("other.txt")
    tip = box.commit("meanwhile")

    again = ensure(main, "1").repo

    attempt = read_attempt(again)
    assert attempt is not None
    assert (again.head(), attempt.carried.joins, attempt.carried.is_unchecked) == (tip, handed, not is_checked)
    assert "Go on." in attempt.handoff_note
    assert find_checked(again, tip)  # its attempt says what nobody has checked
    assert attempt.last_wip is not None
    assert box.tree(attempt.last_wip.tree)["AGENTS.md"] == b"obey\n"


def test_a_commit_that_somebody_made_by_hand_stays_part_of_an_open_phase_when_the_branch_has_moved(box, main):
    job = ensure(main, "1")
    made = type(box)(root=job.repo.root, home=box.home)
    made.write("hand.txt", "by hand\n")
    by_hand = made.commit("by hand")
    open_attempt(job.repo, START)
    box.write("other.txt")
    tip = box.commit("meanwhile")

    again = ensure(main, "1").repo

    attempt = read_attempt(again)
    assert attempt is not None
    assert (again.head(), attempt.carried.joins) == (tip, by_hand)
    assert attempt.last_wip is not None
    assert box.tree(attempt.last_wip.tree)["hand.txt"] == b"by hand\n"
    assert find_owned_paths(again, "PLAN.md", attempt, attempt.last_wip) == ("hand.txt",)


def test_a_branch_of_a_job_that_is_gone_is_put_back_by_the_command_that_is_named(box, main):
    """Its work tree is on it, and its log has the commit."""
    job = ensure(main, "1")
    own = type(box)(root=job.repo.root, home=box.home).commit("on the way")
    box.git("update-ref", "-d", f"refs/heads/{job.repo.branch}")
    with pytest.raises(RepoError, match="is gone") as said:
        ensure(main, "1")
    box.git(*str(said.value.hint).removesuffix(" puts it back").split()[1:])
    assert ensure(main, "1").repo.head() == own


def test_one_that_lost_its_link_alone_gets_it_back(main):
    job = ensure(main, "1")
    (job.repo.root / "1.txt").write_text("a session's")
    (job.repo.root / ".git").unlink()
    assert ensure(main, "1").repo.root == job.repo.root
    assert (job.repo.root / "1.txt").read_text() == "a session's"


def test_one_that_was_removed_in_part_goes_on_from_its_last_checkpoint(main):
    """What is left of it is no work of the phase: no checkpoint takes it, and missing files come back."""
    job = ensure(main, "1")
    (job.repo.root / "1.txt").write_text("a session's")
    attempt = save_wip(job.repo, open_attempt(job.repo, START), WipRecord(spend=Spent(), items=()))
    for name in ("PLAN.md", "1.txt", ".git"):
        (job.repo.root / name).unlink()
    with pytest.raises(RepoError, match="was removed while relay worked in it"):
        save_wip(job.repo, attempt, WipRecord(spend=Spent(), items=()))

    again = ensure(main, "1")

    assert (again.repo.root / "PLAN.md").read_text() == PLAN
    kept = read_attempt(again.repo)
    assert kept is not None
    assert (kept.place, kept.last_wip) == (NOWHERE, attempt.last_wip)


def test_an_open_phase_whose_work_tree_was_made_again_goes_on_with_its_checkpoint_on_what_is_new(box, main):
    """Nothing of the user's commits looks undone, and nothing of the session's, killed between two refs or not.

    The user put a phase above it: it goes on under its new number.
    """
    box.write("both.txt", "1\n\n\n2\n")
    box.commit("both")
    job = ensure(main, "1")
    attempt = open_attempt(job.repo, START)
    (job.repo.root / "1.txt").write_text("a session's")
    (job.repo.root / "both.txt").write_text("ONE\n\n\n2\n")
    save_wip(job.repo, attempt, WipRecord(spend=Spent(), items=()))
    box.write("other.txt", "new\n")
    box.write("both.txt", "1\n\n\nTWO\n")
    above = "## Phase 1 — Zero\n- [ ] Do it — zero.txt\n\n## Phase 2 — One"
    plan = PLAN.replace("Phase 2 — Two", "Phase 3 — Two").replace("## Phase 1 — One", above)
    box.write("PLAN.md", plan)
    tip = box.commit("meanwhile")
    shutil.rmtree(job.repo.root)

    again = ensure(main, "1").repo

    kept, files = read_attempt(again), PlanFiles(repo=again, plan_path="PLAN.md", ledger_path="PLAN.ledger.yaml")
    assert (again.head(), (again.root / "1.txt").exists()) == (tip, False)
    expected = {"1.txt": b"a session's", "both.txt": b"ONE\n\n\nTWO\n", "other.txt": b"new\n"}
    for is_repeated in (False, True):
        if is_repeated:
            box.git("update-ref", find_attempt_ref(str(again.branch)), kept.commit if kept else "")
            kept = read_attempt(again)
        assert kept is not None
        carried = carry_over(files, parse_plan(plan), kept, lambda _: None)
        assert (carried.base_head, carried.place, carried.phase_id) == (tip, NOWHERE, "2")
        assert carried.last_wip is not None
        assert {path: box.tree(carried.last_wip.tree)[path] for path in expected} == expected
        assert find_owned_paths(again, "PLAN.md", carried, carried.last_wip) == ("1.txt", "both.txt")


def test_one_that_is_gone_and_locked_is_the_user_s_to_unlock(box, main):
    """It may be on a disk that is not there just now; what is said to be typed helps."""
    job = ensure(main, "1")
    box.git("worktree", "lock", "--reason", "away", str(job.repo.root))
    shutil.rmtree(job.repo.root)
    with pytest.raises(RepoError, match="locked away") as said:
        ensure(main, "1")
    box.git(*str(said.value.hint).split()[1:])
    assert ensure(main, "1").repo.root == job.repo.root


def test_one_that_is_gone_while_a_relay_is_at_work_there_is_taken(main):
    job = ensure(main, "1")
    with lock_worktree(job.repo):
        shutil.rmtree(job.repo.root)
        assert ensure_job(look_at_trees(main, "PLAN.md", repair=True), "1", settings=Settings(), busy=()) is None
    assert ensure(main, "1").repo.root == job.repo.root


def test_branches_of_jobs_say_whose_they_are(box, main):
    box.git("switch", "-qc", "feature/50%")
    assert name_job_branch(main, "2.1") == "relay-jobs/feature%2F50%25/2.1"
    ensure(main, "1")
    box.git("switch", "-q", "main")
    assert find_jobs(main, "PLAN.md") == ()
    box.git("switch", "-q", "--detach")
    assert find_jobs(main, "PLAN.md") == ()
    with pytest.raises(RepoError, match="detached"):
        name_job_branch(main, "1")


def require_git_s_list(box):
    """Demand that relay lists the work trees as git does, and fails where git does."""
    main = box.open()
    asked = [
        dict(line.partition(" ")[::2] for line in block.splitlines())
        for block in box.text("worktree", "list", "--porcelain").split("\n\n")
    ]
    wanted = [
        (
            tree["worktree"],
            "locked" in tree or "prunable" in tree,
            tree.get("branch", "").removeprefix("refs/heads/") or None,
        )
        for tree in asked
    ]
    assert [(str(tree.root), bool(tree.unusable), tree.branch) for tree in list_worktrees(main)] == wanted
    with pytest.raises(GitError):
        list_worktrees(replace(main, git=replace(main.git, program="/bin/false")))
    return wanted


def test_what_is_odd_about_work_trees_git_says(box):
    """Detached, locked, gone, without a name or with one that is none; the main one detached, and bare."""
    beside, git_dir = box.root.with_name("beside"), box.root / ".git"
    for name in ("plain", "detached", "locked", "gone"):
        box.git("worktree", "add", "-q", "-b", name, beside / name)
    box.git("switch", "-q", "--detach", cwd=beside / "detached")
    box.git("worktree", "lock", "--reason", "away", beside / "locked")
    shutil.rmtree(beside / "gone")
    for name, place in (("unnamed", b""), ("misnamed", b"/a\0b/.git\n")):  # what git keeps of a work tree
        own = git_dir / "worktrees" / name
        own.mkdir()
        (own / "HEAD").write_text("ref: refs/heads/x\n")
        (own / "gitdir").write_bytes(place)
    assert len(require_git_s_list(box)) == 6
    box.git("switch", "-q", "--detach")
    require_git_s_list(box)
    git_dir.rename(bare := box.root.with_name("bare.git"))
    git_dir.symlink_to(bare)
    require_git_s_list(box)
