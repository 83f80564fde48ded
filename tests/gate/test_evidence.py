"""What a gate leaves in $RELAY_EVIDENCE is kept by digest, whatever a test puts there."""

import hashlib
from pathlib import Path

from relay.gate.evidence import FOLDER, MAX_BYTES, MAX_FILES, keep_evidence, name_kept, open_evidence
from relay.gate.model import EvidenceFile


def keep(tmp_path: Path, left: Path, *handed: str) -> tuple[EvidenceFile, ...]:
    (tmp_path / "repo").mkdir(exist_ok=True)
    return keep_evidence(tmp_path / "repo", tmp_path / "repo/.relay/outputs", left, handed)


def test_files_are_kept_by_digest_each_once(tmp_path: Path) -> None:
    left = open_evidence(tmp_path)
    assert left
    (left / "a.png").write_bytes(b"picture")
    (left / "deep").mkdir()
    (left / "deep/b.png").write_bytes(b"picture")
    (left / "no suffix\x1b[2J").write_bytes(b"")
    digest = hashlib.sha256(b"picture").hexdigest()

    found = keep(tmp_path, left)

    assert [(one.name, one.size_bytes) for one in found] == [("a.png", 7), ("no suffix?[2J", 0), ("deep/b.png", 7)]
    assert found[0].sha256 == found[2].sha256 == digest
    kept = tmp_path / "repo/.relay/outputs" / FOLDER
    assert (kept / name_kept("a.png", digest)).read_bytes() == b"picture"
    assert len(list(kept.iterdir())) == 2


def test_links_large_files_secrets_and_crowds_are_not_kept(tmp_path: Path) -> None:
    left = open_evidence(tmp_path)
    assert left
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
        EvidenceFile(name="a.log", size_bytes=28, sha256=""),
        EvidenceFile(name="b.bin", size_bytes=1 << 40, sha256=""),
    )
    assert {one.name for one in found[2:]} == {f"c{number:02}" for number in range(MAX_FILES - 2)}
    assert MAX_BYTES < 1 << 40


def test_a_directory_that_is_gone_or_a_link_leaves_nothing(tmp_path: Path) -> None:
    assert open_evidence(tmp_path / "missing") is None
    assert keep(tmp_path, tmp_path / "missing") == ()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    assert keep(tmp_path, tmp_path / "link") == ()
