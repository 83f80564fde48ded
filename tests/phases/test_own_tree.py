"""`relay run` works in a tree of its own, at the user's path, and the user's checkout is the user's."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from relay.base.errors import ExitCode, SandboxError
from relay.base.interrupts import Interrupts
from relay.config import Settings
from relay.git.notes import lock_worktree
from relay.git.repository import open_repo
from relay.plan.parse import parse_plan
from relay.run.carry import carry_over
from relay.sandbox import private_folder
from relay.sandbox import run as sandboxes
from relay.session.events import Event, RunStarted
from relay.session.usage import Spent
from relay.session.values import SessionKind
from relay.setup.context import PlanFiles, RunRequest
from relay.setup.open import open_run
from relay.store.attempts import read_attempt
from relay.store.branches import move_branch
from relay.store.history import read_relay_commits
from relay.store.plan_state import read_plan_cost
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.phases.bench import GATES, HOLD, Bench, make_plan, write_session
from tests.scripted import ScriptedRunner
from tests.waiting import wait_until

TWO = write_session(2, "echo 2 > 2.txt")
HELD = write_session(1, HOLD, "echo 1 > 1.txt")


def test_a_session_sees_what_git_ignores_at_the_user_s_path_and_changes_nothing_of_the_user_s(stage):
    """Copies in relay's tree: what it does there is the next phase's, and none of it is in the checkout."""
    gate = "test -s 1.txt && test -s src/_version.py && test -x deps/tool"
    ignored = "_version.py\n/deps/\n.env\n*.local\n"
    bench = Bench(
        stage, make_plan(gate, "test -s 2.txt && test -s 1.txt"), **{".gitignore": ignored, "kept.txt": "committed"}
    )
    for path, text in (("src/_version.py", "version = 1"), ("deps/tool", "#!/bin/sh\n"), (".env", "SECRET=1")):
        stage.write(path, text)
    (stage.root / "deps/tool").chmod(0o755)
    stage.write("kept.txt", "edited")
    stage.write("new.txt", "mine")
    said = "out=said.txt; (pwd; cat kept.txt; echo; ls; cat .env; git status --short; git log --oneline) > $out 2>&1"
    one = write_session(1, said, "echo more > deps/more; echo 1 > 1.txt")
    out = bench.play([one, write_session(2, "cat deps/more > 2.txt; touch .git/x; git add 2.txt")])
    assert "this run does not see what you have not committed: kept.txt, new.txt" in out
    assert (stage.root / "said.txt").read_text().splitlines()[:2] == [str(stage.root), "committed"]
    assert (stage.root / "kept.txt").read_text() == "edited"
    assert (stage.root / "2.txt").read_text() == "more\n"
    assert not (stage.root / "deps/more").exists()
    assert stage.git("status", "--porcelain") == " M kept.txt\n?? new.txt\n"


@contextlib.contextmanager
def opened_apart(stage, events):
    request = RunRequest(
        kind=SessionKind.RUN,
        repo=open_repo(stage.root),
        settings=Settings(runner="scripted"),
        plan_path="PLAN.md",
        environ={"PATH": "/usr/bin:/bin"},
        is_apart=True,
    )
    runners = {"scripted": ScriptedRunner([]).kind}
    with (
        contextlib.closing(Interrupts()) as interrupts,
        open_run(request, events.append, interrupts, runners=runners) as ctx,
    ):
        yield ctx


def test_only_a_commit_in_the_user_s_checkout_needs_a_sandbox_of_it(stage, monkeypatch):
    """One that opens proves itself, and looks through the whole tree."""
    events: list[Event] = []
    with tempfile.TemporaryDirectory() as name:  # a socket's path must be short
        folder = Path(name)
        monkeypatch.setattr(private_folder, "find_folder", lambda: folder)
        with opened_apart(stage, events) as ctx:
            before = [*folder.iterdir()]
            assert ctx.workspace is ctx.workspace
            opened = [*folder.iterdir()]
        assert (before, len(opened), [*folder.iterdir()]) == ([], 1, [])
    assert [event.sandbox for event in events if isinstance(event, RunStarted)] == ["bwrap"]


def test_without_bubblewrap_a_run_ends_before_it_begins(stage, monkeypatch):
    monkeypatch.setattr(sandboxes, "find_bwrap", lambda: None)
    events: list[Event] = []
    with pytest.raises(SandboxError, match=r"bubblewrap .* is not installed"), opened_apart(stage, events):
        pass
    assert not any(isinstance(event, RunStarted) for event in events)


def add_submodule(stage):
    inner = stage.root.with_name("inner")
    stage.git("init", "-q", str(inner))
    stage.write("../inner/inner.txt", "inner\n")
    stage.git("-C", str(inner), "add", ".")
    stage.git("-C", str(inner), "commit", "-qm", "inner")
    stage.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")


def test_a_submodule_has_its_files(stage):
    """Git fills none in a linked work tree. What a session writes in one is in no commit, and not the user's."""
    add_submodule(stage)
    bench = Bench(stage, make_plan("test -s 1.txt && test -s sub/inner.txt"))
    bench.play([write_session(1, "echo x >> sub/inner.txt; git status --short > 1.txt; cat sub/inner.txt >> 1.txt")])
    assert (stage.root / "1.txt").read_text() == "?? 1.txt\ninner\nx\n"
    assert stage.git("status", "--porcelain") == ""
    assert (stage.root / "sub/inner.txt").read_text() == "inner\n"


