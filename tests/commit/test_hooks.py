"""Commit hooks as their managers make them: they write into the git directory and into caches, and both are theirs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from relay.base.errors import ExitCode, RepoError
from relay.base.hints import AT_ROOT
from relay.cli.views.last_run import tell_failures
from relay.git.repository import open_repo
from relay.run.commit.candidate import PhaseCommit
from relay.run.commit.hooks import explain_hook, find_telling
from relay.session.events import Committed, GateFinished, Noticed
from relay.session.values import SessionEnd, SessionKind, SessionOutcome
from relay.setup.observers import make_last_gate
from relay.store.branches import begin_branch
from relay.store.commit import CommitEnd, CommitOutcome
from tests.commit.candidate import commit_claims
from tests.effort import take_each
from tests.scripted import Act, ScriptedRunner

WORK: list[list[Sequence[Act | SessionOutcome]]] = [
    [[("write", {"path": "hello.txt", "content": "hello\n"}), ("tick", {"item": "1.1", "evidence": "made"})]],
    [
        [
            ("write", {"path": "world.txt", "content": "world world\n"}),
            ("tick", {"item": "2.1", "evidence": "made"}),
            ("tick", {"item": "2.2", "evidence": "made"}),
        ]
    ],
]
SIGNS_OFF = """\
git interpret-trailers --if-exists doNothing --in-place \\
  --trailer "Signed-off-by: $(git var GIT_COMMITTER_IDENT | sed 's/ [0-9]* [+-][0-9]*$//')" \\
  --trailer "Seen: $GIT_AUTHOR_NAME <$GIT_AUTHOR_EMAIL> $GIT_AUTHOR_DATE, $(git config user.name)" "$1"
"""
LIKE_LINT_STAGED = """\
set -e
test -z "$(git stash list)"
echo draft >> hello.txt
backup=$(git stash create)
git stash store --quiet --message backup "$backup"
test "$(git stash list --format=%gs)" = backup
git diff > "$(git rev-parse --git-path lint-staged_unstaged.patch)"
git checkout --quiet -- hello.txt
git stash drop --quiet
git update-ref refs/heads/sneaked HEAD
git config user.name somebody
echo evil > "$(git rev-parse --git-common-dir)"/hooks/post-checkout
test "$(git log --format=%s | tail -1)" = start
"""


def install_hook(stage, script, name="pre-commit"):
    hook = stage.root / ".git/hooks" / name
    hook.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}")
    hook.chmod(0o755)


@pytest.fixture
def begun(stage):
    """A repository that has the file which hooks put aside."""
    stage.write("hello.txt", "start\n")
    stage.commit()
    return stage


def read_git_dir(stage):
    names = ("config", "hooks/post-checkout", "refs/stash", "lint-staged_unstaged.patch", "refs/heads/sneaked")
    return {name: (stage.root / ".git" / name).read_bytes() for name in names if (stage.root / ".git" / name).exists()}


def test_a_hook_sees_what_the_gate_sees_and_has_a_git_directory_of_its_own(begun):
    """HEAD is the parent, the index the commit, and of a session's files there are those of the commit alone.

    It keeps a stash while it works, as lint-staged does at every commit; what it leaves there is nobody's.
    """
    begun.write(".gitignore", "*.o\n")
    head = begun.commit()
    install_hook(
        begun,
        f"""\
