"""The user begins a rebase or the like while a phase is open: relay waits until it is over, then goes on."""

import json
import subprocess

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.session.events import SessionStarted
from relay.store.resume import ResumeCase
from tests.effort import take_each, take_turns
from tests.scripts import HELLO


@pytest.fixture
def forked(stage):
    """`other` and `main` both changed AGENTS.md: whatever brings them together stops half way."""
    stage.git("switch", "-q", "-c", "other")
    stage.write("AGENTS.md", "theirs\n")
    stage.commit("theirs")
    stage.git("switch", "-q", "main")
    stage.write("AGENTS.md", "ours\n")
    stage.commit("ours")
    (stage.root.parent / "theirs.patch").write_text(stage.git("format-patch", "--stdout", "-1", "other"))
    return stage


BEGIN = {
    "am": ("am", "-q", "--3way", "../theirs.patch"),
    "rebase": ("rebase", "-q", "other"),
    "rebase-apply": ("rebase", "-q", "--apply", "other"),
    "merge": ("merge", "-q", "other"),
    "cherry-pick": ("cherry-pick", "other"),
}
GO_ON = {
    "am": ("am", "--continue"),
    "rebase": ("-c", "core.editor=true", "rebase", "--continue"),
    "rebase-apply": ("-c", "core.editor=true", "rebase", "--continue"),
    "merge": ("commit", "-q", "-m", "merged"),
    "cherry-pick": ("-c", "core.editor=true", "cherry-pick", "--continue"),
}


def read_everything(stage):
    """Read all that must stay: files, index, refs, HEAD."""
    files = {
        path.relative_to(stage.root): path.read_bytes()
        for path in stage.root.rglob("*")
        if path.is_file() and not {".git", ".relay"} & set(path.relative_to(stage.root).parts)
    }
    return files, stage.git("ls-files", "--stage"), stage.git("for-each-ref"), stage.git("rev-parse", "HEAD")


@pytest.mark.parametrize(("name", "abort"), take_each(5, take_turns(BEGIN, (False, True))))
def test_an_operation_begun_while_a_phase_is_open(forked, cut_off, ask, finish, name, abort):
    """It is named with the command that ends it; files, index, refs and the attempt stay; then the phase goes on."""
    stage = forked
    cut_off()
    subprocess.run(["git", *BEGIN[name]], cwd=stage.root, capture_output=True, check=False)
    before = read_everything(stage)
    verb = name.split("-")[0] if name.startswith("rebase") else name

    with pytest.raises(RepoError) as caught:
        stage.run("sessions: []", all_=False)

    assert f"{verb} is in progress; end it with: git {'commit' if verb == 'merge' else verb}" in caught.value.message
    assert read_everything(stage) == before
    assert stage.server is not None
    assert stage.server.requests == []
    stage.calm()
    if abort:
        stage.git(verb, "--abort")
    else:
        stage.write("AGENTS.md", "both\n")
        stage.git("add", "AGENTS.md")
        stage.git(*GO_ON[name])
    asked = ask()
    assert (asked["row"], asked["phase"]) == (ResumeCase.MID_ATTEMPT if abort else ResumeCase.MOVED_ON, "1")
    finish()
    assert stage.git("show", "HEAD:AGENTS.md") == ("ours\n" if abort else "both\n")
    assert stage.git("status", "--porcelain") == ""


BACK = "git switch --no-overwrite-ignore main goes back to where a phase is open"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (BEGIN["rebase"], "a rebase is in progress; end it with: git rebase --continue (or --abort)"),
        (BEGIN["merge"], "a merge is in progress; end it with: git commit (or git merge --abort)"),
        (("switch", "-q", "--detach"), f"HEAD is detached; relay commits on a branch: {BACK}, or git switch -c NAME"),
    ],
)
def test_the_status_says_what_comes_first(forked, cut_off, command, words):
    """It promises no phase that `relay run` would not begin."""
    cut_off()
    subprocess.run(["git", *command], cwd=forked.root, capture_output=True, check=False)

    def status(*args):
        ran = forked.relay("status", *args)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert status().splitlines()[-2:] == [f"now    {words}", "next   relay run, after that"]
    body = json.loads(status("--json"))
    assert (body["obstacle"], body["next"]) == (words, None)


@pytest.mark.parametrize("name", take_each(2, ["merge", "cherry-pick"]))
def test_an_operation_begun_while_a_session_works(forked, finish, name):
    """Relay commits nothing into the middle of it; when it is over, the work that is done is committed."""
    stage = forked

    def begin():
        stage.on_tool = None
        subprocess.run(["git", *BEGIN[name]], cwd=stage.root, capture_output=True, check=False)

    stage.on_tool, head = begin, stage.git("rev-parse", "HEAD")
    ended = stage.run(HELLO, all_=False)
    assert (ended.exit_code, stage.git("rev-parse", "HEAD")) == (ExitCode.STOPPED, head)
    assert f"not committed, because a {name} is in progress; end it with: git" in ended.reason
    subprocess.run(["git", name, "--abort"], cwd=stage.root, check=True)
    finish(HELLO, files=("PLAN.md", "hello.txt"))


@pytest.mark.parametrize(("how", "now"), take_each(2, [(("-c", "other"), "other"), (("--detach",), "no branch")]))
def test_another_branch_checked_out_while_a_session_works(stage, ask, how, now):
    """Its files would be taken for the user's there: the run stops, and goes on where its branch is again."""

    def switch():
        stage.on_tool = None
        stage.git("switch", "-q", *how)

    stage.on_tool = switch
    with pytest.raises(RepoError, match=f"{now} was checked out meanwhile, and this run works on main") as caught:
        stage.run(HELLO, all_=True)

    assert caught.value.hint == "git switch --no-overwrite-ignore main"
    assert len(stage.seen(SessionStarted)) == 1
    stage.calm()
    stage.git("switch", "-q", "main")
    asked = ask()
    assert (asked["row"], asked["phase"]) == (ResumeCase.MID_ATTEMPT, "1")
