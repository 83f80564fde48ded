"""What each kind of session may write, in the real sandbox: nothing, unless it says so."""

import subprocess

import pytest

from relay.base.interrupts import Interrupts
from relay.config import Settings
from relay.git.repository import open_repo
from relay.session.values import SessionKind
from relay.setup.context import RunRequest
from relay.setup.rules import Rules
from relay.setup.workspace import open_workspace
from relay.tools.toolbox import build_reader_tools
from tests.effort import NIGHTLY

WRITERS = {SessionKind.RUN, SessionKind.REWIND}


@pytest.mark.parametrize("kind", SessionKind if NIGHTLY else (SessionKind.RUN, SessionKind.PLAN))
def test_commands_of_a_kind_write_only_where_it_says_so(tmp_path, kind):
    """A kind that is new here, and claims nothing, is shown the repository and its own temporary directory."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    request = RunRequest(
        kind=kind, repo=open_repo(tmp_path), settings=Settings(), plan_path="PLAN.md",
        environ={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    interrupts = Interrupts()
    with open_workspace(request, Rules(), interrupts) as workspace:
        ended = workspace.sandbox.run(["bash", "-c", "date > $TMPDIR/own && date > pwned"], limits=workspace.limits)
        if kind in WRITERS:  # then it is not taken for one that only looks
            with pytest.raises(ValueError, match="only read"):
                build_reader_tools(workspace)
        else:
            assert b"Read-only file system" in ended.output
            assert build_reader_tools(workspace).specs
    interrupts.close()

    assert (tmp_path / "pwned").exists() == (kind in WRITERS)