git diff --cached --quiet && exit 0
test ! -e left.o || exit 11
test "$(git rev-parse HEAD) $(git symbolic-ref HEAD)" = "{head} refs/heads/main" || exit 12
test -z "$(git diff --name-only; git ls-files --others --exclude-standard)" || exit 13
test "$(git diff --cached --name-only)" = "hello.txt" || exit 14
{LIKE_LINT_STAGED}
grep -q formatted hello.txt || echo formatted >> hello.txt
""",
    )
    before = read_git_dir(begun)
    leave = ("bash", {"command": "echo x > left.o"})
    runner = ScriptedRunner(sessions=[[[leave, *WORK[0][0]], []]])

    ended = begun.play(runner, sandbox="auto", phase="1")

    assert ended.exit_code == ExitCode.DONE, (ended, runner.told)
    assert begun.git("show", "HEAD:hello.txt") == (begun.root / "hello.txt").read_text() == "hello\nformatted\n"
    assert (begun.root / "left.o").exists()
    assert read_git_dir(begun) == before
    assert begun.git("status", "--porcelain") == ""


def test_a_hook_that_would_not_run_stops_the_run(stage):
    """It is in the user's checkout, and git neither tracks nor ignores it."""
    stage.git("config", "core.hooksPath", ".hooks")
    stage.write(".hooks/pre-commit", "#!/bin/sh\nexit 1\n")
    (stage.root / ".hooks/pre-commit").chmod(0o755)
    with pytest.raises(RepoError, match="the pre-commit hook of this repository is not in relay's tree") as caught:
        stage.play(ScriptedRunner(sessions=[*WORK]), sandbox="auto")
    assert "copy" in str(caught.value.hint)
    assert stage.commits() == ()


NOT_STARTED = {
    "#!/no/such/interpreter\n": "it cannot be started",
    "#!/usr/bin/env no-such-program\n": "a program of it is missing",
    "#!/bin/sh\r\nexit 0\r\n": "it cannot be started",
}


@pytest.mark.parametrize("script", NOT_STARTED)
def test_a_hook_that_cannot_be_started_costs_nothing(stage, script):
    hook = stage.root / ".git/hooks/pre-commit"
    hook.write_bytes(script.encode())
    hook.chmod(0o755)
    runner = ScriptedRunner(sessions=[*WORK])
    with pytest.raises(RepoError, match=NOT_STARTED[script]) as caught:
        stage.play(runner, sandbox="auto")
    assert "RELAY_HOOKS=skip" in str(caught.value.hint)
    assert (runner.specs, stage.commits()) == ([], ())


@pytest.mark.nightly
def test_what_a_session_leaves_in_its_scratch_directory_is_not_there_for_a_hook(begun):
    """It could be a configuration that makes the hook's program say yes."""
    install_hook(begun, 'test -z "$(ls -A $TMPDIR | grep -v hook-)"\n')
    leave = ("bash", {"command": "mkdir -p $TMPDIR/.cache && echo yes > $TMPDIR/.cache/rules"})

    runner = ScriptedRunner(sessions=[[[leave, *WORK[0][0]]]])
    ended = begun.play(runner, phase="1", all_=False, sandbox="auto")

    assert ended.exit_code == ExitCode.DONE


