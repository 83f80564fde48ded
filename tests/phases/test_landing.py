"""Landing a job's phase: every step is found again from git alone."""

import shutil
from pathlib import Path

import pytest

from relay.base.errors import RepoError
from relay.git.repository import open_repo
from relay.plan.parse import parse_plan
from relay.run.phases.landing import Job, LandingCase, find_landing, find_obstacles, land, require_unmoved
from relay.store.obstacles import describe_in_the_way
from relay.store.worktree_notes import note_checked

PLAN = """\
# Two

## Phase 1 — One
- [{}] Do it — one.txt

## Phase 2 — Two
After: none
- [{}] Do it — two.txt
"""


def add_job(box, phase_id):
    """A work tree of its own for a phase, on a branch of its own."""
    place = box.root.parent / f"job-{phase_id}"
    box.git("worktree", "add", "-q", "-b", f"relay-jobs/main/{phase_id}", str(place))
    made = type(box)(root=place, home=box.home)
    return made, Job(phase_id=phase_id, plan_path="PLAN.md", repo=open_repo(place, box.environ))


def finish(box, phase_id):
    """Do a phase as its sessions would, in one commit."""
    box.write(f"{phase_id}.txt")
    plan = (box.root / "PLAN.md").read_text().split("## ")
    plan[int(phase_id)] = plan[int(phase_id)].replace("[ ]", "[x]")
    box.write("PLAN.md", "## ".join(plan))
    return box.commit(f"phase {phase_id}")


@pytest.fixture
def planned(box):
    box.write("PLAN.md", PLAN.format(" ", " "))
    box.commit("plan")
    return box


def test_a_phase_that_nothing_was_landed_beside_goes_forward(planned):
    """Not begun, done, landed: each is what git says, and the work tree of the user's has the files in the end.

    One that this one was landed beside is apart.
    """
    main = planned.open()
    beside, other = add_job(planned, "2")
    note_checked(other.repo, finish(beside, "2"))
    assert find_landing(main, other).case is LandingCase.FORWARD
    place, job = add_job(planned, "1")
    assert find_landing(main, job).case is LandingCase.WORKING
    done = finish(place, "1")
    assert find_landing(main, job).case is LandingCase.APART  # who committed that, nobody knows
    note_checked(job.repo, done)
    landing = find_landing(main, job)
    assert (landing.case, landing.own) == (LandingCase.FORWARD, done)
    assert land(main, job, landing) == ()
    assert [find_landing(main, one).case for one in (job, other)] == [LandingCase.LANDED, LandingCase.APART]
    assert planned.text("rev-parse", "main") == done
    assert planned.text("status", "--porcelain") == ""
    assert "phase 1 lands" in planned.text("reflog", "-1", "main")


def test_only_what_has_work_elsewhere_keeps_its_name(planned):
    """A job in which nothing is done, and one that has landed, hold nobody up."""
    main = planned.open()
    place, job = add_job(planned, "2")
    moved = parse_plan(PLAN.format(" ", " ").replace("Phase 2", "Phase 3"))
    require_unmoved(main, job, moved)
    finish(place, "2")
    require_unmoved(main, job, parse_plan(PLAN.format(" ", " ").replace("two.txt", "2.txt")))
    with pytest.raises(RepoError, match="phase 2, 'Two', is phase 3 in the plan"):
        require_unmoved(main, job, moved)
    with pytest.raises(RepoError, match="is gone in the plan"):
        require_unmoved(main, job, parse_plan(PLAN.format(" ", " ").split("## Phase 2")[0]))
    land(main, job, find_landing(main, job))
    require_unmoved(main, job, moved)


def test_what_the_user_has_there_is_named_and_a_branch_that_moved_is_told(planned):
    main = planned.open()
    place, job = add_job(planned, "1")
    finish(place, "1")
    landing = find_landing(main, job)
    planned.write("1.txt", "the user's")
    assert find_obstacles(main, landing) == ("1.txt",)
    moved = planned.commit("the user's")
    assert land(main, job, landing) is None
    assert planned.text("rev-parse", "main") == moved


def _write(root, path, text="the user's"):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _hide(flag):
    def act(root, git):
        git("update-index", flag, "kept.txt")
        _write(root, "kept.txt")

    return act


def _untrack(root, git):
    git("rm", "-q", "--cached", "kept.txt")
    _write(root, "kept.txt")


def _nest(root, git):
    git("init", "-q", "vendor")
    _write(root, "vendor/f")


