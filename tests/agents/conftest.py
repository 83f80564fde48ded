"""An agent of this folder's own, installed as users install theirs."""

import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from relay.config import Settings
from relay.runners.agents.profiles import Profile
from relay.runners.base import RunnerKind
from relay.runners.registry import make_kind
from relay.session.values import SessionKind
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve


@dataclass
class FakeRunner:
    """What `Stage.enter` wants to have."""

    kind: RunnerKind


def make_profile(*lies: str, name: str = "fake") -> Profile:
    """Return the profile of the agent that lies so."""
    env = {"FAKE_BASE": "{base}", "FAKE_MODEL": "{model}", "FAKE_LIES": " ".join(lies)}
    return Profile(
        name=name, title="Fake", package="nothing", program="fake-agent", tested="9.9", env=env,
        files={".fake/settings.json": '{"model": "{model}"}'},
    )  # fmt: skip


@pytest.fixture
def kinds():
    """Makes runners of the fake agent, under these names."""
    return lambda *names: {name: make_kind(make_profile(name=name), Settings()) for name in names}


@pytest.fixture
def programs(tmp_path):
    """Return the directory where the fake agent is installed."""
    place = tmp_path / "programs"
    place.mkdir()
    program = place / "fake-agent"
    program.write_text(f"#!{sys.executable} -IS\n{Path(__file__).with_name('fake_agent.py').read_text()}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return place


@pytest.fixture
def agent(stage, tmp_path, programs):
    """Runs a command on the fake agent against a script, with the lies that it is given."""

    def enter(command, script, *lies, kind=None, runner=None, more=MappingProxyType({}), **flags):
        from contextlib import contextmanager

        @contextmanager
        def opened():
            with serve(parse_script(script)) as stage.server:
                environ = {
                    "PATH": f"{programs}:/usr/bin:/bin",
                    "HOME": str(tmp_path / "home"),
                    "ANTHROPIC_API_KEY": "sk-the-real-key-of-the-user",
                    "ANTHROPIC_BASE_URL": stage.server.base_url,
                }
                fake = None if runner else FakeRunner(kind=kind or make_kind(make_profile(*lies), Settings()))
                settings = flags if runner else {"runner": "fake", **flags}
                with stage.enter(SessionKind(command), flags=settings, environ=environ, runner=fake, more=more) as ctx:
                    yield ctx

        return opened()

    (tmp_path / "home").mkdir()
    return enter
