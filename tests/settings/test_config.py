"""Settings: precedence, origins, types, and what a repository may not say."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.errors import ConfigError
from relay.config import Settings, find_user_dir, load_settings
from relay.config.keys import KEYS
from relay.config.model import Compat, ModelSettings, Paths, Roles
from relay.config.network import Network
from relay.config.sources import NO_SETTING, render_model_table
from relay.session.gauge import parse_reset_at
from relay.session.prices import UserPrice, find_price
from relay.setup.observers import describe_settings
from relay.store.steering_files import find_steering


def load(
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    plan: Mapping[Any, Any] | None = None,
    root: Path | None = None,
    user: Path | None = None,
) -> Settings:
    return load_settings(
        flags=flags or {}, environ=environ or {}, plan_settings=plan or {}, repo_root=root, user_dir=user
    )


def refuse(**sources: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**sources)
    return f"{caught.value}\n{caught.value.hint or ''}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "repo").mkdir()
    return tmp_path / "repo"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def test_nothing_set_gives_every_default_and_says_so() -> None:
    settings = load()
    assert (settings.plan, settings.model, settings.max_cost_usd) == ("PLAN.md", "claude-opus-5-5", 20.0)
    assert settings.reset_at.line_tokens(1_000_000) == 100_000
    assert set(settings.origins) == set(KEYS)
    assert set(settings.origins.values()) == {"default"}


def test_each_place_yields_to_the_next_and_is_named(root: Path, user: Path) -> None:
    (user / "config.toml").write_text('model = "from-user"\n')
    steps: list[tuple[dict[str, Any], str, str]] = [
        ({"user": user}, "from-user", f"{user}/config.toml:1"),
        ({"root": root}, "from-repo", "relay.toml:3"),
        ({"plan": {"model": "from-plan"}}, "from-plan", "plan front matter"),
        ({"environ": {"RELAY_MODEL": "from-env"}}, "from-env", "RELAY_MODEL"),
        ({"flags": {"model": "from-flag"}}, "from-flag", "--model"),
    ]
    (root / "relay.toml").write_text('# ours\n\nmodel = "from-repo"\n')
    given_so_far: dict[str, Any] = {}
    for source, value, origin in steps:
        given_so_far |= source
        settings = load(**given_so_far)
        assert (settings.model, settings.origins["model"]) == (value, origin)


def test_pyproject_serves_where_there_is_no_relay_toml(root: Path) -> None:
    (root / "pyproject.toml").write_text(
        '[project]\nname = "relay"\nmodel = 3\n\n[tool.relay]\nmax_sessions = 2\n\n'
        '[tool.relay.models."house"]\nreset_at = "8k"\n'
    )
    settings = load(root=root)
    assert (settings.max_sessions, settings.origins["max_sessions"]) == (2, "pyproject.toml:6")
    assert settings.origins["models"] == "pyproject.toml:8"
    (root / "relay.toml").write_text("max_sessions = 3\n")
    assert "keep one of them" in refuse(root=root)


def test_a_pyproject_that_has_nothing_to_say_is_not_checked(root: Path) -> None:
    (root / "pyproject.toml").write_text("not toml at all [")
    assert load(root=root) == load()
    (root / "pyproject.toml").write_text("[tool.relay]\nnot toml at all [")
    assert "pyproject.toml:" in refuse(root=root)


TYPED = [
    ("max_cost_usd", "5", 5.0),
    ("max_cost_usd", "none", None),
    ("max_cost_usd", "0", 0.0),
    ("max_tokens_total", "1000000", 1_000_000),
    ("effort", "high", "high"),
    ("effort", "none", None),
    ("env_file", "2026", "2026"),
    ("verify", "make test\n\n make lint ", ("make test", "make lint")),
    ("env", "CI, LANG", ("CI", "LANG")),
    ("network", "TRUE", Network(hosts=True)),
    ("network", "0", Network()),
    ("network", "Pypi.org, *.npmjs.org,pypi.org", Network(hosts=("pypi.org", "*.npmjs.org"))),
    ("network", '{"hosts": ["*"]}', Network(hosts=("*",))),
    ("network", '{"localhost": [5432, 6379, 5432]}', Network(localhost=(5432, 6379))),
    ("network", '{"hosts": true, "sockets": ["docker", "/s"]}', Network(hosts=True, sockets=("docker", "/s"))),
    ("paths", '{"write": ["/a:b"], "hide": ["conf/z", "~/x,y"]}', Paths(write=("/a:b",), hide=("conf/z", "~/x,y"))),
    ("roles", '{"plan": "m"}', Roles(plan="m")),
]


def test_a_variable_and_a_flag_are_read_alike() -> None:
    for key, text, value in TYPED:
        assert getattr(load(environ={f"RELAY_{key.upper()}": text}), key) == value, text
        assert getattr(load(flags={key: text}), key) == value, text


def test_what_may_not_be_read_is_named_by_all_sources_together(root: Path, tmp_path: Path) -> None:
    """A repository adds to the user's list and takes nothing out of it."""
    (root / "relay.toml").write_text('paths.hide = ["config"]\n')
    user = tmp_path / "user"
    user.mkdir()
    (user / "config.toml").write_text('paths = {hide = ["/etc/own"], read = ["/opt"]}\n')

    settings = load(root=root, user=user, plan={"paths": {}}, environ={"RELAY_PATHS": '{"hide": ["~/.own"]}'})

    assert settings.paths == Paths(hide=("~/.own", "config", "/etc/own"), read=("/opt",))
    assert settings.origins["paths"].startswith("RELAY_PATHS, plan front matter, relay.toml:1, ")