IN_THE_WAY = {
    "an ignored file": (lambda root, _: _write(root, "local.yaml"), ["local.yaml"], "local.yaml"),
    "an ignored directory": (lambda root, _: _write(root, "build/out"), ["build"], "build"),
    "an ignored file where a directory comes": (lambda root, _: _write(root, "out"), ["out/a", "out/b"], "out"),
    "a file that the phase stops ignoring": (
        lambda root, _: _write(root, "dev.sqlite3"), [".gitignore", "dev.sqlite3"], "dev.sqlite3"
    ),
    "an ignored link": (lambda root, _: (root / "link").symlink_to("/etc"), ["link/passwd"], "link"),
    "an ignored link to a directory here": (lambda root, _: (root / "link").symlink_to("d"), ["link/new"], "link"),
    "an ignored repository": (_nest, ["vendor"], "vendor"),
    "an ignored file below a removed directory": (lambda root, _: _write(root, "d/a.o"), ["-d/t", "d"], "d/a.o"),
    "an untracked file": (lambda root, _: _write(root, "new.txt"), ["new.txt"], "new.txt"),
    "a changed file": (lambda root, _: _write(root, "kept.txt"), ["kept.txt"], "kept.txt"),
    "a changed file that goes": (lambda root, _: _write(root, "kept.txt"), ["-kept.txt"], "kept.txt"),
    "a file that git must not look at": (_hide("--assume-unchanged"), ["kept.txt"], "kept.txt"),
    "a file that git skips": (_hide("--skip-worktree"), ["-kept.txt"], "kept.txt"),
    "a file that is no longer tracked": (_untrack, ["-kept.txt"], "kept.txt"),
}  # fmt: skip


def test_nothing_of_the_user_s_is_written_over_or_removed(planned):
    """Changed, untracked or ignored: it is named before the landing, and stays if it came in between."""
    planned.write(".gitignore", "local.yaml\nbuild/\n/out\n*.sqlite3\nlink\nvendor/\n*.o\n")
    planned.write("kept.txt", "kept")
    planned.write("d/t", "t")
    planned.commit("before")
    place, job = add_job(planned, "1")
    for root in (planned.root, place.root):
        shutil.copytree(root, f"{root}.before", symlinks=True)
    wrong = []
    for name, (act, paths, named) in IN_THE_WAY.items():
        for root in (planned.root, place.root):
            shutil.rmtree(root)
            shutil.copytree(f"{root}.before", root, symlinks=True)
        for path in paths:
            if path.startswith("-"):
                place.git("rm", "-q", path[1:])
            else:
                _write(place.root, path, "the phase's")
        place.git("add", "-A", "-f")
        note_checked(job.repo, finish(place, "1"))
        act(planned.root, planned.git)
        main = planned.open()
        landing, before = find_landing(main, job), _read_all(planned.root)
        found = find_obstacles(main, landing)
        told = describe_in_the_way(main, found)
        is_told = found == (named,) and told.startswith(f"in the way here: {named} (")
        is_as_before = _read_all(planned.root) == before
        left = land(main, job, landing) or ()
        is_left = any(Path(words.split()[0]).parts[0] == Path(named).parts[0] for words in left)
        after = _read_all(planned.root)
        is_kept = all(after.get(path) == text for path, text in before.items() if text == b"the user's")
        if not (is_told and is_as_before and is_left and is_kept):
            wrong.append((name, told, is_as_before, left, is_kept))
    assert wrong == []


def _read_all(root):
    places = [path for path in root.rglob("*") if ".git" not in path.parts]
    return {place: place.readlink() if place.is_symlink() else _read(place) for place in places}


def _read(place):
    return place.read_bytes() if place.is_file() else None


def test_what_is_there_as_the_phase_has_it_is_not_in_the_way(planned):
    """Untracked, changed, removed and linked; but for a path of which something else is staged."""
    planned.write("gone.txt", "gone")
    planned.write("changed.txt", "old")
    planned.write("staged.txt", "old")
    planned.commit("before")
    place, job = add_job(planned, "1")
    place.git("rm", "-q", "gone.txt")
    place.write("changed.txt", "new")
    place.write("staged.txt", "new")
    place.write("new.sh", "new").chmod(0o755)
    (place.root / "link").symlink_to("new.sh")
    done = finish(place, "1")
    note_checked(job.repo, done)
    main = planned.open()
    landing = find_landing(main, job)
    (planned.root / "gone.txt").unlink()
    planned.write("staged.txt", "the user's")
    planned.git("add", "staged.txt")
    for path in ("changed.txt", "staged.txt", "new.sh"):
        planned.write(path, "new")
    assert find_obstacles(main, landing) == ("new.sh", "staged.txt")
    (planned.root / "new.sh").chmod(0o755)
    (planned.root / "link").symlink_to("new.sh")
    planned.git("reset", "-q", "staged.txt")
    assert find_obstacles(main, landing) == ()
    assert land(main, job, landing) == ()
    assert planned.text("rev-parse", "main") == done
    assert planned.text("status", "--porcelain") == ""
