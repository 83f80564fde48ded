"""`relay init` and what it puts there."""

import json
import re
import tomllib
from pathlib import Path

from relay.config import Settings, load_settings
from relay.config.keys import KEYS

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
        "  edit AGENTS.md      say how your project is built and tested\n"
        '  relay plan "…"      have PLAN.md written from a sentence, over the example\n'
        "  relay doctor        see what is still missing to run it\n"
        "  git add AGENTS.md relay.toml .gitattributes && git commit\n"
        "                      what no commit has, no clone and no gate has\n"
        "  relay run --branch  build it on a branch of its own, not on the one that you are on\n"
    )
    for name in ("AGENTS.md", "PLAN.md", "relay.toml"):
        assert (project / name).read_bytes() == (TEMPLATES / name).read_bytes()


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


def test_from_a_folder_of_the_repository_the_files_go_to_its_root(relay, project):
    folder = project / "src"
    folder.mkdir()
    assert relay("init", cwd=folder).code == 0
    assert (project / "PLAN.md").is_file()
    assert not list(folder.iterdir())


def test_outside_a_repository_it_says_git_init(relay, tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    ran = relay("init", cwd=folder)
    assert ran.code == 0
    assert (folder / "PLAN.md").is_file()
    assert "  git init " in ran.out


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


def test_the_settings_template_as_it_is_changes_nothing(tmp_path):
    (tmp_path / "relay.toml").write_bytes((TEMPLATES / "relay.toml").read_bytes())
    loaded = load_settings(flags={}, environ={}, plan_settings={}, repo_root=tmp_path, user_dir=None)
    assert set(loaded.origins.values()) == {"default"}


def test_every_provider_is_told_how_to_be_reached_and_what_its_model_needs(relay, project, environ):
    """The variables can be evaluated by a shell, the settings are settings."""
    home = Path(environ["HOME"])
    for name, provider in tomllib.loads((TEMPLATES / "providers.toml").read_text()).items():
        ran = relay("init", "--provider", name, "--model", "glm/4.6:air")
        assert (ran.code, ran.err) == (0, "")
        assert f"export ANTHROPIC_BASE_URL={provider['base_url']}\n" in ran.out
        table = ran.out[ran.out.index('model = "') : ran.out.index("\n\nrelay doctor")]
        (home / "tried").mkdir(exist_ok=True)
        (home / "tried/config.toml").write_text(table)
        own = load_settings(flags={}, environ={}, plan_settings={}, repo_root=None, user_dir=home / "tried")
        assert own.model == "glm/4.6:air"
        assert own.find_model(own.model).window_tokens
        assert ("put this right" in table[table.index("price = ") :]) != provider["local"]
    assert not list(project.glob("*.toml"))


def test_the_users_settings_are_begun_and_never_changed(relay, environ):
    own = Path(environ["HOME"], ".config/relay/config.toml")
    named = relay("init", "--provider", "ollama")
    assert "NAME-OF-THE-MODEL" in named.out
    assert not own.exists()
    assert "written to ~/.config/relay/config.toml" in relay("init", "--provider", "ollama", "--model", "a").out
    begun = own.read_text()
    assert "not changed" in relay("init", "--provider", "vllm", "--model", "b").out
    assert own.read_text() == begun
    assert "known: ollama" in relay("init", "--provider", "x").err
    assert relay("init", "--model", "x").code == 2


def test_the_schema_of_the_settings_is_printed(relay, project):
    ran = relay("init", "--schema")
    assert set(json.loads(ran.out)["properties"]) == set(KEYS)
    assert list(project.iterdir()) == [project / ".git"]
