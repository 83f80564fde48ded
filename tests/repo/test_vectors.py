"""What a repository's config and files can make git execute: nothing, in anything that relay does.

Each vector is planted with a marker script. A control shows for the vectors that a plain git runs that the marker
works at all.
"""

import contextlib

import pytest

from relay.base.errors import RepoError
from relay.git.identity import check_signing, find_identity
from relay.git.message import Message
from relay.git.objects import diff_trees, read_blob
from relay.git.status import check_state, read_status
from relay.session.usage import Spent
from relay.store.attempts import AttemptStart, close_attempt, open_attempt, read_attempt
from relay.store.checkpoints import WipRecord, plan_restoration, run_restoration, save_wip
from relay.store.commit import CommitRequest, commit_paths
from relay.store.completion import finish_commit
from relay.store.fingerprint import take_fingerprint
from relay.store.history import read_relay_commits
from relay.store.snapshot import write_snapshot_tree
from tests.effort import NIGHTLY, take_each

HOOKS = (
    "pre-commit",
    "commit-msg",
    "post-commit",
    "post-index-change",
    "reference-transaction",
    "post-checkout",
    "pre-auto-gc",
)


def plant_fsmonitor(box, marker):
    box.git("config", "core.fsmonitor", marker)


def plant_fsmonitor_by_include(box, marker):
    box.write("relay.inc", f"[core]\n\tfsmonitor = {marker}\n")
    box.git("config", "include.path", "../relay.inc")


def plant_hooks(box, marker):
    for name in HOOKS:
        box.write(f".git/hooks/{name}", f"#!/bin/sh\nexec {marker}\n").chmod(0o755)


def plant_hooks_path(box, marker):
    box.git("config", "core.hooksPath", "hooks")
    for name in HOOKS:
        box.write(f"hooks/{name}", f"#!/bin/sh\nexec {marker}\n").chmod(0o755)


def plant_configured_hooks(box, marker):
    for name in HOOKS:
        box.git("config", f"hook.{name}-x.event", name)
        box.git("config", f"hook.{name}-x.command", marker)


def plant_filter(key):
    def plant(box, marker):
        box.write(".gitattributes", "*.py filter=evil\n")
        box.git("config", f"filter.evil.{key}", marker)
        box.git("config", "filter.evil.required", "true")

    plant.__name__ = f"filter_{key}"
    return plant


def plant_odd_filter(box, marker):
    box.write(".gitattributes", "*.py filter=a=b\n")
    box.git("config", "filter.a=b.clean", marker)


def plant_filter_by_include(box, marker):
    box.write(".gitattributes", "*.py filter=evil\n")
    box.write("relay.inc", f'[filter "evil"]\n\tclean = {marker}\n\tsmudge = {marker}\n')
    box.git("config", "include.path", "../relay.inc")


def plant_filter_in_the_user_s_config_from_the_work_tree(box, marker):
    box.write(".gitattributes", "*.py filter=evil\n")
    box.write("clean.sh", f"#!/bin/sh\n{marker}\ncat\n").chmod(0o755)
    box.git("config", "--global", "filter.evil.clean", "./clean.sh")


def plant_diff(box, marker):
    box.write(".gitattributes", "*.py diff=evil\n")
    box.git("config", "diff.external", marker)
    box.git("config", "diff.evil.textconv", marker)
    box.git("config", "diff.evil.command", marker)


def plant_signing(box, marker):
    for key in (
        "gpg.program",
        "gpg.openpgp.program",
        "gpg.ssh.program",
        "gpg.ssh.defaultKeyCommand",
        "gpg.x509.program",
    ):
        box.git("config", key, marker)
    box.git("config", "commit.gpgSign", "true")
    box.git("config", "log.showSignature", "true")


def plant_ssh_signing(box, marker):
    plant_signing(box, marker)
    box.git("config", "gpg.format", "ssh")


def plant_trailers(box, marker):
    box.git("config", "trailer.relay.key", "Relay-Plan: ")
    box.git("config", "trailer.relay.cmd", marker)
    box.git("config", "trailer.relay.command", marker)


PROGRAMS = (
    "core.editor", "core.pager", "pager.log", "pager.status", "sequence.editor", "core.sshCommand", "core.askPass",
    "credential.helper", "alias.status", "alias.log", "alias.commit-tree", "core.gitProxy",
    "uploadpack.packObjectsHook",
)  # fmt: skip


