"""What runs by itself later is named when it is committed; what a program is made of is not."""

import pytest

from relay.base.errors import ExitCode
from relay.run.commit.disclosures import Starter, find_starter, leads_out
from relay.session.events import Noticed

STARTED = {
    Starter.EDITOR: ".vscode/tasks.json .vscode/settings.json .vscode/launch.json .idea/workspace.xml .exrc .nvim.lua"
    " .devcontainer/devcontainer.json .dir-locals.el a.code-workspace .zed/tasks.json",
    Starter.SHELL: ".envrc mise.toml .tool-versions shell.nix .gdbinit",
    Starter.INSTALL: "package.json web/package.json setup.py pyproject.toml build.rs .cargo/config.toml .yarnrc.yml"
    " .npmrc .pnpmfile.cjs src/evil.pth sitecustomize.py .mvn/extensions.xml Directory.Build.props build.gradle"
    " .bazelrc",
    Starter.TESTS: "conftest.py tests/unit/conftest.py vite.config.ts .eslintrc.js jest.config.js pytest.ini .pylintrc",
    Starter.GIT: ".gitattributes docs/.gitattributes .gitmodules .husky/pre-commit .pre-commit-config.yaml"
    " lefthook.yml",
    Starter.CI: ".github/workflows/ci.yml .gitlab-ci.yml .circleci/config.yml Jenkinsfile Dockerfile",
    Starter.AGENT: "AGENTS.md .cursorrules .github/copilot-instructions.md .clinerules .windsurfrules QWEN.md"
    " opencode.json .kiro/steering/a.md .claude/settings.json .mcp.json",
}


def test_what_runs_by_itself_is_known_by_its_name(subtests):
    for starter, path in [(starter, path) for starter, text in STARTED.items() for path in text.split()]:
        with subtests.test(starter=starter, path=path):
            assert find_starter(path) is starter


@pytest.mark.parametrize(
    "path", ["src/app.py", "README.md", "docs/setup.md", "a/b/c.ts", "config.js/x", "workflows/ci.yml"]
)
def test_what_a_program_is_made_of_is_not(path):
    assert find_starter(path) is None


@pytest.mark.parametrize(
    ("path", "target", "out"),
    [
        ("a", "/etc/passwd", True),
        ("a", "../x", True),
        ("d/a", "../x", False),
        ("d/a", "../../x", True),
        ("a", "b/../c", False),
    ],
)
def test_a_link_is_judged_by_where_it_leads(path, target, out):
    assert leads_out(path, target) is out


def test_a_commit_names_it_and_is_made(stage):
    stage.write("PLAN.md", "# T\n\n## Phase 1 — A\nVerify: `test -d .`\n- [ ] do it — hello.txt\n")
    command = (
        "mkdir -p .vscode; echo '{}' | tee .vscode/tasks.json hello.txt; ln -s ../../.ssh/id docs; echo x > conftest.py"
    )
    ended = stage.run(f"""
sessions:
  - turns:
      - tools: [{{name: bash, input: {{command: "{command}"}}}}]
      - tools: [{{name: tick, input: {{item: "1.1", evidence: "done"}}}}]
      - text: "Commit: Do it"
""")
    words = [event.text for event in stage.events if isinstance(event, Noticed)]
    assert ended.exit_code == ExitCode.DONE
    assert "runs by itself on your machine (an editor starts it): .vscode/tasks.json" in words
    assert "runs by itself on your machine (a test runner or a linter starts it): conftest.py" in words
    assert "a link out of the repository: docs" in words
    assert not any("hello.txt" in text for text in words)
