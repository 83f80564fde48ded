"""A phase that others landed beside: merged, gated with theirs, repaired where need be, and committed on top."""

from relay.errors import ExitCode
from relay.fleet.landing import Job, LandingCase, find_landing, land
from relay.fleet.merge import prepare
from relay.git.repository import open_repo
from relay.ledger import parse_ledger
from relay.plan.parse import parse_plan
from relay.session.events import GateStarted
from relay.setup.account import read_spent
from relay.store.history import read_plan_commits
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


def make_script(phase, content):
    return f"""
sessions:
  - name: phase
    turns:
      - tools:
        - {{name: write, input: {{path: all.txt, content: "{content}"}}}}
        - {{name: record, input: {{claim: "claim of {phase}", because: "tried it", sources: ["all.txt:1"]}}}}
        - {{name: tick, input: {{item: "{phase}.1", evidence: "grep"}}}}
      - text: "Commit: Phase {phase} speaks"
"""


def add_job(stage, phase_id):
    """A work tree of its own for a phase."""
    place = stage.root.parent / f"job-{phase_id}"
    stage.git("worktree", "add", "-q", "-b", f"relay-jobs/main/{phase_id}", str(place))
    made = Stage(root=place, waits=stage.waits, interrupts=stage.interrupts)
    made.cache, made.arranged, made.find_program = stage.cache, stage.arranged, stage.find_program
    return made, Job(phase_id=phase_id, plan_path="PLAN.md", repo=open_repo(place))


def work_apart(stage, *contents, verify="grep -q world all.txt"):
    """Two phases side by side, done; the first one landed."""
    stage.write("PLAN.md", PLAN.replace("grep -q world all.txt", verify))
    stage.write("all.txt", START)
    stage.commit()
    jobs = [add_job(stage, "1"), add_job(stage, "2")]
    for (place, job), content in zip(jobs, contents, strict=True):
        ended = place.run(make_script(job.phase_id, content.replace("\n", "\\n")), phase=job.phase_id)
        assert ended.exit_code == ExitCode.DONE, ended
    main = open_repo(stage.root)
    land(main, jobs[0][1], find_landing(main, jobs[0][1]))
    assert find_landing(main, jobs[1][1]).case is LandingCase.APART
    return main, *jobs[1]


HELLO, WORLD = START.replace("start", "hello"), START.replace("end", "world")


def play(place, phase_id, sessions=()):
    """Have a run in a job's work tree go on; with no sessions, it must need none."""
    runner = ScriptedRunner(sessions=list(sessions))
    return place.play(runner, phase=phase_id), runner


def find_commit(repo, commit):
    return next(one for one in read_plan_commits(repo, "PLAN.md") if one.commit == commit)


def find_trailers(stage, rev="HEAD"):
    text = stage.git("show", "-s", "--format=%(trailers:only,unfold)", rev)
    return dict(line.split(": ", 1) for line in text.strip().splitlines())


def test_what_goes_together_is_merged_gated_and_landed_without_a_session(stage):
    """One commit with two parents, both gates on the merged tree, ticks and claims of both, no cost counted twice."""
    main, place, job = work_apart(stage, HELLO, WORLD)
    tip, own = stage.git("rev-parse", "main").strip(), place.git("rev-parse", "HEAD").strip()
    spent = read_spent(main, "PLAN.md")
    assert spent.usage.output_tokens == 2 * find_commit(main, tip).usage.output_tokens
    assert prepare(job, find_landing(main, job)) == ()
    assert find_landing(main, job).case is LandingCase.MERGING
    assert place.git("status", "--porcelain") == ""  # it is where the others are, with the merge in its leg
    why = place.relay("status", "--why").stdout
    assert f"Phase 2 is done ({own[:10]}), and others have landed meanwhile" in " ".join(why.split())
    assert read_spent(main, "PLAN.md") == spent
    ended, _ = play(place, "2")
    assert ended.exit_code == ExitCode.DONE, ended
    assert [gate.commands for gate in place.seen(GateStarted)] == [("grep -q world all.txt", "grep -q hello all.txt")]
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
    assert read_spent(main, "PLAN.md") == spent
    assert stage.git("status", "--porcelain") == ""


def test_what_git_cannot_merge_goes_to_a_session_that_is_told(stage):
    """No mark of the merge gets into a commit, even where the gates pass with it."""
    main, place, job = work_apart(stage, START.replace("start", "hello"), START.replace("start", "world"))
    assert prepare(job, find_landing(main, job)) == ("git could not merge all.txt: a session has to",)
    repair = ("write", {"path": "all.txt", "content": START.replace("start", "hello, world")})
    ended, runner = play(place, "2", [[[], [repair]]])
    assert ended.exit_code == ExitCode.DONE, ended
    assert "Git could not merge all.txt" in runner.told[0]
    assert "phase 1: Phase 1 — Hello" in runner.told[0]
    assert "+hello" in runner.told[0]
    assert "+world" in runner.told[0]
    assert "marks of the merge are left in all.txt" in runner.told[1]
    land(main, job, find_landing(main, job))
    assert (stage.root / "all.txt").read_text().startswith("hello, world\n")


def test_what_is_red_together_goes_to_a_session_that_is_told(stage):
    """Each gate was green by itself."""
    few = "test $(wc -w < all.txt) -le 7 && grep -q world all.txt"
    main, place, job = work_apart(stage, HELLO.replace("hello", "hello there"), WORLD, verify=few)
    prepare(job, find_landing(main, job))
    repair = ("write", {"path": "all.txt", "content": "hello 2 3 4 5 and world\n"})
    ended, runner = play(place, "2", [[[], [repair]]])
    assert ended.exit_code == ExitCode.DONE, ended
    assert "Both are merged in the work tree" in runner.told[0]
    land(main, job, find_landing(main, job))
