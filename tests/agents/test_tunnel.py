"""An agent with the user's login: what it tells is all that is known, and everything says so."""

from dataclasses import replace
from typing import Any

import pytest

from relay.base.errors import ConfigError, ExitCode, RunnerError
from relay.config import Settings
from relay.config.agents import AgentSettings
from relay.runners.agents.acp import read_fill, read_usage
from relay.runners.agents.profiles import PROFILES, adapt_profile
from relay.runners.agents.runner import ReportedAccount
from relay.runners.registry import make_kind
from relay.session.events import HostAsked, Noticed, ResponseReceived, SessionEnded
from relay.session.usage import Usage
from tests.agents.conftest import make_profile
from tests.agents.test_account import MODEL, make_spec
from tests.agents.test_session import HELLO, count_usage, play, sum_usage

NOTHING = "sessions: [{turns: [{text: nobody asks this server}]}]"


@pytest.fixture
def tunnel(agent, tmp_path):
    """Runs a command on the fake agent with a login."""
    (tmp_path / "home/.fake").mkdir(parents=True)
    (tmp_path / "home/.fake/login.json").write_text("the login")

    def enter(*lies, login="tunnel", script=NOTHING, **flags):
        own = AgentSettings(login=login, credentials=("FAKE_TOKEN", ".fake/login.json"), hosts=("vendor.invalid",))
        profile = adapt_profile("fake", own, {"fake": make_profile(*lies)})
        return agent("run", script, kind=make_kind(profile, Settings()), **flags)

    return enter


def test_a_phase_ends_in_a_commit_that_says_who_counted(stage, tunnel):
    with tunnel("abroad") as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    message = stage.git("log", "-1", "--format=%B")
    assert "Relay-Agent: fake 9.9\nRelay-Metering: agent\n" in message
    assert "Relay-Usage: input=30 output=20 cache_read=1000 cache_write=200" in message
    assert "Relay-Cost: ~" in message
    [session] = stage.seen(SessionEnded)
    assert session.estimated
    assert [request for request in stage.server.requests if request.usage] == []
    [said] = [notice.text for notice in stage.seen(Noticed) if "login" in notice.text]
    assert "reaches vendor.invalid and nothing else" in said
    assert "no cap holds before a request" in said
    check_reach(stage)


def check_reach(stage):
    """Its login goes with it, and it reaches its vendor only."""
    seen = (stage.root / "abroad.txt").read_text().splitlines()
    assert seen[1] == "the login"
    assert "elsewhere.example.org: Tunnel connection failed: 403" in seen[2]
    assert "vendor.invalid: Tunnel connection failed: 502" in seen[3]  # let through; there is no such host
    told = {asked.host: asked.refused for asked in stage.seen(HostAsked)}
    assert told["elsewhere.example.org"] == "`hosts` in agents.fake does not name it"
    assert told["vendor.invalid"].startswith("there is no such host")


@pytest.mark.nightly
def test_at_the_hard_line_it_is_ended_with_its_work_kept(stage, tunnel):
    with tunnel("big", "patient", reset_at="21000", max_sessions=1) as ctx:
        play(ctx)

    session = stage.seen(SessionEnded)[0]
    assert (session.end, session.result, session.estimated) == ("hard_line", "handoff", True)
    assert session.usage.prompt_tokens == 90_000
    assert (stage.root / "hello.txt").read_text() == "hello\n"


@pytest.mark.nightly
def test_a_cap_is_looked_at_after_what_it_told(stage, tunnel):
    with tunnel("patient", max_cost_usd=0.01) as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.STOPPED
    assert [session.end for session in stage.seen(SessionEnded)] == ["budget"]


def test_without_a_login_nothing_is_started(tunnel, tmp_path):
    (tmp_path / "home/.fake/login.json").unlink()
    with pytest.raises(RunnerError, match="no login of Fake") as raised, tunnel():
        pass
    assert "log in with Fake itself" in str(raised.value.hint)


@pytest.mark.nightly
def test_a_login_through_the_gateway_is_counted_to_the_token(stage, tunnel):
    """It is the agent's own, and no key of relay's goes with it."""
    with tunnel(login="gateway", script=HELLO) as ctx:
        ended = play(ctx)

    assert ended.exit_code == ExitCode.DONE, ended
    assert "Relay-Metering: gateway\n" in stage.git("log", "-1", "--format=%B")
    assert sum_usage(stage.seen(SessionEnded)[0].usage) == count_usage(stage)
    asked = [request.headers for request in stage.server.requests if request.usage]
    assert ["authorization" in headers for headers in asked] == [False, False, False]
    assert all("x-api-key" in headers for headers in asked)
    assert any("whose terms may not allow that" in notice.text for notice in stage.seen(Noticed))


def test_no_login_goes_where_there_is_no_sandbox(tunnel):
    with pytest.raises(ConfigError, match="starts no agent without its sandbox"), tunnel(sandbox="off"):
        pass


def test_a_profile_in_a_tunnel_has_nothing_that_leads_to_the_gateway():
    made = adapt_profile("mine", AgentSettings(like="claude", login="tunnel"), PROFILES)
    assert made.tunnelled
    assert "ANTHROPIC_BASE_URL" not in dict(made.env)
    assert "ANTHROPIC_API_KEY" not in dict(made.env)
    assert dict(made.env)["ANTHROPIC_MODEL"] == "{model}"
    assert made.hosts == PROFILES["claude"].hosts
    with pytest.raises(ValueError, match="hosts is missing"):
        adapt_profile("x", AgentSettings(login="tunnel", credentials=("X",)), {"x": replace(made, hosts=())})


def test_a_turn_counts_as_told_else_by_its_fill_and_is_always_marked():
    """Each prompt holds the one before it, which comes from the cache; one that tells nothing is known by nothing."""
    told: list[Any] = []
    account = ReportedAccount(make_spec(), MODEL, told.append)
    for fills, usage in (
        ((20_000, 20_000, 22_000), None),
        ((9_000,), Usage(input_tokens=30, output_tokens=20)),
        ((), None),
    ):
        account.begin()
        assert [account.take_fill(fill) for fill in fills] == [True, False, True][: len(fills)]
        account.end(usage)
    found = [event for event in told if isinstance(event, ResponseReceived)]
    guessed = Usage(input_tokens=22_000, cache_read_tokens=20_000)
    assert [event.usage for event in found] == [guessed, Usage(input_tokens=30, output_tokens=20), Usage()]
    assert all(event.estimated for event in found)


def test_what_it_tells_is_read_or_passed_over():
    told = {"inputTokens": 1, "outputTokens": 2, "cachedReadTokens": 3}
    assert read_usage({"usage": told}) == Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3)
    odds: list[Any] = [{"inputTokens": -1}, {"inputTokens": "1"}, {}, [1], None]
    assert [usage for usage in odds if read_usage({"usage": usage}) is not None] == []
    updates: list[Any] = [{"sessionUpdate": "usage_update", "used": used} for used in (None, "1", -1, True, [1])]
    updates += [{"sessionUpdate": "plan", "used": 1}, 1]
    assert [update for update in updates if read_fill({"update": update}) is not None] == []
    assert read_fill({"update": {"sessionUpdate": "usage_update", "used": 7}}) == 7
