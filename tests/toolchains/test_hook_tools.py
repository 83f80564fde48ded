"""Managers of git hooks, each as its authors publish it: they run, and what they refuse is not committed."""

import pytest

from tests.toolchains.conftest import Phase, Project

APP = 'def hello():\n    return "hello"\n'
TEST = 'from app import hello\n\n\ndef test_hello():\n    assert hello().startswith("hello")\n'


@pytest.mark.timeout(300)
def test_pre_commit_from_a_remote_with_an_environment_of_its_own(project: Project, tmp_path) -> None:
    """The hook's repository and its environment are in the user's cache."""
    project.install("pre-commit")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='trim', version='1', py_modules=['trim'],"
        " entry_points={'console_scripts': ['trim = trim:main']})\n"
    )
    (hooks / "trim.py").write_text(
        "import pathlib, sys\n\n\ndef main():\n    changed = 0\n    for name in sys.argv[1:]:\n"
        "        text = pathlib.Path(name).read_text()\n"
        "        new = '\\n'.join(line.rstrip() for line in text.split('\\n'))\n"
        "        if new != text:\n            pathlib.Path(name).write_text(new)\n            changed = 1\n"
        "    return changed\n"
    )
    (hooks / ".pre-commit-hooks.yaml").write_text(
        "- {id: trim, name: trim, entry: trim, language: python, types: [text]}\n"
    )
    project.sh(f"cd {hooks} && git init -q && git add -A && git commit -q -m hooks && git tag v1")
    project.write(".pre-commit-config.yaml", f"repos:\n- repo: file://{hooks}\n  rev: v1\n  hooks: [{{id: trim}}]\n")
    project.write("app.py", APP)
    project.sh("pre-commit install")
    project.commit()
    project.plan("test -e more.txt", items=("Write more — more.txt", "Write again — more.txt"))

    said = project.work(Phase({"more.txt": "one  \n"}), Phase({"more.txt": "one\ntwo  \n"}))

    assert "a commit hook rewrote more.txt; taken in and checked" in said
    assert (project.root / "more.txt").read_text() == "one\ntwo\n"
    assert len(project.log()) == 4


@pytest.mark.timeout(300)
def test_husky_with_lint_staged(project: Project) -> None:
    """lint-staged keeps a stash in the git directory while it works."""
    project.write(".gitignore", "node_modules/\n")
    project.write("package.json", '{"name": "demo", "version": "1.0.0", "scripts": {"prepare": "husky"}}\n')
    project.sh("npm install -D husky lint-staged prettier")
    project.sh("npm run prepare")
    project.sh("npm pkg set 'lint-staged[*.js]=prettier --write'")
    project.write(".husky/pre-commit", "npx lint-staged\n")
    project.write("app.js", 'console.log("one");\n')
    project.commit()
    project.plan("node app.js", items=("Say two — app.js", "Say three — app.js"))

    said = project.work(Phase({"app.js": "console.log( 'two' )\n"}), Phase({"app.js": "console.log( 'three' )\n"}))

    assert "a commit hook rewrote app.js; taken in and checked" in said
    assert (project.root / "app.js").read_text() == 'console.log("three");\n'
    assert project.sh("git stash list") == ""
