"""Secrets that an attempt's change would disclose: added lines, and names of new files. Files that run by themselves.

Only added lines count: lines from before are the user's, and a session that edits near them is not to blame. A line
with the comment of `relay.base.redaction.ALLOW` is allowed, and the user is told.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache

from relay.base.redaction import ALLOW, find_secrets, redact
from relay.base.values import dataclass
from relay.base.words import list_some
from relay.git.names import list_paths, render_path
from relay.git.objects import diff_trees, load_blob, read_entries
from relay.git.repository import Repo
from relay.git.status import PathChange
from relay.git.trees import ABSENT, GITLINK, SYMLINK


class Starter(StrEnum):
    """The program that starts a file by itself."""

    EDITOR = "an editor"
    SHELL = "a shell or its version manager"
    INSTALL = "an install or a build"
    TESTS = "a test runner or a linter"
    GIT = "git"
    CI = "CI"
    AGENT = "a coding agent"
    LINK = "a link out of the repository"


_NAMES = {
    Starter.EDITOR: ".vscode/* .vscode/*/* .idea/* .zed/* .fleet/* .devcontainer/* .devcontainer.json *.sublime-project"
    " *.code-workspace .dir-locals.el .exrc .vimrc .nvimrc .nvim.lua .lvimrc .gvimrc",
    Starter.SHELL: ".envrc .mise.toml mise.toml .mise/* .tool-versions .rtx.toml .autoenv .env.fish .bashrc .zshrc"
    " .profile .irbrc .pryrc .pythonrc.py .gdbinit .lldbinit .sdkmanrc flake.nix shell.nix default.nix"
    " devenv.nix",
    Starter.INSTALL: "package.json setup.py setup.cfg pyproject.toml build.rs .cargo/config .cargo/config.toml .npmrc"
    " .yarnrc .yarnrc.yml .yarn/* .yarn/*/* .pnpmfile.cjs pnpm-workspace.yaml bunfig.toml binding.gyp"
    " *.pth sitecustomize.py usercustomize.py .bazelrc .mvn/* .mvn/*/* gradlew mvnw *.gradle *.gradle.kts"
    " gradle.properties gradle/wrapper/* directory.build.props directory.build.targets nuget.config"
    " *.targets gemfile extconf.rb composer.json conanfile.py cmakelists.txt cmakepresets.json"
    " hatch_build.py pip.conf uv.toml",
    Starter.TESTS: "conftest.py pytest.ini tox.ini noxfile.py .rspec .mocharc.* karma.conf.js *.config.js *.config.cjs"
    " *.config.mjs *.config.ts *.config.mts .eslintrc* .prettierrc* .babelrc* .stylelintrc* .pylintrc"
    " mypy.ini .rubocop.yml .golangci.y*ml .swiftlint.yml phpunit.xml* rustfmt.toml .luacheckrc",
    Starter.GIT: ".gitattributes .gitmodules .gitconfig .husky/* .husky/*/* .githooks/* .hooks/* .lefthook/*"
    " lefthook.y*ml .lefthook.y*ml .pre-commit-config.yaml .pre-commit-hooks.yaml .overcommit.yml"
    " .lintstagedrc* .commitlintrc*",
    Starter.CI: ".github/workflows/* .github/actions/* .github/actions/*/* .gitlab-ci.y*ml .circleci/* .travis.y*ml"
    " jenkinsfile azure-pipelines*.y*ml bitbucket-pipelines.y*ml .drone.y*ml .buildkite/* appveyor.y*ml"
    " .woodpecker* cloudbuild.y*ml .forgejo/workflows/* .gitea/workflows/* netlify.toml vercel.json"
    " procfile dockerfile docker-compose*.y*ml compose.y*ml",
    Starter.AGENT: "agents.md agents.override.md claude.md claude.local.md gemini.md qwen.md .mcp.json .claude/*"
    " .claude/*/* .codex/* .codex/*/* .gemini/* .cursor/* .cursor/*/* .cursorrules .agents/* .agents/*/*"
    " .clinerules* .clinerules/* .windsurfrules .windsurf/* .windsurf/*/* .kiro/* .kiro/*/* .roo/*"
    " .roo/*/* .roorules* .continue/* .continue/*/* .aider* opencode.json* .opencode/* .opencode/*/*"
    " .github/copilot-instructions.md .github/instructions/* .github/prompts/* .github/chatmodes/*"
    " .junie/* .amazonq/* .amazonq/*/* .goosehints .augment/* .trae/*",
}
"""Paths in lower case, from any directory on; if two starters know a name, the first one counts."""
_MOST_LINK_BYTES = 4096


def find_starter(path: str) -> Starter | None:
    """Return the program that starts a file of this name by itself; None without one."""
    path = path.lower()
    return next((starter for starter in _NAMES if _compile(starter).fullmatch(path)), None)


@cache
def _compile(starter: Starter) -> re.Pattern[str]:
    """Compile a starter's names at first use: all take 5 ms. A star stands for any text within one directory."""
    names = (re.escape(name).replace(r"\*", "[^/]*") for name in _NAMES[starter].split())
    return re.compile(rf"(?:.*/)?(?:{'|'.join(names)})", re.DOTALL)