def test_hooks_and_gates_know_the_user_and_the_commands_of_a_session_nobody(stage, tmp_path, monkeypatch):
    """A hook that signs off certifies where the code is from: in the name of the one whose commit it is."""
    config, included = tmp_path / "gitconfig", tmp_path / "work"
    config.write_text(f'[user]\n\tname = Private\n[includeIf "gitdir:{stage.root}/"]\n\tpath = {included}\n')
    included.write_text('[user]\n\tname = "A \\"B\\" \\\\ # Pérson"\n\temail = a@example.org\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    install_hook(stage, SIGNS_OFF, "commit-msg")
    asks = "git var GIT_AUTHOR_IDENT > who.txt; git var GIT_COMMITTER_IDENT >> who.txt"
    runner = ScriptedRunner(sessions=[[[("bash", {"command": asks}), *WORK[0][0]]]])

    verify = ('test "$(git config user.email)" = a@example.org && git var GIT_COMMITTER_IDENT | grep Pérson',)
    ended = stage.play(runner, phase="1", all_=False, sandbox="auto", verify=verify)

    assert ended.exit_code == ExitCode.DONE, ended
    name = 'A "B" \\ # Pérson'
    assert (
        stage.git("log", "-1", "--format=%an <%ae>, %cn <%ce>") == f"{name} <a@example.org>, {name} <a@example.org>\n"
    )
    said = stage.git(
        "log", "-1", "--date=raw", "--format=%(trailers:key=Signed-off-by)%(trailers:key=Seen)%an <%ae> %ad"
    )
    signed, seen, author = said.splitlines()
    assert (signed, seen) == (f"Signed-off-by: {name} <a@example.org>", f"Seen: {author}, {name}")
    nobody = [line.rsplit(" ", 2)[0] for line in (stage.root / "who.txt").read_text().splitlines()]
    assert nobody == ["relay sandbox <sandbox@localhost>"] * 2


@pytest.mark.nightly
def test_hooks_that_the_user_leaves_out_are_not_run_and_the_commit_says_so(begun):
    """A setting of the user's own; nothing else is lost by it."""
    install_hook(begun, "exit 1\n")
    install_hook(begun, "exit 1\n", "commit-msg")

    with pytest.raises(RepoError, match="a commit hook refused: the commit-msg hook exited with 1"):
        begun.play(ScriptedRunner(sessions=[]), sandbox="auto", hooks=("commit-msg",))
    ended = begun.play(ScriptedRunner(sessions=WORK[:1]), phase="1", all_=False, sandbox="auto", hooks=("skip",))

    assert ended.exit_code == ExitCode.DONE
    assert [commit.found for commit in begun.commits()]
    assert begun.git("log", "-1", "--format=%(trailers:key=Relay-Hooks,valueonly)").strip() == "skip"


TELLS = """\
git diff --cached --quiet && exit 0
printf 'check the header.....\\033[31mFailed\\033[0m\\n\\n- hello.txt:1: no licence\\ncheck the tail.....Passed\\n'
exit 7
"""


@pytest.mark.nightly
def test_a_user_reads_what_a_hook_said_where_a_red_gate_is_read(begun):
    """On the screen, in the log, and afterwards: the line that tells most first, and no colours of its."""
    install_hook(begun, TELLS)

    ended = begun.play(ScriptedRunner(sessions=[*WORK]), sandbox="auto", max_repairs=0)

    assert "a commit hook refused: check the header: - hello.txt:1: no licence; hooks = " in ended.reason
    assert ended.next_command == "relay gate --hooks"
    kept = make_last_gate(begun.seen(GateFinished)[-1], at=0.0)
    assert [line.text for line in tell_failures(kept)] == [
        "`pre-commit hook` failed with exit 7",
        "  | check the header.....Failed",
        "  | ",
        "  | - hello.txt:1: no licence",
        "  | check the tail.....Passed",
    ]


PRE_COMMIT = """\
the pre-commit hook exited with 1
trim trailing whitespace.................................................Passed
ruff check...............................................................Failed
- hook id: ruff-check
- exit code: 1

CPY001 Missing copyright notice at top of file
--> app/add.py:1:1

Found 1 error.

mypy.................................................(no files to check)Skipped
"""
ESLINT = """\
the pre-commit hook exited with 1
[STARTED] Running tasks for staged files...
[FAILED] eslint --fix [FAILED]
✖ eslint --fix:

/repo/lib/a.js
  1:7  error  'x' is assigned a value but never used  no-unused-vars

✖ 1 problem (1 error, 0 warnings)

husky - pre-commit script failed (code 1)
"""


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (PRE_COMMIT, "ruff check: CPY001 Missing copyright notice at top of file"),
        (
            PRE_COMMIT.replace(
                "CPY001 Missing copyright notice at top of file\n--> app/add.py:1:1\n\nFound 1 error.\n", ""
            ),
            "ruff check: failed",
        ),
        (ESLINT, "1:7  error  'x' is assigned a value but never used  no-unused-vars"),
        ("the commit-msg hook exited with 1\nno\nsubject must not be empty\nbye", "subject must not be empty"),
        ("the commit-msg hook exited with 1\nno\nbye", "bye"),
        ("the pre-commit hook exited with 1\n", "the pre-commit hook exited with 1"),
    ],
    ids=[
        "pre-commit",
        "pre-commit, without a word",
        "husky and lint-staged",
        "a telling line",
        "the last line",
        "silent",
    ],
)
def test_a_refusal_is_summed_up_by_its_cause(output, line):
    """Managers of hooks name the step that failed first, and themselves last."""
    assert find_telling(output) == line


