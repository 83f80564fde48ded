"""A gate that has just passed on the same files is not run again as the next phase's baseline."""

import hashlib
import os
import shutil
import subprocess

import pytest

from relay.base.errors import ExitCode
from relay.run.loop import run as run_plan
from relay.run.selection import Selection
from relay.session.events import GateFinished, GateStarted, Noticed
from relay.session.values import SessionKind
from tests.scripted import ScriptedRunner

PLAN = """\
---
relay: {verify: ["test -d . && test -f AGENTS.md"]}
---
# Greetings

## Phase 1 — Hello
Verify: `grep -q hello hello.txt`
- [ ] Say hello — hello.txt

## Phase 2 — World
Verify: `grep -q world world.txt`
- [ ] Say world — world.txt
"""
BOTH = """
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - tools: [{name: tick, input: {item: "1.1", evidence: "grep"}}]
      - text: "Commit: Say hello"
  - turns:
      - tools: [{name: write, input: {path: world.txt, content: "world\\n"}}]
      - tools: [{name: tick, input: {item: "2.1", evidence: "grep"}}]
      - text: "Commit: Say world"
"""
DOCUMENT = "test -d . && test -f AGENTS.md"


@pytest.fixture
def run(stage):
    def go(document=DOCUMENT):
        stage.write("PLAN.md", PLAN.replace(DOCUMENT, document))
        stage.commit("plan")
        ended = stage.run(BOTH)
        assert ended.exit_code == ExitCode.DONE, ended
        return [event.commands for event in stage.seen(GateStarted) if event.baseline and event.phase_id]

    return go


def test_only_what_has_not_passed_yet_is_run_until_an_ignored_file_changes(stage):
    """Such a file is saved behind the second phase's commit."""
    third = "\n## Phase 3 — Bye\nVerify: `grep -q bye bye.txt`\n- [ ] Say bye — bye.txt\n"
    stage.write("PLAN.md", PLAN + third)
    stage.write(".gitignore", "local.db\n")
    stage.commit("plan")
    runner = ScriptedRunner(sessions=[make_session(f"{n}.1", word) for n, word in enumerate(WORDS, 1)])
    with stage.enter(SessionKind.RUN, flags={"sandbox": "off"}, runner=runner) as ctx:
        for phase in (1, 2, 3):
            if phase == 3:
                stage.write("local.db", "# other\n")
            assert run_plan(ctx, Selection(all=False)).exit_code == ExitCode.DONE
    baselines = [event for event in stage.seen(GateFinished) if event.baseline]
    commands = [event.commands for event in stage.seen(GateStarted) if event.baseline]
    assert [DOCUMENT in ran for ran in commands] == [True, False, True]
    assert commands[1] == ("grep -q world world.txt",)
    assert baselines[1].summary.endswith(f"\nnot run again, because it has just passed: `{DOCUMENT}`")
    assert [check["status"] for check in baselines[1].checks] == ["passed", "failed"]
    assert not baselines[1].passed


WORDS = ("hello", "world", "bye")
REWRITES = "#!/bin/sh\ngrep -qs {word} hello.txt || ! test -f hello.txt || echo {word} >> hello.txt\n"


def install(stage, word):
    hook = stage.root / ".git/hooks/pre-commit"
    hook.write_text(REWRITES.format(word=word))
    hook.chmod(0o755)


@pytest.mark.nightly
def test_what_passed_once_more_on_what_a_hook_rewrote_is_not_run_again(stage, run):
    """That gate saw exactly the commit: a hook that formats costs a second run of the suite, and no third."""
    install(stage, "formatted")
    first, second = run()
    assert (DOCUMENT in first, second) == (True, ("grep -q world world.txt",))
    gates = [event.commands for event in stage.seen(GateStarted) if not event.baseline]
    assert [DOCUMENT in commands for commands in gates] == [True, True, True]


def test_what_a_hook_has_spoilt_is_not_red_as_before_the_phase(stage):
    """The session had made it green: without a word it would be committed red, as a gate that passed."""
    install(stage, "spoilt")
    document = "ls | grep -q txt && ! grep -rqs '[s]poilt' --include='*.txt' ."
    stage.write("PLAN.md", PLAN.replace(DOCUMENT, document))
    stage.commit("plan")
    ended = stage.play(ScriptedRunner(sessions=[make_session("1.1", "hello")]), max_repairs=0)
    assert ended.exit_code == ExitCode.STOPPED
    words = "a commit hook rewrote files and the checks do not pass with them"
    assert f"{words}: `{document}` failed with exit 1." in ended.reason


def make_session(item, name):
    write = ("write", {"path": f"{name}.txt", "content": f"{name}\n"})
    return [[write, ("tick", {"item": item, "evidence": "grep"})]]


def test_what_a_gate_leaves_as_evidence_stands_in_its_event_and_in_the_report(stage):
    """Not in the commit: the baseline's files do not count, and the directory is no part of the work tree."""
    plan = PLAN[: PLAN.index("## Phase 2")].replace("hello.txt`", "hello.txt && cp hello.txt $RELAY_EVIDENCE/shot.txt`")
    stage.write("PLAN.md", plan)
    stage.commit("plan")

    assert stage.run(BOTH[: BOTH.index("  - turns", 40)]).exit_code == ExitCode.DONE

    before, after = [event.evidence for event in stage.seen(GateFinished)]
    digest = hashlib.sha256(b"hello\n").hexdigest()
    assert before == ()
    assert after == ({"name": "shot.txt", "size_bytes": 6, "sha256": digest, "why": ""},)
    assert (stage.root / f".relay/outputs/evidence/{digest}.txt").read_text() == "hello\n"
    assert stage.git("show", "--name-only", "--format=").split() == ["PLAN.md", "hello.txt"]
    assert stage.relay("report", "-o", "page.html").returncode == 0
    page = (stage.root / "page.html").read_text()
    assert "1 file that gates left" in page
    assert digest in page
    assert '<pre tabindex="0">hello</pre>' in page


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a small file system")
def test_evidence_that_the_disk_refuses_is_said_and_stops_no_phase(stage):
    leave = "head -c 90000 /dev/zero > $RELAY_EVIDENCE/shot.png"
    plan = PLAN[: PLAN.index("## Phase 2")].replace("hello.txt`", f"hello.txt && {leave}`")
    stage.write("PLAN.md", plan)
    stage.commit("plan")
    kept = stage.root / ".relay/outputs/evidence"
    kept.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(kept)], check=True)
    try:
        assert stage.run(BOTH[: BOTH.index("  - turns", 40)]).exit_code == ExitCode.DONE
    finally:
        subprocess.run(["umount", str(kept)], check=True)

    words = "shot.png (the disk refuses it: No space left on device)"
    assert f"not kept of the gate's evidence: {words}" in [event.text for event in stage.seen(Noticed) if event.warning]
    assert stage.relay("report", "-o", "page.html").returncode == 0
    page = (stage.root / "page.html").read_text()
    assert page.count("the disk refuses it: No space left on device") == 2  # among the warnings, and in the table
