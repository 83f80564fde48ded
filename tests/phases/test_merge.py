"""A phase that others landed beside: merged, gated with theirs, repaired where need be, and committed on top."""

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.git.repository import open_repo
from relay.ledger.model import Claim, append_entry, parse_ledger
from relay.plan.parse import parse_plan
from relay.run.phases.landing import Job, LandingCase, find_landing, find_obstacles, find_phase_id, land
from relay.run.phases.worktrees import bring_together
from relay.run.rewind import get_rewind
from relay.session.events import GateStarted, Noticed
from relay.store.branches import move_branch
from relay.store.history import read_plan_commits
from relay.store.plan_state import read_plan_cost
from relay.store.worktree_notes import note_checked
from tests.conftest import Stage
from tests.scripted import ScriptedRunner

PLAN = """\
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello all.txt`
- [ ] Say hello — all.txt

## Phase 2 — World
After: none
Verify: `grep -q world all.txt`
- [ ] Say world — all.txt
"""
START = "start\n\n1\n2\n3\n4\n5\n\nend\n"


def add_job(stage, phase_id):
    """A work tree of its own for a phase."""
    place = stage.root.parent / f"job-{phase_id}"
    stage.git("worktree", "add", "-q", "-b", f"relay-jobs/main/{phase_id}", str(place))
    made = Stage(root=place, waits=stage.waits, interrupts=stage.interrupts)
    made.arranged, made.find_program = stage.arranged, stage.find_program
    repo = open_repo(place)
    note_checked(repo, repo.head() or "")  # as relay begins one
    return made, Job(phase_id=phase_id, plan_path="PLAN.md", repo=repo)


TRAILERS = """\
Relay-Plan: PLAN.md
Relay-Phase: {phase}
Relay-Status: done
Relay-Items: {phase}.1
Relay-Session: 0000000{phase}
Relay-Gate: pass 0123456789abcdef
Relay-Review: rounds=1 found=0 confirmed=0 open=0 abcdef
Relay-Usage: input=1 output=1
Relay-Cost: 0.01 USD"""


def finish(place, phase_id, files):
    """Commit a phase as a run would, without one."""
    for name, content in files.items():
        place.write(name, content)
    plan = parse_plan((place.root / "PLAN.md").read_text())
    place.write("PLAN.md", plan.tick([f"{phase_id}.1"]).text)
    commit = place.commit(f"Phase {phase_id}\n\n- [x] {phase_id}.1\n\n{TRAILERS.format(phase=phase_id)}")
    note_checked(open_repo(place.root), commit)
    return commit


def land_beside(stage, one, two):
    """Have two phases done side by side, with these files, and the first one landed.

    Returns:
        The repository, the work tree of the second one, and its job.
    """
    (first, job), (place, other) = add_job(stage, "1"), add_job(stage, "2")
    finish(first, "1", one)
    finish(place, "2", two)
    main = open_repo(stage.root)
    land(main, job, find_landing(main, job))
    assert find_landing(main, other).case is LandingCase.APART
    return main, place, other


def speak(stage, one, two, *, verify="grep -q world all.txt"):
    """Two phases that write to one file, side by side, each with a claim of its own."""
    stage.write("PLAN.md", PLAN.replace("grep -q world all.txt", verify))
    stage.write("all.txt", START)
    stage.commit()
    claims = (Claim(id=f"c{n}abcde", claim=f"claim of {n}", because="tried it") for n in (1, 2))
    ledgers = [{"PLAN.ledger.yaml": append_entry(parse_ledger(""), claim).text} for claim in claims]
    return land_beside(stage, {"all.txt": one} | ledgers[0], {"all.txt": two} | ledgers[1])


def put_together(main, job):
    """Put a phase on what others landed, as a run does before it starts one in its work tree."""
    return bring_together(job, find_landing(main, job))


HELLO, WORLD = START.replace("start", "hello"), START.replace("end", "world")


def play(place, phase_id, sessions=(), **flags):
    """Have a run in a job's work tree go on; with no sessions, it must need none."""
    runner = ScriptedRunner(sessions=list(sessions))
    return place.play(runner, phase=phase_id, **flags), runner