def test_a_submodule_that_the_user_adds_meanwhile_keeps_no_work_tree(stage):
    def add():
        add_submodule(stage)
        stage.git("commit", "-qm", "mine")

    bench = Bench(stage)
    bench.play([HELD, write_session(2, "cp sub/inner.txt 2.txt")], meanwhile=add)
    assert stage.git("show", "main:2.txt") == "inner\n"
    assert stage.git("branch", "--list", "relay-jobs/*") == ""
    assert not bench.places.exists()


def switch(stage):
    stage.git("switch", "-qc", "other")
    stage.write("kept.txt", "another\n")
    stage.git("commit", "-qam", "elsewhere")


def detach(stage):
    stage.git("switch", "-q", "--detach", "HEAD~1")


def commit(stage):
    stage.write("kept.txt", "mine\n")
    stage.git("commit", "-qm", "mine", "kept.txt")


def amend(stage):
    stage.write("kept.txt", "mine\n")
    stage.git("commit", "-qa", "--amend", "-m", "amended")


def collect(stage):
    stage.git("reflog", "expire", "--expire=now", "--all")
    stage.git("gc", "-q", "--prune=now")


def elsewhere(stage):
    stage.git("switch", "-qc", "other")
    stage.git("worktree", "add", "-q", str(stage.root.with_name("beside")), "main")


def edit_plan(stage):
    """And stage that: with a further edit the index has an earlier state of the plan than what relay commits."""
    stage.edit("Write two — 2.txt", "Write two — 2.txt\n- [ ] By a person (manual)")
    stage.git("add", "PLAN.md")


def tick_by_hand(stage):
    """Only relay ticks: the box is open again, and the session does its item."""
    stage.edit("- [ ] Write two", "- [x] Write two")


def reword(stage):
    stage.edit("Write one — 1.txt", "Write the one — 1.txt")


def break_off_a_save(stage):
    """As an editor that writes a file in two steps."""
    text = (stage.root / "PLAN.md").read_text()
    stage.write("PLAN.md", "")
    threading.Timer(3, stage.write, ("PLAN.md", text)).start()


MEANWHILE = [
    [[tick_by_hand, edit_plan, reword, commit, collect], [switch]],
    [[amend, detach]],
    [[break_off_a_save]],
    [[elsewhere]],
]
"""What is done in the first phase, and in the second one."""


