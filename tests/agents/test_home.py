"""Where an agent is found, and where not."""

import json
import os
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay.base.errors import RunnerError
from relay.config import Settings
from relay.config.agents import AgentSettings
from relay.runners.agents.profiles import (
    MOST_BROUGHT_FILES,
    PROFILES,
    EndpointSetup,
    Profile,
    adapt_profile,
    copy_brought,
    fill,
    get_installed,
    make_home,
)
from relay.runners.registry import choose_way
from rigs.agents.real import AGENTS


def install(folder, program):
    """Lay out an npm package with one program, and the link that PATH has; return the directory on PATH."""
    package = folder / "lib/node_modules/@scope" / program
    (package / "dist").mkdir(parents=True)
    (package / "dist/index.js").write_text("#!/usr/bin/env node\n")
    (package / "dist/index.js").chmod(0o755)
    bin_dir = folder / "bin"
    bin_dir.mkdir(exist_ok=True)
    (bin_dir / program).symlink_to(package / "dist/index.js")
    return bin_dir


def add_node(bin_dir):
    (bin_dir / "node").write_text("#!/bin/sh\n")
    (bin_dir / "node").chmod(0o755)


def test_an_agent_is_shown_with_all_of_its_packages_and_what_it_starts(tmp_path):
    bin_dir = install(tmp_path, "claude-agent-acp")
    add_node(bin_dir)
    found = get_installed(PROFILES["claude"], {"PATH": f"{bin_dir}:relative::/usr/bin"})
    assert found.program == tmp_path / "lib/node_modules/@scope/claude-agent-acp/dist/index.js"
    assert found.shown == (tmp_path / "lib/node_modules", bin_dir)
    assert found.path == f"{bin_dir}:/usr/bin"


def test_what_is_missing_is_named_with_what_installs_it(tmp_path):
    bin_dir = install(tmp_path, "claude-agent-acp")
    with pytest.raises(RunnerError, match="Claude Code needs node: there is no node on PATH"):
        get_installed(PROFILES["claude"], {"PATH": str(bin_dir)})
    with pytest.raises(RunnerError, match="OpenCode is not installed") as raised:
        get_installed(PROFILES["opencode"], {})
    assert str(raised.value.hint) == "npm install -g opencode-ai@1.18.33 installs it"


def test_an_agent_whose_adapter_is_missing_is_not_called_missing(tmp_path):
    """Who has Claude Code has not heard of the adapter."""
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)
    with pytest.raises(RunnerError, match="claude is here, but the adapter by which relay speaks with it is not"):
        get_installed(PROFILES["claude"], {"PATH": str(tmp_path)})


def test_one_of_the_users_own_that_nothing_installs_is_put_on_path_by_the_user(tmp_path):
    own = adapt_profile("vibe", AgentSettings(program="vibe-acp"), PROFILES)
    with pytest.raises(RunnerError, match="vibe is not installed: there is no vibe-acp on PATH") as raised:
        get_installed(own, {"PATH": str(tmp_path)})
    assert raised.value.hint == "put vibe-acp on PATH, or name another program: agents.vibe.program"


def test_what_is_advised_to_be_installed_is_what_was_tried():
    """By `make agents`, with all of its packages; goose by its own installer."""
    tried = {agent.name: " ".join(("npm install -g", *agent.packages)) for agent in AGENTS if agent.name != "goose"}
    assert tried == {profile.name: profile.package for profile in PROFILES.values() if profile.name != "goose"}
    assert f"GOOSE_VERSION=v{PROFILES['goose'].tested} " in PROFILES["goose"].package


def test_no_agent_is_taken_from_the_repository(tmp_path):
    """Neither from a directory of it on PATH, nor by a link that leads there."""
    root = tmp_path / "repo"
    inside = install(root, "opencode")
    with pytest.raises(RunnerError, match="is not installed"):
        get_installed(PROFILES["opencode"], {"PATH": str(inside)}, root)
    outside = tmp_path / "bin"
    outside.mkdir()
    (outside / "opencode").symlink_to(inside / "opencode")
    with pytest.raises(RunnerError, match="in the repository"):
        get_installed(PROFILES["opencode"], {"PATH": str(outside)}, root)


def test_files_of_a_profile_are_whole(tmp_path):
    words = {"base": "http://127.0.0.1:1", "model": "m", "home": "/h", "tools": "/t", "window": "9", "output": "8"}
    words |= {"server": '{"command": "python"}'}
    readers: Any = {".toml": tomllib.loads, ".json": json.loads, ".js": str}
    for profile, way in [(one, way) for one in PROFILES.values() for way in one.setups]:
        home = tmp_path / f"{profile.name}-{way.family}"
        make_home(profile, way, home, words)
        for name in {**profile.files, **way.files}:
            text = (home / name).read_text()
            assert not any(f"{{{word}}}" in text for word in words), (home.name, name)
            assert readers[Path(name).suffix](text), (home.name, name)
        for argument in (*profile.arguments, *way.arguments):
            fits = json.loads(fill(argument, words)) if argument.startswith("{") else "{" not in argument
            assert fits, (home.name, argument)
        assert oct(home.stat().st_mode)[-3:] == "700"