def find_commit(repo, commit):
    return next(one for one in read_plan_commits(repo, "PLAN.md") if one.commit == commit)


def find_trailers(stage, rev="HEAD"):
    text = stage.git("show", "-s", "--format=%(trailers:only,unfold)", rev)
    return dict(line.split(": ", 1) for line in text.strip().splitlines())


def test_what_goes_together_is_merged_gated_and_landed_without_a_session(stage):
    """One commit with two parents, both gates on the merged tree, ticks and claims of both, no cost counted twice."""
    main, place, job = speak(stage, HELLO, WORLD)
    tip, own = stage.git("rev-parse", "main").strip(), place.git("rev-parse", "HEAD").strip()
    spent = read_plan_cost(main, "PLAN.md").spent
    assert spent.usage.output_tokens == 2 * find_commit(main, tip).usage.output_tokens
    assert put_together(main, job) == ()
    merging = find_landing(main, job)
    assert (merging.case, merging.done) == (LandingCase.MERGING, own)
    assert place.git("status", "--porcelain") == ""  # it is where the others are, with the merge in its attempt
    why = place.relay("status", "--why").stdout
    assert f"Phase 2 is done ({own[:10]}), and others have landed meanwhile" in " ".join(why.split())
    assert read_plan_cost(main, "PLAN.md").spent == spent
    ended, _ = play(place, "2")
    assert ended.exit_code == ExitCode.DONE, ended
    gates = [gate.commands for gate in place.seen(GateStarted) if not gate.baseline]
    assert gates == [("grep -q world all.txt", "grep -q hello all.txt")]
    landing = find_landing(main, job)
    assert landing.case is LandingCase.FORWARD
    assert land(main, job, landing) == ()
    assert find_landing(main, job).case is LandingCase.LANDED
    assert stage.git("rev-parse", "main^1", "main^2").split() == [tip, own]
    assert (stage.root / "all.txt").read_text() == START.replace("start", "hello").replace("end", "world")
    assert parse_plan((stage.root / "PLAN.md").read_text()).done
    claims = parse_ledger((stage.root / "PLAN.ledger.yaml").read_text()).claims.values()
    assert sorted(claim.claim for claim in claims) == ["claim of 1", "claim of 2"]
    found, before = find_trailers(stage), find_trailers(stage, own)
    assert stage.git("show", "-s", "--format=%s%n%b", "HEAD").startswith(
        stage.git("show", "-s", "--format=%s%n%b", own).partition("Relay-")[0]
    )
    assert found["Relay-Merge"].split()[:2] == [own, before["Relay-Gate"].split()[1]]
    assert found["Relay-Cost"] == "0.00 USD"
    assert read_plan_cost(main, "PLAN.md").spent == spent
    assert stage.git("status", "--porcelain") == ""


def test_what_git_cannot_merge_goes_to_a_session_that_is_told(stage):
    """No mark of the merge gets into a commit, even where the gates pass with it."""
    main, place, job = speak(stage, START.replace("start", "hello"), START.replace("start", "world"))
    put_together(main, job)
    repair = ("write", {"path": "all.txt", "content": START.replace("start", "hello, world")})
    ended, runner = play(place, "2", [[[], [repair]]])
    assert ended.exit_code == ExitCode.DONE, ended
    assert "Git could not merge all.txt" in runner.told[0]
    assert "phase 1: Phase 1 — Hello" in runner.told[0]
    assert "+hello" in runner.told[0]
    assert "+world" in runner.told[0]
    assert "conflict markers are left in all.txt" in runner.told[1]
    land(main, job, find_landing(main, job))
    assert (stage.root / "all.txt").read_text().startswith("hello, world\n")


