"""Nobody sits there: what a gate leaves behind, and what would like to ask a question."""

import os
import pty
import subprocess
import sys

import pytest

from relay.base.errors import ExitCode
from tests.effort import take_each
from tests.endpoint.script import parse_script
from tests.endpoint.server import serve
from tests.scripts import HELLO


@pytest.mark.parametrize("flags", take_each(2, [(), ("--sandbox", "off")]))
def test_no_editor_and_no_prompt_is_ever_waited_for(stage, tmp_path, flags):
    """With a terminal at hand: a hook that asks there gets no answer, and the editor of the configuration no file."""
    mark = tmp_path / "edited"
    stage.git("config", "core.editor", f"touch {mark}; sleep 1000")
    stage.git("config", "core.askPass", f"touch {mark}; sleep 1000")
    hook = stage.root / ".git/hooks/commit-msg"
    hook.write_text("#!/bin/sh\nif read -r answer </dev/tty; then exit 1; fi\nif read -r answer; then exit 1; fi\n")
    hook.chmod(0o755)
    ours, theirs = pty.openpty()
    with serve(parse_script(HELLO)) as server:
        env = {**os.environ, "PATH": "/usr/bin:/bin", "ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "k"}
        env |= {"GIT_EDITOR": f"touch {mark}; sleep 1000", "GIT_ASKPASS": str(mark), "SSH_ASKPASS": str(mark)}
        done = subprocess.run(
            ["setsid", "--ctty", "--wait", sys.executable, "-P", "-m", "relay", "run", "--phase", "1", *flags],
            cwd=stage.root, env=env, stdin=theirs, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    os.close(ours)
    os.close(theirs)

    assert (done.returncode, done.stderr, server.errors) == (ExitCode.DONE, "", [])
    assert stage.git("log", "-1", "--format=%s") == "Say hello\n"
    assert not mark.exists()
