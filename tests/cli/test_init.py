"""`relay init` and what it puts there."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from relay.config import Settings, load_settings
from relay.config.keys import KEYS
from relay.config.model import PROVIDERS
from relay.session.prices import find_limits, find_price
from relay.setup.project import is_unfinished, render_project_rules

TEMPLATES = Path(__file__).parents[2] / "templates"


def test_the_files_are_written_and_the_next_steps_named(relay, project):
    ran = relay("init")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "wrote AGENTS.md\n"
        "wrote PLAN.md\n"
        "wrote relay.toml\n"
        "wrote .gitattributes\n"
        "\n"
        "Next:\n"
        "  edit AGENTS.md      fill in the places marked …: how to build and test your project\n"
        '  relay plan "…"      write PLAN.md from a sentence, in place of the example\n'
        "  relay doctor        see what is still missing, and what belongs into .gitignore\n"
        "  git add AGENTS.md relay.toml .gitattributes && git commit\n"
        "                      clones and gates see committed files only\n"
        "  relay run --branch  build on a new branch, not on the one that you are on\n"
    )
    for name in ("PLAN.md", "relay.toml"):
        assert (project / name).read_bytes() == (TEMPLATES / name).read_bytes()
    assert "What this project is: `…`\n\n## Commands\n\n- Test everything: `…`\n" in (project / "AGENTS.md").read_text()


def test_the_files_say_what_the_project_says_and_nothing_else_writes_them(relay, project):
    """Nothing is left to be filled in, and a test command that passes in the sandbox becomes the gate."""
    names = ("AGENTS.md", "PLAN.md", "relay.toml")
    tries = "".join(f"\t-echo planted > {name}\n" for name in names)
    (project / "Makefile").write_text(f"lint:\n\ttrue\ntest:\n{tries}\ttest -e Makefile\n")
    (project / "package.json").write_text('{"scripts": {"format": "prettier .", "lint": 3, "build": "x"}}')
    for name in ("pyproject.toml", "uv.lock", "package-lock.json", "tsconfig.json", ".pre-commit-config.yaml"):
        (project / name).write_text("")
    ran = relay("init")
    assert (ran.code, ran.err) == (0, "")
    assert "relay.toml makes `make test` the gate of every phase\n" in ran.out
    assert "edit AGENTS.md" not in ran.out
    rules = (project / "AGENTS.md").read_text()
    assert rules.partition("## Conventions")[0] == (
        "# Rules for sessions in this repository\n\nA project in Python and TypeScript.\n\n## Commands\n\n"
        "- Set up: `uv sync`\n- Set up: `npm ci`\n- Test everything: `make test`\n- Check the style: `make lint`\n"
        "- Check the style: `npm run lint`\n- Check the style: `npm run format`\n"
        "- Each commit runs hooks: `pre-commit run --all-files`\n\n"
    )
    assert tomllib.loads((project / "relay.toml").read_text())["verify"] == ["make test"]
    assert not is_unfinished(rules)
    assert all("planted" not in (project / name).read_text() for name in names)
    plan = (project / "PLAN.md").read_text()
    assert re.findall(r"^Verify: (.+)$", plan, re.MULTILINE) == ["`make test`", "`make test`"]
    assert "this is still the example" in relay("check").out


@pytest.mark.parametrize("scripts", ["[]", '"lint"', "{", '{"lint": [[', "[" * 100_000, "null"])
def test_a_package_json_that_is_none_says_nothing(tmp_path, scripts):
    (tmp_path / "package.json").write_text(f'{{"scripts": {scripts}}}')
    assert "Check the style" not in render_project_rules(tmp_path)


def test_the_rules_of_claude_code_are_never_shadowed(relay, project):
    (project / "CLAUDE.md").write_text("be brief")
    ran = relay("init")
    assert ran.out.startswith("kept CLAUDE.md: relay reads it as the rules for sessions\nwrote PLAN.md\n")
    assert not (project / "AGENTS.md").exists()


def test_a_skill_for_agents_is_written_once(relay, project):
    ran = relay("init", "--skill")
    written = "wrote .claude/skills/relay/SKILL.md\nwrote .agents/skills/relay/SKILL.md\n"
    assert ran.out.startswith(f"{written}\nNext:\n  git add .claude .agents && git commit\n")
    skill = (project / ".claude/skills/relay/SKILL.md").read_text()
    front = yaml.safe_load(skill.split("---\n")[1])
    assert front["name"] == "relay"
    assert len(front["description"]) <= 1024
    plan = skill.partition("```markdown\n")[2].partition("```")[0]
    (project / "PLAN.md").write_text(plan)
    assert "valid: 2 phases" in relay("check").out
    for command in set(re.findall(r"^relay (\w+)", skill, re.MULTILINE)):
        assert relay(command, "--help").code == 0
    again = relay("init", "--skill").out
    assert again.count("kept") == 2
    assert "git add" not in again


def test_existing_files_are_kept(relay, project):
    """A file, an empty file and a dangling link are all left as they are."""
    (project / "AGENTS.md").write_text("mine")
    (project / "PLAN.md").symlink_to("elsewhere.md")
    ran = relay("init")
    assert ran.out.splitlines()[:3] == ["kept AGENTS.md: it exists", "kept PLAN.md: it exists", "wrote relay.toml"]
    assert (project / "AGENTS.md").read_text() == "mine"
    assert not (project / "elsewhere.md").exists()
    assert "git add relay.toml .gitattributes && git commit" in ran.out
    assert "git add" not in relay("init").out


def test_in_a_package_the_plan_is_the_packages(relay, project):
    """What `relay run` then finds there, with the package's own test command; its name is quoted where it has to be."""
    folder = project / "packages/übung 1"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"scripts": {"test": "true"}}')
    ran = relay("init", cwd=folder)
    assert (ran.code, ran.err) == (0, "")
    assert "wrote PLAN.md\nwrote ../../relay.toml\n" in ran.out
    assert "names a test command: cd 'packages/übung 1' && npm test; trying" in ran.out
    assert "`npm test`" in (folder / "PLAN.md").read_text()
    assert not (project / "PLAN.md").exists()
    assert "packages/übung 1/PLAN.md" in relay("status", cwd=folder).out + relay("check", cwd=folder).out
    (folder / "src").mkdir()
    assert "kept ../PLAN.md: it exists\n" in relay("init", cwd=folder / "src").out
    (project / "tests").mkdir()
    (project / "tests/test_a.py").write_text("")
    relay("init", cwd=project / "tests")
    assert (project / "PLAN.md").exists()