def test_what_is_red_together_goes_to_a_session_that_is_told(stage):
    """Each gate was green by itself. Where a session cannot help, the phase waits with all of it kept."""
    few = "test $(wc -w < all.txt) -le 7 && grep -q world all.txt"
    main, place, job = speak(stage, HELLO.replace("hello", "hello there"), WORLD, verify=few)
    tip, own = stage.git("rev-parse", "main"), place.git("rev-parse", "HEAD")
    put_together(main, job)
    ended, runner = play(place, "2", [[]], max_repairs=0)
    assert ended.exit_code == ExitCode.STOPPED, ended
    assert "Both are merged in the work tree" in runner.told[0]
    assert "wc -w < all.txt" in runner.told[0]
    assert find_landing(main, job).case is LandingCase.MERGING
    assert stage.git("rev-parse", "main") == tip
    assert own.strip() in stage.git("rev-list", "--glob=refs/relay/leg").split()
    repair = ("write", {"path": "all.txt", "content": "hello 2 3 4 5 and world\n"})
    ended, _ = play(place, "2", [[[repair]]])
    assert ended.exit_code == ExitCode.DONE, ended
    land(main, job, find_landing(main, job))


def test_a_gate_that_a_person_mends_is_that_of_a_phase_whose_merge_was_red(stage):
    few = "test $(wc -w < all.txt) -le 7 && grep -q world all.txt"
    main, place, job = speak(stage, HELLO.replace("hello", "hello there"), WORLD, verify=few)
    put_together(main, job)
    assert play(place, "2", [[]], max_repairs=0)[0].exit_code == ExitCode.STOPPED
    stage.write("PLAN.md", stage.git("show", "main:PLAN.md").replace(few, "grep -q world all.txt"))
    stage.commit("a mended gate")

    assert put_together(main, job) == ()

    ended, _ = play(place, "2")
    assert ended.exit_code == ExitCode.DONE, ended
    assert find_landing(main, job).case is LandingCase.FORWARD
    land(main, job, find_landing(main, job))
    assert parse_plan(stage.git("show", "main:PLAN.md")).done


@pytest.fixture
def apart(stage):
    """The repository, its work tree, and a job whose phase is done, beside another that has landed."""
    return speak(stage, HELLO, WORLD)


def test_an_attempt_whose_branch_did_not_move_is_taken_up_again(stage, apart):
    """Also where the plan's branch has moved meanwhile, before and behind that step."""
    main, place, job = apart
    landing = find_landing(main, job)
    put_together(main, job)
    attempts = stage.git("for-each-ref", "refs/relay/leg")
    assert move_branch(job.repo, "relay-jobs/main/2", landing.tip, landing.own, reason="as before the last step") == ()
    assert find_landing(main, job) == landing
    tip = ""
    for name in ("more", "most"):
        stage.write(f"{name}.txt", name)
        tip = stage.commit("the user's")
        put_together(main, job)
        assert stage.git("for-each-ref", "refs/relay/leg") == attempts
        assert find_landing(main, job).case is LandingCase.MERGING
        assert job.repo.head() == tip
    assert play(place, "2")[0].exit_code == ExitCode.DONE
    assert land(main, job, find_landing(main, job)) == ()
    assert stage.git("rev-parse", "main^1", "main^2").split() == [tip, landing.own]
    assert [(stage.root / name).read_text() for name in ("more.txt", "most.txt")] == ["more", "most"]


@pytest.mark.nightly
def test_what_landed_meanwhile_is_merged_in_turn(stage, apart):
    """The user commits while the merge is committed: the next one takes that in, and its review is the phase's own."""
    main, place, job = apart
    put_together(main, job)
    assert play(place, "2")[0].exit_code == ExitCode.DONE
    stage.write("more.txt", "more")
    stage.commit("the user's")
    landing = find_landing(main, job)
    assert landing.case is LandingCase.APART
    put_together(main, job)
    assert play(place, "2")[0].exit_code == ExitCode.DONE
    assert land(main, job, find_landing(main, job)) == ()
    assert (stage.root / "more.txt").read_text() == "more"
    assert find_trailers(stage)["Relay-Review"] == "rounds=1 found=0 confirmed=0 open=0 abcdef"
    assert read_plan_cost(main, "PLAN.md").spent.cost_usd == pytest.approx(0.02)
    assert list_undone(main, "2") == ["Phase 2", "Phase 2", "Phase 2"]
    assert "the user's" in list_undone(main, "1")


def list_undone(main, phase_id):
    """Return what going back to before a phase would undo, by subject."""
    return [text.message.subject for text in get_rewind(main, "PLAN.md", phase_id).undone]


