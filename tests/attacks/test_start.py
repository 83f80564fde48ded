"""Where relay's own code comes from: what a session wrote, or a clone brought along, never becomes relay."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import relay
from relay.config import Settings, load_settings
from relay.setup.preconditions import State, check_program
from tests.attacks.conftest import PACKAGES, ROOT

NONE = [{"turns": [{"text": "Done."}], "repeat": True}]
PLANTED = ("click", "yaml", "tomllib", "markdown_it", "tempfile")
"""What relay imports at its start, or later."""


PATHS = "PYTHONPATH"
ATTACKS = {
    "the current directory": ({PATHS: ".:@PATHS@"}, "PYTHONPATH names"),
    "an empty entry": ({PATHS: ":@PATHS@"}, "PYTHONPATH names the current directory"),
    "the sources": ({PATHS: "@ROOT@/src:@PATHS@"}, "PYTHONPATH names"),
    "a link to the sources": ({PATHS: "@OUT@/linked:@PATHS@"}, "PYTHONPATH names"),
    "an empty entry for libraries": ({"LD_LIBRARY_PATH": "/nowhere:"}, "LD_LIBRARY_PATH names the current directory"),
    "libraries behind a semicolon": ({"LD_LIBRARY_PATH": "/nowhere;@ROOT@/src"}, "LD_LIBRARY_PATH names"),
    "bytecode in the repository": ({"PYTHONPYCACHEPREFIX": "@ROOT@/.cache"}, "its bytecode is in"),
    "a directory that commands may write": (
        {"RELAY_PATHS": '{"write": ["@OUT@/shared"]}', PATHS: "@OUT@/shared:@PATHS@"},
        "PYTHONPATH names",
    ),
}
"""Ways to start relay with code of the repository within its reach (CWE-426, Codex 37081), and what is said then.

`@PATHS@` is what relay needs itself.
"""


def plant(arena):
    for folder in ("", "src/"):
        for name in PLANTED:
            arena.write(f"{folder}{name}.py", "import os\nos.write(2, b'THRO' b'UGH')\n")
    arena.give()
    arena.commit()


def lay_packages(arena):
    """What relay needs, without what a Python may look for at its own start: there some machines amend `certifi`."""
    place = arena.base / "packages"
    place.mkdir()
    for found in (entry for folder in PACKAGES for entry in Path(folder).iterdir()):
        if not found.name.startswith("certifi") and not (place / found.name).is_symlink():
            (place / found.name).symlink_to(found)
    return str(place)


def test_relay_does_not_run_where_a_session_could_change_it(arena, monkeypatch):
    """Each way is found before a session; the words name what to do."""
    (arena.outside / "linked").symlink_to(arena.root / "src")
    (arena.outside / "shared").mkdir()
    arena.places["PATHS"] = os.pathsep.join((str(ROOT), lay_packages(arena)))
    inside, wrong = str(arena.root / "tool/x"), []
    monkeypatch.chdir(arena.root)
    for name, (variables, words) in {"nothing": ({PATHS: "@PATHS@"}, ""), **ATTACKS}.items():
        environ = arena.fill(variables)
        monkeypatch.setattr(sys, "pycache_prefix", environ.get("PYTHONPYCACHEPREFIX"))
        settings = load_settings(flags={}, environ=environ, plan_settings={}, repo_root=arena.root, user_dir=None)
        found = check_program(arena.root, settings, environ)
        if (found.state is State.OK) != (name == "nothing") or words not in found.words:
            wrong.append((name, found))
    monkeypatch.setattr(sys, "pycache_prefix", None)
    for place, name, words in ((relay, "__file__", "relay itself is in"), (sys, "executable", "its Python is in")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, inside)
            found = check_program(arena.root, Settings(), {})
            wrong += [] if words in found.words and "pipx install" in str(found.hint) else [(name, found)]
    assert wrong == []


@pytest.mark.nightly
def test_a_module_of_the_current_directory_is_not_relays(arena):
    """`python -m relay` puts the current directory first: status imports nothing of it, a run is refused.

    Nor is what PYTHONPATH names: nothing of it is imported on the way to the words.
    """
    plant(arena)
    program = arena.as_user((arena.python, "-m", "relay"))

    shown = subprocess.run((*program, "status"), cwd=arena.root, env=arena.environ, capture_output=True, check=False)
    ran = subprocess.run((*program, "run"), cwd=arena.root, env=arena.environ, capture_output=True, check=False)
    paths = os.pathsep.join(("", ".", str(arena.root / "src"), str(ROOT), lay_packages(arena)))
    named = arena.play(NONE, "run", environ={PATHS: paths})

    assert (shown.returncode, shown.stderr) == (0, b"")
    assert ran.returncode == 1
    assert b"type relay, not python -m relay" in ran.stderr
    assert (named.code, named.systems) == (1, ()), named.tail
    assert b"PYTHONPATH names the current directory" in named.err
    assert b"THROUGH" not in named.out + named.err


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["environment", "checkout"])
def test_relay_inside_of_the_repository_refuses(arena, where):
    """In the project's own environment, or from an editable checkout in it."""
    paths = [str(ROOT), *PACKAGES]
    if where == "environment":
        subprocess.run((sys.executable, "-m", "venv", "--without-pip", arena.root / ".venv"), check=True)
        packages = next((arena.root / ".venv/lib").glob("python*/site-packages"))
        (packages / "relay.pth").write_text("\n".join(paths))
        python, words = str(arena.root / ".venv/bin/python"), "its Python is in"
    else:
        shutil.copytree(ROOT / "relay", arena.root / "tool/relay")  # with its bytecode
        python, words = arena.python, "relay itself is in"
        paths.insert(0, str(arena.root / "tool"))
    arena.give()
    code = f"import sys; sys.path[:0] = {paths}; from relay.__main__ import main; sys.exit(main())"
    environ = {name: value for name, value in arena.environ.items() if name != "PYTHONPATH"}
    argv = arena.as_user((python, "-P", "-c", code))
    environ["ANTHROPIC_API_KEY"] = "x"

    ran = subprocess.run((*argv, "run"), cwd=arena.root, env=environ, capture_output=True, check=False)

    assert ran.returncode == 1
    assert words in ran.stderr.decode()
    assert b"pipx install" in ran.stderr
