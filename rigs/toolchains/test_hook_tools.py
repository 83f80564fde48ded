"""Managers of git hooks, each as its authors publish it: they run, and what they refuse is not committed."""

import pytest

from rigs.toolchains.conftest import Phase, Project

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

    assert "a commit hook rewrote more.txt; relay included and checked this" in said
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

    assert "a commit hook rewrote app.js; relay included and checked this" in said
    assert (project.root / "app.js").read_text() == 'console.log("three");\n'
    assert project.sh("git stash list") == ""


@pytest.mark.timeout(300)
def test_commitlint_in_a_hook_of_husky(project: Project) -> None:
    """Nothing is set: every commit gets a subject of the form, and the session's words stay."""
    project.write(".gitignore", "node_modules/\n")
    project.write("package.json", '{"name": "demo", "version": "1.0.0", "scripts": {"prepare": "husky"}}\n')
    project.sh("npm install -D husky @commitlint/cli @commitlint/config-conventional && npm run prepare")
    project.write("commitlint.config.mjs", 'export default { extends: ["@commitlint/config-conventional"] };\n')
    project.write(".husky/pre-commit", "true\n")
    project.write(".husky/commit-msg", 'npx --no -- commitlint --edit "$1"\n')
    project.commit()
    project.plan("node app.js", items=("Say two — app.js", "Say three — app.js"))

    project.work(
        Phase({"app.js": "console.log('two');\n"}, subject="Say two"),
        Phase({"app.js": "console.log('three');\n"}, subject="feat(app): say three"),
    )

    assert project.log()[:3] == ["feat(app): say three", "chore: say two", "chore: plan — Everyday work"]
    project.sh("npx --no -- commitlint --from HEAD~3")


@pytest.mark.timeout(300)
def test_commitizen_in_a_hook_of_pre_commit(project: Project) -> None:
    """`cz check` as a commit-msg hook, the way its manual has it."""
    project.install("pre-commit", "commitizen")
    project.write(
        ".pre-commit-config.yaml",
        "repos:\n- repo: local\n  hooks:\n  - {id: commitizen, name: commitizen, entry: cz check --commit-msg-file,"
        " language: system, stages: [commit-msg]}\n",
    )
    project.write("pyproject.toml", '[tool.commitizen]\nname = "cz_conventional_commits"\n')
    project.sh("pre-commit install --hook-type commit-msg")
    project.commit()
    project.plan("test -e more.txt", items=("Write more — more.txt", "Write again — more.txt"))

    project.work(Phase({"more.txt": "one\n"}, subject="Write one"), Phase({"more.txt": "two\n"}))

    assert project.log()[:2] == ["feat: do the step", "chore: Write one"]


@pytest.mark.timeout(300)
def test_lefthook_that_formats_what_is_staged(project: Project) -> None:
    """It keeps a checksum in the git directory and stages what it rewrote."""
    project.write(".gitignore", "node_modules/\n")
    project.write("package.json", '{"name": "demo", "version": "1.0.0"}\n')
    project.write(
        "lefthook.yml",
        "pre-commit:\n  jobs:\n  - run: npx prettier --write {staged_files}\n    glob: '*.js'\n    stage_fixed: true\n",
    )
    project.sh("npm install -D lefthook prettier && npx lefthook install")
    project.commit()
    project.plan("node app.js", items=("Say two — app.js", "Say three — app.js"))

    said = project.work(Phase({"app.js": "console.log( 'two' )\n"}), Phase({"app.js": "console.log( 'three' )\n"}))

    assert "a commit hook rewrote app.js; relay included and checked this" in said
    assert (project.root / "app.js").read_text() == 'console.log("three");\n'


@pytest.mark.timeout(300)
def test_pre_commit_puts_aside_what_the_user_has_not_committed(project: Project) -> None:
    """It keeps a patch in its cache meanwhile; the user's edit is there afterwards and in no commit."""
    project.install("pre-commit")
    project.write(
        ".pre-commit-config.yaml",
        "exclude: ^[.]pre-commit\nrepos:\n- repo: local\n  hooks:\n"
        "  - {id: no-draft, name: no draft, entry: draft, language: pygrep}\n",
    )
    project.write("notes.txt", "notes\n")
    project.sh("pre-commit install")
    project.commit()
    project.plan("test -e more.txt", items=("Write more — more.txt",))
    project.commit("chore: plan")
    project.write("notes.txt", "notes\ndraft\n")

    done = project.run(Phase({"more.txt": "one\n"}))

    assert done.returncode == 0, done.stdout + done.stderr
    assert (project.root / "notes.txt").read_text() == "notes\ndraft\n"
    assert project.sh("git show --format= --name-only").split() == ["PLAN.md", "more.txt"]
