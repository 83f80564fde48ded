"""Every command that reads a log, over one that relay did not write: it shows what it can, and never breaks."""

import pytest

from relay.base.errors import ExitCode
from relay.git.notes import lock_worktree
from relay.git.repository import open_repo
from tests.odd_lines import REAL, iter_odd_lines

COMMANDS = (
    "report --text odd", "report --json odd", "report odd", "report odd fine", "report --list", "lab tune", "watch odd",
    "watch odd --json", "status", "report --otel odd",
)  # fmt: skip


@pytest.mark.nightly
def test_an_odd_log_breaks_no_command(relay, project, environ):
    """The fine run beside it, in the same folder, is shown as ever; nothing of the odd one reaches the terminal raw."""
    folder = project / ".relay/sessions"
    folder.mkdir(parents=True)
    (folder / "fine.jsonl").write_bytes(REAL.read_bytes())
    fine = relay("report", "--text", "fine")
    (folder / "odd.jsonl").write_text("\n".join(iter_odd_lines()), encoding="utf-8")
    (project / "PLAN.md").write_text("# P\n\n## Phase 1 — A\n- [ ] 1.1 B\n\nVerify: `true`\n", encoding="utf-8")
    with lock_worktree(open_repo(project, environ)):
        ran = {words: relay(*words.split()) for words in COMMANDS}
    for words, done in ran.items():
        assert done.code != ExitCode.BUG, (words, done.err)
        assert "\x1b" not in done.out + done.err, words
    assert relay("report", "--text", "fine") == fine
    assert "unreadable lines of the log" in ran["report --text odd"].err
