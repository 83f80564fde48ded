"""The clouds: each one's own check of a request holds; logins renew themselves."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from relay.base.errors import ConfigError, RunnerError
from relay.base.interrupts import Interrupts
from relay.config import Settings, load_settings
from relay.runners.base import ModelInfo
from relay.runners.messages.answers import Answer
from relay.runners.messages.api import MessagesApi
from relay.runners.messages.clouds import find_way
from relay.runners.messages.connection import Fault, FaultKind
from relay.session.usage import Usage
from relay.setup.workspace import get_unreadable
from tests.clouds import (
    PROJECT,
    REGION,
    RESOURCE_KEY,
    make_aws_login,
    make_google_login,
    make_profile,
    make_secret,
    make_token,
    make_workload,
    name_key,
    render_frame,
    render_frames,
    serve_clouds,
)
from tests.effort import take_each
from tests.runners.test_api import WHOLE
from tests.runners.test_wire import REQUEST
from tests.sdks import anthropic

STATIC = {
    "AWS_ACCESS_KEY_ID": "AKIA0",
    "AWS_SECRET_ACCESS_KEY": make_secret("AKIA0"),
    "AWS_SESSION_TOKEN": make_token("AKIA0"),
}
MANTLE, RUNTIME = "anthropic.claude-opus-5-5", "us.anthropic.claude-opus-4-5-20251101-v1:0"
ARN = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-opus-4-5-20251101-v1:0"
CLOUD_NAMES = ("ANTHROPIC_", "AWS_", "GOOGLE_", "CLOUD_ML_")


@pytest.fixture
def open_api():
    """Open relay's own way to a cloud."""
    interrupts = Interrupts(sleep=lambda _: None)
    with ExitStack() as stack:
        stack.callback(interrupts.close)

        def open_one(environ, provider, model, **given):
            way = find_way(Settings(provider=provider, model=model, **given), environ)
            api = MessagesApi(environ=environ, interrupts=interrupts, idle_timeout_s=60, way=way)
            stack.callback(api.close)
            return api

        yield open_one


@pytest.fixture
def clouds():
    with serve_clouds(answer=WHOLE) as made:
        yield made


@pytest.fixture
def become(monkeypatch, tmp_path):
    """Put variables into the process's own environment, where the SDK looks, and nothing else of these names."""

    def set_all(environ):
        for name in list(os.environ):
            if name.startswith(CLOUD_NAMES):
                monkeypatch.delenv(name)
        environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true", **environ}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return environ

    return set_all


def send(api, model, **given):
    return api.send({**REQUEST, "model": model}, on_block=lambda _: None, **given)


LOGINS = {
    "aws": lambda home, _: make_aws_login(home),
    "aws for minutes": lambda home, _: make_aws_login(home, "5 minutes"),
    "static": lambda *_: STATIC,
    "google": lambda home, clouds: make_google_login(home, f"{clouds.url}/google/token"),
    "workload": lambda home, clouds: {**make_workload(home), "ANTHROPIC_BASE_URL": clouds.url},
    "profile": lambda home, clouds: {**make_profile(home, expires_at=1), "ANTHROPIC_BASE_URL": clouds.url},
    "bearer": lambda *_: {"AWS_BEARER_TOKEN_BEDROCK": "handed-out-token-of-bedrock"},
    "aws key": lambda *_: {"ANTHROPIC_AWS_API_KEY": "handed-out-token-of-aws"},
    "foundry key": lambda *_: {"ANTHROPIC_FOUNDRY_API_KEY": RESOURCE_KEY},
}
"""How one is logged in: what is on the disk, and the variables."""
WAYS = [
    ("bedrock", "static", MANTLE),
    ("bedrock", "aws", MANTLE),
    ("bedrock", "bearer", MANTLE),
    ("bedrock", "aws", RUNTIME),
    ("bedrock", "static", ARN),
    ("bedrock", "bearer", "global.anthropic.claude-sonnet-5-5"),
    ("aws", "aws", "claude-opus-5-5"),
    ("aws", "aws key", "claude-opus-5-5"),
    ("vertex", "google", "claude-opus-5-5@default"),
    ("foundry", "foundry key", "claude-opus-5-5"),
    ("anthropic", "workload", "claude-opus-5-5"),
    ("anthropic", "profile", "claude-opus-5-5"),
]


def log_in(clouds, provider, login, home):
    """Return the environment of somebody who is logged in so."""
    home.mkdir()
    base = {} if provider == "anthropic" else clouds.environ
    return {**base, **LOGINS[login](home, clouds), "NO_PROXY": "*"}