def test_a_flag_that_was_not_typed_says_nothing() -> None:
    settings = load(flags={"model": None, "verify": (), "network": None}, environ={"RELAY_MODEL": ""})
    assert settings == load()


def test_a_typed_reset_line_wins_over_the_one_of_its_model(root: Path) -> None:
    (root / "relay.toml").write_text(
        'reset_at = 90000\n[models."claude-opus-5"]\nreset_at = "50k"\nwindow_tokens = 9\n'
    )
    settings = load(root=root)
    assert settings.reset_at_for("other").line_tokens(10**6) == 90_000
    assert settings.reset_at_for("anthropic/claude-opus-5").line_tokens(10**6) == 50_000
    assert settings.find_model("claude-opus-5").window_tokens == 9
    typed = load(root=root, flags={"reset_at": "70k"})
    assert typed.reset_at_for("claude-opus-5").line_tokens(10**6) == 70_000


BAD_VALUES = [
    ("model", ""), ("model", 3), ("model", "a b"), ("effort", "huge"), ("effort", ["high"]), ("runner", "no such"),
    ("reset_at", "0.45"), ("reset_at", True), ("max_cost_usd", -1), ("max_cost_usd", True), ("max_cost_usd", "20"),
    ("max_cost_usd", float("nan")), ("max_sessions", 0), ("max_sessions", 1.5), ("verify", 3), ("verify", [" "]),
    ("env", ["A=B"]), ("env", ["A\n"]), ("network", "yes"), ("network", {"hosts": ["localhost"]}),
    ("network", {"hosts": ["1.2.3.4"]}), ("network", {"hosts": ["a." * 127 + "org"]}), ("network", {"host": ["a.b"]}),
    ("network", {"localhost": [80]}), ("network", {"localhost": [65536]}), ("network", {"sockets": ["ssh"]}),
    ("network", {"sockets": ["run/x.sock"]}), ("sandbox", "none"), ("sandbox", False), ("paths", {"write": ["rel"]}),
    ("paths", {"read": ["/"]}), ("paths", {"links": ["/a"]}), ("rules_fallback_names", ["a/b"]),
    ("rules_fallback_names", [".."]), ("models", {"m": {"price": {"input": 1}}}), ("roles", {"plan": "a b"}),
    ("models", {"m": 3}), ("models", {"m": {"compat": {"cache": "no"}}}), ("models", {"m": {"window": 3}}),
    ("models", {"m": {"window_tokens": "9"}}), ("plan", "a\0b"), ("paths", {"hide": ["../x"]}),
    ("paths", {"hide": ["/"]}), ("paths", {"hide": ["."]}), ("paths", {"hide": ["~/"]}), ("paths", ["a"]),
]  # fmt: skip


def test_a_value_that_is_not_allowed_is_refused_with_what_is() -> None:
    for key, value in BAD_VALUES:
        message = refuse(**{"flags" if key == "plan" else "plan": {key: value}})
        assert (f"{key}: found " in message, "allowed: " in message) == (True, True), (key, value)


@given(st.sampled_from(sorted(KEYS)), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6,
))  # fmt: skip
def test_whatever_a_plan_says_is_read_or_refused_in_one_line(key: str, value: object) -> None:
    said = ""
    try:
        settings = load(plan={key: value})
    except ConfigError as exc:
        said = str(exc)
    else:
        assert settings.origins[key] == "plan front matter"
        assert not KEYS[key].widens(getattr(settings, key))
    assert "\n" not in said
    assert not said or said.startswith("plan front matter: ")


