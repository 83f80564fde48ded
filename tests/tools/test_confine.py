"""File tools stay inside the repository and off what relay alone writes, whatever the path says."""

import os
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.base.secrecy import is_covered
from relay.base.walk import WalkError, locate
from relay.session.values import ToolCall

PARTS = [
    *("src", "a.py", "..", ".", "", "new", "PLAN.md", "plan.md", "Plan.MD", "PLAN.ledger.yaml", "AGENTS.md"),
    *("agents.MD", ".git", ".GIT", ".g\u200cit", "config", "hooks", "pre-commit", ".relay", ".Relay", "outputs"),
    *("relay.toml", ".env", "link_out", "link_abs", "link_in", "link_plan", "link_git", "link_up", "loop", "fifo"),
    *("socket", "hard.txt", "secret.txt", "outside", "CLAUDE.md", ".claude", "settings.json", "x" * 300, "a b", "-n"),
    *("~", "nested"),
]
PREFIXES = ["", "/", "./", "~/", "ROOT/", "OUTSIDE/", "/proc/self/root/", "/proc/self/cwd/", "/dev/fd/", "ROOT/../"]

paths = st.builds(
    lambda prefix, parts: prefix + "/".join(parts),
    st.sampled_from(PREFIXES),
    st.lists(st.sampled_from(PARTS) | st.text(max_size=4), max_size=6),
)


def build_tree(base: Path) -> tuple[Path, Path]:
    root, outside = base / "repo", base / "outside"
    for folder in (root / "src", root / ".git/hooks", root / ".relay/sessions", root / "nested/.git", outside):
        folder.mkdir(parents=True)
    (root / ".claude").mkdir()
    for name in ("PLAN.md", "PLAN.ledger.yaml", "AGENTS.md", ".git/config", ".relay/sessions/s.jsonl", "relay.toml"):
        (root / name).write_text(f"GUARDED secret {name}\n")
    (root / "nested/.git/config").write_text("GUARDED secret nested\n")
    (root / ".env").write_text("GUARDED secret TOP-SECRET\n")
    (root / "src/a.py").write_text("secret = 1\n")
    (outside / "secret.txt").write_text("TOP-SECRET\n")
    (outside / "shared.txt").write_text("secret shared\n")
    os.link(outside / "shared.txt", root / "hard.txt")
    for name, target in {
        "link_out": "../outside",
        "link_abs": str(outside / "secret.txt"),
        "link_in": "src",
        "link_plan": "PLAN.md",
        "link_git": ".git",
        "link_up": "..",
        "loop": "loop",
        "src/link_out": "../../outside/secret.txt",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server, suppress(OSError):  # a long temporary path does not fit a socket
        server.bind(str(root / "socket"))
    return root, outside


def picture(root: Path, outside: Path) -> dict[str, bytes]:
    guarded = ("PLAN.md", "PLAN.ledger.yaml", "AGENTS.md", "relay.toml", ".env")
    trees = (outside, root / ".git", root / ".relay", root / "nested/.git", root / ".claude")
    files = [root / name for name in guarded] + [path for tree in trees for path in tree.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files if path != root / ".relay/outputs/.gitignore"}


@given(path=paths, tool=st.sampled_from(["write", "edit", "read"]))
def test_no_path_reaches_outside_or_a_guarded_file(make_tools, path, tool):
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder).resolve()
        root, outside = build_tree(base)
        before = picture(root, outside)
        names = {path.name for path in base.iterdir()}
        raw = path.replace("ROOT", str(root)).replace("OUTSIDE", str(outside))
        given_input = {"path": raw} | {
            "write": {"content": "EVIL\n"},
            "edit": {"old": "secret", "new": "EVIL"},
            "read": {},
        }[tool]
        result = make_tools(root).run(ToolCall(id="1", name=tool, input=given_input))
        assert picture(root, outside) == before
        assert {path.name for path in base.iterdir()} == names
        assert "TOP-SECRET" not in result.text
        if tool == "read":
            assert ".git" not in raw.casefold() or result.is_error or "GUARDED" not in result.text
        for changed in result.changed_paths or ():
            assert (root / changed).resolve().is_relative_to(root)
            assert b"EVIL" in (root / changed).read_bytes()


