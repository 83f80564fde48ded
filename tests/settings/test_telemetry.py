"""The event log: what is written, what is read back, and hostile places."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.insight.telemetry.log import OUTPUT_AGE_S, OUTPUTS, open_log, sweep
from relay.session.events import Noticed, RequestStarted, TextShown, ToolStarted
from tests.logs import read_events

NOW = 1_800_000_000.0


def clock() -> float:
    return NOW


def write(root: Path, *texts: str, run_id: str = "s1") -> Path:
    with open_log(root, run_id, clock=clock) as log:
        for text in texts:
            assert log.append(TextShown(text=text)) is None
        return log.path


def read_texts(path: Path) -> list[str]:
    log = read_events(path)
    assert log
    return [entry.event.text for entry in log.records if isinstance(entry.event, TextShown)]


def test_events_come_back_in_order_with_their_time(tmp_path: Path) -> None:
    with open_log(tmp_path, "s1", clock=clock) as log:
        log.append(TextShown(text="a\nb\u2028c"))
        log.append(RequestStarted(turn=2))
        log.append(Noticed(text="\x1b[2J"))
    assert log.path == tmp_path / ".relay" / "sessions" / "s1.jsonl"
    back = read_events(log.path)
    assert back
    assert [entry.at for entry in back.records] == [NOW] * 3
    assert [type(entry.event) for entry in back.records] == [TextShown, RequestStarted, Noticed]
    assert back.skipped_lines == 0


def test_every_event_is_on_disk_before_the_next_one(tmp_path: Path) -> None:
    with open_log(tmp_path, "s1", clock=clock) as log:
        log.append(TextShown(text="one"))
        assert read_texts(log.path) == ["one"]
        log.append(TextShown(text="two"))
        assert read_texts(log.path) == ["one", "two"]


UNDECODED = st.integers(0xDC80, 0xDCFF).map(chr)  # what os.fsdecode makes of a byte that is no UTF-8


@given(st.lists(st.text(st.characters(codec="utf-8") | UNDECODED)))
def test_any_text_survives_also_undecodable_bytes(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = write(tmp_path_factory.mktemp("repo"), *texts)
    assert read_texts(path) == texts
    path.read_bytes().decode("utf-8")


def make_outputs(root: Path) -> Path:
    """Make the directory as the spilling of long output does."""
    outputs = root / ".relay" / "outputs"
    outputs.mkdir(parents=True, exist_ok=True)
    return outputs


def test_an_ignore_file_that_a_crash_left_empty_is_filled_and_another_is_left_alone(tmp_path: Path) -> None:
    ignore = tmp_path / ".relay" / ".gitignore"
    ignore.parent.mkdir()
    ignore.touch()
    write(tmp_path, "x")
    assert ignore.read_text() == "*\n"
    ignore.write_text("*\n!keep\n")
    write(tmp_path, "y")
    assert ignore.read_text() == "*\n!keep\n"


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_torn_last_line_costs_only_itself(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path, "one", "two")
    os.truncate(path, path.stat().st_size - cut)
    torn = read_events(path)
    assert torn
    whole = 2 if cut == 1 else 1  # only the newline was lost
    assert (len(torn.records), torn.skipped_lines) == (whole, 2 - whole)
    write(tmp_path, "three")
    assert read_texts(path)[-1] == "three"
    assert len(read_texts(path)) == whole + 1


def test_other_versions_garbage_and_traps_are_counted_and_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, "one")
    with path.open("ab") as stream:
        stream.write(b'{"v":999,"at":1,"event":"TextShown"}\n\n\xff\xfe\n' + b"[" * 100_000 + b"\n")
    write(tmp_path, "two")
    log = read_events(path)
    assert log
    assert (read_texts(path), log.skipped_lines) == (["one", "two"], 3)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("none", "pipe", "link", "."):
        assert read_events(tmp_path / name) is None


@pytest.mark.parametrize("planted", [".relay", ".relay/sessions", ".relay/.gitignore", ".relay/sessions/s1.jsonl"])
def test_a_planted_link_is_not_followed_and_told_once(tmp_path: Path, planted: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "repo"
    place = root / planted
    place.parent.mkdir(parents=True)
    target = outside if place.suffix == "" and place.name != ".gitignore" else outside / "file"
    place.symlink_to(target)
    with open_log(root, "s1", clock=clock) as log:
        notice = log.append(TextShown(text="x"))
        assert notice
        assert notice.warning
        assert notice.text.startswith(f"this run leaves no log in {log.path}: ")
        assert log.append(TextShown(text="y")) is None
    assert list(outside.iterdir()) == []


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from relay.session.events import TextShown
from relay.insight.telemetry.log import open_log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = open_log(Path(sys.argv[1]), "s1", clock=lambda: 1.0)
assert log.append(TextShown(text="fits")) is None
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
notices = [log.append(TextShown(text="x" * 50)) for _ in range(9)]
print(*[n.text for n in notices if n], sep="\\n")
"""


def test_a_full_disk_in_mid_run_is_told_once_and_kills_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    path = tmp_path / ".relay" / "sessions" / "s1.jsonl"
    assert done.stdout.splitlines() == [f"this run leaves no log in {path}: File too large"]
    assert read_texts(path)[0] == "fits"


def sweep_week(root: Path, *, now_s: float) -> int:
    return sweep(root, OUTPUTS, now_s=now_s, max_age_s=OUTPUT_AGE_S)


def test_only_old_plain_output_is_swept(tmp_path: Path) -> None:
    outputs = make_outputs(tmp_path)
    kept = tmp_path / "kept.txt"
    kept.touch()
    (outputs / "sub").mkdir()
    for name in ("old", "sub/old", "new"):
        (outputs / name).touch()
    (outputs / "link").symlink_to(kept)
    (outputs / "dirlink").symlink_to(tmp_path)
    for name in ("old", "sub/old", "link"):
        os.utime(outputs / name, (NOW, NOW), follow_symlinks=False)
    os.utime(kept, (NOW, NOW))
    os.utime(outputs / "new", (NOW + 60, NOW + 60))
    week_s = 7 * 86_400
    assert sweep_week(tmp_path, now_s=NOW + week_s) == 0
    assert sweep_week(tmp_path, now_s=NOW + week_s + 1) == 2
    assert sorted(path.name for path in outputs.iterdir()) == ["dirlink", "link", "new", "sub"]
    assert kept.exists()


def test_a_linked_outputs_directory_is_not_swept(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / ".relay").mkdir()
    (tmp_path / ".relay" / "outputs").symlink_to(tmp_path / "precious")
    assert sweep_week(tmp_path, now_s=NOW * 2) == 0
    assert (tmp_path / "precious" / "file").exists()


def test_no_secret_is_written(tmp_path: Path) -> None:
    """What a model says and what a command is called with may hold one, by its form or from relay's environment."""
    by_form, from_environ = "ghp_" + "aB3dE6gH9j" * 4, "s3cret-of-the-user"
    with open_log(tmp_path, "s1", clock=clock, secret_values=(from_environ,)) as log:
        log.append(TextShown(text=f"the key is {by_form}"))
        log.append(ToolStarted(call_id="c", name="bash", summary=f"curl -H 'Key: {from_environ}' {by_form}"))
    written = log.path.read_text()
    assert by_form not in written
    assert from_environ not in written
    assert [type(text) for text in read_texts(log.path)] == [str]
    assert written.count("[redacted]") == 3
