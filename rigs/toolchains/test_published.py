"""Public projects as their authors publish them: two phases with real edits, all their hooks and checks."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from rigs.toolchains.conftest import Phase, Project

PUBLISHED: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text())
HOOKS = (
    *("PyCQA/flake8", "asottile/add-trailing-comma", "asottile/pyupgrade", "asottile/reorder-python-imports"),
    *("asottile/setup-cfg-fmt", "astral-sh/ruff-pre-commit", "astral-sh/uv-pre-commit", "hhatto/autopep8"),
    *("pre-commit/mirrors-mypy", "pre-commit/pre-commit-hooks", "woodruffw/zizmor-pre-commit"),
)
"""Repositories that the projects' own .pre-commit-config.yaml name."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("repo", PUBLISHED)
def test_two_phases(project: Project, repo: str, request: pytest.FixtureRequest) -> None:
    """The gate is what the authors check; the commits go through the hooks that they have set up."""
    published = PUBLISHED[repo]
    clone(project, repo, published["commit"], request.config.getoption("--source"))
    project.install(*published.get("programs", ()))
    project.env.update(published.get("env", {}))
    project.install_packages(*published.get("packages", ()))
    for command in (*published["prepare"], *published["verify"]):
        project.sh(command)
    assert project.sh("git status --porcelain") == ""
    settings = project.home / ".config/relay/config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(published.get("settings", ""))
    phases = tuple(map(read_phase, published["phases"]))
    project.plan(*published["verify"], items=tuple(f"{phase.subject} — {phase.edits[0][0]}" for phase in phases))

    said = project.work(*phases)

    print(said, project.sh("git log --stat --format='%n%h %s%n%(trailers)' -4"))  # noqa: T201  # for pytest -rP
    assert "Relay-Status: done" in project.sh("git log -1 --format=%B")


def clone(project: Project, repo: str, commit: str, source: str) -> None:
    """Have the commit of a project checked out, on a branch, in a directory of the project's name."""
    project.root = project.root.rename(project.root.with_name(repo.partition("/")[2]))
    if source:
        config = project.home / ".gitconfig"
        lines = (_redirect(name, source) for name in sorted({repo, *HOOKS}))
        config.write_text(config.read_text() + "".join(lines))
    project.sh(f"git remote add origin {shlex.quote(f'https://github.com/{repo}')}")
    project.sh(f"git fetch -q --tags origin && git switch -q -C work {commit}")


def _redirect(repo: str, source: str) -> str:
    owner, name = repo.split("/")
    return f'[url "{source.format(owner=owner, name=name)}"]\n\tinsteadOf = https://github.com/{repo}\n'


def read_phase(fields: dict[str, Any]) -> Phase:
    """Return what a session does in a phase."""
    return Phase(
        edits=tuple((edit["path"], edit["old"], edit["new"]) for edit in fields["edits"]),
        commands=tuple(fields.get("commands", ())),
        subject=fields["subject"],
    )
