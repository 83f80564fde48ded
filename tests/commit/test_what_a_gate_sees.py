"""A gate sees what is going to be committed and what was installed or built before, and nothing else."""

import os
import py_compile

import pytest

from relay.run.commit.candidate import PhaseCommit, Refused
from relay.sandbox.places import MOST
from relay.session.events import GateFinished, Noticed
from relay.session.values import SessionKind
from tests.commit.candidate import commit_claims
from tests.effort import NIGHTLY, take_each
from tests.scripted import ScriptedRunner

IGNORED = "*.log\nbuild/\nlocal.env\nnode_modules/\n.venv/\nenv/\n*.egg-info/\n*.tsbuildinfo\n*_cache/\n__pycache__/\n"


@pytest.fixture
def work(stage):
    """Commit a phase in which this and that was done; `gate` is its verify command."""
    stage.write(".gitignore", IGNORED)
    stage.write("src/app.py", "print('app')\n")
    stage.commit("files")

    def run(gate, do=lambda: None, *, before=lambda: None, **flags):
        stage.write("PLAN.md", f"## Phase 1 — Hello\nVerify: `{gate}`\n- [ ] Say hello\n")
        stage.commit("plan")
        before()
        with stage.enter(SessionKind.RUN, flags=flags, runner=ScriptedRunner([])) as ctx:
            return commit_claims(stage, ctx, lambda head: head.tick(["1.1"]), do)

    return run


def files(stage):
    return stage.git("show", "--name-only", "--format=", "HEAD").split()


def make_large(stage, path):
    with (stage.root / path).open("wb") as file:
        file.truncate(10_000_001)


def fill(stage, folder):
    (stage.root / folder).mkdir(parents=True)
    for number in range(5_001):
        (stage.root / folder / f"{number}.txt").touch()


def make_repository(stage, path):
    stage.write(f"{path}/index.html", "x")
    stage.git("-C", path, "init", "-q")


LEFT_BY_THE_PHASE = {
    "ignored": ("test -e out.log", lambda s: s.write("out.log", "x"), ", out.log, "),
    "below a tracked directory": (
        "test -e src/out.log",
        lambda s: s.write("src/out.log", "x"),
        "src/out.log (ignored by git)",
    ),
    "ignored by its own line": (
        "test -e data.csv",
        lambda s: (s.write("data.csv", "x"), s.write(".gitignore", f"{IGNORED}*.csv\n")),
        "data.csv, ",
    ),
    "a directory that git ignores": ("test -e build/x", lambda s: s.write("build/x", "x"), "build, "),
    "too large": ("test -e big.bin", lambda s: make_large(s, "big.bin"), "big.bin (10.0 MB, too large)"),
    "too many": ("test -e web/7.txt", lambda s: fill(s, "web"), "web (5,001 untracked files)"),
    "its own repository": (
        "test -e page/index.html",
        lambda s: make_repository(s, "page"),
        "page (a repository of its own)",
    ),
    "an empty directory": ("test -d src/empty", lambda s: (s.root / "src/empty").mkdir(), ""),
    "a pipe": ("test -p src/pipe", lambda s: os.mkfifo(s.root / "src/pipe"), ""),
}


def meet_all(cases):
    """Return a gate that is green, and says by which, once one of the cases makes it so; and what does all of them."""
    gate = " || ".join(f"{{ {case[0]} && echo GREEN {name.replace(' ', '-')}; }}" for name, case in cases.items())
    return gate, [case[1] for case in cases.values()]


def test_what_a_commit_would_not_hold_makes_no_gate_green(stage, work):
    """Nothing of it is in a clean clone; the refusal names it and says why."""
    gate, acts = meet_all(LEFT_BY_THE_PHASE)

    made = work(gate, lambda: [act(stage) for act in acts])

    assert isinstance(made, Refused), stage.seen(GateFinished)[-1]
    assert [gate.passed for gate in stage.seen(GateFinished)] == [False, False]
    wanted = [words for *_, words in LEFT_BY_THE_PHASE.values() if words]
    assert [words for words in wanted if words not in made.for_model or words not in made.for_user] == []
    assert stage.commits() == ()


