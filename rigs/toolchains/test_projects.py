"""Real projects of each tool chain: two phases with real edits, with the project's own tests as their gate."""

import json
from dataclasses import replace

import pytest

from rigs.toolchains.conftest import Phase, Project

MODULE = '"""Greets."""\n\n\ndef greet(name):\n    return f"hello {name}"\n'
MORE = "\n\ndef shout(name):\n    return greet(name).upper()\n"
TEST = 'from demo import greet\n\n\ndef test_greet():\n    assert greet("x") == "hello x"\n'
TEST_MORE = '\n\ndef test_shout():\n    from demo import shout\n\n    assert shout("x") == "HELLO X"\n'
ITEMS = ("Shout — demo.py", "Test it — test_demo.py")
PHASES = (Phase({"demo.py": MODULE + MORE}, ("cat demo.py",)), Phase({"test_demo.py": TEST + TEST_MORE}))
IGNORED = ".venv/\n__pycache__/\n.pytest_cache/\n*.egg-info/\ndist/\n.tox/\n.nox/\n.pdm-python\n.hatch/\nbuild/\n"


def seed(project: Project, pyproject: str) -> None:
    """Write the project that all tools of Python are tried on."""
    project.write("demo.py", MODULE)
    project.write("test_demo.py", TEST)
    project.write("pyproject.toml", pyproject)
    project.write(".gitignore", IGNORED)


def rewrite(*phases: Phase) -> tuple[Phase, ...]:
    """Have files that are there read first."""
    return tuple(replace(phase, reads=tuple(phase.files)) for phase in phases)


def pep621(backend: str, requires: str) -> str:
    """Return a pyproject.toml with this build back end."""
    return (
        f'[build-system]\nrequires = ["{requires}"]\nbuild-backend = "{backend}"\n\n'
        '[project]\nname = "demo"\nversion = "1.0"\nrequires-python = ">=3.11"\ndependencies = []\n'
    )


def test_poetry_with_its_environment_in_the_cache(project: Project) -> None:
    """Where poetry makes it unless told otherwise."""
    project.install("poetry")
    seed(
        project,
        '[tool.poetry]\nname = "demo"\nversion = "1.0"\ndescription = ""\nauthors = []\npackage-mode = false\n'
        '[tool.poetry.dependencies]\npython = ">=3.11"\n',
    )
    project.sh("poetry install -n")
    assert list((project.home / ".cache/pypoetry/virtualenvs").iterdir())
    project.commit()
    project.plan("poetry run python -c 'import sys; assert \"pypoetry\" in sys.prefix; import test_demo'", items=ITEMS)
    project.work(*rewrite(*PHASES))


@pytest.mark.parametrize(
    ("backend", "requires"), [("hatchling.build", "hatchling"), ("setuptools.build_meta", "setuptools")]
)
def test_uv_run_after_an_edit_of_pyproject(project: Project, backend: str, requires: str) -> None:
    """The package is built anew, with a back end that the cache has, in an environment of hard links into that."""
    project.install("uv")
    files = '\n[tool.hatch.build]\ninclude = ["demo.py"]\n[tool.setuptools]\npy-modules = ["demo"]\n'
    groups = '\n[dependency-groups]\ndev = ["pytest"]\n'
    text = pep621(backend, requires) + groups + files
    seed(project, text)
    project.sh("uv sync -q")
    assert project.sh("find .venv -type f -links +1 -print -quit"), "no hard links: cache on another file system?"
    project.commit()
    project.plan("uv run pytest -q", items=("Describe it — pyproject.toml", "Test it — test_demo.py"))
    edited = text.replace('version = "1.0"', 'version = "1.1"\ndescription = "Greets"')

    project.work(*rewrite(Phase({"pyproject.toml": edited}, ("uv lock",)), Phase({"test_demo.py": TEST + "# more\n"})))

    assert "1.1" in project.sh("git show HEAD:pyproject.toml")


def test_tox(project: Project) -> None:
    """Its environments are in the repository."""
    project.install("tox")
    seed(project, pep621("setuptools.build_meta", "setuptools") + '[tool.setuptools]\npy-modules = ["demo"]\n')
    project.write("tox.ini", "[tox]\nenv_list = py\n[testenv]\npackage = skip\ndeps = pytest\ncommands = pytest -q\n")
    project.sh("tox -q")
    project.commit()
    project.plan("tox -q", items=ITEMS)
    project.work(*rewrite(*PHASES))


