"""What tools keep for all projects: read by commands, and never written for good."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from relay.sandbox.policy import Level
from relay.sandbox.private_folder import PrivateDir
from relay.sandbox.toolchains import find_stores, list_kept, list_usable, load_tools
from relay.sandbox.view import _works, look_around, open_layers, plan_view

TRICKS = (
    "echo evil > $STORE/file",
    "echo evil >> $STORE/deep/file",
    "rm -rf $STORE/deep",
    "mv $STORE/deep $STORE/moved",
    "ln $STORE/file linked; echo evil > linked",
    "ln -s $STORE/file away; echo evil > away",
    "chmod 777 $STORE/file",
    "cp $STORE/file $STORE/new; ln -f $STORE/new $STORE/file",
)


def read_all(folder: Path) -> dict[str, tuple[str, int]]:
    files = sorted(folder.rglob("*"))
    return {str(p.relative_to(folder)): (p.read_text() if p.is_file() else "", p.stat().st_mode) for p in files}


@pytest.fixture
def cache(place):
    """The cache of uv, which that has to write even for what it has."""
    cache = place.home / ".cache/uv"
    (cache / "deep").mkdir(parents=True)
    (cache / "file").write_text("good")
    (cache / "deep/file").write_text("good")
    return cache


@pytest.mark.parametrize("level", [Level.READ_ONLY, Level.WORKSPACE_WRITE])
def test_no_command_leaves_anything_in_a_cache(place, cache, level):
    """Neither by name nor by a link of either kind."""
    before = read_all(cache)
    with place.open(level) as box:
        box.sh("\n".join(f"({trick.replace('$STORE', str(cache))})" for trick in TRICKS))
    assert read_all(cache) == before


@pytest.mark.usefixtures("cache")
def test_a_tool_reads_its_cache_and_writes_over_it_until_its_command_ends(place):
    """Each command has a layer of its own; what makes layers is tried once."""
    _works.cache_clear()
    with place.open(Level.WORKSPACE_WRITE) as box:
        said = box.sh("cat $UV_CACHE_DIR/file && echo new > $UV_CACHE_DIR/deep/file && cat $UV_CACHE_DIR/deep/file")
        again = box.sh("cat $UV_CACHE_DIR/deep/file; ls $UV_CACHE_DIR")

    assert (said.exit_code, said.output) == (0, b"goodnew\n")
    assert again.output == b"gooddeep\nfile\n"
    with place.open(Level.WORKSPACE_WRITE) as box:
        assert box.sh("echo new > $UV_CACHE_DIR/new && cat $UV_CACHE_DIR/file").output == b"good"
    assert _works.cache_info().misses == 1


def test_a_cache_may_have_a_blank_in_its_name(place):
    """The table of mounts is divided by blanks."""
    cache = place.home / "my tools/uv\tcache"
    cache.mkdir(parents=True)
    env = {**place.policy.env, "UV_CACHE_DIR": str(cache)}
    with replace(place, policy=replace(place.policy, env=env)).open(Level.WORKSPACE_WRITE) as box:
        said = box.sh('echo new > "$UV_CACHE_DIR/file" && cat "$UV_CACHE_DIR/file"')
    assert (said.exit_code, said.output, list(cache.iterdir())) == (0, b"new\n", [])


def test_without_layers_a_tool_that_has_to_write_gets_no_cache_that_it_cannot(place, cache):
    """It would end with an error; with an empty cache of its own it can say what it misses."""
    assert list_usable(place.home, {})["UV_CACHE_DIR"] == str(cache)
    (place.home / ".cache/pre-commit").mkdir(parents=True)  # whose tool only reads it
    assert [*list_usable(place.home, {}, writable=())] == ["PRE_COMMIT_HOME"]
    assert open_layers(Path("/bin/false"), (cache,), place.outside / "layers").caches == ()
    assert open_layers(Path("/nowhere"), (cache,), place.outside / "layers").caches == ()


def test_a_cache_is_where_the_user_has_it(place):
    """A tool's own variable first, then the directory that all of them share."""
    env = {"UV_CACHE_DIR": "/fast/uv", "XDG_CACHE_HOME": "/big", "DENO_DIR": "relative"}
    found = {store.variable: where for store, where in find_stores(place.home, env)}
    assert found["UV_CACHE_DIR"] == Path("/fast/uv")
    assert found["PRE_COMMIT_HOME"] == Path("/big/pre-commit")
    assert found["DENO_DIR"] == Path("/big/deno")
    assert found["npm_config_cache"] == place.home / ".npm"
    assert all(kept.is_relative_to(place.home) for kept in list_kept(place.home, {"CARGO_HOME": "relative"}))
    assert Path("/big/cargo/bin") in list_kept(place.home, {"CARGO_HOME": "/big/cargo"})