RIGHTS = [
    ("sandbox", "off"),
    ("network", True),
    ("network", {"hosts": ["registry.npmjs.org"]}),
    ("network", {"localhost": [5432]}),
    ("network", {"sockets": ["docker"]}),
    ("env", ["SSH_AUTH_SOCK"]),
    ("paths", {"write": ["/home"], "hide": ["x"]}),
    ("paths", {"read": ["/home"]}),
    ("models", {"claude-opus-5-5": {"price": {"input": 0, "output": 0}}}),
    ("rules_fallback_names", ["CLAUDE.md", ".npmrc"]),
    ("agents", {"x": {"program": "y"}}),
    ("mcp_servers", {"x": {"command": ["y"]}}),
]


def test_a_repository_cannot_give_itself_rights() -> None:
    for key, value in RIGHTS:
        message = refuse(plan={key: value}, flags={"model": "m"})
        assert "may not be set by a repository" in message, key
        assert f"RELAY_{key.upper()}" in message
        assert load(flags={key: value}).origins[key] == f"--{key.replace('_', '-')}"


def test_a_forbidden_key_is_refused_even_when_something_stronger_overrides_it(root: Path) -> None:
    (root / "relay.toml").write_text('\nsandbox = "off"\n')
    assert "relay.toml:2: sandbox" in refuse(root=root, flags={"sandbox": "auto"})


def test_a_repository_may_be_stricter_than_its_user(user: Path) -> None:
    (user / "config.toml").write_text('sandbox = "off"\nnetwork = true\nenv = ["CI"]\nmax_cost_usd = 50\n')
    settings = load(user=user, plan={"sandbox": "auto", "network": False, "env": [], "max_cost_usd": 3})
    assert (settings.sandbox, settings.network.whole, settings.env) == ("auto", False, ())
    assert settings.max_cost_usd == 3.0


def test_of_a_network_each_key_is_the_stronger_sources_and_false_closes_all(user: Path) -> None:
    (user / "config.toml").write_text('network = {hosts = ["a.b"], localhost = [8081], sockets = ["docker"]}\n')
    for word, expected in (
        ('{"localhost": [5432]}', Network(hosts=("a.b",), localhost=(5432,), sockets=("docker",))),
        ('{"hosts": ["c.d"], "sockets": ["/s"]}', Network(hosts=("c.d",), localhost=(8081,), sockets=("/s",))),
        ("false", Network()),
    ):
        assert load(user=user, environ={"RELAY_NETWORK": word}).network == expected, word


@pytest.mark.parametrize("value", [20.01, 1_000, None, "none"])
def test_a_repository_cannot_raise_or_drop_the_cap(value: object, user: Path) -> None:
    assert "not raise it above yours, 20" in refuse(plan={"max_cost_usd": value})
    (user / "config.toml").write_text("max_cost_usd = 20\nmax_phase_cost_usd = 2\nmax_tokens_total = 900\n")
    assert "max_cost_usd" in refuse(plan={"max_cost_usd": value}, user=user)
    assert "max_phase_cost_usd" in refuse(plan={"max_phase_cost_usd": 3}, user=user)
    assert "max_tokens_total" in refuse(plan={"max_tokens_total": "none"}, user=user)


def test_a_user_s_own_word_lifts_the_cap(user: Path) -> None:
    (user / "config.toml").write_text('max_cost_usd = "none"\n')
    assert load(plan={"max_cost_usd": 500}, user=user).max_cost_usd == 500
    typed = load(plan={"max_cost_usd": 500}, flags={"max_cost_usd": 80.0})
    assert (typed.max_cost_usd, typed.origins["max_cost_usd"]) == (80.0, "--max-cost")
    assert load(plan={"max_cost_usd": 500}, environ={"RELAY_MAX_COST_USD": "none"}).max_cost_usd is None


def test_a_name_that_is_no_setting_is_refused_wherever_it_stands_with_what_to_do(root: Path) -> None:
    assert not NO_SETTING.keys() & KEYS.keys()
    for key, what in NO_SETTING.items():
        (root / "relay.toml").write_text(f'[{key}]\nx = "y"\n' if key == "relay" else f'\n{key} = "x"\n')
        found = (refuse(root=root), refuse(plan={key: "x"}), refuse(environ={f"RELAY_{key.upper()}": "x"}))
        assert [what in words and f"{key} is no setting" in words.lower() for words in found] == [True] * 3, key
        assert found[0].startswith(f"relay.toml:{1 if key == 'relay' else 2}: "), key
    assert NO_SETTING["base_url"].endswith("ANTHROPIC_BASE_URL only")


