"""What is fetched from a remote and pushed to it, against a real bare repository."""

import pytest

from relay.git.command import GitError
from relay.git.remote import PushEnd, RefUpdate, Remote, RemoteError, Transfer

MINE = "refs/relay/claims/plan/phase/1"
OTHER = "refs/relay/claims/plan/account"


@pytest.fixture
def away(box, tmp_path):
    box.git("init", "-q", "--bare", str(tmp_path / "away.git"))
    box.git("remote", "add", "origin", str(tmp_path / "away.git"))
    return tmp_path / "away.git"


@pytest.fixture
def remote(box, away):
    return Remote(repo=box.open(), name=str(away), environ=box.environ)


def write_hook(away, words):
    hook = away / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{words}\n")
    hook.chmod(0o755)


def test_refs_are_changed_where_they_were_all_or_none(box, remote):
    first, second = box.text("rev-parse", "HEAD"), box.commit("second")
    made = remote.push(RefUpdate(ref=MINE, old=None, new=first), RefUpdate(ref=OTHER, old=None, new=first))
    stale = remote.push(RefUpdate(ref=MINE, old=first, new=second), RefUpdate(ref=OTHER, old=second, new=second))
    assert (made.end, stale.end) == (PushEnd.DONE, PushEnd.MOVED)
    assert remote.list_refs("refs/relay/*") == {MINE: first, OTHER: first}

    moved = remote.push(RefUpdate(ref=MINE, old=first, new=None), RefUpdate(ref=OTHER, old=first, new=second))
    assert moved.end is PushEnd.DONE
    assert remote.list_refs("refs/relay/*") == {OTHER: second}
    assert remote.push(RefUpdate(ref=OTHER, old=None, new=first)).end is PushEnd.MOVED


def test_a_branch_goes_forward_or_nowhere(box, remote):
    first, second = box.text("rev-parse", "HEAD"), box.commit("second")
    assert remote.push(RefUpdate(ref="refs/heads/main", old=None, new=second)).end is PushEnd.DONE
    with pytest.raises(GitError, match="would not go forward"):
        remote.push(RefUpdate(ref="refs/heads/main", old=second, new=first))
    with pytest.raises(GitError, match="would not go forward"):
        remote.push(RefUpdate(ref="refs/heads/main", old=second, new=None))
    assert remote.list_refs("refs/heads/main") == {"refs/heads/main": second}


def test_a_remote_that_does_not_want_it_is_quoted(box, remote, away):
    write_hook(away, "echo 'Checking: 50% (1/2)' >&2; echo only on Mondays >&2; exit 1")
    pushed = remote.push(RefUpdate(ref=MINE, old=None, new=box.text("rev-parse", "HEAD")))
    assert pushed.end is PushEnd.REFUSED
    assert pushed.words.startswith("only on Mondays")


def test_a_push_that_another_overtakes_on_the_way_is_no_refusal(box, remote, away):
    first, second = box.text("rev-parse", "HEAD"), box.commit("second")
    assert remote.push(*(RefUpdate(ref=ref, old=None, new=first) for ref in (MINE, OTHER))).end is PushEnd.DONE
    assert remote.push(RefUpdate(ref=OTHER, old=first, new=second)).end is PushEnd.DONE
    write_hook(away, f"echo {second} > {MINE}")
    assert remote.push(RefUpdate(ref=MINE, old=first, new=box.commit("third"))).end is PushEnd.MOVED


def test_a_connection_that_ends_early_leaves_the_remote_to_be_asked(box, remote, away):
    """Git moves the refs, and dies before it says so."""
    head = box.text("rev-parse", "HEAD")
    hook = away / "hooks/post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nkill -9 $PPID\n")
    hook.chmod(0o755)
    assert remote.push(RefUpdate(ref=MINE, old=None, new=head)).end is PushEnd.DONE
    hook.unlink()
    write_hook(away, "kill -9 $PPID")
    with pytest.raises(RemoteError):
        remote.push(RefUpdate(ref=OTHER, old=None, new=head))


def test_a_remote_that_is_not_there_says_what_to_try(box, away):
    with pytest.raises(RemoteError, match="does not appear to be a git repository") as found:
        Remote(repo=box.open(), name=str(away) + "x", environ=box.environ).list_refs()
    assert "git remote -v" in str(found.value.hint)


def test_an_address_that_is_a_command_is_none(box, tmp_path):
    for name in (f"ext::sh -c 'touch {tmp_path}/ran'", f"--upload-pack=touch {tmp_path}/ran", "fd::3", "-x"):
        remote = Remote(repo=box.open(), name=name, environ=box.environ)
        with pytest.raises(RemoteError):
            remote.list_refs()
        with pytest.raises(RemoteError):
            remote.push(RefUpdate(ref=MINE, old=None, new=box.text("rev-parse", "HEAD")))
        assert not (tmp_path / "ran").exists(), name


def test_a_transfer_that_comes_further_is_told_ever_less_often():
    clock = iter(range(100))
    told: list[str] = []
    shown: list[str] = []
    transfer = Transfer("git fetch x", told.append, shown.append, clock=lambda: float(next(clock)))
    said = b"remote: Counting objects: 100% (7/7), done.\r\n"
    moved = [transfer.look(b""), transfer.look(said), transfer.look(said)]
    assert moved == [False, True, False]
    for share in range(40):
        said += f"Receiving objects: {share:3}% ({share}/100), 1.25 MiB | 2.00 MiB/s\r".encode()
        assert transfer.look(said)
    assert told[0] == f"git fetch x: Counting objects {'█' * 20} 100% (7 of 7)"
    rest = f"{'█' * 6}{'░' * 14}  28% (28 of 100), 1.25 MiB | 2.00 MiB/s"
    assert told[-1] == f"git fetch x: Receiving objects {rest}"
    assert shown[-1].endswith("(39 of 100), 1.25 MiB | 2.00 MiB/s")
    assert len(told) == 5
    transfer.look(b"Receiving objects:  99% (9/9), \x1b[31m9 GiB\nsend money\n")
    assert "GiB" not in "".join((*told, *shown))
    assert "send" not in "".join((*told, *shown))


def test_a_remote_that_says_nothing_is_told_of_while_it_is_waited_for():
    """A limit ends it, ten minutes later: whoever looks at the screen meanwhile knows what it is that they wait for."""
    clock = iter([0.0, 29.0, 30.0, 31.0, 59.0, 60.0])
    told: list[str] = []
    transfer = Transfer("git push x", told.append, clock=lambda: next(clock))
    counts = [(transfer.look(b""), len(told)) for _ in range(5)]
    assert counts == [(False, 0), (False, 1), (False, 1), (False, 1), (False, 2)]
    assert told == ["git push x: no answer yet"] * 2
