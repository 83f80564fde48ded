"""What a gate leaves in $RELAY_EVIDENCE is kept by digest, whatever a test puts there."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from relay.base.errors import SandboxError
from relay.gate.evidence import (
    FOLDER,
    MAX_BYTES,
    MAX_FILES,
    keep_evidence,
    name_kept,
    open_evidence,
    read_evidence,
)
from relay.session.events import LeftFile


def keep(tmp_path: Path, left: Path, *handed: str) -> tuple[LeftFile, ...]:
    (tmp_path / "repo").mkdir(exist_ok=True)
    return keep_evidence(tmp_path / "repo", left, handed)


def test_files_are_kept_by_digest_each_once(tmp_path: Path) -> None:
    left = open_evidence(tmp_path)
    (left / "a.png").write_bytes(b"picture")
    (left / "deep").mkdir()
    (left / "deep/b.png").write_bytes(b"picture")
    (left / "no suffix\x1b[2J").write_bytes(b"")
    digest = hashlib.sha256(b"picture").hexdigest()

    found = keep(tmp_path, left)

    assert [(one["name"], one["size_bytes"]) for one in found] == [
        ("a.png", 7),
        ("no suffix?[2J", 0),
        ("deep/b.png", 7),
    ]
    assert found[0]["sha256"] == found[2]["sha256"] == digest
    kept = tmp_path / "repo/.relay/outputs" / FOLDER
    assert (kept / name_kept("a.png", digest)).read_bytes() == b"picture"
    assert len(list(kept.iterdir())) == 2


def test_links_large_files_secrets_and_crowds_are_not_kept(tmp_path: Path) -> None:
    left = open_evidence(tmp_path)
    (tmp_path / "secret").write_text("key")
    (left / "link").symlink_to(tmp_path / "secret")
    (left / "folder").symlink_to(tmp_path)
    (left / "a.log").write_text("the token is hunter2-hunter2")
    with (left / "b.bin").open("wb") as stream:
        stream.truncate(1 << 40)
    for number in range(MAX_FILES):
        (left / f"c{number:02}").write_text("x")

    found = keep(tmp_path, left, "hunter2-hunter2")

    assert len(found) == MAX_FILES
    assert found[:2] == (
        LeftFile(name="a.log", size_bytes=28, sha256="", why="a value of env_file is in it"),
        LeftFile(name="b.bin", size_bytes=1 << 40, sha256="", why="larger than 1.0 MB"),
    )
    assert {one["name"] for one in found[2:]} == {f"c{number:02}" for number in range(MAX_FILES - 2)}
    assert MAX_BYTES < 1 << 40


def test_a_directory_that_is_gone_or_a_link_leaves_nothing(tmp_path: Path) -> None:
    assert keep(tmp_path, tmp_path / "missing") == ()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    assert keep(tmp_path, tmp_path / "link") == ()


def test_what_was_kept_is_read_again_until_somebody_changes_it(tmp_path: Path) -> None:
    left = open_evidence(tmp_path)
    (left / "a.txt").write_text("one")
    (left / "b").write_text("two")
    one, two = keep(tmp_path, left)
    kept = tmp_path / "repo/.relay/outputs" / FOLDER
    (kept / name_kept("b", two["sha256"])).write_text("other")

    assert read_evidence(tmp_path / "repo", one["name"], one["sha256"]) == b"one"
    assert read_evidence(tmp_path / "repo", two["name"], two["sha256"]) is None
    assert read_evidence(tmp_path / "repo", "c.log", one["sha256"]) is None
    (kept / name_kept("a.txt", one["sha256"])).unlink()
    (kept / name_kept("a.txt", one["sha256"])).symlink_to(kept / "b")
    assert read_evidence(tmp_path / "repo", one["name"], one["sha256"]) is None


def test_a_directory_that_the_disk_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no place for what a gate leaves: No such file or directory"):
        open_evidence(tmp_path / "missing")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a small file system")
def test_what_a_full_disk_refuses_is_said_file_by_file(tmp_path: Path) -> None:
    """A small file that still fits is kept; with no room for the folder either, each file says why."""
    left = open_evidence(tmp_path)
    (left / "a.png").write_bytes(b"x" * 300_000)
    (left / "b.txt").write_text("small")
    repo = tmp_path / "repo"
    repo.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k,nr_inodes=7", "tmpfs", str(repo)], check=True)
    try:
        lost, kept = keep(tmp_path, left)
        assert (lost["sha256"], lost["why"]) == ("", "the disk refuses it: No space left on device")
        assert (kept["sha256"] != "", kept["why"]) == (True, "")
        assert [file.name for file in (repo / ".relay/outputs" / FOLDER).iterdir()] == [
            name_kept("b.txt", kept["sha256"])
        ]
        shutil.rmtree(repo / ".relay")
        for number in range(6):
            (repo / str(number)).touch()
        assert {one["why"] for one in keep(tmp_path, left)} == {"the disk refuses it: No space left on device"}
    finally:
        subprocess.run(["umount", str(repo)], check=True)