def test_an_unknown_key_is_refused_with_the_nearest_one(root: Path) -> None:
    (root / "relay.toml").write_text('modle = "x"\n')
    message = refuse(root=root)
    assert message.strip() == "relay.toml:1: unknown setting 'modle'; did you mean model?"
    assert "allowed: plan, model" in refuse(plan={"zzz": 1})
    assert "unknown setting True" in refuse(plan={True: 1})
    assert "cannot name the plan" in refuse(plan={"plan": "OTHER.md"})


USERS = """\
[models."glm-4.6"]
window_tokens = 200000
price = {input = 0.6, output = 2.2}
compat = {cache = "off", thinking = "budget"}
[models.mine]
window_tokens = 9000
"""


def test_a_model_is_described_by_all_who_know_it_the_stronger_first(root: Path, user: Path) -> None:
    (user / "config.toml").write_text(USERS)
    (root / "relay.toml").write_text('[models."glm-4.6"]\nreset_at = "50k"\ncompat = {cache = "blocks"}\n')

    settings = load(root=root, user=user)

    found = settings.find_model("glm-4.6")
    assert (found.window_tokens, found.max_output_tokens, found.reset_at) == (200_000, None, "50k")
    assert found.compat == Compat(cache="blocks", thinking="budget")
    assert settings.find_model("mine").window_tokens == 9_000
    assert settings.origins["models"] == f"relay.toml:1, {user}/config.toml:1"
    price = find_price("glm-4.6", overrides=settings.prices)
    assert price
    assert (price.rates.input, price.rates.output) == (0.6, 2.2)


def test_what_a_model_costs_is_not_the_repositorys_to_say(root: Path) -> None:
    (root / "relay.toml").write_text('[models."glm-4.6"]\nwindow_tokens = 9\nprice = {input = 0, output = 0}\n')
    assert "may not be set by a repository" in refuse(root=root)


@pytest.mark.parametrize("model", ["claude-opus-5-5", "org/model:8b", 'a"b\\c'])
def test_the_table_that_is_shown_to_be_pasted_is_read_as_it_was_meant(model: str, user: Path) -> None:
    known = ModelSettings(
        reset_at=parse_reset_at("50%"),
        window_tokens=131_072,
        max_output_tokens=8_192,
        price=UserPrice(input=1, output=2.5),
        compat=Compat(cache="blocks", thinking_display=False),
    )
    (user / "config.toml").write_text(render_model_table(model, known))
    read = load(user=user).find_model(model)
    assert read == known
    (user / "config.toml").write_text(render_model_table(model, ModelSettings()))
    assert "put this right" in (user / "config.toml").read_text()
    assert load(user=user).find_model(model).window_tokens


def test_a_misspelt_variable_is_refused_and_a_foreign_one_is_not() -> None:
    assert "did you mean RELAY_MAX_COST_USD?" in refuse(environ={"RELAY_MAX_COST": "1"})
    assert load(environ={"RELAY_HTTP_SERVER_ADDRESS": "x", "OTHER_MODEL": "y", "relay_model": "z"}) == load()


def test_a_list_or_table_in_a_variable_may_be_json() -> None:
    """So any path can be written; what does not fit is refused as in a file."""
    for text in ("a/b:c d", "a/b, c d", " a/b :c d,", '["a/b", "c d"]'):  # told apart as people write them
        assert load(environ={"RELAY_COPY": text}).copy == ("a/b", "c d")
    for text in ("A,B_2", "A:B_2", "A B_2"):
        assert load(environ={"RELAY_ENV": text}).env == ("A", "B_2")
    assert load(environ={"RELAY_COPY": '["a:b,c", "[d]"]'}).copy == ("a:b,c", "[d]")
    assert load(environ={"RELAY_VERIFY": '["a\\nb"]'}).verify == ("a\nb",)
    assert load(environ={"RELAY_COPY": "[a]:b"}).copy == ("[a]", "b")
    for text in ('{"hide": [1]}', "{hide", "/a/b"):
        assert "RELAY_PATHS: paths: found " in refuse(environ={"RELAY_PATHS": text})


def test_what_is_set_without_effect_is_named(tmp_path: Path) -> None:
    paths = json.dumps({"write": [str(tmp_path), f"{tmp_path}/none"]})
    environ = {"RELAY_BOGUS_THING": "1", "RELAY_EMPTY_ONE": "", "RELAY_PATHS": paths}
    unknown, missing = describe_settings(load(environ=environ), environ)
    assert unknown.startswith("RELAY_BOGUS_THING: ")
    assert missing.startswith(f"paths: {tmp_path}/none is no directory")