@pytest.mark.parametrize(
    "acts", take_each(4, MEANWHILE), ids=lambda acts: "+".join(act.__name__ for phase in acts for act in phase)
)
def test_what_the_user_does_to_the_branch_meanwhile_stops_nothing(stage, acts):
    bench = Bench(stage, **{"kept.txt": "committed\n"})
    sessions = [HELD, write_session(2, HOLD, "echo 2 > 2.txt") if len(acts) > 1 else TWO]
    bench.play(sessions, meanwhile=[lambda done=done: [act(stage) for act in done] for done in acts])
    done = {act for phase in acts for act in phase}
    assert stage.git("log", "--format=%s", "-1", "main") == "Write two\n"
    assert stage.git("show", "main:1.txt", "main:2.txt") == "1\n2\n"
    assert stage.git("status", "--porcelain", "--untracked-files=no") == ""
    if {commit, amend} & done:
        assert stage.git("show", "main:kept.txt") == "mine\n"
    if edit_plan in done:
        assert "Write the one — 1.txt" in (plan := stage.git("show", "main:PLAN.md"))
        assert "- [ ] By a person (manual)" in plan
    if switch in done:
        assert stage.git("log", "--format=%s", "-1", "other") == "elsewhere\n"
    if elsewhere in done:
        assert (stage.root.with_name("beside") / "2.txt").read_text() == "2\n"


def test_a_phase_lands_before_the_next_one_begins_though_the_user_committed_meanwhile(stage):
    """So the next one begins on it, and is not merged."""
    bench, subjects = Bench(stage, **{"kept.txt": "committed\n"}), ("log", "--first-parent", "--format=%s", "main")
    seen = list[str]()
    sessions = [HELD, write_session(2, HOLD, "echo 2 > 2.txt")]
    bench.play(sessions, meanwhile=[lambda: commit(stage), lambda: seen.append(stage.git(*subjects))])
    assert seen == ["Write one\nmine\nplan\nstart\n"]
    assert stage.git("log", "--merges", "--format=%s", "main") == "Write one\n"


@pytest.mark.nightly
def test_a_phase_that_the_user_overtakes_again_keeps_no_other_from_beginning(stage):
    """Who commits more often than a gate ends would keep the run at one phase."""
    wait = "grep -q mine kept.txt || exit 0; until git log --format=%s main | grep -qx again; do sleep 0.02; done\n"
    bench = Bench(stage, make_plan("test -s 1.txt && sh wait.sh", GATES[1]), **{"kept.txt": "x\n", "wait.sh": wait})
    merged, out = "is merged with the branch's newer commits", ""
    with serve(parse_script(json.dumps({"sessions": [HELD, TWO]}))) as server:
        run = bench.start(server, "run")
        wait_until(bench.find_held, by=run)
        commit(stage)
        bench.let_go()
        with run.stdout:
            for line in run.stdout:
                if merged in line and merged not in out:
                    stage.write("kept.txt", "another\n")
                    stage.git("commit", "-qam", "again")
                out += line
        assert run.wait() == ExitCode.DONE, out
    assert "phase 2 session 1" in out.split(merged)[1], out
    assert stage.git("show", "main:1.txt", "main:2.txt") == "1\n2\n"


@pytest.mark.nightly
def test_nothing_lands_in_another_work_tree_while_somebody_is_at_work_there(stage):
    bench, lock, seen = Bench(stage), contextlib.ExitStack(), list[bool]()

    def hold():
        elsewhere(stage)
        beside = open_repo(stage.root.with_name("beside"))
        lock.enter_context(lock_worktree(beside))
        tip = beside.head()

        def let_go():
            seen.append(beside.head() == tip)
            lock.close()

        threading.Timer(6, let_go).start()

    bench.play([HELD, TWO], meanwhile=hold)
    assert seen == [True]
    assert (stage.root.with_name("beside") / "2.txt").read_text() == "2\n"


def test_a_branch_in_a_locked_work_tree_does_not_move_under_it(stage):
    """Unlocked, the branch and that tree's files get what is done, and no session is paid for it."""
    bench, beside = Bench(stage, make_plan(*GATES[:1])), stage.root.with_name("beside")
    tip = stage.git("rev-parse", "main")

    def lock():
        elsewhere(stage)
        stage.git("worktree", "lock", str(beside))

    out = bench.play([HELD], ends=ExitCode.USER, meanwhile=lock)
    assert f"main is checked out in {beside}, which is locked" in out
    assert stage.git("rev-parse", "main") == tip
    stage.git("worktree", "unlock", str(beside))
    bench.root = beside
    bench.play([])
    assert stage.git("show", "main:1.txt") == (beside / "1.txt").read_text() == "1\n"


