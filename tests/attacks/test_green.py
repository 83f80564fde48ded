"""A session that makes its own gate green with files that no commit has: they are hidden, or the commit says so."""

import os
import shlex
import subprocess

import pytest

PLAN = """\
# Greetings

## Phase 1 — World
Verify: `{gate}`
- [ ] Say world — world.txt
"""
GATE = 'for f in {paths}; do sh "$f" && exit 0; done; exit 1'
IGNORED = (
    "build/check.sh",
    "build/deep/check.sh",
    "local.sh",
    ".mypy_cache/check.sh",
    ".pytest_cache/v/check.sh",
    "src/__pycache__/check.sh",
    "node_modules/.cache/check.sh",
    "web/node_modules/.vite-temp/check.sh",
    "app.egg-info/check.sh",
    "new/check.sh",
)
INSTALLED = (".venv/bin/new", "node_modules/new/check.sh", ".tox/py/new.sh")
IGNORE = ".env\nvendor/\n.relay/\n/[bnwt.]*/\n/local.sh\n*.egg-info\n__pycache__\n"
RED = "exit 1 # as it was\n"
FORGE = """\
import os
for path in {paths!r}:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    found = os.stat(path) if os.path.exists(path) else None
    with open(path, "r+" if found else "w") as file:
        file.write({green!r})
    if found:
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
open("world.txt", "w").write("world\\n")
"""
COMMITS = ({"text": "Commit: Say world"}, {"tools": [{"name": "block", "input": {"reason": "it is red"}}]})
"""A session that gives up once its gate is red."""
NONE = [{"turns": [{"text": "Done.", "repeat": 9}], "repeat": True}]


def forge(arena, paths):
    """Have a session write over these files, and keep their times and sizes."""
    arena.write("check.sh", GATE.format(paths=" ".join(paths)))
    arena.write("PLAN.md", PLAN.format(gate="sh check.sh"))
    arena.write(".gitignore", IGNORE)
    arena.write("src/app.py", "VALUE = 2\n")
    arena.commit("prepared")
    for path in paths:
        if "new" not in path:
            arena.write(path, RED)
    for place in ("node_modules/dep/index.js", "tools/env/pyvenv.cfg", "build/kept.o"):
        arena.write(place, "x")
    script = FORGE.format(paths=list(paths), green="exit 0 #".ljust(len(RED) - 1) + "\n")
    turns = [
        {"tools": [{"name": "bash", "input": {"command": f"@PYTHON@ -I -S -c {shlex.quote(script)}"}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "green"}}]},
        {"text": "Commit: Say world", "repeat": 9},
    ]
    head, once = arena.git("rev-parse", "HEAD"), {"RELAY_MAX_SESSIONS": "1"}
    return head, arena.play([{"turns": turns}], "run", "--phase", "1", warm=True, environ=once)


@pytest.mark.nightly
def test_nothing_that_git_ignores_makes_a_gate_green(arena):
    """Not with the times and the size that it had."""
    head, played = forge(arena, IGNORED)

    assert (played.code, arena.git("rev-parse", "HEAD")) == (4, head), played.tail
    assert b"Not shown to the gate" in played.out, played.tail
    assert "exit 0" in (arena.root.with_name("repo.relay") / "1/build/check.sh").read_text()
    assert (arena.root / "build/check.sh").read_text() == RED


def test_what_is_installed_makes_one_green_and_the_commit_says_so(arena):
    _, played = forge(arena, INSTALLED)

    assert played.code == 0, played.tail
    doubt = arena.git("log", "-1", "--format=%(trailers:key=Relay-Doubt,valueonly,unfold)").strip()
    assert doubt == "the gate used packages that sessions installed, and no setup command: .tox, .venv, node_modules"
    assert arena.git("log", "-1", "--format=%(trailers:key=Relay-Gate,valueonly,unfold)").startswith("none ")