def change_mode(stage):
    (stage.root / "src/app.py").chmod(0o755)
    stage.git("config", "core.fileMode", "false")


def keep_times(stage):
    """Change a file so that its size and its seconds stay the same."""
    place = stage.root / "src/app.py"
    found = place.stat()
    stage.git("config", "core.checkStat", "minimal")
    stage.git("config", "core.trustctime", "false")
    place.write_text("print('opp')\n")
    os.utime(place, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.nightly
def test_a_mode_that_git_does_not_look_at_is_not_seen(stage, work):
    """The commit has the file as it was."""
    made = work("test -x src/app.py", before=lambda: None, do=lambda: change_mode(stage))
    assert isinstance(made, Refused)


@pytest.mark.nightly
def test_a_change_that_git_was_told_to_overlook_is_committed(stage, work):
    """What the gate saw is what the commit holds."""
    assert isinstance(work("grep -q opp src/app.py", lambda: keep_times(stage)), PhaseCommit)
    assert "src/app.py" in files(stage)


USERS = {
    "untracked": ("test -e helper.py", lambda s: s.write("helper.py", "x")),
    "dirty": ("grep -q mine src/app.py", lambda s: s.write("src/app.py", "mine")),
    "removed": ("test ! -e src/gone.py", lambda s: (s.root / "src/gone.py").unlink()),
    "staged": ("test -e staged.py", lambda s: (s.write("staged.py", "x"), s.git("add", "staged.py"))),
}


def test_what_the_user_has_not_committed_makes_no_gate_green(stage, work):
    """It stays as it is."""
    stage.write("src/gone.py", "x")
    stage.commit("a file")
    gate, acts = meet_all(USERS)

    made = work(gate, before=lambda: [act(stage) for act in acts])

    assert isinstance(made, Refused), stage.seen(GateFinished)[-1]
    assert [gate.passed for gate in stage.seen(GateFinished)] == [False, False], "the baseline is judged the same way"
    left = stage.git("status", "--porcelain", "--", "helper.py", "src", "staged.py").splitlines()
    assert left == [" M src/app.py", " D src/gone.py", "A  staged.py", "?? helper.py"]


def test_what_the_user_has_not_committed_makes_no_gate_red(stage, work):
    """A broken draft beside the work, and a file that is gone, are not the phase's."""

    def scribble():
        stage.write("src/test_draft.py", "(")
        (stage.root / "src/app.py").unlink()

    made = work("test ! -e src/test_draft.py && python3 src/app.py && cat hello.txt", before=scribble)

    assert isinstance(made, PhaseCommit), made
    assert files(stage) == ["PLAN.md", "hello.txt"]
    assert (stage.root / "src/test_draft.py").read_text() == "("


@pytest.mark.nightly
def test_what_was_there_when_the_phase_began_is_its_environment(stage, work):
    """Ignored settings, dependencies and caches, beside what differs too."""

    def install():
        stage.write("local.env", "x")
        stage.write("build/deps/a.o", "x")
        stage.write("notes.txt", "mine")

    gate = "test -e local.env && test -e build/deps/a.o && test -e node_modules/left/index.js && test ! -e notes.txt"

    def do():
        stage.write("node_modules/left/index.js", "x")
        stage.write(".gitignore", "*.log\nbuild/\nlocal.env\nnode_modules/\n")

    assert isinstance(work(f"{gate} && rm -rf build", do, before=install), PhaseCommit)
    assert files(stage) == [".gitignore", "PLAN.md", "hello.txt"]
    assert (stage.root / "build/deps/a.o").exists()


GREEN = "#!/bin/sh\n exit 0\n"
RED = "#!/bin/sh\n exit 1\n"


def put(stage, path, text=RED, mode=0o755):
    stage.write(path, text)
    (stage.root / path).chmod(mode)


def keep_date(stage, path, text=GREEN):
    """Write as many bytes into the same file, and say that it was not written."""
    found = (stage.root / path).stat()
    (stage.root / path).write_text(text)
    os.utime(stage.root / path, ns=(found.st_atime_ns, found.st_mtime_ns))


CHANGED_BY_THE_PHASE = (
    "local.env",
    "build/t.sh",
    "build/a/b/t.sh",
    "node_modules/.cache/t.sh",
    "web/node_modules/.vite/t.sh",
    "app.egg-info/entry",
    "web/tsconfig.tsbuildinfo",
)


@pytest.mark.parametrize("keeps", take_each(2, [True, False]))
def test_what_sessions_changed_of_it_makes_no_gate_green(stage, work, keeps):
    """No commit has it, though git ignored it when the phase began; the date that everybody can set says nothing."""
    stage.write("web/index.ts", "x")

    def prepare():
        for path in (*CHANGED_BY_THE_PHASE, "node_modules/kept/index.js"):
            put(stage, path)

    def do():
        for path in CHANGED_BY_THE_PHASE:
            if keeps:
                keep_date(stage, path)
            else:
                (stage.root / path).unlink()
                put(stage, path, GREEN)

    made = work(" || ".join(f"{{ sh {path} && echo {path}; }}" for path in CHANGED_BY_THE_PHASE), do, before=prepare)

    assert isinstance(made, Refused), stage.seen(GateFinished)[-1]
    assert {(stage.root / path).read_text() for path in CHANGED_BY_THE_PHASE} == {GREEN}


def plant_bytecode(stage):
    """Python takes it for `app` without a look at that, also where it is told to take nothing from the environment."""
    source = stage.root / "src/app.py"
    source.write_text("ok = True\n")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True)
    source.write_text("print('app')\n")