def test_nox_with_its_environment_taken_again(project: Project) -> None:
    """`nox` without -R makes its environment anew, for which it wants the network."""
    project.install("nox")
    seed(project, pep621("setuptools.build_meta", "setuptools"))
    project.write(
        "noxfile.py",
        "import nox\n\n\n@nox.session\ndef tests(session):\n"
        '    session.install("pytest")\n    session.run("pytest", "-q")\n',
    )
    project.sh("nox -s tests")
    project.commit()
    project.plan("nox -R -s tests", items=ITEMS)
    project.work(*rewrite(*PHASES))


def test_hatch(project: Project) -> None:
    """Its environments are below ~/.local/share/hatch."""
    project.install("hatch")
    text = (
        pep621("hatchling.build", "hatchling")
        + '[tool.hatch.build]\ninclude = ["demo.py"]\n[tool.hatch.envs.default]\ndependencies = ["pytest"]\n'
    )
    seed(project, text)
    project.sh("hatch run pytest -q")
    project.commit()
    project.plan("hatch run pytest -q", items=ITEMS)
    project.work(*rewrite(*PHASES))


def test_pdm_runs_in_the_environment_of_the_project(project: Project) -> None:
    """Made by pip here, because what pdm installs from depends on the registry."""
    project.install("pdm")
    seed(project, pep621("setuptools.build_meta", "setuptools") + '[tool.pdm.scripts]\ntest = "pytest -q"\n')
    project.sh("python3 -m venv .venv && .venv/bin/pip install -q pytest && pdm use -q .venv")
    project.commit()
    project.plan("pdm run test", items=ITEMS)
    project.work(*rewrite(*PHASES))


def test_an_environment_elsewhere_that_the_plan_names(project: Project) -> None:
    """Neither active nor on PATH; with a package beside the repository in editable form."""
    beside = project.root.parent / "beside"
    beside.mkdir()
    (beside / "pyproject.toml").write_text(pep621("setuptools.build_meta", "setuptools").replace("demo", "beside"))
    (beside / "beside.py").write_text("WORD = 'hello'\n")
    seed(project, pep621("setuptools.build_meta", "setuptools"))
    project.write("test_beside.py", "from beside import WORD\n\n\ndef test_word():\n    assert WORD == 'hello'\n")
    project.sh(
        "python3 -m venv ~/envs/x && ~/envs/x/bin/pip install -q pytest setuptools"
        " && ~/envs/x/bin/pip install -q -e ../beside"
    )
    project.commit()
    project.plan("~/envs/x/bin/pytest -q", items=ITEMS)
    done = project.run(*rewrite(*PHASES), RELAY_PATHS=json.dumps({"read": [str(beside)]}))
    assert done.returncode == 0, done.stdout + done.stderr


JS = "export const greet = (name) => `hello ${name}`;\n"
JS_TEST = (
    "import test from 'node:test';\nimport assert from 'node:assert';\nimport {greet} from './demo.js';\n"
    "test('greets', () => assert.equal(greet('x'), 'hello x'));\n"
)
PACKAGE = '{"name": "demo", "version": "1.0.0", "type": "module", "scripts": {"test": "node --test"}}\n'


@pytest.mark.parametrize("package", ["npm", "pnpm", "bun", "yarn@1", "@yarnpkg/cli-dist"])
def test_javascript(project: Project, package: str) -> None:
    """A package with a dependency; bun runs its own test runner, and the second yarn has no node_modules."""
    tool = "yarn" if "yarn" in package else package
    if tool != "npm":
        project.sh(f"npm install --prefix ~/.local -g {package}")
    project.write(".gitignore", "node_modules/\n.yarn/\n")
    project.write("package.json", PACKAGE)
    project.write("demo.js", JS)
    project.write("demo.test.js", JS_TEST)
    project.sh(f"{tool} {'install' if tool == 'npm' else 'add'} is-odd")
    project.commit()
    project.plan(f"{tool} test", items=("Shout — demo.js", "Test it — demo.test.js"))
    more = "export const shout = (name) => greet(name).toUpperCase();\n"
    project.work(*rewrite(Phase({"demo.js": JS + more}), Phase({"demo.test.js": JS_TEST + "// more\n"})))


@pytest.mark.parametrize(
    "command", ["npm install left-pad", "npx --yes cowsay hi", "uv add requests", "pip download requests"]
)
def test_without_a_network_a_new_dependency_fails_at_once(project: Project, command: str) -> None:
    """Said by the tool itself, in seconds; before, it tried again for up to two minutes."""
    project.install("uv")
    project.write("package.json", PACKAGE)
    project.write("pyproject.toml", pep621("hatchling.build", "hatchling"))
    project.commit()
    done = project.relay("shell", "--", "timeout", "15", *command.split())
    assert done.returncode not in {0, 124}, done