def test_files_that_are_nobodys_in_a_jobs_work_tree_stay_out_of_its_merge_and_are_kept(stage, apart):
    """One that others landed too has their content in the end, and what was there is below the checkpoint's ref."""
    main, place, job = apart
    stage.write("new.txt", "the user's")
    stage.commit()
    for name in ("new.txt", "made.txt"):
        place.write(name, "left by a tool")
    place.write("all.txt", "torn")
    put_together(main, job)
    assert play(place, "2")[0].exit_code == ExitCode.DONE
    assert land(main, job, find_landing(main, job)) == ()
    assert (place.root / "made.txt").read_text() == "left by a tool"
    assert stage.git("show", "main:new.txt") == "the user's"
    assert stage.git("show", "main:all.txt") == START.replace("start", "hello").replace("end", "world")
    assert "made.txt" not in stage.git("ls-tree", "-r", "--name-only", "main").splitlines()
    kept = stage.git("rev-list", "--objects", "--glob=refs/relay/wip")
    assert all(stage.git("hash-object", "--stdin", answer=text).strip() in kept for text in ("left by a tool", "torn"))


def test_only_what_the_phase_changes_can_be_in_its_way(stage, apart):
    main, place, job = apart
    finish(place, "2", {"own.txt": "of the phase's own", "common.txt": "both have made it"})
    stage.write("common.txt", "both have made it")
    stage.commit()
    stage.write("PLAN.md", (stage.root / "PLAN.md").read_text() + "\n")
    assert find_obstacles(main, find_landing(main, job)) == ("PLAN.md",)
    stage.git("checkout", "-q", "PLAN.md")
    stage.write("own.txt", "the user's")
    assert find_obstacles(main, find_landing(main, job)) == ("own.txt",)


def test_a_phase_that_the_plan_has_lost_is_told(stage, apart):
    main, _, job = apart
    stage.write("PLAN.md", (stage.root / "PLAN.md").read_text().partition("\n## Phase 2")[0])
    stage.commit("the user's")
    with pytest.raises(RepoError, match="phase 2 has commits on relay-jobs/main/2, and is not in the plan any more"):
        put_together(main, job)


def test_what_persons_did_to_the_plan_on_both_sides_is_taken_or_told(stage, apart):
    """Here an item was reworded: it is ticked, and the commit says so. In the job's work tree notes are taken."""
    main, place, job = apart
    stage.edit("Say world", "Say world twice")
    stage.commit("the user's")
    plan = (place.root / "PLAN.md").read_text()
    place.write("PLAN.md", plan.replace("# Greetings", "# Threats") + "### Notes\n- by hand\n")
    note_checked(open_repo(place.root), place.commit("by hand"))
    words = "item 2.1 was done as `Say world — all.txt`, and was reworded meanwhile: `Say world twice — all.txt`"
    taken = "of what was done to the plan, only ticks, added items and notes are taken"
    put_together(main, job)
    assert play(place, "2")[0].exit_code == ExitCode.DONE
    said = {notice.text for notice in place.seen(Noticed)}
    assert said >= {f"phase 2: {words}", f"phase 2: {taken}"}
    assert land(main, job, find_landing(main, job)) == ()
    landed = (stage.root / "PLAN.md").read_text()
    assert ("Threats" in landed, "- by hand\n" in landed, "- [x] Say world twice" in landed) == (False, True, True)
    assert find_trailers(stage)["Relay-Doubt"] == words


@pytest.mark.nightly
def test_a_phase_with_another_number_lands_under_that(stage, apart):
    """The user put a phase above it; the job's run is given the number that the plan has now."""
    main, place, job = apart
    plan = (stage.root / "PLAN.md").read_text()
    above = "## Phase 2 — Between\nAfter: none\nVerify: `true`\n- [ ] b\n\n## Phase 3 — World"
    stage.write("PLAN.md", plan.replace("## Phase 2 — World", above))
    stage.commit("the user's")
    put_together(main, job)
    assert find_phase_id(job) == "3"
    assert play(place, "3")[0].exit_code == ExitCode.DONE
    assert land(main, job, find_landing(main, job)) == ()
    assert parse_plan((stage.root / "PLAN.md").read_text()).done_ids == {"1.1", "3.1"}