def test_a_file_that_git_ignored_when_the_phase_began_is_not_committed(stage):
    """A session took its line out of .gitignore; the file is named, what the session wrote beside it is committed."""
    bench = Bench(stage, make_plan(*GATES[:1]), **{".gitignore": "local/\n"})
    stage.write("local/diary.txt", "private notes\n")
    unignore = "echo > .gitignore; echo own > local/own.txt; echo more >> local/diary.txt; echo 1 > 1.txt"
    out = bench.play([write_session(1, unignore)])
    assert "not committed, because git ignored it when the phase began: local/diary.txt" in out
    assert stage.git("ls-files").split() == [".gitignore", "1.txt", "AGENTS.md", "PLAN.md", "local/own.txt"]
    assert (stage.root / "local/diary.txt").read_text() == "private notes\n"


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_open_phase_goes_on_with_what_the_user_did_to_the_same_file_and_to_its_gate(stage, monkeypatch, is_killed):
    """It stopped at a gate that cannot be green; the person mends the gate, and works on beside it.

    Where relay is killed before what it has merged is written, the next run writes it.
    """
    monkeypatch.setenv("RELAY_MAX_REPAIRS", "0")
    bench = Bench(stage, make_plan("false"), **{"both.txt": "first\n\n\n\nlast\n"})
    one = write_session(1, "echo 1 > 1.txt; sed -i s/first/FIRST/ both.txt")
    said = bench.play([one], ends=ExitCode.STOPPED)
    assert f"repair it by hand in {stage.tree}" in said
    assert stage.relay("shell", "--", "git", "status", "--short").stdout == " M both.txt\n?? 1.txt\n"
    assert f"phase 1 is open in {stage.tree}: there" in stage.relay("gate").stdout
    stage.edit("Verify: `false`", "Verify: `test -s 1.txt`")
    stage.write("both.txt", "first\n\n\n\nLAST\n")
    stage.git("commit", "-qm", "mine", "both.txt")
    if is_killed:
        tree, own, tip = open_repo(stage.tree), stage.git("rev-parse", "HEAD~"), stage.git("rev-parse", "HEAD")
        move_branch(tree, tree.branch or "", own.strip(), tip.strip(), reason="relay run")
        files = PlanFiles(repo=tree, plan_path="PLAN.md", ledger_path="PLAN.ledger.yaml")
        attempt = read_attempt(tree)
        assert attempt is not None
        carry_over(files, parse_plan(stage.git("show", "HEAD:PLAN.md")), attempt, lambda _: None)
        assert (stage.tree / "both.txt").read_text() == "FIRST\n\n\n\nlast\n"
    bench.play([write_session(1, "cat both.txt > seen.txt")])
    assert stage.git("show", "main:both.txt") == "FIRST\n\n\n\nLAST\n"
    assert stage.git("status", "--porcelain") == ""


def call(tool, **given):
    return {"tools": [{"name": tool, "input": given}]}


@pytest.mark.parametrize("is_open", [True, False])
def test_a_phase_that_handed_over_with_a_commit_goes_on_with_a_mended_gate_and_what_is_new(stage, monkeypatch, is_open):
    """Its next session works on what is on the branch now, and its commit has the handed over one as a parent."""
    monkeypatch.setenv("RELAY_MAX_REPAIRS", "0")
    gate = "test ! -e 2.txt"
    bench = Bench(stage, make_plan(gate) + "- [ ] Write two — 2.txt\n", **{"both.txt": "first\n\n\n\nlast\n"})
    ticks = [call("tick", item=item, evidence="done") for item in ("1.1", "1.2")]
    work = "echo 1 > 1.txt; sed -i s/first/FIRST/ both.txt"
    two = {"name": "two", "turns": [call("bash", command="echo 2 > 2.txt"), ticks[1], {"text": "Commit: Write two"}]}
    if is_open:
        hand_off = call("hand_off", next_step="write two", learned=[], dead_ends=[])
        one = {"name": "one", "turns": [call("bash", command=work), ticks[0], hand_off]}
        bench.play([one, two], ends=ExitCode.STOPPED)
    else:
        one = {"name": "one", "turns": [ticks[0], call("bash", command=f"{work}; {HOLD}"), {"text": "stopped"}]}
        bench.play([one], ends=ExitCode.INTERRUPTED, meanwhile=lambda: stage.relay("stop"))
    handed = stage.git("rev-parse", "relay-jobs/main/1").strip()
    assert stage.git("log", "-1", "--format=%s", handed) == "relay: phase 1 — one\n"
    stage.edit(f"Verify: `{gate}`", "Verify: `test -e 2.txt`")
    stage.write("both.txt", "first\n\n\n\nLAST\n")
    stage.git("commit", "-qm", "mine", "both.txt")

    out = bench.play([{"name": "three", "turns": [{"text": "Commit: all of it"}]}] if is_open else [two])

    assert stage.git("show", "main:both.txt") == "FIRST\n\n\n\nLAST\n", out
    assert bench.read_plan().done, out
    assert stage.git("rev-parse", "main^2").strip() == handed
    assert stage.git("status", "--porcelain") == ""
    spent = read_plan_cost(open_repo(stage.root), "PLAN.md")
    sessions = [read_relay_commits(open_repo(stage.root), "PLAN.md", rev=rev)[0] for rev in ("main", handed)]
    assert spent.spent == sum((one.spent for one in sessions), start=Spent())


