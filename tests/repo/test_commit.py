"""The phase commit: only the attempt's paths, one compare-and-swap, nothing of the user's touched."""

import stat
import subprocess

import pytest

from relay.base.errors import RepoError
from relay.git import identity
from relay.git.command import GitResult
from relay.git.config_guard import guard
from relay.git.identity import check_signing, find_identity
from relay.git.message import Message
from relay.git.objects import count_lines
from relay.git.refs import move_ref
from relay.store import completion
from relay.store.attempts import AttemptStart, find_attempt_changes, open_attempt
from relay.store.commit import CommitEnd, CommitRequest, commit_paths
from relay.store.completion import finish_commit, finish_pending, note_pending, store_files, withdraw_pending
from relay.store.history import read_relay_commits
from relay.store.snapshot import write_snapshot_tree
from relay.store.worktree_notes import note_home
from tests.effort import take_each

TRAILERS = (("Relay-Plan", "PLAN.md"), ("Relay-Phase", "1"), ("Relay-Status", "done"), ("Relay-Cost", "0.10 USD"))
TICKED = b"# Plan\n\n## Phase 1 \xe2\x80\x94 One\n- [x] Do it\n"
STRANGE = ["with\nnewline", 'quo"te', "-leading", "\udcff\udcfe", "sp ace ", ":(top)x", "cr\r", "*"]


def request(repo, *paths, **kwargs):
    given = {"branch": repo.branch, "head": repo.head(), "message": Message(subject="phase 1", trailers=TRAILERS)}
    return CommitRequest(paths=paths, **(given | kwargs))


@pytest.fixture
def impatient(monkeypatch):
    """Asks for a lock that somebody holds once more, and not for a second."""
    monkeypatch.setattr(completion, "LOCK_ATTEMPTS", 1)


def committed(box, *paths, **kwargs):
    repo = box.open()
    outcome = commit_paths(repo, request(repo, *paths, **kwargs))
    assert (outcome.end, outcome.left) == (CommitEnd.COMMITTED, ())
    assert outcome.commit == box.text("rev-parse", "HEAD")
    return outcome


def test_code_and_ticks_are_one_commit(box):
    old = box.text("rev-parse", "HEAD")
    box.write("src/app.py", "print(2)\n")
    box.write("src/new.py", "new\n")
    (box.root / "src/old.py").unlink()
    committed(box, "src/app.py", "src/new.py", "src/old.py", replace={"PLAN.md": TICKED, "PLAN.ledger.yaml": b"[]\n"})
    assert (
        box.text("show", "-s", "--format=%P|%an <%ae>|%cn|%s") == f"{old}|Ada User <ada@example.org>|Ada User|phase 1"
    )
    tree = box.tree("HEAD")
    assert tree == box.files()
    assert (tree["PLAN.md"], tree["src/app.py"]) == (TICKED, b"print(2)\n")
    assert "src/old.py" not in tree
    assert box.text("status", "--porcelain") == ""
    assert read_relay_commits(box.open(), "PLAN.md")[0].cost_usd == 0.1


def test_what_the_user_had_is_never_committed(box):
    box.write("src/old.py", "dirty\n")
    box.write("notes.txt", "untracked")
    box.write("staged.txt", "staged")
    box.write("run.sh", "#!/bin/sh\necho staged\n")
    box.git("add", "staged.txt", "run.sh")
    box.write("staged.txt", "edited after staging")
    repo = box.open()
    attempt = open_attempt(repo, AttemptStart(session_id="s", phase_id="1", plan_path="PLAN.md"))
    box.write("src/app.py", "print(2)\n")
    now = write_snapshot_tree(repo)
    paths = tuple(change.path for change in find_attempt_changes(repo, attempt, now))
    assert paths == ("src/app.py",)
    files = box.files()
    status = box.text("status", "--porcelain")
    committed(box, *paths)
    assert box.text("diff", "--name-only", "HEAD~1", "HEAD") == "src/app.py"
    assert box.files() == files
    assert box.text("status", "--porcelain").splitlines() == [x for x in status.splitlines() if "app.py" not in x]
    assert box.git("show", ":staged.txt") == b"staged"


def test_what_the_user_staged_of_a_committed_path_stays_staged(box):
    box.write("src/app.py", "staged by hand\n")
    box.git("add", "src/app.py")
    box.write("src/app.py", "the attempt's\n")
    committed(box, "src/app.py")
    assert (box.git("show", "HEAD:src/app.py"), box.git("show", ":src/app.py")) == (
        b"the attempt's\n",
        b"staged by hand\n",
    )


