"""`relay run` and `relay doctor` with a key that renews itself: the whole program, over HTTP."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bills import assert_paid
from tests.clouds import (
    RESOURCE_KEY,
    make_aws_login,
    make_google_login,
    make_profile,
    make_workload,
    name_key,
    serve_clouds,
)
from tests.effort import NIGHTLY
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.scripts import ONE_PHASE

SCRIPT = """\
model: claude-opus-5-5
sessions:
  - turns:
      - tools: [{name: write, input: {path: hello.txt, content: "hello\\n"}}]
      - fault: {kind: status, status: 401}
        tools: [{name: tick, input: {item: "1.1", evidence: "hello.txt says hello"}}]
      - text: Done.
"""
KEYS = "n=$(cat ~/asked 2>/dev/null | wc -l); echo asked >> ~/asked; echo the-key-number-$((n + 1))-is-secret"
"""A command that prints another key each time."""


@pytest.fixture
def planned(project, commit):
    (project / "PLAN.md").write_text(ONE_PHASE)
    commit()
    return project


@pytest.fixture
def home(environ):
    """The user's home: a folder, and the function that writes their settings there."""
    place = Path(environ["HOME"])

    def configure(text):
        (place / ".config/relay").mkdir(parents=True, exist_ok=True)
        (place / ".config/relay/config.toml").write_text(text)
        return place

    return configure


def test_a_key_that_ends_in_mid_run_costs_no_phase(relay, planned, home, git):
    """The command is asked when the run starts and after the refusal; nothing that is kept shows what it printed."""
    place = home(f"key_command = {json.dumps(['sh', '-c', KEYS])}\n")
    with serve(parse_script(SCRIPT)) as server:
        ran = relay("run", env={"ANTHROPIC_BASE_URL": server.base_url, "RELAY_SANDBOX": "off"})
    assert (ran.code, ran.err) == (0, "")
    assert_paid(planned, server)
    assert (place / "asked").read_text() == "asked\n" * 2
    assert git("show", "HEAD:hello.txt") == "hello"
    kept = [path.read_bytes() for path in planned.rglob("*") if path.is_file()]
    assert not [text for text in (ran.out.encode(), *kept) if b"the-key-number" in text]
    assert list((planned / ".relay/history").iterdir())


@pytest.mark.usefixtures("planned")
def test_the_doctor_says_which_credential_and_not_its_value(relay, home):
    home(f"key_command = {json.dumps(['sh', '-c', KEYS])}\n")
    with serve(parse_script(SCRIPT)) as server:
        shown = relay("doctor", env={"ANTHROPIC_BASE_URL": server.base_url, "RELAY_SANDBOX": "off"}).out
    assert "ok       key         key_command (sh) is set" in shown
    assert "ok       model       claude-opus-5-5: window" in shown
    assert "the-key-number" not in shown


@pytest.mark.usefixtures("planned")
def test_a_locked_vault_stops_a_run_before_anything_else(relay, home, git):
    """In its own words, with what to do; nothing is changed, and nothing sent."""
    home('key_command = ["sh", "-c", "echo the vault is locked >&2; exit 1"]\n')
    before = git("for-each-ref"), git("status", "--porcelain")
    with serve(parse_script(SCRIPT)) as server:
        ran = relay("run", env={"ANTHROPIC_BASE_URL": server.base_url})
        assert not server.requests
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "Error: key_command (sh) ended with 1: the vault is locked\n"
        "Hint: type the command yourself: it has to print the key and nothing else\n"
    )
    assert (git("for-each-ref"), git("status", "--porcelain")) == before


CLOUDS = {
    "bedrock": ("anthropic.claude-opus-5-5", lambda home, _: make_aws_login(home)),
    "bedrock runtime": ("global.anthropic.claude-opus-5-5-v1:0", lambda home, _: make_aws_login(home)),
    "aws": ("claude-opus-5-5", lambda home, _: make_aws_login(home)),
    "vertex": ("claude-opus-5-5@default", lambda home, url: make_google_login(home, f"{url}/google/token")),
    "foundry": ("claude-opus-5-5", lambda *_: {"ANTHROPIC_FOUNDRY_API_KEY": RESOURCE_KEY}),
    "anthropic": ("claude-opus-5-5", lambda home, url: {**make_workload(home), "ANTHROPIC_BASE_URL": url}),
    "anthropic profile": (
        "claude-opus-5-5",
        lambda home, url: {**make_profile(home, expires_at=1), "ANTHROPIC_BASE_URL": url},
    ),
}