OLD = 1_000_000_000
SPILL = "seq 30000 | sed 's/^/world /'"
WAYS = {
    "a link to an output of relay's": ("ln -s .relay/outputs/*.txt spilled.txt", "grep -q world spilled.txt"),
    "an output of relay's": ("true", "cat .relay/outputs/*.txt | grep -q world"),
    "a link to git's log": ("ln -s $G/logs/HEAD log.txt", "grep -q commit log.txt"),
    "a whole path to git's log": ("ln -s @ROOT@/.git/logs/HEAD whole.txt", "grep -q commit whole.txt"),
    "a link to git's directory": ("ln -s $G/logs logs", "grep -q commit logs/HEAD"),
    "an ignored file by the directory of a process": (
        "ln -s /proc/self/cwd/build/user.txt p.txt",
        "grep -q world p.txt",
    ),
    "a link to a link": ("ln -s src inner; ln -s inner/../build/user.txt link.txt", "grep -q world link.txt"),
    "a link to an ignored file": ("ln -s build/user.txt linked.txt", "grep -q world linked.txt"),
    "an ignored file in a directory that cannot be listed": (
        "echo world > build/shut/kept.txt; chmod 0311 build/shut",
        "grep -q world build/shut/kept.txt",
    ),
    "an ignored directory that cannot be listed": (
        "echo world > data/kept.txt; chmod 0311 data",
        "grep -q world data/kept.txt",
    ),
    "a new file in a directory that cannot be listed": (
        "echo world > code/new.txt; chmod 0311 code",
        "grep -q world code/new.txt && cd code && ! git ls-files --error-unmatch new.txt",
    ),
    "packages that cannot be listed": (
        "mkdir -p .venv; echo world > .venv/check; chmod 0311 .venv",
        "grep -q world .venv/check",
    ),
    "line ends that git takes off": (
        "mkdir auto; printf 'world\\r\\n' > auto/ends.txt",
        "grep -q $'\\r' auto/ends.txt",
    ),
    "words that git takes out": ("mkdir ident; echo '$Id: world $' > ident/words.txt", "grep -q world ident/words.txt"),
    "an old cache of Python": (
        f"(cd stale; @PY@ -c 'import mod'); echo 'VALUE = 1' > stale/mod.py; touch -d @{OLD} stale/mod.py",
        "@PY@ stale/test.py",
    ),
    "an old build": (
        f"echo 'exit 1' > stale/app.sh; touch -d @{OLD} stale/app.sh",
        "make -s -C stale out/app && sh stale/out/app",
    ),
    "an old build of a large file": (
        f"sed -i s/0$/1/ stale/big.sh; touch -d @{OLD} stale/big.sh",
        "make -s -C stale out/big && sh stale/out/big",
    ),
    "an old build of a file that was moved": (
        "mv -f stale/other.sh stale/tool.sh",
        "make -s -C stale out/tool && sh stale/out/tool",
    ),
}
"""What a session does, and a command that is red in a clean clone of what it leaves."""
TRIED = 'green=; try() { if bash -c "$2" > /dev/null 2>&1; then echo "$1" >> "$RELAY_EVIDENCE/green"; green=1; fi; }\n'
RULES = """\
all: out/app out/tool out/big
out/app: app.sh
\tcp app.sh $@
out/tool: tool.sh
\tcp tool.sh $@
out/big: big.sh
\tcp big.sh $@
"""