def test_every_kind_of_file_and_name_is_committed_and_deleted(box):
    for name in STRANGE:
        (box.root / name).write_bytes(b"odd")
    box.write("other*", "not the attempt's")
    box.write("tool", "#!").chmod(0o755)
    (box.root / "run.sh").chmod(0o644)
    (box.root / "link").symlink_to("/etc/passwd")
    (box.root / "src/old.py").unlink()
    (box.root / "src/old.py").symlink_to("app.py")
    (box.root / "src/app.py").unlink()
    box.write("src/app.py/inner", "x")
    committed(box, *STRANGE, "tool", "run.sh", "link", "src/old.py", "src/app.py", "src/app.py/inner")
    tree, modes = box.tree("HEAD"), box.modes("HEAD")
    assert {name: tree[name] for name in STRANGE} == dict.fromkeys(STRANGE, b"odd")
    assert "other*" not in tree
    assert tree["link"] == b"/etc/passwd"
    assert [modes[name] for name in ("tool", "run.sh", "link", "src/old.py")] == [
        "100755",
        "100644",
        "120000",
        "120000",
    ]
    for name in STRANGE:
        (box.root / name).unlink()
    committed(box, *STRANGE)
    assert box.tree("HEAD").keys().isdisjoint(STRANGE)
    assert box.text("status", "--porcelain") == "?? other*"


def test_the_first_commit_of_a_branch(new_box):
    box = new_box()
    box.write("PLAN.md", "# plan\n")
    box.write("mine.txt", "the user's")
    committed(box, "PLAN.md", head=None)
    assert box.tree("HEAD") == {"PLAN.md": b"# plan\n"}
    assert box.text("status", "--porcelain") == "?? mine.txt"
    box.fsck()


@pytest.mark.parametrize(("args", "version"), take_each(2, [(("--object-format=sha256",), "4"), ((), "4"), ((), "2")]))
def test_formats_of_objects_and_index(new_box, args, version):
    """A split index stays one, with no part more."""
    box = new_box(*args)
    box.git("config", "index.version", version)
    box.write("a.py", "1\n")
    box.write("dir/b.py", "1\n")
    box.commit()
    if version == "2":
        box.git("update-index", "--split-index")
    parts = sorted((box.root / ".git").glob("sharedindex.*"))
    box.write("a.py", "2\n")
    write_snapshot_tree(box.open())
    assert sorted((box.root / ".git").glob("sharedindex.*")) == parts
    committed(box, "a.py")
    assert box.tree("HEAD") == {"a.py": b"2\n", "dir/b.py": b"1\n"}
    assert box.text("status", "--porcelain") == ""
    assert (box.root / ".git/index").read_bytes()[4:8] == bytes([0, 0, 0, int(version)])
    box.fsck()


def test_a_sparse_checkout_keeps_what_it_does_not_show(box):
    box.write("docs/guide.md", "guide\n")
    box.commit()
    box.git("sparse-checkout", "set", "--cone", "src")
    assert not (box.root / "docs").exists()
    box.write("src/app.py", "2\n")
    box.write("docs/new.md", "outside of what is shown\n")
    committed(box, "src/app.py", "docs/new.md")
    tree = box.tree("HEAD")
    assert (tree["docs/guide.md"], tree["src/app.py"]) == (b"guide\n", b"2\n")
    assert tree["docs/new.md"] == b"outside of what is shown\n"
    assert box.tree(write_snapshot_tree(box.open()).tree) == tree
    assert not (box.root / "docs/guide.md").exists()
    assert box.text("status", "--porcelain") == ""


def test_submodules_stay_as_they_are(box, new_box):
    inner = new_box()
    inner.write("lib.c")
    inner.commit()
    box.git("submodule", "add", "-q", inner.root, "lib")
    box.commit()
    box.git(
        "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x", cwd=box.root / "lib"
    )
    recorded = box.tree("HEAD")["lib"]
    repo = box.open()
    attempt = open_attempt(repo, AttemptStart(session_id="s", phase_id="1", plan_path="PLAN.md"))
    box.write("src/app.py", "2\n")
    now = write_snapshot_tree(repo)
    paths = [change.path for change in find_attempt_changes(repo, attempt, now)]
    assert now.skipped == ()
    committed(box, *paths)
    assert (paths, box.tree("HEAD")["lib"]) == (["src/app.py"], recorded)