def test_a_cloud_takes_what_relay_sends(open_api, clouds, become, tmp_path):
    """The right client of the SDK, with the right login and place; the answer comes back whole, in frames too."""
    for number, (provider, login, model) in enumerate(WAYS):
        clouds.seen.clear()
        environ = become(log_in(clouds, provider, login, tmp_path / str(number)))
        answer = send(open_api(environ, provider, model), model)
        assert isinstance(answer, Answer), (provider, login, model, answer)
        assert answer.content[-1]["input"] == {"path": "a", "n": 12}
        assert answer.usage
        assert answer.usage.context_tokens
        assert len(clouds.seen) == 1, (provider, login, model)


def test_limits_and_price_of_a_clouds_models_are_known_and_the_login_is_proven(open_api, clouds, become, tmp_path):
    """Nothing is asked for a model there: these clouds have no list."""
    logins = {name: value for kind in ("aws", "google") for name, value in LOGINS[kind](tmp_path, clouds).items()}
    environ = become({**clouds.environ, **logins, **LOGINS["foundry key"](None, None)})
    aws = "AWS's login (profile work, from custom-process)"
    google = f"Google's login of robot@my-project.example (project {PROJECT}, from {tmp_path}/google.json)"
    for provider, model, words in (
        ("bedrock", MANTLE, aws),
        ("bedrock", RUNTIME, aws),
        ("vertex", "claude-opus-5-5", google),
        ("foundry", "claude-opus-5-5", ""),
    ):
        found = open_api(environ, provider, model).find_model(model)
        assert isinstance(found, ModelInfo)
        assert found.window_tokens >= 200_000
        assert (found.credential, clouds.seen) == (words, []), model


RENEWED = [
    ("bedrock", "aws", MANTLE),
    ("bedrock", "aws for minutes", RUNTIME),
    ("vertex", "google", "claude-opus-5-5"),
    ("anthropic", "workload", "claude-opus-5-5"),
    ("anthropic", "profile", "claude-opus-5-5"),
]


def test_a_login_that_ends_between_two_requests_is_renewed(open_api, become, tmp_path):
    """By the clock where it says when, by a refusal where it is taken back; no answer is lost."""
    for number, (provider, login, model) in enumerate(take_each(2, RENEWED)):
        with serve_clouds(answer=WHOLE) as clouds:
            environ = become(log_in(clouds, provider, login, tmp_path / str(number)))
            api = open_api(environ, provider, model)
            assert isinstance(send(api, model), Answer), login
            used = name_key(clouds.seen[-1]["headers"])
            clouds.revoked.add(used)
            assert isinstance(send(api, model), Answer), login
            names = [name_key(seen["headers"]) for seen in clouds.seen]
            assert [name == used for name in names] in ([True, True, False], [True, False]), login
            clouds.lasts_s = 5
            clouds.revoked.add(names[-1])
            assert isinstance(send(api, model), Answer), login
            before = len(clouds.seen)
            assert isinstance(send(api, model), Answer), login
            assert len(clouds.seen) == before + 1, login
            keys = {name_key(seen["headers"]) for seen in clouds.seen}
            assert len(keys) == (3 if login in {"aws", "profile"} else 4), login
            assert not keys.intersection(api.find_model(model).credential.split())


def test_a_second_refusal_says_what_was_tried(open_api, clouds, become, tmp_path):
    environ = become({**clouds.environ, **LOGINS["aws"](tmp_path, clouds)})
    clouds.revoked |= {f"AKIA{number}" for number in range(20)}
    fault = send(open_api(environ, "bedrock", MANTLE), MANTLE)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.USER
    assert "The security token included in the request is expired" in fault.message
    assert "AWS's login (profile work, from custom-process) was asked again, which did not help" in fault.message
    assert len(clouds.seen) == 2


def test_a_service_that_is_away_is_nobodys_fault(open_api, clouds, become, tmp_path):
    """It is asked again as an overloaded endpoint is; and a token that is still good is used meanwhile."""
    environ = become({**LOGINS["workload"](tmp_path, clouds), "NO_PROXY": "*"})
    api = open_api(environ, "anthropic", "claude-opus-5-5")
    clouds.away, clouds.lasts_s = 1, 100
    fault = send(api, "claude-opus-5-5")
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.INFRA
    assert isinstance(send(api, "claude-opus-5-5"), Answer)
    clouds.away = 1
    assert isinstance(send(api, "claude-opus-5-5"), Answer)
    assert len({name_key(seen["headers"]) for seen in clouds.seen}) == 1


def test_no_fault_holds_what_a_cloud_repeats(open_api, clouds, become, tmp_path):
    environ = become({**clouds.environ, **LOGINS["google"](tmp_path, clouds)})
    clouds.revoked |= {f"handed-out-token-number-{number}" for number in range(9)}
    fault = send(open_api(environ, "vertex", "claude-opus-5-5"), "claude-opus-5-5")
    assert isinstance(fault, Fault)
    assert "is over" in fault.message
    assert "handed-out-token" not in fault.message