def swap(stage, one, other):
    for source, target in ((one, "third"), (other, one), ("third", other)):
        (stage.root / source).rename(stage.root / target)


def dig(stage, folder):
    """Make directories whose names together nobody can write."""
    here = os.open(stage.root / folder, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=here)
        above, here = here, os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(here)


def fill_build(stage, *more):
    for name in (*more, *map(str, range(MOST + 1))):
        stage.write(f"build/{name}", "x")
    keep_date(stage, "build/red.sh")


TRICKS = {
    "bytecode": ("python3 -I -c 'import sys; sys.path[0] = \"src\"; import app; app.ok'", plant_bytecode),
    "names that change places": ("sh build/red.sh", lambda s: swap(s, "build/red.sh", "build/green.sh")),
    "directories that change places": ("sh build/red/t.sh", lambda s: swap(s, "build/red", "build/green")),
    "a second name": ("sh build/x.sh", lambda s: (s.root / "build/x.sh").hardlink_to(s.root / "build/other.sh")),
    "a link": ("sh build/y.sh", lambda s: (s.root / "build/y.sh").symlink_to("other.sh")),
    "a cache that is new": ("sh .ruff_cache/t.sh", lambda s: put(s, ".ruff_cache/t.sh", GREEN)),
}
HIDDEN = {
    "a directory that cannot be listed": (
        "chmod 700 build/x && sh build/x/t.sh",
        lambda s: (put(s, "build/x/t.sh", GREEN), (s.root / "build/x").chmod(0)),
    ),
    "a directory that is too deep": ("test -d build/ddd*", lambda s: dig(s, "build")),
}
"""They could hide the others."""
REMADE = {"a build that can be made again": ("sh build/red.sh", lambda s: fill_build(s, "CACHEDIR.TAG"))}


@pytest.mark.parametrize("tricks", [TRICKS, HIDDEN, *([REMADE] if NIGHTLY else [])])
def test_no_trick_of_a_session_makes_a_gate_green(stage, work, tricks):
    """With what git ignores and was there, moved about or hidden from relay's look."""
    gate, acts = meet_all(tricks)

    def prepare():
        for name in ("red.sh", "green.sh", "other.sh", "red/t.sh", "green/t.sh"):
            put(stage, f"build/{name}", RED if "red" in name else GREEN)
        for number in range(MOST):
            stage.write(f"build/kept/{number}", "x")

    made = work(gate, lambda: [act(stage) for act in acts], before=prepare)

    assert isinstance(made, Refused), stage.seen(GateFinished)[-1]
    assert [gate.passed for gate in stage.seen(GateFinished)] == [False, False]