@pytest.mark.parametrize("is_there_too", [False, True])
def test_the_user_s_own_filter_is_applied(box, is_there_too):
    """Also where the repository defines the same one, as git-crypt does."""
    if is_there_too:
        box.git("config", "filter.rot.clean", "tr a-z n-za-m")
        box.git("config", "filter.rot.smudge", "tr a-z n-za-m")
    box.git("config", "--global", "filter.rot.clean", "tr a-z n-za-m")
    box.git("config", "--global", "filter.rot.smudge", "tr a-z n-za-m")
    box.write(".gitattributes", "*.rot filter=rot\n")
    box.commit()
    box.write("a.rot", "hello\n")
    committed(box, "a.rot")
    assert box.tree("HEAD")["a.rot"] == b"uryyb\n"
    assert box.text("status", "--porcelain") == ""


def test_a_filter_of_the_repository_is_refused_by_name(box):
    box.git("config", "filter.evil.clean", "touch ran; cat")
    box.write(".gitattributes", "*.bin filter=evil\n")
    box.commit()
    repo = box.open()
    box.write("a.bin", "x")
    box.write("a.py", "x")
    with pytest.raises(RepoError, match=r"a\.bin needs the filter 'evil'"):
        commit_paths(repo, request(repo, "a.bin"))
    committed(box, "a.py")
    assert not (box.root / "ran").exists()


def test_a_branch_that_moved_is_left_alone(box):
    repo = box.open()
    box.write("src/app.py", "attempt\n")
    wanted = request(repo, "src/app.py", replace={"PLAN.md": TICKED})
    box.write("user.txt", "user")
    box.git("add", "user.txt")
    box.git("commit", "-qm", "the user's")
    now = box.text("rev-parse", "HEAD"), (box.root / ".git/index").read_bytes(), box.files()
    outcome = commit_paths(repo, wanted)
    assert (outcome.end, outcome.commit) == (CommitEnd.BRANCH_MOVED, None)
    assert (box.text("rev-parse", "HEAD"), (box.root / ".git/index").read_bytes(), box.files()) == now


def test_another_branch_checked_out_meanwhile_stops_the_commit(box, new_box):
    """So does one that was born meanwhile."""
    repo, new = box.open(), new_box()
    wanted = request(repo, "src/app.py")
    box.git("switch", "-qc", "other")
    box.write("src/app.py", "attempt\n")
    assert commit_paths(repo, wanted).end == CommitEnd.BRANCH_MOVED
    assert box.text("rev-parse", "main") == box.text("rev-parse", "other")
    new.write("a", "1")
    wanted = request(new.open(), "a", head=None)
    new.commit("user was first")
    assert commit_paths(new.open(), wanted).end == CommitEnd.BRANCH_MOVED
    assert new.text("log", "--format=%s") == "user was first"


def test_a_file_edited_after_the_gate_is_committed_as_the_gate_saw_it_and_stays_as_it_is(box):
    repo = box.open()
    box.write("src/app.py", "checked\n")
    seen = store_files(repo, guard(repo), repo.head(), ("src/app.py",))
    box.write("src/app.py", "edited while the gate ran\n")
    committed(box, "src/app.py", files=seen, replace={"PLAN.md": TICKED})
    assert box.tree("HEAD")["src/app.py"] == b"checked\n"
    assert (box.root / "src/app.py").read_text() == "edited while the gate ran\n"
    assert box.text("status", "--porcelain") == "M src/app.py"


LOOKS = [
    ("", (), b"one\r\ntwo\n"),
    ("*.md -text\nsrc/* text\n", (), b"one\ntwo\n"),
    ("* text=auto\n", (), b"one\r\ntwo\r\n"),
    ("* text=auto\n", ("core.eol", "crlf"), b"one\ntwo\n"),
    ("* text eol=crlf\n", (), b"one\r\ntwo\r\n"),
    ("", ("core.autocrlf", "input"), b"one\r\ntwo\n"),
    ("", ("core.autocrlf", "true"), b"mixed\r\nends\n"),
    ("src/* ident\n", (), b"$Id: was expanded $\n"),
    ("src/* filter=own\n", (), b"small\n"),
    ("src/deep/* working-tree-encoding=UTF-16LE\n", (), "w\n".encode("utf-16-le")),
    ("", ("core.symlinks", "false"), b"one\n"),
]