@pytest.mark.nightly
def test_a_test_command_that_takes_long_is_not_said_to_fail(project, environ):
    """The line for relay.toml is there to be copied; nothing is set, because nothing was seen to pass."""
    (project / "Makefile").write_text("test:\n\t@echo begun; sleep 600\n")
    program = "import relay.cli.init as i; i.TRIAL_S = 1; from relay.__main__ import main; main()"
    argv = [sys.executable, "-P", "-c", program, "init"]
    shown = subprocess.run(argv, cwd=project, env=environ, capture_output=True, text=True, check=False).stdout
    assert "it takes longer than 1 s, which says nothing against it\n" in shown
    assert '\nverify = ["make test"] in relay.toml makes it the gate of every phase\n' in shown
    assert "does not pass" not in shown
    assert "verify" not in tomllib.loads((project / "relay.toml").read_text())


@pytest.mark.nightly
def test_packages_that_git_does_not_ignore_are_named_by_the_doctor(relay, project):
    """Gates do see packages: what they cost is the time to look through them."""
    for path in ("web/node_modules/a/b.js", "env/pyvenv.cfg", "env/lib/y.py", "own.py", "src/own.py"):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).touch()
    shown = relay("doctor", env={"RELAY_SANDBOX": "off"}).out
    words = "git does not ignore it, so each step of a run looks through it; gates see it"
    assert re.search(rf"warning +changes +env/ \(2 files\): {words}", shown)
    assert re.search(r"in no commit: gates do not see them.+\(own.py, src/own.py\)", shown)
    assert "do: put web/node_modules/ into .gitignore\n" in shown


