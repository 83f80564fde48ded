"""A hermetic machine for every test: no user's git config, no key, no home directory of a person."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("relay", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("relay")

GIT_CONFIG = """\
[user]
    name = Test User
    email = test@example.invalid
[init]
    defaultBranch = main
[commit]
    gpgSign = false
"""


def pytest_configure(config: pytest.Config) -> None:
    """Point everything that reads the user's environment at an empty directory, before any test is collected."""
    home = Path(tempfile.mkdtemp(prefix="relay-tests-home-"))
    config.add_cleanup(lambda: _remove(home))
    (home / ".gitconfig").write_text(GIT_CONFIG)
    for name in list(os.environ):
        if name.startswith(("GIT_", "ANTHROPIC_", "RELAY_", "XDG_")):
            del os.environ[name]
    os.environ |= {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}


def _remove(home: Path) -> None:
    """Remove the home directory of this test process."""
    import shutil

    shutil.rmtree(home, ignore_errors=True)