def test_a_plan_named_by_the_repository_stays_inside_it(root: Path) -> None:
    for plan in ("/etc/passwd", "../other/PLAN.md", "a/../../b"):
        (root / "relay.toml").write_text(f'plan = "{plan}"\n')
        assert "may not be set by a repository" in refuse(root=root), plan


def test_a_settings_file_that_is_no_file_is_refused_without_waiting(root: Path, tmp_path: Path) -> None:
    os.mkfifo(root / "relay.toml")
    assert "regular file" in refuse(root=root)
    (root / "relay.toml").unlink()
    (root / "relay.toml").mkdir()
    assert "regular file" in refuse(root=root)
    (root / "relay.toml").rmdir()
    (tmp_path / "outside.toml").write_text("max_sessions = 2\n")
    (root / "relay.toml").symlink_to(tmp_path / "outside.toml")
    assert "link to a file outside" in refuse(root=root)
    (root / "relay.toml").unlink()
    (root / "inner.toml").write_text("max_sessions = 2\n")
    (root / "relay.toml").symlink_to("inner.toml")
    assert load(root=root).max_sessions == 2


def test_a_settings_file_that_cannot_be_used_is_named(root: Path) -> None:
    twice, huge = b"max_sessions = 2\nmax_sessions = 3", b"max_sessions = " + b"1" * 5_000
    for content in (b"\xff\xfe", b"a = ", b"x = " + b"[" * 20_000, b"#" * (1024 * 1024 + 1), twice, huge):
        (root / "relay.toml").write_bytes(content)
        assert refuse(root=root).startswith("relay.toml"), content[:20]


def test_a_settings_file_of_another_system_is_read(root: Path) -> None:
    (root / "relay.toml").write_bytes(b"\xef\xbb\xbfmax_sessions = 2\r\nverify = 'make test'\r\n")
    settings = load(root=root)
    assert (settings.max_sessions, settings.verify, settings.origins["verify"]) == (2, ("make test",), "relay.toml:2")


def test_the_user_s_directory_is_where_the_desktop_standard_says() -> None:
    assert find_user_dir({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/relay")
    assert find_user_dir({"XDG_CONFIG_HOME": "rel", "HOME": "/h"}) == Path("/h/.config/relay")
    assert find_user_dir({}) is None


def test_an_arm_of_an_experiment_is_a_strategy_and_what_is_switched_off() -> None:
    """Order and repetition do not matter; what is none is refused with what is allowed."""
    assert load().strategy == "reset"
    assert load(environ={"RELAY_ARM": "ablate=spill+ablate=rules+ablate=rules"}).ablate == ("rules", "spill")
    assert load(environ={"RELAY_ARM": "compact+ablate=rules"}).strategy == "compact"
    assert load(environ={"RELAY_ARM": "ablate=reset"}).strategy == "none"
    for text in ("rules", "ablate=memory", "none+edit", "+"):
        assert "one of reset, none, compact, edit, and ablate= with some of" in refuse(environ={"RELAY_ARM": text})
    assert "compact has no reset to switch off" in refuse(environ={"RELAY_ARM": "compact+ablate=reset"})
    assert not [*describe_settings(load(environ={"RELAY_ARM": "edit"}), {"RELAY_ARM": "edit"})]


@pytest.mark.processor(30)
def test_a_key_of_very_many_parts_is_refused_at_once(root: Path) -> None:
    """The parser would take the square of their number; a list of many hosts is none, nor are words in a value."""
    for key in ("a.", '"\\"".', "'.'.", "a . ", '"=" . '):
        for text in (f"{key * 100_000}a = 1", f"x = {{ y = [{{ {key * 100_000}a = 1 }}] }}"):
            (root / "relay.toml").write_text(f"jobs = 2\n{text}\n")
            assert refuse(root=root).startswith("relay.toml:2: nested too deeply"), key
    hosts, words = [f"a.b.c.example{number}.org" for number in range(100)], "v1.2.3 " * 500 + "." * 5_000
    (root / "relay.toml").write_text(f"verify = {hosts}  # {words}\n")
    assert load(root=root).verify == tuple(hosts)
    (root / "relay.toml").unlink()
    (root / "pyproject.toml").write_text(f"[tool.relay]\n{'a.' * 100_000}a = 1\n")
    assert find_steering(root) == frozenset()  # what a session may have planted