def test_frames_are_events_wherever_the_network_cuts():
    from relay.base.sse import parse_events
    from relay.runners.messages.client import read_frames

    frames = render_frames(WHOLE)
    expected = [json.loads(event.data) for event in parse_events(iter([WHOLE]))]
    for step in (1, 7, 4096):
        pieces = [frames[at : at + step] for at in range(0, len(frames), step)]
        decoder = anthropic.AnthropicBedrock._make_sse_decoder(None)
        found = list(read_frames(decoder, iter(pieces)))
        assert [json.loads(event.data) for event in parse_events(iter(found))] == expected
        assert found.count(b"") == len(pieces)


def test_an_exception_in_the_frames_is_a_fault_that_passes(open_api, clouds, become, monkeypatch):
    from tests import clouds as module

    begun = WHOLE[: WHOLE.index(b"event: content_block_start")]
    environ = become({**clouds.environ, **STATIC})
    for kind in ("throttlingException", "internalServerException", "modelStreamErrorException"):
        frames = render_frames(begun) + render_frame(kind, b'{"message": "too much"}', "exception")
        monkeypatch.setattr(module, "render_frames", lambda _, frames=frames: frames)
        fault = send(open_api(environ, "bedrock", RUNTIME), RUNTIME)
        assert isinstance(fault, Fault)
        assert fault.kind is (FaultKind.LIMIT if kind.startswith("throttling") else FaultKind.INFRA)
        assert fault.message == f"{kind} in mid-stream: too much"
        assert fault.usage == Usage(input_tokens=10, cache_read_tokens=90)


def test_damaged_frames_are_no_answer(open_api, clouds, become, monkeypatch):
    """A byte of one, its length, and a page in their place."""
    from tests import clouds as module

    whole = render_frames(WHOLE)
    environ = become({**clouds.environ, **STATIC})
    for frames in (whole[:40] + b"\0" + whole[41:], b"\0" * 20 + whole, b"<html>" * 9):
        monkeypatch.setattr(module, "render_frames", lambda _, frames=frames: frames)
        fault = send(open_api(environ, "bedrock", RUNTIME), RUNTIME)
        assert isinstance(fault, Fault)
        assert (fault.kind, fault.may_be_billed) == (FaultKind.INFRA, True)
        assert "frame" in fault.message


FULL = {
    "AWS_REGION": REGION,
    "ANTHROPIC_AWS_WORKSPACE_ID": "w",
    "CLOUD_ML_REGION": REGION,
    "ANTHROPIC_VERTEX_PROJECT_ID": PROJECT,
    "HOME": "/",
    "PATH": "/usr/bin:/bin",
}


BEARER = {"AWS_BEARER_TOKEN_BEDROCK": "k"}
MISSING: list[tuple[str, dict[str, str], str, str]] = [
    ("bedrock", {**BEARER, "AWS_REGION": ""}, "the region is not known: AWS_REGION is not set", "AWS_REGION=…"),
    ("bedrock", {**BEARER, "AWS_REGION": "x.example/"}, "AWS_REGION: found 'x.example/'; allowed: letters", "=… again"),
    (
        "bedrock",
        {"AWS_BEARER_TOKEN_BEDROCK": "two words"},
        "AWS_BEARER_TOKEN_BEDROCK holds characters that no key has",
        "export AWS_BEARER_TOKEN_BEDROCK=…",
    ),
    ("aws", {"ANTHROPIC_AWS_WORKSPACE_ID": ""}, "the workspace is not known", "export ANTHROPIC_AWS_WORKSPACE_ID=…"),
    ("vertex", {"CLOUD_ML_REGION": ""}, "the region is not known", "export CLOUD_ML_REGION=…"),
    ("vertex", {"ANTHROPIC_VERTEX_PROJECT_ID": "a/b"}, "ANTHROPIC_VERTEX_PROJECT_ID: found 'a/b'", "=… again"),
    ("foundry", {}, "no key for Foundry: ANTHROPIC_FOUNDRY_API_KEY is not set", "relay init --provider foundry"),
    (
        "foundry",
        {"ANTHROPIC_FOUNDRY_API_KEY": "k"},
        "the resource is not known: ANTHROPIC_FOUNDRY_RESOURCE is not set",
        "export ANTHROPIC_FOUNDRY_RESOURCE=…",
    ),
    (
        "foundry",
        {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"},
        "provider = foundry does not ask ANTHROPIC_BASE_URL, which is set",
        "RELAY_PROVIDER=anthropic",
    ),
]


def test_what_is_missing_is_said_with_the_command_that_gets_it():
    for provider, change, words, hint in MISSING:
        with pytest.raises((RunnerError, ConfigError)) as raised:
            find_way(Settings(provider=provider, model=MANTLE), {**FULL, **change})
        assert words in raised.value.message, change
        assert hint in str(raised.value.hint), change
    with pytest.raises(
        ConfigError, match=r"model: found 'claude-opus-5-5'; allowed with provider = bedrock: anthropic"
    ):
        find_way(Settings(provider="bedrock"), FULL)


def test_without_a_login_a_run_ends_with_the_command_that_gets_one(open_api, become, tmp_path):
    bare = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    environ = become({**FULL, **bare, "HOME": str(tmp_path)})
    with pytest.raises(RunnerError, match="no AWS credentials were found") as raised:
        open_api(environ, "bedrock", MANTLE).find_model(MANTLE)
    assert "aws sso login" in str(raised.value.hint)
    environ = become({**FULL, "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")})
    with pytest.raises(RunnerError, match=r"Google's login: File .*none\.json was not found") as raised:
        open_api(environ, "vertex", "claude-opus-5-5").find_model("claude-opus-5-5")
    assert raised.value.hint == "gcloud auth application-default login"