def plant_programs(box, marker):
    for key in PROGRAMS:
        box.git("config", key, f"!{marker}" if key.startswith("alias") else marker)


def plant_lazy_fetch(box, marker):
    """A partial clone whose missing objects come from a program."""
    box.git("config", "core.repositoryFormatVersion", "1")
    box.git("config", "extensions.partialClone", "origin")
    box.git("config", "remote.origin.promisor", "true")
    box.git("config", "remote.origin.url", f"ext::{marker}")
    box.git("config", "protocol.ext.allow", "always")


@pytest.fixture
def marker(tmp_path):
    script = tmp_path / "marker"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/executed\nexit 1\n")
    script.chmod(0o755)
    return script


def work_through_everything(box):
    """Call all that relay does in a repository, on files whose times make git look inside."""
    repo = box.open()
    check_state(repo)
    find_identity(repo)
    read_status(repo)
    take_fingerprint(repo)
    attempt = open_attempt(repo, AttemptStart(session_id="s", phase_id="1", plan_path="PLAN.md"))
    box.write("src/app.py", "print(3)\n")
    box.write("src/new.py", "new\n")
    found = write_snapshot_tree(repo)
    attempt = save_wip(repo, attempt, WipRecord(spend=Spent()))
    assert read_attempt(repo) == attempt
    diff_trees(repo, attempt.base_tree, found.tree)
    wanted = write_snapshot_tree(repo, replace={"x": b""})
    run_restoration(repo, plan_restoration(repo, found=found, wanted=wanted), repo.head())
    read_blob(repo, "HEAD", "src/app.py")
    check_signing(repo)
    message = Message(subject="x", trailers=(("Relay-Plan", "PLAN.md"),))
    request = CommitRequest(
        branch="main",
        head=repo.head(),
        message=message,
        paths=("src/app.py", "src/new.py"),
        replace={"PLAN.md": b"x\n"},
    )
    with contextlib.suppress(RepoError):  # a driver or signing program of the repository: refused, not run
        outcome = commit_paths(repo, request)
        finish_commit(repo, str(outcome.commit), {"PLAN.md": None})
        assert len(read_relay_commits(repo, "PLAN.md")) == 1
    close_attempt(repo, attempt)


TOGETHER = [
    (plant_fsmonitor, plant_hooks, plant_diff, plant_trailers, plant_programs),
    (plant_fsmonitor_by_include, plant_configured_hooks, plant_filter("clean"), plant_ssh_signing),
    (plant_hooks_path, plant_filter("process"), plant_signing),
    (plant_filter("smudge"),),
    (plant_odd_filter,),
    (plant_filter_by_include, plant_lazy_fetch),
    (plant_filter_in_the_user_s_config_from_the_work_tree,),
]
"""By day; each alone in the night."""


@pytest.mark.parametrize("plants", [(plant,) for group in TOGETHER for plant in group] if NIGHTLY else TOGETHER)
def test_nothing_is_executed(box, marker, tmp_path, plants):
    for plant in plants:
        plant(box, marker)
    work_through_everything(box)
    assert not (tmp_path / "executed").exists()
    box.git("config", "--unset-all", "extensions.partialClone", check=False)


CONTROLS = [
    plant_fsmonitor, plant_fsmonitor_by_include, plant_hooks, plant_filter("clean"), plant_odd_filter,
    plant_filter_by_include, plant_filter_in_the_user_s_config_from_the_work_tree,
]  # fmt: skip


@pytest.mark.parametrize("plant", take_each(3, CONTROLS))
def test_control_a_plain_git_executes_it(box, marker, tmp_path, plant):
    plant(box, marker)
    box.write("src/app.py", "print(3)\n")
    box.git("add", "src/app.py", check=False)
    box.git("status", check=False)
    assert (tmp_path / "executed").exists()


def test_a_missing_object_of_a_partial_clone_is_not_fetched(box, marker, tmp_path):
    plant_lazy_fetch(box, marker)
    repo = box.open()
    blob = box.text("rev-parse", "HEAD:src/app.py")
    file = box.root / ".git/objects" / blob[:2] / blob[2:]
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(RepoError):
        read_blob(repo, "HEAD", "src/app.py")
    assert not (tmp_path / "executed").exists()
    box.git("cat-file", "blob", blob, check=False)
    assert (tmp_path / "executed").exists()
    file.write_bytes(kept)
    box.git("config", "--unset-all", "extensions.partialClone")
