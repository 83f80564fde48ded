"""`relay doctor --gc` takes old snapshots of work that is committed, and nothing else."""

import json
import time

import pytest

DAY_S = 86_400


@pytest.fixture
def keep(git):
    """Put a commit under a ref of relay's, as old as that, with notes."""

    def put(ref, days, **notes):
        moment = f"{int(time.time()) - days * DAY_S} +0000"
        message = f"snapshot\n\n{json.dumps(notes)}"
        tree = git("rev-parse", "HEAD^{tree}")
        dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        git("update-ref", ref, git("commit-tree", tree, "-m", message, **dates))

    return put


def list_refs(git):
    return set(git("for-each-ref", "--format=%(refname)", "refs/relay").split())


def test_only_what_is_committed_old_and_not_open_goes(relay, git, keep):
    git("commit", "-q", "--allow-empty", "-m", "One\n\nRelay-Plan: PLAN.md\nRelay-Session: aaaa1111")
    git("switch", "-q", "-c", "other%/x")
    git("commit", "-q", "--allow-empty", "-m", "Two\n\nRelay-Plan: PLAN.md\nRelay-Session: bbbb2222")
    git("switch", "-q", "main")
    keep("refs/relay/wip/main/000001", 40, session="aaaa1111")
    keep("refs/relay/wip/other%25%2Fx/000001", 31, session="bbbb2222")
    keep("refs/relay/wip/main/000002", 29, session="aaaa1111")
    keep("refs/relay/wip/main/000003", 400, session="cccc3333")
    keep("refs/relay/wip/main/000004", 400, phase="1")
    keep("refs/relay/wip/main/000005", 400, session="aaaa1111")
    keep("refs/relay/leg/main", 400, wip="refs/relay/wip/main/000005", session="aaaa1111")
    for kind in ("rewound", "spent", "aside"):
        keep(f"refs/relay/{kind}/main/000001", 400, session="aaaa1111")
    before = list_refs(git)
    going = {"refs/relay/wip/main/000001", "refs/relay/wip/other%25%2Fx/000001"}

    ran = relay("doctor", "--gc")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "removed: the checkpoints of 2 sessions, older than 30 days",
        "kept: 1 of an open phase",
        "kept: 2 of work that no branch has a commit of",
        "kept: 1 younger than that",
    ]
    assert list_refs(git) == before - going
    assert "removed: the checkpoints of 1 session, older" in relay("doctor", "--gc", "0").out


def test_where_there_is_nothing_it_says_so(relay, tmp_path):
    assert relay("doctor", "--gc").out == "removed: the checkpoints of 0 sessions, older than 30 days\n"
    assert relay("doctor", "--gc", cwd=tmp_path).code == 1
