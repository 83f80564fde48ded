"""The user's commit hooks: run on a copy, taken seriously, taken in once."""

import subprocess
from dataclasses import replace
from itertools import product

import pytest

from relay.git.config_guard import guard
from relay.git.hooks import HookResult, Hooks, get_hooks_dir, has_hook
from relay.git.message import Message, read_text, render_message
from relay.git.repository import open_repo
from relay.git.worktrees import put_tree
from relay.store.commit import CommitEnd, CommitRequest, commit_paths
from relay.store.completion import store_files
from tests.effort import take_each

TRAILERS = (("Relay-Plan", "PLAN.md"), ("Relay-Phase", "1"))


def install(box, name, script, place=".git/hooks"):
    box.write(f"{place}/{name}", f"#!/bin/sh\n{script}\n").chmod(0o755)


def make_hooks(box, tmp_path, recheck=lambda _tree, _paths: None):
    """Run hooks as the loop does, but for the sandbox: the git directory is not writable for them."""
    ran = []

    def run(wanted):
        ran.append(wanted.name)
        env = {**box.environ, **wanted.env}
        done = subprocess.run(
            wanted.argv, check=False, cwd=wanted.cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True
        )
        return HookResult(ok=done.returncode == 0, output=(done.stdout + done.stderr).decode())

    return Hooks(run=run, scratch=tmp_path / "scratch", recheck=recheck), ran


def commit(box, hooks, *paths, **kwargs):
    repo = box.open()
    given = {"message": Message(subject="phase 1", trailers=TRAILERS), "branch": repo.branch, "head": repo.head()}
    return commit_paths(repo, CommitRequest(paths=paths, **(given | kwargs)), hooks=hooks)


def test_a_hook_sees_what_will_be_committed(box, tmp_path):
    hooks, ran = make_hooks(box, tmp_path)
    install(
        box, "pre-commit", f"git diff --cached --name-status >{tmp_path}/seen; git diff --name-only >>{tmp_path}/seen"
    )
    box.write("src/app.py", "2\n")
    box.write("user.txt", "the user's")
    box.git("add", "user.txt")
    assert commit(box, hooks, "src/app.py", replace={"PLAN.md": b"ticked\n"}).end == CommitEnd.COMMITTED
    assert ran == ["pre-commit"]
    # The ticked plan is not staged for the hook: it would differ from the work tree, and frameworks stash that.
    assert (tmp_path / "seen").read_text().split() == ["M", "src/app.py"]


def test_a_hook_sees_the_users_edited_plan_staged(box, tmp_path):
    """Nothing is left to be put aside by a hook framework, and a hook that checks the plan checks the new one."""
    hooks, _ = make_hooks(box, tmp_path)
    install(box, "pre-commit", "git diff --quiet && git show :PLAN.md | grep -q edited")
    box.write("PLAN.md", "edited by hand\n")
    assert commit(box, hooks, replace={"PLAN.md": b"edited by hand\n"}).end == CommitEnd.COMMITTED
    assert box.git("show", "HEAD:PLAN.md") == b"edited by hand\n"


def test_a_refusing_hook_changes_nothing_and_says_why(box, tmp_path):
    hooks, _ = make_hooks(box, tmp_path)
    install(box, "pre-commit", "echo 'lint: line 3 is bad'; exit 1")
    box.write("src/app.py", "2\n")
    before = box.text("rev-parse", "HEAD"), (box.root / ".git/index").read_bytes(), box.files()
    outcome = commit(box, hooks, "src/app.py")
    assert (outcome.end, outcome.commit) == (CommitEnd.HOOK_REFUSED, None)
    assert "line 3 is bad" in outcome.output
    assert (box.text("rev-parse", "HEAD"), (box.root / ".git/index").read_bytes(), box.files()) == before


def commit_checked(box, tmp_path, hooks, *paths, **kwargs):
    """Commit with the hooks in a tree of the gates, which has the commit's files alone."""
    box.git("worktree", "add", "-q", "--detach", tmp_path / "gate")
    repo, gate = box.open(), open_repo(tmp_path / "gate", box.environ)
    seen = store_files(repo, guard(repo), repo.head(), paths)
    put_tree(gate, seen, head=repo.head(), kept=())
    return commit(box, replace(hooks, tree=gate), *paths, files=seen, **kwargs)