CONVENTIONAL = """\
grep -qE '^(feat|fix|chore)(\\([a-z]+\\))?: [a-z]' "$1" || { echo 'type: subject, please'; exit 1; }
if grep -qE '^.{101,}$' "$1"; then echo 'lines of at most 100, please'; exit 1; fi
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("form", "planned", "worked"),
    [
        ("", "chore: plan — Greetings", "chore: say hello"),
        ("fix(plan): {subject}", "fix(plan): plan — Greetings", "fix(plan): say hello"),
    ],
)
def test_a_hook_that_wants_a_form_of_subjects_gets_one(stage, form, planned, worked):
    """Conventional Commits without a word; another form by a setting. The session's own words are kept."""
    install_hook(stage, CONVENTIONAL, "commit-msg")
    stage.git("rm", "-q", "--cached", "PLAN.md")
    stage.git("commit", "-qm", "fix: no plan", "--no-verify")
    evidence = "a word and a word " * 10
    acts: list[Act | SessionOutcome] = [
        ("write", {"path": "hello.txt", "content": "hello\n"}),
        ("tick", {"item": "1.1", "evidence": evidence}),
    ]
    done = SessionOutcome(end=SessionEnd.FINISHED, text="Commit: Say hello")

    given = {"commit_subject": form} if form else {}
    ended = stage.play(ScriptedRunner(sessions=[[[*acts, done]]]), phase="1", all_=False, sandbox="auto", **given)

    assert ended.exit_code == ExitCode.DONE, ended
    assert stage.git("log", "-2", "--format=%s").splitlines() == [worked, planned]
    assert [event.subject for event in stage.seen(Committed)] == [planned, worked]


@pytest.mark.nightly
def test_a_hook_that_wants_a_form_of_subjects_gets_one_for_the_ledger_too(stage):
    """What a person adds between two runs is committed by itself."""
    install_hook(stage, CONVENTIONAL, "commit-msg")
    assert stage.relay("ledger", "add", "Keep it small", "--because", "rules").returncode == 0
    done = SessionOutcome(end=SessionEnd.FINISHED, text="Commit: Say hello")
    acts: list[Act | SessionOutcome] = [*WORK[0][0], done]

    ended = stage.play(ScriptedRunner(sessions=[[acts]]), phase="1", all_=False, sandbox="auto")

    assert ended.exit_code == ExitCode.DONE, ended
    assert stage.git("log", "-1", "--format=%s", "--", "PLAN.ledger.yaml") == "chore: ledger\n"


CAUSES = {
    "fatal: Could not resolve host: github.com": ("it wants the network", "fills its cache"),
    "mkdir: cannot create directory '/etc/mine': Read-only file system": ("it writes where it may only", "paths.write"),
    "fatal: cannot run .git/hooks/pre-commit: No such file or directory": (
        "it cannot be started",
        "relay gate --hooks",
    ),
    "`pre-commit` not found.  Did you forget …?": ("a program of it is missing", "paths.read"),
    "/usr/bin/python3: No module named ruff": ("a program of it is missing", "paths.read"),
    "write error: No space left on device": ("it was killed, or the disk is full", "run this again"),
    "app.py:1: no copyright notice": ("", "RELAY_HOOKS=skip"),
}


def test_what_no_session_can_repair_has_its_cause_and_a_setting():
    wrong = []
    for line, (cause, way) in CAUSES.items():
        said = explain_hook(
            CommitOutcome(
                end=CommitEnd.HOOK_REFUSED, hook="pre-commit", output=f"the pre-commit hook exited with 1\n{line}\n"
            )
        )
        begins = (
            f"the pre-commit hook refused, and no session can repair that: {cause}" if cause else "a commit hook refu"
        )
        if (said.for_user.startswith(begins), way in str(said.ways), bool(said.for_model)) != (True, True, not cause):
            wrong.append((line, said))
    assert wrong == []
    told = CommitOutcome(end=CommitEnd.HOOK_REFUSED, output="the hook exited with 1\nno", hook="commit-msg")
    branch = explain_hook(replace(told, hook="pre-commit", is_of_branch=True))
    assert branch.for_user == "the pre-commit hook forbids commits on this branch and agrees on another one: no"
    assert (AT_ROOT.write(branch.ways).startswith("relay run --branch goes on in a branch"), branch.for_model) == (
        True,
        "",
    )
    message = explain_hook(told)
    assert ("signoff = true" in AT_ROOT.write(message.ways), message.for_model) == (True, "")
    ways = [one.then and AT_ROOT.write(one.then) for one in (branch, message)]
    assert ways == ["relay run --branch", "relay gate --hooks"]