def test_the_settings_template_shows_every_key_of_a_repository_with_its_default(tmp_path):
    """With every setting uncommented the template loads, and nothing but the origins changes."""
    text = (TEMPLATES / "relay.toml").read_text(encoding="utf-8")
    bare = re.sub(r"^# (?=\w+ = |\[)", "", text, flags=re.MULTILINE)
    (tmp_path / "relay.toml").write_text(bare, encoding="utf-8")
    loaded = load_settings(flags={}, environ={}, plan_settings={}, repo_root=tmp_path, user_dir=None)
    defaults = Settings()
    for key in KEYS:
        if key != "models":
            assert getattr(loaded, key) == getattr(defaults, key), key
    theirs = set(re.findall(r"\w+", text.rpartition("config directory): ")[2])) & set(KEYS)
    assert set(tomllib.loads(bare)) | theirs == set(KEYS)


def test_every_provider_is_told_how_to_be_reached_and_what_its_model_needs(relay, project, environ):
    """The variables can be evaluated by a shell, the settings are settings."""
    home = Path(environ["HOME"])
    for name, provider in tomllib.loads((TEMPLATES / "providers.toml").read_text()).items():
        if "model" in provider:
            continue
        ran = relay("init", "--provider", name, "--model", "glm/4.6:air")
        assert (ran.code, ran.err) == (0, "")
        assert [line for line in provider["variables"] if f"export {line}\n" not in ran.out] == []
        table = ran.out[ran.out.index('model = "') : ran.out.index("\n\nrelay doctor")]
        (home / "tried").mkdir(exist_ok=True)
        (home / "tried/config.toml").write_text(table)
        own = load_settings(flags={}, environ={}, plan_settings={}, repo_root=None, user_dir=home / "tried")
        assert own.model == "glm/4.6:air"
        assert own.find_model(own.model).window_tokens
        assert ("put this right" in table[table.index("price = ") :]) != provider.get("local", False)
    assert not list(project.glob("*.toml"))


def test_a_cloud_is_a_setting_that_is_written_with_its_model(relay, environ):
    """Every cloud that can be set is there, and its model has limits and a price."""
    own = Path(environ["HOME"], ".config/relay")
    clouds = {
        name: row for name, row in tomllib.loads((TEMPLATES / "providers.toml").read_text()).items() if "model" in row
    }
    assert set(clouds) == set(PROVIDERS)
    for name, cloud in clouds.items():
        shutil.rmtree(own, ignore_errors=True)
        ran = relay("init", "--provider", name)
        assert (ran.code, ran.err) == (0, "")
        assert [line for line in cloud["variables"] if f"export {line}\n" not in ran.out] == []
        assert "# written to ~/.config/relay/config.toml:\n" in ran.out
        found = load_settings(flags={}, environ={}, plan_settings={}, repo_root=None, user_dir=own)
        assert (found.provider, found.model) == (name, cloud["model"])
        assert find_limits(found.model)
        assert find_price(found.model)  # as prices are
    shutil.rmtree(own)
    arn = "arn:aws:bedrock:us-east-1:1:application-inference-profile/x"
    assert f'[models."{arn}"]\nwindow_tokens' in relay("init", "--provider", "bedrock", "--model", arn).out
    assert not own.exists()  # its limits have to be put right


def test_the_users_settings_are_begun_and_never_changed(relay, environ):
    own = Path(environ["HOME"], ".config/relay/config.toml")
    named = relay("init", "--provider", "ollama")
    assert "NAME-OF-THE-MODEL" in named.out
    assert not own.exists()
    assert "written to ~/.config/relay/config.toml" in relay("init", "--provider", "ollama", "--model", "a").out
    begun = own.read_text()
    assert "relay does not change that file" in relay("init", "--provider", "vllm", "--model", "b").out
    assert own.read_text() == begun
    assert "known: ollama" in relay("init", "--provider", "x").err
    assert relay("init", "--model", "x").code == 2
    own.unlink()
    own.parent.rename(elsewhere := own.parents[1] / "dotfiles")
    own.parent.symlink_to(elsewhere)
    assert "written to" in relay("init", "--provider", "ollama", "--model", "a").out
    assert (elsewhere / "config.toml").stat().st_mode & 0o777 == 0o600


def test_the_schema_of_the_settings_is_printed(relay, project):
    ran = relay("init", "--schema")
    assert set(json.loads(ran.out)["properties"]) == set(KEYS)
    assert list(project.iterdir()) == [project / ".git"]
