"""Files that git stores in another form than the work tree's: line ends, filters of the user, git-lfs, git-crypt.

In relay's trees, in their gates and where they land a file is as in the user's checkout.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from relay.base.errors import ExitCode
from relay.run.phases.landing import find_landing, land
from tests.phases.bench import HOLD, Bench, make_plan, write_session
from tests.phases.test_merge import land_beside, put_together
from tests.scripted import ScriptedRunner

ROT = '[filter "rot"]\n\tclean = tr a-z n-za-m\n\tsmudge = tr a-z n-za-m\n\trequired = true\n'
FILE = "hello\n\n\n\n\nend\n"


@pytest.fixture
def configure():
    """Return a function that adds to the user's own configuration for the time of a test."""
    file = Path(os.environ["HOME"], ".gitconfig")
    before = file.read_text()
    yield lambda text: file.write_text(before + text)
    file.write_text(before)


def test_a_filter_of_the_users_runs_in_tree_gate_and_landing_and_what_he_did_meanwhile_is_merged(stage, configure):
    configure(ROT)
    gate = "grep -q again kept.rot && grep -q mine kept.crlf && grep -q world new.rot && test -s out-1.txt"
    stage.write("kept.crlf", FILE.replace("\n", "\r\n"))
    attributes = "*.rot filter=rot\n*.crlf text eol=crlf\n"
    bench = Bench(stage, make_plan(gate, files="out-{}.txt"), **{".gitattributes": attributes, "kept.rot": FILE})
    change = "cp kept.rot before.txt; echo world > new.rot; sed -i 's/hello/hello again/' kept.rot kept.crlf"

    def edit():
        stage.write("kept.rot", FILE.replace("end", "mine"))
        stage.write("kept.crlf", FILE.replace("end", "mine").replace("\n", "\r\n"))
        stage.git("commit", "-qam", "mine")
        assert stage.relay("stop", "--now").returncode == 0

    bench.play([write_session(1, change, HOLD)], ends=ExitCode.INTERRUPTED, meanwhile=edit)
    bench.play([write_session(1, "cat kept.rot kept.crlf > out-1.txt")])
    both = FILE.replace("hello", "hello again").replace("end", "mine")
    other = both.replace("\n", "\r\n")
    assert (stage.root / "before.txt").read_text() == FILE
    assert (stage.root / "new.rot").read_text() == "world\n"
    assert (stage.root / "out-1.txt").read_bytes() == f"{both}{other}".encode()
    assert (stage.root / "kept.rot").read_text() == both
    assert (stage.root / "kept.crlf").read_bytes() == other.encode()
    assert stage.git("show", "main:new.rot", "main:kept.rot").split() == ["jbeyq", "uryyb", "ntnva", "zvar"]
    assert stage.git("status", "--porcelain") == ""


def test_phases_side_by_side_are_merged_in_the_form_of_the_work_tree(stage, configure):
    configure(ROT)
    gates = ("grep -q hello kept.rot", "grep -q '^end' kept.rot")
    stage.write("PLAN.md", make_plan(*gates, files="kept.rot"))
    stage.write(".gitattributes", "*.rot filter=rot\n")
    stage.write("kept.rot", FILE)
    stage.commit("plan")
    changes = ({"kept.rot": FILE.replace("hello", "hello again")}, {"kept.rot": FILE.replace("end", "end again")})
    main, place, job = land_beside(stage, *changes)
    put_together(main, job)
    assert place.play(ScriptedRunner([]), phase="2").exit_code == ExitCode.DONE
    assert land(main, job, find_landing(main, job)) == ()
    both = FILE.replace("hello", "hello again").replace("end", "end again")
    assert (stage.root / "kept.rot").read_text() == both
    assert stage.git("show", "main:kept.rot").split() == ["uryyb", "ntnva", "raq", "ntnva"]
    assert stage.git("status", "--porcelain") == ""


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("git-lfs"), reason="git-lfs is not installed")
def test_a_large_file_of_git_lfs_is_there_changed_and_landed(stage, configure):
    subprocess.run(["git", "lfs", "install", "--skip-repo"], check=True, capture_output=True)
    text = Path(os.environ["HOME"], ".gitconfig").read_text()
    configure(text[text.index('[filter "lfs"]') :])
    plan = make_plan("grep -q first kept.bin && grep -q more new.bin && test -s out-1.txt", files="out-{}.txt")
    attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
    bench = Bench(stage, plan, **{".gitattributes": attributes, "kept.bin": "first\n"})
    bench.play([write_session(1, "cat kept.bin > out-1.txt; echo more > new.bin; echo x >> kept.bin")])
    assert (stage.root / "out-1.txt").read_text() == "first\n"
    assert (stage.root / "kept.bin").read_text() == "first\nx\n"
    assert (stage.root / "new.bin").read_text() == "more\n"
    assert sorted(line.split()[-1] for line in stage.git("lfs", "ls-files").splitlines()) == ["kept.bin", "new.bin"]
    assert stage.git("status", "--porcelain") == ""


def test_a_repository_s_own_filter_does_not_run_and_its_files_are_named(stage, monkeypatch):
    """Sessions and gates get such a file as git stores it; it is neither changed nor lost, and cannot be committed."""
    monkeypatch.setenv("RELAY_MAX_REPAIRS", "0")
    stage.git("config", "filter.rot.clean", "tr a-z n-za-m")
    stage.git("config", "filter.rot.smudge", "touch ran; tr a-z n-za-m")
    plan = make_plan("grep -q uryyb out-1.txt", files="out-{}.txt")
    bench = Bench(stage, plan, **{".gitattributes": "*.rot filter=rot\n", "kept.rot": FILE})
    out = bench.play([write_session(1, "cat kept.rot > out-1.txt; echo x >> kept.rot")], ends=ExitCode.STOPPED)
    assert "sessions and gates get kept.rot as git stores it" in out
    assert "kept.rot needs the filter 'rot'" in out
    (stage.tree / "kept.rot").write_text(stage.git("show", "main:kept.rot"))
    bench.play([])
    assert (stage.root / "out-1.txt").read_text().split() == ["uryyb", "raq"]
    assert (stage.root / "kept.rot").read_text() == FILE
    assert not (stage.root / "ran").exists()


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("git-crypt"), reason="git-crypt is not installed")
def test_a_file_of_git_crypt_is_readable_where_the_user_says_so_and_its_key_is_not(stage, configure):
    stage.git("crypt", "init")
    text = (stage.root / ".git/config").read_text()
    configure(text[text.index('[filter "git-crypt"]') :])
    plan = make_plan("grep -q secret kept.enc && grep -q more new.enc && ! grep -q . out-1.txt", files="out-{}.txt")
    attributes = "*.enc filter=git-crypt diff=git-crypt\n"
    bench = Bench(stage, plan, **{".gitattributes": attributes, "kept.enc": "secret\n"})
    look = "cat $(git rev-parse --git-common-dir)/git-crypt/keys/default $(git rev-parse --git-dir)/git-crypt/*"
    bench.play([write_session(1, f"{look} > out-1.txt; echo more > new.enc; touch out-1.txt")])
    assert (stage.root / "kept.enc").read_text() == "secret\n"
    assert (stage.root / "new.enc").read_text() == "more\n"
    shown = subprocess.run(["git", "show", "main:new.enc"], cwd=stage.root, capture_output=True, check=True).stdout
    assert shown.startswith(b"\0GITCRYPT\0")
    assert stage.git("status", "--porcelain") == ""
