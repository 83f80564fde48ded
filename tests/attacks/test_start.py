"""Where relay's own code comes from: what a session wrote, or a clone brought along, never becomes relay."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.attacks.conftest import PACKAGES, ROOT
from tests.effort import NIGHTLY, take_each

NONE = [{"turns": [{"text": "Done."}], "repeat": True}]
PLANTED = ("click", "yaml", "tomllib", "markdown_it", "tempfile")
"""What relay imports at its start, or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One way to start relay with code of the repository within its reach."""

    name: str
    stands_for: str = "untrusted search path (CWE-426)"
    environ: dict[str, str] = field(default_factory=dict)
    """`@PATHS@` is what relay needs itself."""
    words: str
    """What the refusal has to say."""


def search(name: str, paths: str, words: str = "PYTHONPATH names") -> Start:
    """Name places in PYTHONPATH, before those that relay needs."""
    return Start(name=f"{name} in PYTHONPATH", environ={"PYTHONPATH": f"{paths}:@PATHS@"}, words=words)


ATTACKS = (
    search("the current directory", "."),
    search("an empty entry", "", "PYTHONPATH names the current directory"),
    search("the sources", "@ROOT@/src"),
    search("a link to the sources", "@OUT@/linked"),
    Start(
        name="an empty entry in LD_LIBRARY_PATH",
        environ={"LD_LIBRARY_PATH": "/nowhere:"},
        words="LD_LIBRARY_PATH names the current directory",
    ),
    Start(
        name="bytecode in the repository",
        environ={"PYTHONPYCACHEPREFIX": "@ROOT@/.cache"},
        words="its bytecode is in",
    ),
    Start(
        name="a directory that commands may write",
        stands_for="Codex 37081",
        environ={"RELAY_PATHS": '{"write": ["@OUT@/shared"]}', "PYTHONPATH": "@OUT@/shared:@PATHS@"},
        words="PYTHONPATH names",
    ),
)


def plant(arena):
    for folder in ("", "src/"):
        for name in PLANTED:
            arena.write(f"{folder}{name}.py", "import os\nos.write(2, b'THRO' b'UGH')\n")
    (arena.outside / "linked").symlink_to(arena.root / "src")
    (arena.outside / "shared").mkdir()
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


def require_held(played, words):
    assert played.code == 1, played.tail
    assert played.systems == ()
    assert b"THROUGH" not in played.out + played.err
    assert words in played.err.decode()


@pytest.mark.parametrize("attack", ATTACKS if NIGHTLY else ATTACKS[2::3], ids=lambda attack: attack.name)
def test_relay_does_not_run_where_a_session_could_change_it(arena, attack):
    """A run is refused with the way out; what is planted is not imported on the way to these words."""
    plant(arena)
    arena.places["PATHS"] = os.pathsep.join((str(ROOT), lay_packages(arena)))

    require_held(arena.play(NONE, "run", environ=arena.fill(attack.environ)), attack.words)


def test_a_module_of_the_current_directory_is_not_relays(arena):
    """`python -m relay` puts the current directory first: status imports nothing of it, a run is refused."""
    plant(arena)
    program = arena.as_user((arena.python, "-m", "relay"))

    shown = subprocess.run((*program, "status"), cwd=arena.root, env=arena.environ, capture_output=True, check=False)
    ran = subprocess.run((*program, "run"), cwd=arena.root, env=arena.environ, capture_output=True, check=False)

    assert (shown.returncode, shown.stderr) == (0, b"")
    assert ran.returncode == 1
    assert b"type relay, not python -m relay" in ran.stderr


@pytest.mark.parametrize("where", take_each(2, ["environment", "checkout"]))
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
    shown = subprocess.run((*argv, "status"), cwd=arena.root, env=environ, capture_output=True, check=False)

    assert ran.returncode == 1
    assert words in ran.stderr.decode()
    assert b"pipx install" in ran.stderr
    assert (shown.returncode, shown.stderr) == (0, b"")


@pytest.mark.nightly
def test_control_python_imports_what_is_planted(arena):
    plant(arena)
    argv = arena.as_user((arena.python, "-c", "import yaml"))
    environ = {**arena.environ, "PYTHONPATH": f".{os.pathsep}{arena.environ['PYTHONPATH']}"}
    done = subprocess.run(argv, cwd=Path(arena.root), env=environ, capture_output=True, check=True)
    assert b"THROUGH" in done.stderr
