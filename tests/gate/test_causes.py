"""A command that fails in the sandbox names what it did not get; relay says what of it is on this machine."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from relay.gate.model import CommandCheck, Outcome
from relay.gate.run import explain, run_gate
from relay.sandbox.policy import Level, Limits, Mechanism, Policy
from relay.sandbox.run import open_sandbox
from relay.sandbox.visibility import Restrictions, find_restrictions


@pytest.fixture
def machine(tmp_path):
    """A home with a repository in it; of the home commands see the repository only."""
    home = tmp_path / "home"
    root = home / "project"
    (home / "data").mkdir(parents=True)
    (home / "data/big.csv").write_text("1\n")
    (root / "src").mkdir(parents=True)
    return home, root


@pytest.fixture(name="explain")
def explain_here(machine):
    home, root = machine

    def find(output, *, status=Outcome.FAILED, **restrictions):
        known = {
            "root": root,
            "home": home,
            "network": False,
            "dropped": frozenset({"DATABASE_URL", "GIT_DIR", "PWD"}),
            "refused": frozenset({"GIT_DIR"}),
            "is_covered": lambda place: place.is_relative_to(home) and not place.is_relative_to(root),
            "path": "",
        }
        check = CommandCheck(command="make test", exit_code=1, status=status, duration_s=0, output_tail=output)
        return explain(check, output, Restrictions(**{**known, **restrictions}), 60).causes

    return find


def test_a_path_that_is_there_and_hidden(explain, machine):
    home, _ = machine
    for shown in (f"{home}/data/big.csv", "~/data/big.csv", "../data/big.csv"):
        (words,) = explain(f"FileNotFoundError: [Errno 2] No such file or directory: '{shown}'")
        assert words.startswith(f"hidden from commands: {home}/data/big.csv on this machine; paths.write in ")
    assert explain("cat: /no/such/file: No such file or directory\nFile src/a.py line 3") == ()


def test_a_link_in_the_repository_that_leads_to_what_is_hidden(explain, machine):
    home, root = machine
    (root / "data").symlink_to(home / "data")
    assert explain(f"cannot open {root}/data")[0].startswith(f"hidden from commands: {home}/data ")


def test_what_is_in_the_machine_s_tmp_is_hidden_unless_a_command_has_made_it():
    """Commands have a directory of relay's own there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place, tempfile.NamedTemporaryFile(dir="/tmp") as data:
        root = Path(place).resolve() / "project"
        root.mkdir()
        policy = Policy(root=root, env={"HOME": place, "PATH": os.environ["PATH"]})
        with open_sandbox(policy, Level.WORKSPACE_WRITE) as sandbox:
            found = find_restrictions(sandbox)
            assert found
            assert found.find_hidden(data.name) == data.name
            if sandbox.tmp != Path("/tmp"):
                pytest.skip("this relay lies below /tmp: the directory of commands is beside it, and /tmp their own")
            sandbox.run(["touch", data.name], limits=Limits(timeout_s=20))
            assert found.find_hidden(data.name) == ""


def test_variables_by_their_names_only(explain, machine):
    (given,) = explain("KeyError: 'DATABASE_URL' (and PWD)")
    assert given.startswith('DATABASE_URL: set here and not given to commands; env = ["DATABASE_URL"] in ')
    assert "never given" in explain("fatal: GIT_DIR is odd")[0]
    (machine[1] / ".env").write_text("# x\nexport API_URL=http://hunter2\nB=1\n")
    (masked,) = explain("KeyError: 'API_URL'")
    assert masked.startswith("API_URL: set in .env, which is hidden")
    assert "hunter2" not in masked
    assert explain("cat: .env: Permission denied")[0].startswith(".env may hold secrets and is hidden from commands")


def test_the_network_and_services_of_this_machine(explain):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for said in (f"connect ECONNREFUSED 127.0.0.1:{port}", f"curl: (7) Failed to connect to localhost port {port}"):
            assert explain(said)[0].startswith(f"a service of this machine listens on port {port}")
        assert explain(said, network=True) == ()
    assert explain("connect ECONNREFUSED 127.0.0.1:1") == ()
    (words,) = explain("curl: (6) Could not resolve host: example.org")
    assert words.startswith("commands have no network (`Could not resolve`)")
    assert explain("curl: (6) Could not resolve host: example.org", network=True) == ()