def test_what_no_session_can_repair_goes_to_the_person_at_once(begun):
    """Before a session is paid."""
    script = "echo begins; no-such-program\n"
    install_hook(begun, script)
    runner = ScriptedRunner(sessions=[*WORK])
    with pytest.raises(RepoError) as refused:
        begun.play(runner, sandbox="auto")
    begins = "phase 1 was not begun, because no commit could be made: the pre-commit hook refused, and no session can "
    cause = "repair that: a program of it is missing here, or hidden"
    assert str(refused.value).startswith(f"{begins}{cause}")
    words = f"{refused.value}; {refused.value.hint}"
    assert "no-such-program: not found; paths.read" in words
    assert "RELAY_HOOKS=skip" in words
    assert runner.specs == []


@pytest.mark.nightly
def test_what_no_session_can_repair_behind_its_work_is_told_no_session(begun):
    install_hook(begun, "git diff --cached --quiet && exit 0\necho begins; no-such-program\n")
    runner = ScriptedRunner(sessions=[*WORK])
    ended = begun.play(runner, sandbox="auto")
    assert "the pre-commit hook refused, and no session can repair that: a program of it is missing" in ended.reason
    assert (ended.next_command, len(runner.told)) == ("relay gate --hooks", 1)


NOT_ON_MAIN = """\
test "$(git symbolic-ref --short HEAD)" != main || { echo "don't commit to branch..............Failed"; exit 1; }
"""


def list_attempts(stage):
    return stage.git("for-each-ref", "--format=%(refname)", "refs/relay/leg").split()


@pytest.mark.nightly
def test_a_branch_that_a_hook_forbids_costs_nothing(begun):
    """Its way out is named first, and is a way out: what is there is the same on a branch of the plan's own."""
    install_hook(begun, NOT_ON_MAIN)
    runner = ScriptedRunner(sessions=[*WORK])
    with pytest.raises(
        RepoError, match=r"forbids commits on this branch and agrees on another one: don't commit to br"
    ):
        begun.play(runner, sandbox="auto")
    assert (runner.specs, list_attempts(begun)) == ([], [])
    tried = begun.relay("gate", "--hooks").stdout
    assert "sandbox: it forbids commits on this branch and agrees on another one: relay run --branch goes on" in tried

    begin_branch(open_repo(begun.root), "relay/greetings", lambda _: None)
    assert begun.play(runner, sandbox="auto").exit_code == ExitCode.DONE
    assert len(begun.commits()) == 2


@pytest.mark.nightly
def test_a_branch_that_a_hook_forbids_once_there_is_something_to_commit_is_told_no_session(begun):
    install_hook(begun, f"git diff --cached --quiet && exit 0\n{NOT_ON_MAIN}")
    runner = ScriptedRunner(sessions=[*WORK])
    assert begun.play(runner, sandbox="auto").next_command == "relay run --branch"
    assert len(runner.told) == 1


DCO = 'grep -q "^Signed-off-by: A Person <a@example.org>$" "$1" || { echo "Signed-off-by missing" >&2; exit 1; }\n'
COLUMNS = 'awk \'length($0) > 72 && !/^#/ {print "line " NR ": " $0; bad = 1} END {exit bad}\' "$1" >&2\n'


@pytest.mark.parametrize("hook", take_each(3, [DCO, "exit 1\n", COLUMNS]))
def test_a_message_hook_that_no_session_can_satisfy_costs_nothing(stage, hook):
    """Relay's own lines are tried before the first session, and the ways out are named."""
    if hook == COLUMNS:
        stage.edit("Say hello", "Say " + "hello" * 20)
        stage.commit()
    install_hook(stage, hook, "commit-msg")

    with pytest.raises(RepoError, match=r"phase 1 was not begun.*: a commit hook refused: ") as refused:
        stage.play(ScriptedRunner(sessions=[]), sandbox="auto")

    assert "signoff = true in your own settings" in str(refused.value.hint)
    assert [event.passed for event in stage.seen(GateFinished) if not event.phase_id] == [False]
    assert "refs/relay/leg" not in stage.git("for-each-ref")