def cheat(arena, *flags):
    """Have a session try all ways at once, in the repository of a user who has built and tested before."""
    # root lists every directory, so what is new there is in the commit.
    ways = {name: way for name, way in WAYS.items() if arena.user != "root" or "listed" not in name}
    tries = (f"try {shlex.quote(name)} {shlex.quote(gate)}\n" for name, (_, gate) in ways.items())
    arena.write(
        "check.sh",
        f"{TRIED}[ -e world.txt ] || exit 1\n{''.join(tries)}[ $green ]\n".replace("@PY@", f"{arena.python} -S"),
    )
    arena.write("PLAN.md", PLAN.format(gate="bash check.sh"))
    arena.write(".gitignore", ".env\nvendor/\nnode_modules/\n.relay/\nbuild/\ndata/\nout/\n__pycache__/\n.venv/\n")
    arena.write(".gitattributes", "auto/* text=auto\nident/* ident\n")
    arena.write("stale/test.py", "import mod\n\nassert mod.VALUE == 2\n")
    arena.write("stale/Makefile", RULES)
    arena.write("code/old.txt", "hello\n")
    for path, text in (
        ("mod.py", "VALUE = 2\n"),
        ("app.sh", "exit 0\n"),
        ("tool.sh", "exit 0\n"),
        ("other.sh", "exit 1\n"),
        ("big.sh", "# x\n" * 300_000 + "exit 0\n"),
    ):
        os.utime(arena.write(f"stale/{path}", text), (OLD, OLD))
    arena.commit("prepared")
    for path in ("build/shut/kept.txt", "data/kept.txt", ".venv/check", ".venv/pyvenv.cfg", "stale/out/kept"):
        arena.write(path, "hello\n")
    arena.write("build/user.txt", "world\n")
    for argv in (("make", "-s"), (arena.python, "-c", "import py_compile; py_compile.compile('mod.py')")):
        subprocess.run(arena.as_user(argv), cwd=arena.root / "stale", env=arena.environ, check=True)
    head, acts = arena.git("rev-parse", "HEAD"), "\n".join(act for act, _ in ways.values())
    acts = "G=$(git rev-parse --git-common-dir)\n" + acts.replace("@PY@", f"{arena.python} -S")
    turns = [
        {"tools": [{"name": "bash", "input": {"command": SPILL}}]},
        {"tools": [{"name": "bash", "input": {"command": f"{acts}\necho world > world.txt"}}]},
        {"tools": [{"name": "tick", "input": {"item": "1.1", "evidence": "green"}}]},
        *COMMITS,
    ]
    played = arena.play([{"turns": turns}], "run", "--phase", "1", *flags, warm=True)
    places = (arena.root, arena.root.with_name("repo.relay") / "1")
    green = [file for place in places for file in place.glob(".relay/outputs/evidence/*")]
    return head, played, {way for file in green for way in file.read_text().splitlines()}


def test_no_gate_is_green_by_bytes_that_the_commit_lacks(arena):
    head, played, green = cheat(arena)

    assert green == set(), played.tail
    assert (played.code, arena.git("rev-parse", "HEAD")) == (4, head), played.tail


@pytest.mark.nightly
def test_nor_without_a_sandbox(arena):
    """Its tree has the commit's files alone, whoever confines the commands."""
    _, played, green = cheat(arena, "--sandbox", "off")

    assert green <= {"an output of relay's"}, played.tail


@pytest.mark.nightly
def test_a_path_too_long_for_the_place_of_the_gate_does_not_end_the_run(arena):
    levels, rest = divmod(4_085 - len(f"{arena.root}/.venv/"), 101)
    down = f"for _ in $(seq {levels}); do mkdir $(printf '%0100d' 0); cd $(printf '%0100d' 0); done"
    deep = f"{down}; touch $(printf '%0{rest}d' 0)"
    arena.write(".gitignore", f"{(arena.root / '.gitignore').read_text()}build/\n.venv/\n")
    arena.commit("prepared")
    arena.write("build/kept", "hello\n")
    arena.write(".venv/kept", "hello\n")
    turns = [
        {
            "tools": [
                {"name": "bash", "input": {"command": f"echo world | tee build/new > world.txt; cd .venv; {deep}"}}
            ]
        },
        {"tools": [{"name": "tick", "input": {"item": "2.1", "evidence": "green"}}]},
        {"text": "Commit: Say world"},
    ]

    played = arena.play([{"turns": turns, "then": "next"}, *NONE], "run", "--phase", "2", warm=True)

    assert played.code == 0, played.tail
    assert b"0" * 200 not in played.out