UNREACHED = (
    ("ERROR: No version that satisfies setuptools>=77.0 (from versions: none)", '["pypi.org", "files.python'),
    ("Because x was not found in the cache, and network connectivity is disabled", '["pypi.org", "files.python'),
    ("npm error code ENOTCACHED", '["registry.npmjs.org"]'),
    ("npm error request to https://x failed: cache mode is 'only-if-cached'", '["registry.npmjs.org"]'),
    (" ERR_PNPM_NO_OFFLINE_TARBALL  A package is missing from the store", '["registry.npmjs.org"]'),
    ("YN0080: blocked: Network access have been disabled by configuration", '["registry.yarnpkg.com", "'),
    ("error: attempting to make an HTTP request, but --offline was specified", '["index.crates.io", "'),
    ("go: module lookup disabled by GOPROXY=off", '["proxy.golang.org", "'),
    ("Cannot access central in offline mode and the artifact a:b has not been", '["repo.maven.apache.org"]'),
    ("ERROR: No matching distribution found for requests", '["pypi.org", "files.python'),
    ("error: the crate `serde` could not be found in registry index.", '["index.crates.io", "'),
    ("error: npm:left-pad was not found.", '["registry.npmjs.org"]'),
    ("error: DNSResolveFailed downloading package manifest left-pad", '["registry.npmjs.org"]'),
    ("Error: ERR_PNPM_PACKAGE_MANAGER_ADD_RESOLVE_LATEST", '["registry.npmjs.org"]'),
    ("All attempts to connect to example.org failed.", '["…"]'),
)


def test_package_managers_that_were_told_that_there_is_no_network(explain):
    """In their words, none of which says that relay told them so."""
    for said, hosts in UNREACHED:
        (words,) = explain(said)
        assert words.startswith("commands have no network ("), said
        assert f"network.hosts = {hosts}" in words, said


def test_a_variable_that_relay_sets(explain):
    """A test of colours that wants it not to be there."""
    (words,) = explain('({"NO_COLOR": "1"}, False) AssertionError')
    assert words == "NO_COLOR=1: set by relay for commands; `env -u NO_COLOR COMMAND` runs one without"


def test_a_socket_of_this_machine(explain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the longest name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("docker.sock")
        place = tmp_path / "docker.sock"
        said = f"Cannot connect to the Docker daemon at unix://{place}. Is it running?"
        (words,) = explain(said)
    assert words.startswith(f"{place} is a Unix socket of this machine, and closed to commands; network.sockets = [")


def test_what_is_only_read(explain, machine):
    _, root = machine
    (words,) = explain("OSError: [Errno 30] Read-only file system: '/usr/lib/cache'")
    assert words.startswith("only read by commands: /usr/lib/cache; paths.write")
    assert explain(f"Read-only file system: '{root}/.git/x'")[0].startswith("git's directory, the plan")


def test_a_program_elsewhere(explain, machine):
    home, root = machine
    for place in (home / "tools/tool", root / "node_modules/.bin/jest"):
        place.parent.mkdir(parents=True)
        place.write_text("#!/bin/sh\n")
        place.chmod(0o755)

    def lack(name):
        words = f"bash: line 1: {name}: command not found"
        return explain(words, status=Outcome.MISSING, path=str(home / "tools"))

    assert "tools/tool is on this machine and hidden" in lack("tool")[0]
    assert lack("jest")[0].startswith("node_modules/.bin/jest is there and not on PATH")
    assert lack("nowhere") == ()


def test_time_tracing_and_nothing_at_all(explain):
    assert "gate_timeout_s" in explain("", status=Outcome.TIMED_OUT)[0]
    assert "ptrace" in explain("strace: ptrace(PTRACE_TRACEME): Operation not permitted")[0]
    assert explain("AssertionError: 1 != 2") == ()
    assert explain("DATABASE_URL", status=Outcome.PASSED) == ()


def test_a_hostile_output_is_looked_at_in_bounds(explain):
    assert len(explain("/a " * 300_000 + "A_B " * 100_000)) <= 5


def test_a_gate_in_the_real_sandbox_says_it(tmp_path):
    """The whole way: what is hidden, dropped and out of reach, as the commands themselves met it."""
    home = tmp_path / "home"
    root = home / "project"
    root.mkdir(parents=True)
    (home / "data").mkdir()
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "DATABASE_URL": "postgres://hunter2"}
    policy = Policy(root=root.resolve(), env=env)
    with open_sandbox(policy, Level.WORKSPACE_WRITE) as sandbox:
        result = run_gate(
            [f"ls {home}/data", "echo ${DATABASE_URL:?}", "true && test -d ."],
            sandbox=sandbox,
            limits=Limits(timeout_s=60),
            should_stop=lambda: False,
            root=root,
        )
        assert find_restrictions(sandbox) is not None
    hidden, dropped, green = (check.causes for check in result.commands)
    assert hidden[0].startswith(f"hidden from commands: {home}/data on this machine")
    assert dropped[0].startswith("DATABASE_URL: set here and not given")
    assert green == ()
    with open_sandbox(policy, Level.READ_ONLY, mechanism=Mechanism.OFF) as sandbox:
        assert find_restrictions(sandbox) is None