def test_the_environment_of_a_program_on_the_path_is_shown(place):
    """Without it the program starts and finds none of its modules."""
    envs = place.home / "envs/x"
    (envs / "bin").mkdir(parents=True)
    (envs / "lib").mkdir()
    (envs / "pyvenv.cfg").write_text("")
    (envs / "lib/module").write_text("here")
    env = {**place.policy.env, "PATH": f"{envs}/bin:/usr/bin:/bin"}
    with replace(place, policy=replace(place.policy, env=env)).open(Level.WORKSPACE_WRITE) as box:
        assert box.sh(f"cat {envs}/lib/module; ls {place.home}/envs").output == b"herex\n"


def test_the_table_is_the_same_for_readers():
    """Every tool of the code has its line in the page, with each place and variable."""
    page = Path(__file__).parents[2] / "docs/reference/toolchains.md"
    lines = {line.split("|")[1].strip(): line for line in page.read_text().splitlines() if line.count("|") > 2}
    for tool in load_tools():
        words = [f"~/{name}" for name in tool.kept] + [f"~/{s.place}" for s in tool.stores]
        words += (
            [s.variable for s in tool.stores if s.variable]
            + [f"{k}={v}" for k, v in tool.offline.items()]
            + [*tool.hosts]
        )
        missing = [word for word in words if f"`{word}`" not in lines.get(tool.name, "")]
        assert not missing, (tool.name, missing)


def test_no_host_is_found_without_a_network_and_nothing_tries_again(place):
    """EAI_AGAIN, which a resolver out of reach gives, has package managers wait for minutes."""
    script = """
import socket
try: socket.getaddrinfo("example.invalid", 80)
except OSError as error: print(error.errno == socket.EAI_NONAME)
"""
    with place.open(Level.WORKSPACE_WRITE) as box:
        assert box.python(script).output == b"True\n"
        assert box.python("import socket; print(socket.gethostbyname('localhost'))").output == b"127.0.0.1\n"


@pytest.mark.usefixtures("cache")
def test_a_bubblewrap_that_makes_layers_itself_is_left_to(place, tmp_path):
    """From 0.11 on no process more, and no mount but the one over the cache."""
    new = tmp_path / "bwrap"
    new.write_text('#!/bin/sh\n[ "$1" != --help ] || echo "--size --tmp-overlay DEST"\n')
    new.chmod(0o755)
    private = PrivateDir()
    view = plan_view(place.policy, Level.WORKSPACE_WRITE, private, new, look_around(place.policy))
    private.close()
    over = str(place.home / ".cache/uv")
    mounts = [mount.render(sized=True) for mount in view.fixed if str(mount.dest) == over]
    assert mounts == [("--overlay-src", over, "--tmp-overlay", over)]
    sources = {mount.source for mount in view.fixed}
    assert view.layers.wrap(new, ("bwrap", "--", "true"), sources) == ("bwrap", "--", "true")


def test_the_table_of_tools_says_nothing_that_relay_does_not_read():
    """A wrong name or kind in it would be a variable that no tool gets, or a path that no command sees."""
    tools = load_tools()
    assert len({tool.name for tool in tools}) == len(tools) >= 20
    for tool in tools:
        texts = (*tool.kept, *tool.hosts, *tool.offline, *tool.offline.values(), tool.asks)
        assert all(isinstance(text, str) for text in texts), tool.name
        assert all(place and not place.startswith(("/", "~")) and ".." not in place for place in tool.kept), tool.name
        assert all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in tool.offline), tool.name
        assert all(re.fullmatch(r"[a-z0-9.-]+\.[a-z]+", host) for host in tool.hosts), tool.name
        assert bool(tool.hosts) == bool(tool.asks), tool.name
        re.compile(tool.asks)
        for store in tool.stores:
            assert isinstance(store.written, bool), tool.name
            assert store.place.startswith("."), tool.name
            assert re.fullmatch(r"\w*", store.variable), tool.name