CLOUD_SCRIPT = SCRIPT.replace("      - fault: {kind: status, status: 401}\n        tools:", "      - tools:")


@pytest.mark.parametrize("name", CLOUDS if NIGHTLY else ("bedrock",))
def test_a_phase_is_built_on_each_cloud_at_list_price(relay, planned, home, git, name):
    """With a login that is taken back in mid-run; no secret is kept."""
    model, log_in = CLOUDS[name]
    place = home(f'provider = "{name.split()[0]}"\nmodel = "{model}"\n')
    with serve(parse_script(CLOUD_SCRIPT)) as server, serve_clouds(backend=server.base_url, revokes_at=2) as clouds:
        login = log_in(place, clouds.url)
        own = {} if name.startswith("anthropic") else clouds.environ
        if name == "foundry":
            clouds.revokes_at = 0
        ran = relay("run", env={**own, **login, "NO_PROXY": "*", "RELAY_SANDBOX": "off"})
    assert (ran.code, ran.err) == (0, ""), ran.out
    assert len(clouds.seen) == (3 if name == "foundry" else 4)
    used = {name_key(seen["headers"]) for seen in clouds.seen if name != "foundry"}
    assert len(used) == (0 if name == "foundry" else 2)
    assert_paid(planned, server)
    assert git("show", "HEAD:hello.txt") == "hello"
    kept = [path.read_bytes() for path in planned.rglob("*") if path.is_file()]
    for secret in (b"that-nobody-sees", b"handed-out-token", RESOURCE_KEY.encode()):
        assert not [text for text in (ran.out.encode(), *kept) if secret in text]


COMMANDS = """
import sys
from relay.__main__ import main

def tell(words):
    names = {"httpx2", "anthropic", "relay.runners.messages.api"} & set(sys.modules)
    print(f"imported:{words}:", *names)

for words in ("run --dry-run", "run", "doctor"):
    if words == "run":  # a precondition refuses it
        open(".git/MERGE_HEAD", "w").write(sys.argv[1] + "\\n")
    if words == "doctor":
        open_gateway()
        tell("gateway")
    argv, sys.argv[1:] = sys.argv[1:], words.split()
    main()
    sys.argv[1:] = argv
    tell(words)
"""
GATEWAY = """
def open_gateway():
    from relay.base.interrupts import Interrupts
    from relay.runners.messages.api import open_api, open_wire
    from relay.runners.messages.credentials import Credential, Proof
    from relay.runners.messages.endpoint import PLAIN, Way

    printed = Way(credential=Credential("it", lambda _: Proof(value="k", secrets=()), advice=""))
    for way in (PLAIN, printed):
        open_wire({"ANTHROPIC_API_KEY": "k"}, 5, way).close()
        with open_api(environ={}, interrupts=Interrupts(), idle_timeout_s=5, way=way, for_models_only=True):
            pass
"""
"""Opens the wire of an agent's gateway, for a key in a variable and one that is printed: the requests are its own."""


def test_what_has_no_session_of_relays_own_does_not_load_the_sdk(planned, environ, git):
    """It takes a second or two, and 80 MB. `relay status`: test_shape.py."""
    with serve(parse_script(CLOUD_SCRIPT)) as server:
        own = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "k", "RELAY_SANDBOX": "off"}
        argv = [sys.executable, "-P", "-c", GATEWAY + COMMANDS, git("rev-parse", "HEAD")]
        done = subprocess.run(argv, cwd=planned, env={**environ, **own}, check=True, capture_output=True, text=True)
        assert {request.path.partition("?")[0] for request in server.requests} == {"/v1/models/claude-opus-5-5"}
    assert "a merge is in progress" in done.stderr
    told = (line.split(":") for line in done.stdout.splitlines() if line.startswith("imported:"))
    found = {words: set(names.split()) for _, words, names in told}
    assert [words for words, names in found.items() if "anthropic" in names] == []
    assert found["run --dry-run"] == set()
    assert "relay.runners.messages.api" in found["run"], "it was refused before it got so far"
    assert "httpx2" in found["gateway"] & found["doctor"]