def test_a_login_of_google_that_names_no_project_is_said(open_api, clouds, become, tmp_path):
    login = make_google_login(tmp_path, f"{clouds.url}/google/token")
    file = tmp_path / "google.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"project_id": None}))
    environ = become({**clouds.environ, **login, "ANTHROPIC_VERTEX_PROJECT_ID": ""})
    with pytest.raises(RunnerError, match="the project, which Google's login does not name, is not known") as raised:
        open_api(environ, "vertex", "claude-opus-5-5").find_model("claude-opus-5-5")
    assert raised.value.hint == "export ANTHROPIC_VERTEX_PROJECT_ID=…"


@pytest.mark.nightly
def test_the_doctor_proves_a_clouds_login_without_the_sdk(clouds, tmp_path):
    """Which takes ten times as long, and 80 MB."""
    code = (
        "import os, sys; from relay.config import Settings\n"
        "from relay.runners.messages.clouds import find_way\n"
        f"for provider, model in (('bedrock', {MANTLE!r}), ('aws', 'claude-opus-5'), ('vertex', 'claude-opus-5')):\n"
        "    way = find_way(Settings(provider=provider, model=model), os.environ)\n"
        "    print(bool(way.find_place() and way.credential.use()), {'anthropic', 'httpx2'} & set(sys.modules))"
    )
    logins = {**LOGINS["aws"](tmp_path, clouds), **LOGINS["google"](tmp_path, clouds)}
    environ = {**clouds.environ, **logins, "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    ran = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "set()"] * 3


def test_a_command_prints_the_token_of_any_cloud(open_api, clouds, become, tmp_path):
    """Another one after a refusal; nothing of the SDK is needed for that."""
    clouds.revokes_at = 1
    for provider, model in (
        ("foundry", "d"),
        ("vertex", "claude-opus-5-5"),
        ("bedrock", MANTLE),
        ("aws", "claude-opus-5-5"),
    ):
        clouds.seen.clear()
        clouds.revoked.clear()
        (tmp_path / "n").write_text("0")
        words = f"n=$(($(cat {tmp_path}/n) + 1)); echo $n > {tmp_path}/n; echo handed-out-token-number-$n"
        api = open_api(become(clouds.environ), provider, model, key_command=("sh", "-c", words))
        assert isinstance(send(api, model), Answer), provider
        assert [name_key(seen["headers"])[-1] for seen in clouds.seen] == ["1", "2"], provider


def test_no_session_reads_the_files_of_a_login(tmp_path):
    """Wherever a variable puts them; a device is no such file, and the repository is not hidden from itself."""
    kept, root = tmp_path / "kept/login.json", tmp_path / "project"
    kept.parent.mkdir()
    root.mkdir()
    kept.write_text("{}")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AWS_SHARED_CREDENTIALS_FILE", "ANTHROPIC_CONFIG_DIR"):
        for place, hidden in ((kept, [kept]), (kept.parent, [kept.parent]), (Path("/dev/null"), []), (tmp_path, [])):
            assert list(get_unreadable(root, Settings(), {name: str(place)})) == hidden, (name, place)


def test_a_repository_cannot_choose_who_is_paid(tmp_path):
    (tmp_path / "relay.toml").write_text('provider = "bedrock"\n')
    with pytest.raises(ConfigError, match="provider = 'bedrock' may not be set by a repository"):
        load_settings(flags={}, environ={}, plan_settings={}, repo_root=tmp_path, user_dir=None)