INSTALLED = {
    "a program of an environment": (".venv/bin/check", ".venv"),
    "an environment of another name": ("env/bin/check", "env"),
    "a package": ("node_modules/dep/run.sh", "node_modules"),
    "packages of a part": ("web/node_modules/dep/run.sh", "web/node_modules"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("case", take_each(2, INSTALLED))
def test_what_a_session_installs_is_seen_and_said(stage, work, case):
    """Nothing would run without packages: the commit says that the gate used other ones than the user has."""
    path, top = INSTALLED[case]
    stage.write("web/index.ts", "x")

    def prepare():
        for name in ("env/pyvenv.cfg", "node_modules/.cache/x", "node_modules/a/b/c"):
            stage.write(name, "x")

    made = work(f"sh {path}", lambda: put(stage, path, GREEN), before=prepare)

    assert isinstance(made, PhaseCommit), made
    said = f"the gate used packages that sessions installed, and no setup command: {top}"
    assert stage.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly,unfold)").strip() == said
    assert [notice.text for notice in stage.seen(Noticed) if notice.warning] == [said]


@pytest.mark.nightly
def test_a_gate_that_formats_does_so_beside_what_differs(stage, work):
    """What it makes of the commit's files is taken into the work tree, and then it has to agree."""
    stage.write("hello.txt", "")
    (stage.root / "hello.txt").unlink()

    made = work("sed -i s/^hello$/formatted/ hello.txt && touch made.txt", before=lambda: stage.write("notes.txt", "x"))

    assert isinstance(made, PhaseCommit), made
    assert stage.git("show", "HEAD:hello.txt") == "formatted\n"
    assert (stage.root / "hello.txt").read_text() == "formatted\n"
    assert [gate.passed for gate in stage.seen(GateFinished)] == [False, True, True]
    assert not (stage.root / "made.txt").exists()


def test_what_a_gate_rewrites_beside_the_commit_is_gone_with_it(stage, work):
    """A formatter that looks at the whole tree; neither the sessions' tree nor the next gate has it."""
    made = work("grep -q app src/app.py && sed -i s/app/formatted/ src/app.py && touch new.txt && cat hello.txt")

    assert isinstance(made, PhaseCommit), made
    assert files(stage) == ["PLAN.md", "hello.txt"]
    assert (stage.root / "src/app.py").read_text() == "print('app')\n"
    assert not (stage.root / "new.txt").exists()


@pytest.mark.nightly
def test_secrets_stay_hidden_where_something_differs(stage, work):
    """A file of secrets that git knows is there, and empty."""

    def prepare():
        stage.write("src/.env", "KEY=2\n")
        stage.commit("settings")
        stage.write("src/notes.txt", "mine\n")

    made = work("test -e src/.env && ! grep -rq [K]EY= . && cat hello.txt", before=prepare)
    assert isinstance(made, PhaseCommit), made


@pytest.mark.nightly
def test_without_a_sandbox_a_gate_sees_no_more(stage, work):
    made = work("test -e out.log", lambda: stage.write("out.log", "x"), sandbox="off")

    assert isinstance(made, Refused)
    assert "out.log (ignored by git)" in made.for_model


@pytest.mark.nightly
def test_what_a_gate_must_not_write_is_protected(stage, work):
    """Git's directory, and the rules."""
    stage.write("big/AGENTS.md", "rules")
    stage.commit("big")
    gate = "git log -1 && ! touch .git/x 2>err && rm err && ! mv big other && cat hello.txt"

    made = work(gate)

    assert isinstance(made, PhaseCommit), made
    assert not (stage.root / ".git/x").exists()
    assert (stage.root / "big/AGENTS.md").read_text() == "rules"
    assert files(stage) == ["PLAN.md", "hello.txt"]