def test_a_finished_phase_needs_no_session_where_git_can_merge_it_with_what_the_user_did_as_he_mended_its_gate(
    stage, monkeypatch
):
    """Also where it has handed over with a commit, both wrote to one file, and many files are new."""
    monkeypatch.setenv("RELAY_MAX_REPAIRS", "0")
    gate = "test ! -e 2.txt"
    files = {".gitattributes": "*.crlf text eol=crlf\n", "both.txt": "1\n\n\n2\n"}
    bench = Bench(stage, make_plan(gate) + "- [ ] Write two — 2.txt\n", **files)
    ticks = [call("tick", item=item, evidence="done") for item in ("1.1", "1.2")]
    hand_off = call("hand_off", next_step="write two", learned=[], dead_ends=[])
    one = {
        "name": "one",
        "turns": [
            call("bash", command="echo 1 > 1.txt; printf 'a\\r\\n' > its.crlf; sed -i s/1/its/ both.txt"),
            ticks[0],
            hand_off,
        ],
    }
    two = {"name": "two", "turns": [call("bash", command="echo 2 > 2.txt"), ticks[1], {"text": "Commit: Write two"}]}
    bench.play([one, two], ends=ExitCode.STOPPED)
    stage.edit(
        f"Verify: `{gate}`", "Verify: `test -e 2.txt && test -e mine/19.txt && grep -q $(printf '\\r') mine.crlf`"
    )
    for number in range(20):
        stage.write(f"mine/{number}.txt", f"{number}\n")
    stage.write("mine.crlf", "b\r\n")
    stage.write("both.txt", "1\n\n\nmine\n")
    stage.git("add", "mine", "mine.crlf", "both.txt")
    stage.git("commit", "-qm", "mine")
    out = bench.play([])
    assert stage.git("show", "main:both.txt") == "its\n\n\nmine\n"
    assert bench.read_plan().done, out
    assert stage.git("ls-files", "--eol", "its.crlf", "mine.crlf").split() == [
        *("i/lf", "w/crlf", "attr/text", "eol=crlf", "its.crlf"),
        *("i/lf", "w/crlf", "attr/text", "eol=crlf", "mine.crlf"),
    ]
    assert stage.git("status", "--porcelain") == ""


def test_lines_that_the_user_and_an_open_phase_both_wrote_are_told_and_never_committed_with_marks(stage, monkeypatch):
    monkeypatch.setenv("RELAY_MAX_REPAIRS", "0")
    bench = Bench(stage, make_plan("false"), **{"both.txt": "first\n", "gone.txt": "one of many\nlines\n"})
    bench.play([write_session(1, "echo 1 > 1.txt; echo its > both.txt; rm gone.txt")], ends=ExitCode.STOPPED)
    stage.edit("Verify: `false`", "Verify: `test -s 1.txt`")
    for name in ("both.txt", "gone.txt"):
        stage.write(name, "mine\n")
    stage.git("commit", "-qm", "mine", "both.txt", "gone.txt")
    told = {"first_message_contains": "both.txt, gone.txt with what is on the branch now: its marks stand there"}
    out = bench.play([write_session(1, "cat both.txt", when=told)], ends=ExitCode.STOPPED)
    assert "Git could not merge both.txt, gone.txt with what is on the branch now: its marks stand there" in out
    assert "stopped: phase 1: conflict markers are left in both.txt" in out
    assert "was cut off" not in out
    bench.play([write_session(1, "echo both > both.txt; cat gone.txt >> both.txt")])
    assert stage.git("show", "main:both.txt") == "both\nmine\n"
    assert "mine" in stage.git("log", "--format=%s", "main")