@pytest.mark.parametrize("code", take_each(2, [1, 0]))
def test_files_that_a_hook_rewrites_are_taken_in(box, tmp_path, code):
    """From the tree of the gates to the commit's. A refusing hook runs once more and sees the commit alone."""
    hooks, ran = make_hooks(box, tmp_path)
    install(
        box,
        "pre-commit",
        f"git diff --quiet && git diff --cached --name-only >>{tmp_path}/seen; test -e mine.txt && exit 9\n"
        "test -L made/link && exit 0; mkdir made; ln -s x made/link; rm run.sh; echo formatted >>src/app.py\n"
        f"exit {code}",
    )
    (box.root / "src/old.py").unlink()
    box.write("src/app.py", "2\n")
    box.write("mine.txt", "of no commit\n")
    outcome = commit_checked(box, tmp_path, hooks, "src/app.py", "src/old.py")
    assert (outcome.end, outcome.rewritten) == (CommitEnd.COMMITTED, ("made/link", "run.sh", "src/app.py"))
    both = ["src/app.py", "src/old.py"]
    assert (tmp_path / "seen").read_text().split() == [*both, *(["made/link", "run.sh", *both] if code else [])]
    assert len(ran) == 1 + code
    assert box.tree("HEAD")["src/app.py"] == b"2\nformatted\n"
    assert box.text("status", "--porcelain") == "?? mine.txt"


def test_a_hook_that_never_agrees_is_a_refusal(box, tmp_path):
    hooks, ran = make_hooks(box, tmp_path)
    install(box, "pre-commit", "date +%N >>src/app.py; exit 1")
    box.write("src/app.py", "2\n")
    assert commit(box, hooks, "src/app.py").end == CommitEnd.HOOK_REFUSED
    assert len(ran) == 2


def test_a_rewrite_is_checked_again_before_the_commit(box, tmp_path):
    asked = []

    def red(tree, paths):
        asked.append((box.git("show", f"{tree}:src/app.py"), paths))
        return "gate is red"

    hooks, _ = make_hooks(box, tmp_path, recheck=red)
    install(box, "pre-commit", "echo broken >src/app.py")
    box.write("src/app.py", "2\n")
    outcome = commit_checked(box, tmp_path, hooks, "src/app.py")
    assert (outcome.end, outcome.output) == (CommitEnd.RECHECK_REFUSED, "gate is red")
    assert asked == [(b"broken\n", ("src/app.py",))]
    assert box.tree("HEAD")["src/app.py"] == b"print(1)\n"
    assert (box.root / "src/app.py").read_text() == "broken\n"


def test_what_a_user_saves_meanwhile_stays_and_is_not_committed(box, tmp_path):
    hooks, _ = make_hooks(box, tmp_path)
    install(box, "pre-commit", f"echo mine >{box.root}/src/app.py; grep -q x src/app.py || echo x >>src/app.py")
    box.write("src/app.py", "2\n")
    assert commit_checked(box, tmp_path, hooks, "src/app.py").end == CommitEnd.COMMITTED
    assert box.tree("HEAD")["src/app.py"] == b"2\nx\n"
    assert (box.root / "src/app.py").read_text() == "mine\n"


def test_user_files_that_a_hook_rewrites_are_not_committed(box, tmp_path):
    box.write("user.py", "mine\n")
    box.write("src/old.py", "my edit\n")
    hooks, _ = make_hooks(box, tmp_path)
    install(box, "pre-commit", "for f in user.py src/old.py src/app.py; do echo formatted >>$f; done")
    box.write("src/app.py", "2\n")
    outcome = commit_checked(box, tmp_path, hooks, "src/app.py", keep_out=frozenset({"user.py", "src/old.py"}))
    assert (outcome.rewritten, outcome.not_taken) == (("src/app.py",), ("src/old.py", "user.py"))
    assert box.text("diff", "--name-only", "HEAD~1", "HEAD") == "src/app.py"


@pytest.mark.parametrize("code", take_each(2, [1, 0]))
def test_a_commit_that_takes_nothing_in_holds_the_given_files_alone(box, tmp_path, code):
    """Where no gate looks at files, a formatter changes the work tree and not the commit."""
    hooks, ran = make_hooks(box, tmp_path)
    install(
        box, "pre-commit", f"test -e made.txt && exit 0; echo x | tee made.txt >>src/app.py; git add -A; exit {code}"
    )
    outcome = commit(box, hooks, replace={"PLAN.md": b"new\n"})
    assert (outcome.end, outcome.rewritten, outcome.not_taken) == (CommitEnd.COMMITTED, (), ("made.txt", "src/app.py"))
    assert len(ran) == 1 + code
    assert box.text("diff", "--name-only", "HEAD~1", "HEAD") == "PLAN.md"
    assert box.text("status", "--porcelain").split() == ["M", "src/app.py", "??", "made.txt"]


@pytest.mark.parametrize(
    "plant",
    [
        'ln -sf @/away/index "$d/index"; ln -sf @/away/COMMIT_EDITMSG "$d/COMMIT_EDITMSG"',
        'rm -rf "$d"; ln -s @/away "$d"',
        'rm -rf "$d"; ln -s @/away "$d"; for n in hooks index objects; do ln -sfn @/away "${d%/*}/$n"; done',
        'chmod 0 "$d"',
    ],
)
def test_what_a_hook_plants_in_its_scratch_directory_is_not_followed(box, tmp_path, plant):
    away = tmp_path / "away"
    away.mkdir()
    for name in ("index", "COMMIT_EDITMSG"):
        (away / name).write_text("precious")
    hooks, _ = make_hooks(box, tmp_path)
    for name in ("pre-commit", "prepare-commit-msg", "commit-msg"):
        install(box, name, f'd="${{GIT_INDEX_FILE%/*}}"; {plant.replace("@", str(tmp_path))}')
    outcome = commit(box, hooks)
    assert outcome.end == CommitEnd.COMMITTED
    assert {file.name: file.read_text() for file in away.iterdir()} == dict.fromkeys(
        ("index", "COMMIT_EDITMSG"), "precious"
    )
    assert "precious" not in box.text("log", "-1", "--format=%B")


