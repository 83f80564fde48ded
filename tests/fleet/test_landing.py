"""Landing a job's phase: every step is found again from git alone."""

import pytest

from relay.base.errors import RepoError
from relay.fleet.landing import Job, LandingCase, find_landing, find_obstacles, land, require_unmoved
from relay.git.repository import open_repo
from relay.plan.parse import parse_plan
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
    """Not begun, done, landed: each is what git says, and the work tree of the user's has the files in the end."""
    main = planned.open()
    place, job = add_job(planned, "1")
    assert find_landing(main, job).case is LandingCase.WORKING
    done = finish(place, "1")
    assert find_landing(main, job).case is LandingCase.APART  # who committed that, nobody knows
    note_checked(job.repo, done)
    landing = find_landing(main, job)
    assert (landing.case, landing.own) == (LandingCase.FORWARD, done)
    assert land(main, job, landing) == ()
    assert find_landing(main, job).case is LandingCase.LANDED
    assert planned.text("rev-parse", "main") == done
    assert planned.text("status", "--porcelain") == ""
    assert "phase 1 lands" in planned.text("reflog", "-1", "main")


def test_a_phase_that_others_landed_beside_is_apart(planned):
    main = planned.open()
    (one, first), (two, second) = add_job(planned, "1"), add_job(planned, "2")
    finish(one, "1")
    finish(two, "2")
    land(main, first, find_landing(main, first))
    assert find_landing(main, second).case is LandingCase.APART


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
    with pytest.raises(RepoError, match="main moved meanwhile"):
        land(main, job, landing)
    assert planned.text("rev-parse", "main") == moved