def leads_out(path: str, target: str) -> bool:
    """Return whether a link at a path leads out of the repository, by its names only."""
    return target.startswith("/") or posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).startswith(
        ".."
    )


def describe_autoruns(repo: Repo, parent: str | None, commit: str) -> tuple[str, ...]:
    """Return a message for each kind of changed file that runs by itself or leads out of the repository."""
    groups: dict[Starter, list[str]] = {}
    for path, starter in _find_all(repo, diff_trees(repo, parent or repo.empty_tree, commit)):
        groups.setdefault(starter, []).append(path)
    return tuple(
        f"{starter}: {list_paths(paths)}"
        if starter is Starter.LINK
        else f"runs by itself on your machine ({starter} starts it): {list_paths(paths)}"
        for starter, paths in sorted(groups.items())
    )


def _find_all(repo: Repo, changes: Iterable[PathChange]) -> Iterable[tuple[str, Starter]]:
    for change in changes:
        if change.mode == SYMLINK:
            target = os.fsdecode(load_blob(repo, change.object_id)[:_MOST_LINK_BYTES])
            if leads_out(change.path, target):
                yield change.path, Starter.LINK
        if change.mode != ABSENT and (starter := find_starter(change.path)):
            yield change.path, starter


_SHOWN = 20
"""Enough lines to see the problem; a file full of keys must not fill a context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """An added line, or name, that looks like a secret."""

    words: str
    """``src/x.py:12 looks like an AWS access key``."""
    allowed: bool
    """Whether a comment in the line allows it."""


def find_disclosures(
    repo: Repo, base: str | None, tree: str, paths: Sequence[str], values: Sequence[str]
) -> tuple[Disclosure, ...]:
    """Return the lines that `tree` adds to `base` in these paths and that look like secrets.

    Args:
        base: Commit or tree before the change; None without one.
        tree: Tree after the change.
        paths: The paths of the commit; deleted ones are skipped.
        values: Secret values of the environment, from `relay.base.redaction.find_secret_values`.
    """
    before = read_entries(repo, base, paths) if base and paths else {}
    after = read_entries(repo, tree, paths) if paths else {}
    names = [found for path in sorted(set(after) - set(before)) for found in _find_in_name(path, values)]
    return (
        *(Disclosure(words=f"the name {shown} looks like it holds {kind}", allowed=False) for shown, kind in names),
        *(
            Disclosure(words=f"{render_path(path)}:{line} looks like {kind}", allowed=allowed)
            for path, entry in sorted(after.items())
            if entry[0] != GITLINK and entry != before.get(path)
            for line, kind, allowed in _find_added(repo, before.get(path), entry[1], values)
        ),
    )


def _find_in_name(path: str, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each secret in a new file's name, with the name in a form that can be shown."""
    for found in find_secrets(path, environ_values=values):
        yield redact(render_path(path), environ_values=values), found.kind


def _find_added(
    repo: Repo, before: tuple[str, str] | None, after: str, values: Sequence[str]
) -> Iterator[tuple[int, str, bool]]:
    text = _read(repo, after)
    findings = find_secrets(text, environ_values=values)
    if not findings:
        return
    known = set(_read(repo, before[1]).split("\n")) if before and before[0] != GITLINK else set()
    lines = text.split("\n")
    for finding in findings:
        if lines[finding.line - 1] not in known:
            yield finding.line, finding.kind, finding.allowed


def _read(repo: Repo, object_id: str) -> str:
    return os.fsdecode(load_blob(repo, object_id))


def render_refusal(found: Sequence[Disclosure]) -> str:
    """Return the refusal for the session, so that it can repair it."""
    return (
        "Nothing was committed: lines that you added look like secrets.\n- "
        + list_some([one.words for one in found], _SHOWN, joint="\n- ")
        + "\nTake them out: read the value from the environment, or use an obvious placeholder. "
        f"An example that is no secret may keep its line with the comment `{ALLOW}`; the user is told."
    )