def test_message_hooks_may_change_the_message_but_not_lose_the_trailers(box, tmp_path):
    hooks, ran = make_hooks(box, tmp_path)
    install(box, "prepare-commit-msg", '[ "$2" = message ] && sed -i "1s/^/JIRA-1 /" "$1"')
    install(box, "commit-msg", 'printf "\\nChange-Id: I123\\n\\nprose at the end" >>"$1"')
    box.write("src/app.py", "2\n")
    outcome = commit(box, hooks, "src/app.py")
    assert ran == ["prepare-commit-msg", "commit-msg"]
    assert box.text("log", "-1", "--format=%s") == "JIRA-1 phase 1"
    assert "prose at the end" in box.text("log", "-1", "--format=%b")
    assert set(TRAILERS) <= set(read_text(box.open(), outcome.commit).found)


def test_a_trailer_added_by_a_hook_joins_relay_s(box, tmp_path):
    hooks, _ = make_hooks(box, tmp_path)
    install(box, "commit-msg", 'echo "Change-Id: I123" >>"$1"')
    outcome = commit(box, hooks)
    assert read_text(box.open(), outcome.commit).found == (("Change-Id", "I123"), *TRAILERS)


def test_a_hook_has_nothing_to_say_about_relay_s_trailers(box, tmp_path):
    """What a session put into a hook of the repository would otherwise take back what it cost.

    At the end, below the subject, in a paragraph above.
    """
    hooks, _ = make_hooks(box, tmp_path)
    forged = "Relay-Cost: 0.00 USD\\nrelay-phase : 9\\n folded\\nRelay-Sandbox: off\\nSigned-off-by: A <a@b>"
    wanted = (*TRAILERS, ("Relay-Cost", "0.25 USD"))
    for name, place in product(("prepare-commit-msg", "commit-msg"), ("$", "1", "2")):
        install(box, name, f"""sed -i '{place}a\\\n{forged}' "$1"; sed -i 's/0.25 USD/0.00 USD/' "$1" """)
        outcome = commit(box, hooks, message=Message(subject="phase 1", body="- [x] 1.1 a", trailers=wanted))
        text, found = box.text("log", "-1", "--format=%B"), read_text(box.open(), outcome.commit).found
        assert [pair for pair in found if pair[0].startswith("Relay")] == [*wanted], (name, place)
        assert (text.lower().count("relay-"), "Signed-off-by: A <a@b>" in text, "0.00" in text) == (3, True, False)
        (box.root / ".git/hooks" / name).unlink()


def test_a_message_that_a_hook_left_alone_is_as_it_was(box, tmp_path):
    """A body whose last lines look like trailers stays a body."""
    hooks, _ = make_hooks(box, tmp_path)
    install(box, "commit-msg", "true")
    message = Message(subject="phase 1", body="Handoff note:\nNext: the store", trailers=TRAILERS)
    commit(box, hooks, message=message)
    assert box.git("log", "-1", "--format=%B").rstrip() == render_message(message).rstrip()


@pytest.mark.parametrize("scope", ["--local", "--global"])
def test_configured_hook_directories_count(box, tmp_path, scope):
    """Husky and the like point into the work tree; the loop runs these confined."""
    box.git("config", scope, "core.hooksPath", ".husky")
    install(box, "pre-commit", "exit 1", place=".husky")
    repo = box.open()
    config = guard(repo).config
    assert get_hooks_dir(repo, config) == box.root / ".husky"
    assert has_hook(repo, config, "pre-commit")
    hooks, ran = make_hooks(box, tmp_path)
    assert commit(box, hooks).end == CommitEnd.HOOK_REFUSED
    assert ran == ["pre-commit"]


def test_hooks_work_in_a_linked_work_tree(box, tmp_path):
    box.git("worktree", "add", "-q", "-b", "other", tmp_path / "linked")
    install(
        box,
        "pre-commit",
        f"git rev-parse --show-toplevel >{tmp_path}/seen; git diff --cached --name-only >>{tmp_path}/seen",
    )
    linked = type(box)(root=tmp_path / "linked", home=box.home)
    linked.write("src/app.py", "2\n")
    hooks, _ = make_hooks(linked, tmp_path)
    assert commit(linked, hooks, "src/app.py").end == CommitEnd.COMMITTED
    assert (tmp_path / "seen").read_text().splitlines() == [str(tmp_path / "linked"), "src/app.py"]