def test_files_are_committed_as_git_stages_them(box):
    box.git("config", "--global", "filter.own.clean", "tr a-z A-Z")
    for attributes, config, data in take_each(2, LOOKS):
        if config:
            box.git("config", *config)
        box.write(".gitattributes", attributes)
        box.write("src/old.py", "old\n")
        for name in ("src/link", "src/deep/new.py"):
            (box.root / name).unlink(missing_ok=True)
        box.commit("attributes")
        box.write("src/deep/new.py", data).chmod(0o755)
        box.write("src/app.py", data)
        (box.root / "src/old.py").unlink()
        (box.root / "src/link").symlink_to("app.py")
        paths = ("src/app.py", "src/deep/new.py", "src/link", "src/old.py")
        committed(box, *paths, replace={"PLAN.md": TICKED})
        made = box.text("rev-parse", "HEAD^{tree}")
        box.git("read-tree", "HEAD~")
        box.git("add", "-A")
        assert box.text("write-tree") == made, (attributes, config)
        if config:
            box.git("config", "--unset", config[0])


def test_a_plan_edited_by_the_user_meanwhile_is_not_overwritten(box):
    repo = box.open()
    box.write("PLAN.md", "my own edit\n")
    outcome = commit_paths(repo, request(repo, replace={"PLAN.md": TICKED}))
    assert outcome.end == CommitEnd.COMMITTED
    assert "PLAN.md was changed by somebody else" in outcome.left[0]
    assert (box.root / "PLAN.md").read_text() == "my own edit\n"


def test_an_edited_plan_that_the_new_bytes_contain_is_written_over(box):
    """Also where they are as in HEAD. Its permissions stay."""
    for text in (TICKED, TICKED):
        box.write("PLAN.md", "my own edit\n").chmod(0o640)
        committed(box, replace={"PLAN.md": text}, based_on={"PLAN.md": b"my own edit\n"})
        assert (box.root / "PLAN.md").read_bytes() == text
        assert stat.S_IMODE((box.root / "PLAN.md").stat().st_mode) == 0o640
        assert box.text("status", "--porcelain") == ""


def test_a_crash_right_after_the_commit_point_is_repaired(box):
    """The branch is moved and nothing else: what a resumed run finds."""
    box.write("src/app.py", "2\n")
    box.write("notes.txt", "the user's")
    box.git("add", "notes.txt")
    (box.root / "src/old.py").unlink()
    committed(box, "src/app.py", "src/old.py", replace={"PLAN.md": TICKED})
    commit, parent = box.text("rev-parse", "HEAD", "HEAD~1").split()
    box.git("update-ref", "refs/heads/main", parent)
    box.git("read-tree", parent)
    box.git("add", "notes.txt")
    box.git("show", "HEAD:PLAN.md")
    box.write("PLAN.md", box.git("show", f"{parent}:PLAN.md"))
    repo = box.open()
    assert move_ref(repo, "refs/heads/main", commit, parent)
    for _ in range(2):
        assert finish_commit(repo, commit, {"PLAN.md": None, "PLAN.ledger.yaml": None}) == ()
        assert (box.root / "PLAN.md").read_bytes() == TICKED
        assert box.text("status", "--porcelain") == "A  notes.txt"


@pytest.fixture
def held(box):
    """A work tree of relay's own whose index somebody holds; in one of the user's nothing is committed then."""
    box.git("worktree", "add", "-q", "-b", "job", str(box.root.with_name("job")))
    place = type(box)(root=box.root.with_name("job"), home=box.home)
    note_home(place.open(), box.root)
    (place.open().git_dir / "index.lock").touch()
    return place


@pytest.mark.usefixtures("impatient")
def test_an_index_that_stayed_behind_several_commits_goes_through_all_of_them(held):
    """An editor held the index while two phases were committed; what the user staged himself stays staged."""
    repo = held.open()
    lock = repo.git_dir / "index.lock"
    lock.unlink()
    held.write("mine.txt", "mine\n")
    held.git("add", "mine.txt")
    lock.touch()
    for content in ("2\n", "3\n"):
        held.write("src/app.py", content)
        held.write(f"src/{content[0]}.py", content)
        outcome = commit_paths(repo, request(repo, "src/app.py", f"src/{content[0]}.py"))
        assert outcome.end == CommitEnd.COMMITTED
        assert "index was not brought up to date" in outcome.left[0]
    assert len(finish_pending(repo)) == 1
    (repo.git_dir / "index.lock").unlink()
    assert finish_pending(repo) == ()
    assert held.text("status", "--porcelain") == "A  mine.txt"
    assert finish_pending(repo) == ()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("moved", [False, True])