def test_writing_is_refused_in_words(tmp_path, make_tools):
    root, outside = build_tree(tmp_path.resolve())
    before = picture(root, outside)
    for path, words in (
        ("../outside/secret.txt", "leads out of the repository"),
        ("src/../../outside/secret.txt", "leads out of the repository"),
        ("/etc/passwd", "outside the repository"),
        ("link_out/secret.txt", "symbolic link"),
        ("PLAN.md", "Use tick"),
        ("pLaN.md", "Use tick"),
        ("nested/AGENTS.md", "Use tick"),
        ("nested/claude.md", "Use tick"),
        (".git/hooks/pre-commit", "relay makes the commits"),
        ("nested/.git/config", "relay makes the commits"),
        (".relay/x", "not a session's"),
        ("relay.toml", "not a session's"),
        ("fifo", "device, pipe or socket"),
        ("src", "is a directory"),
        ("", "not a file name"),
        ("src/a.py/b", "not a directory"),
        ("bad\nname", "not a file name"),
        ("nul\0", "NUL"),
        ("src/", "directory"),
        (".env", "secrets"),
        ("loop", "symbolic link"),
        ("x" * 300, "File name too long"),
    ):
        result = make_tools(root).run(ToolCall(id="1", name="write", input={"path": path, "content": "x"}))
        assert (result.is_error, words in result.text) == (True, True), path
    assert picture(root, outside) == before


def test_reading_is_refused_in_words(tmp_path, make_tools):
    root, _ = build_tree(tmp_path.resolve())
    for path, words in (
        ("link_out/secret.txt", "leads out of the repository"),
        ("link_abs", "symbolic link out of the repository"),
        ("loop", "too many symbolic links"),
        ("fifo", "device, pipe or socket"),
        (".git/config", "with git in bash"),
        ("link_git/config", "with git in bash"),
        (".relay/sessions/s.jsonl", "relay's own"),
        (".env", "secrets"),
        ("src", "ls in bash shows it"),
        ("src/b.py", "Near it: src/a.py"),
    ):
        result = make_tools(root).run(ToolCall(id="1", name="read", input={"path": path}))
        assert (result.is_error, words in result.text) == (True, True), path


def test_reading_follows_links_that_stay_inside(tmp_path, make_tools):
    root, _ = build_tree(tmp_path.resolve())
    (root / "src/absolute").symlink_to(root / "src/a.py")
    for path in ("link_in/a.py", "src/a.py", "./src//a.py", "src/../src/a.py", "link_in/../src/a.py", "src/absolute"):
        for raw in (path, f"{root}/{path}"):
            result = make_tools(root).run(ToolCall(id="1", name="read", input={"path": raw}))
            assert result.text == "secret = 1", raw


def test_a_directory_swapped_for_a_link_while_tools_run_never_leads_outside(tmp_path, make_tools):
    """The window between check and use: another process exchanges a directory and a link out as fast as it can."""
    root, outside = build_tree(tmp_path.resolve())
    (root / "swap").mkdir()
    (root / "swap" / "secret.txt").write_text("inside\n")
    (root / "away").symlink_to("../outside")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            with suppress(OSError):
                (root / "swap").rename(root / "third")
                (root / "away").rename(root / "swap")
                (root / "third").rename(root / "away")

    thread = threading.Thread(target=swap)
    thread.start()
    tools = make_tools(root)
    seen = set()
    try:
        for number in range(400):
            tools.run(ToolCall(id="1", name="write", input={"path": "swap/secret.txt", "content": f"EVIL {number}\n"}))
            seen.add(tools.run(ToolCall(id="2", name="read", input={"path": "swap/secret.txt"})).text[:4])
    finally:
        stop.set()
        thread.join()
    assert (outside / "secret.txt").read_text() == "TOP-SECRET\n"
    assert sorted(path.name for path in outside.iterdir()) == ["secret.txt", "shared.txt"]
    assert "TOP-" not in seen


def test_no_descriptor_is_left_open(tmp_path, make_tools):
    root, _ = build_tree(tmp_path.resolve())
    tools = make_tools(root)
    before = len(list(Path("/dev/fd").iterdir()))
    for path in ("src/a.py", "fifo", "../x", "link_out/secret.txt", "none/at/all", "loop", "link_in/a.py", ""):
        for name, more in (("read", {}), ("edit", {"old": "1", "new": "2"}), ("write", {"content": "1\n"})):
            tools.run(ToolCall(id="1", name=name, input={"path": path} | more))
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_patterns_cover_what_lies_below_and_with_stars_any_depth():
    assert is_covered("docs/PLAN.md", ("docs/PLAN.md",))
    assert is_covered("docs/plan.MD/below", ("docs/PLAN.md",))
    assert not is_covered("PLAN.md", ("docs/PLAN.md",))
    assert not is_covered("docs/PLAN.md.bak", ("docs/PLAN.md",))
    assert is_covered("a/b/.git/c", ("**/.git",))
    assert not is_covered("a/.github/c", ("**/.git",))
    assert not is_covered("", ("**/.git", "a"))


def test_dots_cannot_step_back_from_a_directory_that_does_not_exist(tmp_path):
    with pytest.raises(WalkError, match="no such directory"), locate(tmp_path.resolve(), "no/../x", follow=True):
        pass
