"""What developers really run works in the sandbox."""

import json
import os
import sys
from typing import Any

import pytest

from relay.sandbox.policy import Level
from tests.effort import take_each

PROGRAM = """
import asyncio, http.server, json, multiprocessing, os, socket, subprocess, sys, tempfile, threading, urllib.request
from multiprocessing import shared_memory
from pathlib import Path

def double(n): return 2 * n

def pool():
    with multiprocessing.Pool(2) as workers: return workers.map(double, range(4)) == [0, 2, 4, 6]

def manager():
    with multiprocessing.Manager() as made:
        box = made.dict(); box['a'] = 1; return dict(box) == {'a': 1}

def memory():
    block = shared_memory.SharedMemory(create=True, size=64); block.buf[0] = 7
    ok = block.buf[0] == 7; block.close(); block.unlink(); return ok

def loop():
    async def main():
        process = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)
        return (await process.communicate())[0] == b'hi\\n'
    return asyncio.run(main())

def server():
    made = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    with urllib.request.urlopen('http://localhost:%d/' % made.server_port) as answer: return answer.status == 200

def unix():
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as one:
        one.bind(folder + '/s'); one.listen()
        with socket.socket(socket.AF_UNIX) as two: two.connect(folder + '/s'); return True

def read_git():
    for command in ('status --porcelain', 'log -1 --format=%s', 'diff', 'show HEAD', 'blame PLAN.md'):
        subprocess.run(['git', *command.split()], check=True, capture_output=True)
    return subprocess.run(['git', 'commit', '--allow-empty', '-m', 'x'], capture_output=True).returncode != 0

def git_fixture():
    with tempfile.TemporaryDirectory() as folder:
        for args in (['init', '-q'], ['commit', '-q', '--allow-empty', '-m', 'x'], ['log', '--oneline']):
            subprocess.run(['git', *args], check=True, cwd=folder)
    return True

def no_way_out():
    for family, address in ((socket.AF_INET, ('1.1.1.1', 53)), (socket.AF_INET, ('127.0.0.1', 22))):
        with socket.socket(family) as out:
            try: out.connect(address)
            except OSError: continue
            return False
    try: socket.getaddrinfo('example.com', 443)
    except OSError: return True

def home():
    (Path.home() / '.cache').mkdir(exist_ok=True); (Path.home() / '.cache' / 'x').write_text('x'); return True

if __name__ == '__main__':
    multiprocessing.set_start_method(sys.argv[1])
    said = {}
    for act in (pool, manager, memory, loop, server, unix, read_git, git_fixture, no_way_out, home):
        try: said[act.__name__] = act()
        except Exception as error: said[act.__name__] = repr(error)
    print(json.dumps(said))
"""


@pytest.mark.parametrize("method", take_each(2, ["spawn", "fork"]))
def test_ordinary_programs_run(place: Any, writer: Any, method: str) -> None:
    """Processes, shared memory, servers on loopback, sockets, git for reading and git fixtures all work."""
    (place.root / "load.py").write_text(PROGRAM)
    result = writer.run(sys.executable, "load.py", method)
    assert result.exit_code == 0, result.output
    said = json.loads(result.output.splitlines()[-1])
    assert {name: value for name, value in said.items() if value is not True} == {}


def test_reader_can_work_on_a_copy(place: Any, reader: Any) -> None:
    """Read-only is about the repository: the private directory takes a copy and lives from command to command."""
    assert reader.sh("cp -r src $TMPDIR/copy && echo 'VALUE = 3' > $TMPDIR/copy/app.py").exit_code == 0
    assert reader.sh("cat $TMPDIR/copy/app.py").output == b"VALUE = 3\n"
    assert (place.root / "src" / "app.py").read_text() == "VALUE = 1\n"


def test_home_is_new_for_every_command(writer: Any) -> None:
    """A startup file planted in the home directory does not reach the next command."""
    assert writer.sh("echo evil > ~/.bashrc; ls -A ~/.bashrc").exit_code == 0
    assert writer.sh("ls -A ~/.bashrc").exit_code != 0