def test_the_endpoint_is_that_whose_key_is_there_and_the_models_own_where_several_are():
    both = Profile(
        name="x",
        title="X",
        package="",
        program="x",
        tested="1",
        setups=(EndpointSetup(family="openai"), EndpointSetup(family="anthropic")),
    )
    openai, anthropic = {"OPENAI_API_KEY": "sk-o"}, {"ANTHROPIC_AUTH_TOKEN": "sk-a"}

    def find(environ, model, **given):
        return choose_way(both, Settings(model=model, **given), environ)[1].family.name

    assert find(openai, "claude-opus-5-5") == "openai"
    assert find(anthropic, "gpt-9") == "anthropic"
    assert find(openai | anthropic, "anthropic/claude-opus-5.5") == "anthropic"
    assert find(openai | anthropic, "qwen3-coder") == "openai"
    command = {"key_command": ("sh", "-c", "echo k")}
    assert find({"PATH": "/bin"}, "gpt-9", **command) == "anthropic"
    assert find(openai | {"PATH": "/bin"}, "claude-opus-5-5", **command) == "anthropic"
    both = replace(both, setups=both.setups[::-1])
    assert find(openai | {"PATH": "/bin"}, "qwen3-coder", **command) == "openai"
    with pytest.raises(RunnerError, match="neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN nor OPENAI_API_KEY"):
        find({}, "gpt-9")


def test_folders_of_the_user_s_are_copied_and_hashed_and_nothing_beside_them(tmp_path):
    """Read-only, programs too."""
    home, private = tmp_path / "home", tmp_path / "private"
    (home / ".claude/skills/pdf/scripts").mkdir(parents=True)
    (home / ".claude/.credentials.json").write_text("login")
    (home / ".claude/skills/pdf/SKILL.md").write_text("Fill forms.")
    (home / ".claude/skills/pdf/scripts/fill.sh").write_text("#!/bin/sh\n")
    (home / ".claude/skills/pdf/scripts/fill.sh").chmod(0o755)
    chosen = adapt_profile("claude", AgentSettings(bring=("skills",)), PROFILES)
    environ = {"HOME": str(home)}

    count, digest = copy_brought(chosen, environ, private)

    made = sorted(path.relative_to(private).as_posix() for path in private.rglob("*") if path.is_file())
    assert made == [".claude/skills/pdf/SKILL.md", ".claude/skills/pdf/scripts/fill.sh"]
    assert (private / made[0]).read_text() == "Fill forms."
    assert [(private / path).stat().st_mode & 0o777 for path in made] == [0o400, 0o500]
    assert count == 2
    assert copy_brought(chosen, environ, tmp_path / "again")[1] == digest
    (home / ".claude/skills/pdf/SKILL.md").write_text("Fill forms!")
    assert copy_brought(chosen, environ, tmp_path / "changed")[1] != digest
    with (home / ".claude/skills/large").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(RunnerError, match="is too large"):
        copy_brought(chosen, environ, tmp_path / "large")
    with pytest.raises(RunnerError, match=r"~/\.claude/skills is not there"):
        copy_brought(chosen, {}, tmp_path / "none")


def test_a_folder_that_is_a_link_itself_is_copied_as_what_it_is(tmp_path):
    """People keep these with their dotfiles."""
    (tmp_path / "dotfiles/skills/pdf").mkdir(parents=True)
    (tmp_path / "dotfiles/skills/pdf/SKILL.md").write_text("Fill forms.")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/skills").symlink_to(tmp_path / "dotfiles/skills")
    chosen = adapt_profile("claude", AgentSettings(bring=("skills",)), PROFILES)
    assert copy_brought(chosen, {"HOME": str(tmp_path)}, tmp_path / "private")[0] == 1


def spoil_by_files(folder):
    for number in range(MOST_BROUGHT_FILES + 1):
        (folder / str(number)).touch()


SPOILED: list[tuple[Any, str]] = [
    (lambda folder: (folder / "login").symlink_to("../.credentials.json"), "'login' cannot be copied: it is a link"),
    (lambda folder: (folder / "all\nof it").symlink_to(folder.parent), r"'all\nof it' cannot be copied: it is a link"),
    (lambda folder: os.mkfifo(folder / "SKILL.md"), "'SKILL.md' cannot be copied: not a regular file"),
    (spoil_by_files, "~/.claude/skills is too large"),
]  # fmt: skip


def test_what_is_no_plain_file_is_named_and_nothing_of_it_is_shown(tmp_path):
    chosen = adapt_profile("claude", AgentSettings(bring=("skills",)), PROFILES)
    for number, (spoil, words) in enumerate(SPOILED):
        home, private = tmp_path / f"home{number}", tmp_path / f"private{number}"
        (home / ".claude/skills").mkdir(parents=True)
        (home / ".claude/.credentials.json").write_text("login")
        spoil(home / ".claude/skills")
        with pytest.raises(RunnerError) as raised:
            copy_brought(chosen, {"HOME": str(home)}, private)
        assert words in raised.value.message
        assert not list(private.rglob(".credentials.json"))
        assert "bring" in str(raised.value.hint)


def test_brought_folders_add_the_tools_that_they_need_and_keep_a_session_waiting_for_its_subagents():
    """Claude Code would let one run on in the background, where a phase ends before it."""
    chosen = adapt_profile("claude", AgentSettings(bring=("skills", "commands", "agents")), PROFILES)
    tools = PROFILES["claude"].options["_meta"]["claudeCode"]["options"]["tools"]
    assert chosen.options["_meta"]["claudeCode"]["options"]["tools"] == [*tools, "Skill", "Agent"]
    assert chosen.env == {**PROFILES["claude"].env, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}
    for name, allowed in (("claude", "skills, agents, commands"), ("pi", "nothing, for this agent")):
        with pytest.raises(ValueError, match=f"bring: found 'hooks'; allowed: {allowed}"):
            adapt_profile(name, AgentSettings(bring=("hooks",)), PROFILES)