def test_the_end_of_a_run_says_of_each_phase_why_it_stopped(stage):
    """Phases that do not wait for one that stopped are tried in the same run."""
    sessions = [write_session(1), write_session(2)]
    for n, session in enumerate(sessions, 1):
        session["turns"] = [{"tools": [{"name": "block", "input": {"reason": f"key {n} is missing"}}]}, {"text": "x"}]
    out = Bench(stage).play(sessions, ends=ExitCode.STOPPED)
    assert "phase 1 stopped: blocked: key 1 is missing; phase 2 stopped: blocked: key 2 is missing" in out


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a small file system")
def test_a_full_disk_is_told_with_what_helps_and_status_shows_what_it_knows(stage, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)], check=True)
    try:
        stage.root = shutil.copytree(stage.root, small / "repo", symlinks=True)
        bench = Bench(stage, make_plan(GATES[0]))
        blocked = write_session(1, "echo 1 > 1.txt")
        blocked["turns"][-1] = {"tools": [{"name": "block", "input": {"reason": "a key is missing"}}]}
        bench.play([blocked], ends=ExitCode.STOPPED)
        (bench.places / "1/1.txt").write_text("by hand\n")
        with contextlib.suppress(OSError):
            (small / "fill").write_bytes(bytes(8_000_000))
        told = r"now    git .* No space left on device\nnext   relay run, after that"
        assert re.search(told, bench.play([], "status"))
        assert "make room on the disk" in bench.play([], "run", ends=ExitCode.USER)
        (small / "fill").unlink()
        assert "goes on with phase 1" in bench.play([], "status")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def be_linked(root):
    beside = root.with_name("beside")
    subprocess.run(["git", "worktree", "add", "-q", "-b", "side", str(beside)], cwd=root, check=True)
    return beside


def be_sparse_with_index_4(root):
    for path in ("in/a.txt", "out/b.txt"):
        (root / path).parent.mkdir()
        (root / path).write_text("x")
    subprocess.run(
        "git add . && git commit -qm more && git sparse-checkout set in && git update-index --index-version 4",
        cwd=root,
        shell=True,
        check=True,
    )
    return root


def be_sha256(root):
    new = root.with_name("sha256")
    make = f"git init -qb main --object-format=sha256 {new} && cp PLAN.md {new} && cd {new}"
    subprocess.run(f"{make} && git add . && git commit -qm x", cwd=root, shell=True, check=True)
    return new


def be_link(root):
    link = root.with_name("link")
    link.symlink_to(root)
    return link


def be_submodule(root):
    outer = root.with_name("outer")
    add = f"git init -q {outer} && cd {outer} && git -c protocol.file.allow=always submodule add -q {root} inner"
    subprocess.run(f"{add} && cd inner && git switch -qC main", cwd=root, shell=True, check=True)
    return outer / "inner"


def be_latin_1(root):
    return root.rename(os.fsdecode(os.fsencode(root.parent) + b"/caf\xe9 \xc3\xa9"))


def be_sha256_in_latin_1(root):
    return be_latin_1(be_sha256(root))


KINDS = [be_sha256_in_latin_1, be_linked, be_sparse_with_index_4, be_link, be_submodule]


@pytest.mark.parametrize("make", take_each(5, KINDS))
def test_a_checkout_of_any_kind_will_do(stage, make):
    bench = Bench(stage, make_plan(*GATES[:1]))
    bench.root = root = make(stage.root)
    bench.play([write_session(1, "pwd > 1.txt; git status --short >> 1.txt; ls >> 1.txt")])
    assert (root / "1.txt").read_bytes().startswith(os.fsencode(root.resolve()) + b"\n?? 1.txt\n1.txt\n")
    assert bench.git("status", "--porcelain", root=root) == ""
    assert bench.git("branch", "--list", "relay-jobs/*", root=root) == ""