def test_foreign_owner_does_not_stop_git(place: Any, writer: Any) -> None:
    """A repository is read by git although it belongs to somebody else."""
    if os.geteuid() != 0:
        pytest.skip("only uid 0 can give a directory away")
    os.chown(place.root, 12345, 12345)
    os.chown(place.root / ".git", 12345, 12345)
    result = writer.sh("git log --oneline")
    assert result.exit_code == 0, result.output


def test_configured_cache_is_writable(place: Any) -> None:
    """A directory that the user configured can be written, at workspace-write only."""
    cache = place.home / "cache"
    cache.mkdir()
    for level, wanted in ((Level.WORKSPACE_WRITE, True), (Level.READ_ONLY, False)):
        with place.open(level, writable=(cache,)) as box:
            box.sh(f"echo x > {cache}/{level}")
        assert (cache / level).exists() == wanted


def test_what_is_hidden_in_a_configured_cache_cannot_be_renamed_into_view(place: Any) -> None:
    cache = place.home / "cache"
    (cache / "deep/er").mkdir(parents=True)
    (cache / "deep/er/token").write_text("cache-secret\n")
    with place.open(Level.WORKSPACE_WRITE, writable=(cache,), unreadable=(cache / "deep/er/token",)) as box:
        result = box.sh(
            f"cd {cache}; cat deep/er/token; mv deep d2; cat d2/er/token; mv deep/er e2; cat e2/token; true"
        )
    assert b"cache-secret" not in result.output
    assert (cache / "deep/er/token").read_text() == "cache-secret\n"


def test_repository_that_is_the_home_directory(place: Any) -> None:
    """With dotfiles as the repository the credentials beside them stay hidden, also after a rename."""
    place.git("init", "-q", cwd=place.home)
    (place.home / ".config" / "gh").mkdir(parents=True)
    (place.home / ".config" / "gh" / "hosts.yml").write_text("gh-secret")
    changes = {"root": place.home, "git_dirs": (place.home / ".git",), "protected": ()}
    with place.open(Level.WORKSPACE_WRITE, **changes) as box:
        output = box.sh(
            "cat .ssh/* .netrc .aws/*; mv .config c; cat c/gh/hosts.yml .config/gh/hosts.yml; touch new"
        ).output
        assert b"secret" not in output
        assert b"secret" not in box.sh("cat .config/gh/* c/gh/*; mv .ssh s; cat s/*").output
    assert (place.home / "new").exists()
    assert (place.home / ".ssh" / "id_ed25519").read_text() == "ssh-secret\n"


def test_worktree_with_its_git_directory_elsewhere(place: Any) -> None:
    """In a linked work tree git reads through both git directories, and neither can be written."""
    tree = place.home / "tree"
    place.git("worktree", "add", "-q", str(tree))
    git_dirs = (place.root / ".git" / "worktrees" / "tree", place.root / ".git")
    with place.open(Level.WORKSPACE_WRITE, root=tree, git_dirs=git_dirs, protected=()) as box:
        assert box.sh("git log --oneline && touch new").exit_code == 0
        script = f"echo x > {git_dirs[0]}/x; echo x > {git_dirs[1]}/x; echo x > .git; rm -f .git; "
        script += "git commit --allow-empty -m x"
        assert box.sh(script).exit_code != 0
    assert not (git_dirs[0] / "x").exists()
    assert not (git_dirs[1] / "x").exists()
    assert (tree / ".git").read_text().startswith("gitdir:")


def test_private_directory_goes_with_the_sandbox(place: Any) -> None:
    """Closing removes it, whatever modes a command left behind."""
    with place.open(Level.WORKSPACE_WRITE) as box:
        path = box.sandbox.private.path
        assert path.stat().st_mode & 0o777 == 0o700
        box.sh(
            "mkdir -p $TMPDIR/a/b && touch $TMPDIR/a/b/c && ln -s /etc $TMPDIR/a/etc && chmod 0 $TMPDIR/a/b $TMPDIR/a"
        )
    assert not path.exists()