def test_signoff_ends_each_commit_and_what_is_tried_before_a_session_has_each_line_of_it(stage, monkeypatch):
    """The plan's commit and a phase's; a repository cannot certify for its user.

    A hook could refuse a line that it was not shown before the session was paid for.
    """
    for name, value in {"GIT_AUTHOR_NAME": "A Person", "GIT_AUTHOR_EMAIL": "a@example.org"}.items():
        monkeypatch.setenv(name, value)
    seen = stage.root.parent / "seen"
    notes = f'{{ grep -o "^Relay-[A-Za-z]*" "$1" | tr "\\n" " "; echo; }} >> {seen}\n'
    install_hook(stage, DCO + COLUMNS + notes, "commit-msg")
    install_hook(stage, SIGNS_OFF.replace("Seen: ", "Seen: at "), "prepare-commit-msg")
    stage.edit("Say hello", "Say hello twice")
    told = [("tick", {"item": "1.1", "evidence": "a word and a word " * 10})]
    runner = ScriptedRunner(sessions=[[[WORK[0][0][0], *told]]])

    ended = stage.play(runner, phase="1", all_=False, sandbox="off", signoff=True)

    assert ended.exit_code == ExitCode.DONE, ended
    texts = stage.git("log", "-2", "--format=%B%x00").split("\0")[:-1]
    assert [text.count("Signed-off-by: A Person <a@example.org>") for text in texts] == [1, 1]
    assert "Relay-Gate: pass\n" in texts[0]
    *tried, made = (set(line.split()) for line in seen.read_text().splitlines())
    assert made | {"Relay-Model"} in tried
    stage.write("relay.toml", "signoff = true\n")
    refused = stage.relay("run", "--dry-run")
    assert "signoff" in refused.stderr
    assert refused.returncode == ExitCode.USER


def test_what_a_message_hook_refuses_no_session_is_told(begun):
    """It refused relay's own words too, which no session can change."""
    install_hook(begun, "exit 0\n", "commit-msg")

    def change() -> None:
        install_hook(begun, "! grep '^Relay-Usage: ' \"$1\"\n", "commit-msg")

    runner = ScriptedRunner(sessions=[[[change, *WORK[0][0]]]])

    ended = begun.play(runner, sandbox="auto")

    assert (ended.exit_code, ended.next_command) == (ExitCode.STOPPED, "relay gate --hooks")
    assert "phase 1: a commit hook refused: " in ended.reason
    assert len(runner.told) == 1


@pytest.mark.nightly
def test_a_phase_is_committed_without_the_evidence_that_a_hook_refuses(begun):
    """The session cannot take it back, and its work is green."""
    install_hook(begun, "! grep 'evidence: made' \"$1\"\n", "commit-msg")
    ended = begun.play(ScriptedRunner(sessions=WORK[:1]), phase="1", all_=False, sandbox="auto")
    assert ended.exit_code == ExitCode.DONE, ended
    assert begun.git("log", "-1", "--format=%b").startswith("- [x] 1.1 Say hello — hello.txt\n\nRelay-")
    assert "a commit hook refused the session's evidence; the commit is without it" in list_notices(begun)


@pytest.mark.nightly
def test_what_a_hook_says_twice_no_session_is_asked_to_repair_again(begun):
    """It was told once, and changed nothing; nor does another run pay for it."""
    install_hook(begun, "git diff --cached --quiet && exit 0\necho no copyright notice; echo took $$.5s; exit 1\n")
    runner = ScriptedRunner(sessions=[*WORK])
    for _ in range(2):
        ended = begun.play(runner, sandbox="auto")
        assert (ended.exit_code, ended.next_command) == (ExitCode.STOPPED, "relay gate --hooks")
        assert "a commit hook refused: " in ended.reason
    assert len(runner.told) == 2
    install_hook(begun, "exit 0\n")
    assert begun.play(runner, phase="1", all_=False, sandbox="auto").exit_code == ExitCode.DONE