def test_a_commit_that_was_not_made_takes_no_other_out_of_the_note(held, moved):
    """Killed between the note and the branch, or somebody else moved the branch first."""
    repo = held.open()
    held.write("src/app.py", "2\n")
    first = commit_paths(repo, request(repo, "src/app.py")).commit
    note_pending(repo, "1" * 40, first)
    if moved:
        withdraw_pending(repo, "1" * 40)
    (repo.git_dir / "index.lock").unlink()
    assert finish_pending(repo) == ()
    assert held.text("status", "--porcelain") == ""


def test_a_branch_that_moved_without_its_reflog_is_a_commit(box):
    """Git moves the branch, cannot write HEAD's reflog on a full disk, and says that it failed."""
    log = box.root / ".git/logs/HEAD"
    log.unlink()
    log.symlink_to("HEAD")  # a circle: nobody can open it
    box.write("src/app.py", "2\n")
    repo = box.open()
    outcome = commit_paths(repo, request(repo, "src/app.py"))
    assert (outcome.end, outcome.commit) == (CommitEnd.COMMITTED, repo.head())
    assert box.text("status", "--porcelain") == ""


def test_a_missing_identity_is_refused_with_the_command(box):
    (box.home / ".gitconfig").unlink()
    repo = box.open()
    assert find_identity(repo) is None
    with pytest.raises(RepoError, match="does not know who you are") as caught:
        commit_paths(repo, request(repo, "src/app.py"))
    assert "user.email" in str(caught.value.hint)
    for key, value in (("user.name", "New"), ("user.email", "new@example.org"), ("user.name", "Newer")):
        box.git("config", key, value)
        assert (str(find_identity(repo)) == f"{value} <new@example.org>") == (value.startswith("Newer"))


def test_an_identity_from_the_environment_counts(box):
    (box.home / ".gitconfig").unlink()
    given = {"GIT_AUTHOR_NAME": "Env", "GIT_AUTHOR_EMAIL": "env@example.org"}
    assert str(find_identity(box.open(), given)) == "Env <env@example.org>"


def test_signing_that_needs_a_prompt_is_refused(box):
    """A gpg without any key fails as one with a locked key does; the branch stays where it is."""
    box.git("config", "commit.gpgSign", "true")
    repo = box.open()
    before = repo.head()
    box.write("src/app.py", "2\n")
    with pytest.raises(RepoError, match=r"commit\.gpgSign is on"):
        commit_paths(repo, request(repo, "src/app.py"))
    assert repo.head() == before


def test_signing_with_a_key_without_passphrase_works(box, tmp_path):
    key = tmp_path / "key"
    made = subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=False, capture_output=True)
    if made.returncode:
        pytest.skip("no ssh-keygen")
    box.git("config", "--global", "gpg.format", "ssh")
    box.git("config", "--global", "user.signingKey", key)
    box.git("config", "--global", "commit.gpgSign", "true")
    committed(box, replace={"PLAN.md": TICKED})
    assert b"-----BEGIN SSH SIGNATURE-----" in box.git("cat-file", "commit", "HEAD")


def test_a_signing_program_that_waits_is_killed(box, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "TIMEOUT_S", 0.3)
    slow = tmp_path / "slow-gpg"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    box.git("config", "--global", "gpg.program", slow)
    box.git("config", "--global", "commit.gpgSign", "true")
    repo = box.open()
    words = check_signing(repo)
    assert "no answer within" in str(words)


def test_what_a_merge_brought_to_its_branch_is_counted_and_not_what_was_there(box):
    """A phase that landed behind another one has not touched that one's files."""
    box.git("switch", "-qc", "job")
    for branch, name in (("job", "own.txt"), ("-", "others.txt")):
        box.git("switch", "-q", branch) if branch == "-" else None
        box.write(name, "1\n")
        box.git("add", name)
        box.git("commit", "-qm", name)
    box.git("merge", "-q", "--no-edit", "job")
    assert [file["path"] for file in count_lines(box.open(), box.text("rev-parse", "HEAD"))] == ["own.txt"]


def test_a_filter_that_cannot_be_started_is_named():
    """Git's own last line says only that somebody hung up."""
    err = b"git-lfs filter-process: 1: git-lfs: not found\nfatal: the remote end hung up unexpectedly\n"
    assert GitResult(code=128, out=b"", err=err).words.startswith("git-lfs filter-process: 1: git-lfs: not found; ")
