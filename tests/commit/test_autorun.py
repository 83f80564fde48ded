"""What runs by itself later is named when it is committed; what a program is made of is not."""

from relay.run.commit.candidate import PhaseCommit
from relay.run.commit.disclosures import Starter, find_starter, leads_out
from relay.session.events import Noticed
from relay.session.values import SessionKind
from tests.commit.candidate import commit_claims
from tests.scripted import ScriptedRunner

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


def test_what_a_program_is_made_of_is_not():
    paths = ["src/app.py", "README.md", "docs/setup.md", "a/b/c.ts", "config.js/x", "workflows/ci.yml"]
    assert [path for path in paths if find_starter(path) is not None] == []


def test_a_link_is_judged_by_where_it_leads():
    out = [("a", "/etc/passwd"), ("a", "../x"), ("d/a", "../../x")]
    inside = [("d/a", "../x"), ("a", "b/../c")]
    assert [link for link in (*out, *inside) if leads_out(*link)] == out


def test_a_commit_names_it_and_is_made(stage):
    """It also names what it leaves out, and so do checkpoints."""
    stage.write("PLAN.md", "# T\n\n## Phase 1 — A\nVerify: `test -d .`\n- [ ] do it — hello.txt\n")
    stage.commit("plan")

    def plant():
        stage.write(".vscode/tasks.json", "{}\n")
        stage.write("conftest.py", "x\n")
        (stage.root / "docs").symlink_to("../../.ssh/id")
        with (stage.root / "big.bin").open("wb") as file:
            file.truncate(10_000_001)

    with stage.enter(SessionKind.RUN, runner=ScriptedRunner([])) as ctx:
        assert isinstance(commit_claims(stage, ctx, lambda head: head.tick(["1.1"]), plant), PhaseCommit)
    words = [event.text for event in stage.events if isinstance(event, Noticed)]
    assert "runs by itself on your machine (an editor starts it): .vscode/tasks.json" in words
    assert "runs by itself on your machine (a test runner or a linter starts it): conftest.py" in words
    assert "a link out of the repository: docs" in words
    assert "not committed and not kept in checkpoints: big.bin (10.0 MB, too large)" in words
    assert not any("hello.txt" in text for text in words)