@pytest.mark.nightly
@pytest.mark.parametrize("script", ["exit 1\n", "echo there are no staged files; exit 1\n"], ids=["silent", "empty"])
def test_a_hook_that_only_wants_something_to_commit_stops_nothing(begun, script):
    """`git diff --cached --name-only | grep py$` under `set -e` fails without a word."""
    install_hook(begun, f"git diff --cached --quiet || exit 0\n{script}")
    ended = begun.play(ScriptedRunner(sessions=WORK[:1]), phase="1", all_=False, sandbox="auto")
    assert ended.exit_code == ExitCode.DONE
    assert [event.expected for event in begun.seen(GateFinished) if not event.phase_id] == ["as nothing is staged yet"]


FORMATTER = """\
exec python3 - <<'EOF'
import re, subprocess, sys
changed = 0
for name in subprocess.check_output(["git", "diff", "--cached", "--name-only"], text=True).split():
    with open(name, "rb+") as file:
        data = file.read()
        new = re.sub(rb"[ ]+\\n", b"\\n", data)MORE
        if new != data:
            changed = 1
            file.seek(0)
            file.write(new)
            file.truncate()
sys.exit(changed)
EOF
"""
"""As the hooks of most repositories: each staged file is opened to be written, and exit code 1 means "changed"."""


def list_notices(stage):
    return [event.text for event in stage.seen(Noticed)]


def test_a_hook_that_formats_what_is_staged_formats_the_plan_and_the_ledger(stage):
    """Both are written by people and models, so their ends of lines are what such a hook is for."""
    install_hook(stage, FORMATTER.replace("MORE", ""))
    plan = (stage.root / "PLAN.md").read_text()
    stage.write("PLAN.md", plan.replace("\n\n", "  \n\n") + "\nNothing more. \n")
    assert stage.relay("ledger", "add", "Keep it small", "--because", "rules").returncode == 0

    ended = stage.play(ScriptedRunner(sessions=WORK[:1]), phase="1", all_=False, sandbox="auto")

    assert ended.exit_code == ExitCode.DONE
    assert stage.git("show", "HEAD:PLAN.md") == (stage.root / "PLAN.md").read_text()
    assert not [line for line in (stage.root / "PLAN.md").read_text().split("\n") if line.endswith(" ")]
    assert "a commit hook formatted the plan; its version is committed" in list_notices(stage)
    assert stage.git("status", "--porcelain") == ""


def test_a_hook_that_changes_what_the_plan_asks_for_is_not_followed(stage):
    """Its program can be in the repository, where sessions write."""
    install_hook(
        stage, FORMATTER.replace("MORE", '.replace(b"Say", b"Do not say")').replace("exit(changed)", "exit(0)")
    )
    plan = (stage.root / "PLAN.md").read_text() + "\nNothing more.\n"
    stage.write("PLAN.md", plan)

    ended = stage.play(ScriptedRunner(sessions=WORK[:1]), phase="1", all_=False, sandbox="auto")

    assert ended.exit_code == ExitCode.DONE
    assert (stage.root / "PLAN.md").read_text() == plan.replace("[ ]", "[x]", 1)
    words = "a commit hook changed the words of the plan; that is not committed: only you may change them"
    assert words in list_notices(stage)


def test_gates_and_hooks_may_open_what_is_protected_and_change_nothing_of_it(stage):
    """`pre-commit run --all-files` opens each file of the repository to be written."""
    rules = "Be brief.\n"
    stage.write("AGENTS.md", rules)
    write = "for file in PLAN.md AGENTS.md; do echo more >> $file || exit 1; done"
    plan = (
        (stage.root / "PLAN.md")
        .read_text()
        .replace("`grep -q hello hello.txt`", f"`grep -q hello hello.txt`, `{write}`")
    )
    stage.write("PLAN.md", plan)
    stage.commit()
    install_hook(stage, f"{write}\n")

    with stage.enter(SessionKind.RUN, runner=ScriptedRunner([])) as ctx:
        assert isinstance(commit_claims(stage, ctx, lambda head: head.tick(["1.1"])), PhaseCommit)

    assert (stage.root / "AGENTS.md").read_text() == rules
    assert (stage.root / "PLAN.md").read_text() == plan.replace("[ ]", "[x]", 1)
    assert stage.git("status", "--porcelain") == ""
