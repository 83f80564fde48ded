"""A key that renews itself: fetched when it is needed, once more after a refusal, and never shown."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from relay.base.errors import ConfigError, RunnerError
from relay.base.interrupts import Interrupts
from relay.config import Settings, load_settings
from relay.runners.messages.answers import Answer
from relay.runners.messages.api import MessagesApi
from relay.runners.messages.connection import Fault, FaultKind
from relay.runners.messages.credentials import (
    Credential,
    CredentialError,
    KeyCommand,
    Proof,
    find_work_trees,
)
from relay.runners.messages.endpoint import Way
from relay.runners.registry import list_runners
from tests.runners.test_api import REQUEST, WHOLE
from tests.waiting import wait_until

ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/"}


@pytest.fixture
def interrupts():
    made = Interrupts(sleep=lambda _: None)
    yield made
    made.close()


def run(text: str, **given) -> KeyCommand:
    return KeyCommand(("sh", "-c", text), ENVIRON, **given)


def make_fetch(*values):
    """Return a function that hands out tokens in this order, each until another is wanted, and what it handed out."""
    left, handed = list(values), list[str]()

    def fetch(fresh):
        if fresh or not handed:
            handed.append(left.pop(0))
        return Proof(value=handed[-1], secrets=(handed[-1],))

    return fetch, handed


def open_api(interrupts, credential, handler):
    return MessagesApi(
        environ={"ANTHROPIC_BASE_URL": "http://endpoint.invalid"},
        interrupts=interrupts,
        idle_timeout_s=5,
        way=Way(credential=credential),
        transport=httpx2.MockTransport(handler),
    )


def refuse(*refused, status=401, seen=None):
    """Return an endpoint that refuses these tokens, and answers every other one."""

    def answer(request):
        token = request.headers["authorization"].removeprefix("Bearer ")
        if seen is not None:
            seen.append((token, request.read()))
        if token in refused:
            error = {"type": "authentication_error", "message": f"{token} is over"}
            return httpx2.Response(status, json={"type": "error", "error": error})
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=WHOLE)

    return answer


def send(api, **given):
    return api.send(REQUEST, on_block=lambda _: None, **given)


def test_a_key_that_is_over_is_asked_for_once_more_and_the_request_is_sent_again(interrupts):
    """Whole, and to the same model; the run hears nothing of it."""
    for status in (401, 403):
        fetch, asked = make_fetch("old-key-of-the-morning", "new-key-of-the-evening")
        seen: list[Any] = []
        handler = refuse("old-key-of-the-morning", status=status, seen=seen)
        api = open_api(interrupts, Credential("it", fetch, advice=""), handler)
        assert isinstance(send(api), Answer)
        assert [token for token, _ in seen] == ["old-key-of-the-morning", "new-key-of-the-evening"]
        assert seen[0][1] == seen[1][1]
        assert json.loads(seen[1][1])["model"] == REQUEST["model"]
        assert isinstance(send(api), Answer)
        assert len(asked) == 2, status


def test_the_same_key_again_is_not_sent_again(interrupts):
    fetch, asked = make_fetch("one-key-for-ever", "one-key-for-ever")
    seen: list[Any] = []
    api = open_api(interrupts, Credential("it", fetch, advice=""), refuse("one-key-for-ever", seen=seen))
    assert isinstance(send(api), Fault)
    assert (len(seen), len(asked)) == (1, 2)


def test_a_key_that_cannot_be_had_is_a_fault_and_sends_nothing(interrupts):
    for passes, kind in ((True, FaultKind.INFRA), (False, FaultKind.USER)):

        def fetch(_, passes=passes):
            raise CredentialError("the vault is locked", hint="unlock it", passes=passes)

        seen: list[Any] = []
        fault = send(open_api(interrupts, Credential("it", fetch, advice=""), refuse(seen=seen)))
        assert isinstance(fault, Fault)
        assert (fault.kind, fault.message, fault.may_be_billed) == (kind, "the vault is locked; unlock it", False)
        assert seen == []


def test_threads_that_are_refused_together_ask_once():
    """An agent sends several requests at a time."""
    fetch, asked = make_fetch("old", "new")
    credential = Credential("it", fetch, advice="")
    assert credential.use() == "old"
    threads = [threading.Thread(target=credential.renew, args=("old",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == ["old", "new"]


def test_a_command_prints_the_key_and_nothing_else_of_it_is_kept():
    assert run("printf '  a-key\\n'; echo noise >&2").fetch(fresh=False).value == "a-key"


NO_KEYS = {
    "echo locked out >&2; exit 3": "key_command (sh) ended with 3: locked out",
    "exit 1": "key_command (sh) ended with 1: it says nothing",
    "echo sk-ant-a-partial-key; echo got sk-ant-a-partial-key >&2; exit 1": "ended with 1: got [redacted]",
    "true": "key_command (sh) printed nothing",
    "echo two words": "key_command (sh) printed something that is no key: a key is one word",
    "printf 'a\\nb'": "key_command (sh) printed something that is no key: a key is one word",
    "printf '\\377'": "key_command (sh) printed something that is no key: a key is one word",
    "kill -9 $$": "key_command (sh) ended with -9: it says nothing",
}


def test_what_is_no_key_is_refused_without_showing_it():
    """Its complaint is shown in one short line."""
    for text, words in NO_KEYS.items():
        with pytest.raises(CredentialError) as raised:
            run(text).fetch(fresh=False)
        assert raised.value.message.endswith(words), text
        assert raised.value.hint == KeyCommand.advice
    with pytest.raises(CredentialError) as raised:
        run("yes complaint | head -c 3000000 >&2; exit 1").fetch(fresh=False)
    assert len(raised.value.message) < 400
    assert "\n" not in raised.value.message


def test_a_command_that_does_not_end_is_killed_with_all_that_it_started(tmp_path):
    """Also one that prints without an end: what is kept of it is bounded."""
    for text in (f"sleep 1000 & echo $! > {tmp_path}/pid; wait", "yes"):
        with pytest.raises(CredentialError, match=r"did not end in 0\.3 s and was killed"):
            run(text, limit_s=0.3).fetch(fresh=False)
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not _is_alive(pid))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nobody_waits_for_what_a_command_leaves_behind(tmp_path):
    """A password manager starts its own service, which keeps the pipe open."""
    assert run(f"sleep 1000 & echo $! > {tmp_path}/pid; echo the-key").fetch(fresh=False).value == "the-key"
    subprocess.run(["kill", (tmp_path / "pid").read_text().strip()], check=True)


def test_a_program_that_a_session_wrote_is_not_the_command(tmp_path):
    """Neither in this work tree nor in the one that it was made from: relay would run it unconfined."""
    (tmp_path / "bin").mkdir()
    planted = tmp_path / "bin/op"
    planted.write_text("#!/bin/sh\necho stolen\n")
    planted.chmod(0o755)
    (tmp_path / ".git/worktrees/job").mkdir(parents=True)
    job = tmp_path.parent / f"{tmp_path.name}-job"
    job.mkdir()
    (job / ".git").write_text(f"gitdir: {tmp_path}/.git/worktrees/job\n")
    environ = {"PATH": f":bin:{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    for words in (("op",), (str(planted),)):
        for here in (tmp_path, tmp_path / "bin", job):
            with pytest.raises(CredentialError, match="no such program on PATH outside of this repository"):
                KeyCommand(words, environ, find_work_trees(here)).fetch(fresh=False)
    assert KeyCommand(("op",), environ).fetch(fresh=False).value == "stolen"
    (job / "op").symlink_to("/bin/echo")  # behind the planted one on PATH, outside of the repository
    behind = {**environ, "PATH": f"{environ['PATH']}:{job}"}
    with pytest.raises(CredentialError, match="printed nothing"):
        KeyCommand(("op",), behind, find_work_trees(tmp_path)).fetch(fresh=False)


def test_a_command_that_cannot_be_one_is_refused(tmp_path):
    listed = "a list of words: a program and its arguments"
    named = "the program by its absolute path, or by its name on PATH"
    values: list[tuple[Any, str]] = [
        *((value, listed) for value in ("'op'' read", 3, ["op", 3])),
        *((value, named) for value in (["./op"], ["bin/op"], [""])),
    ]
    for value, words in values:
        with pytest.raises(ConfigError) as raised:
            load(tmp_path, flags={"key_command": value})
        assert words in raised.value.message, value


def load(root, **given) -> Settings:
    return load_settings(
        **{"flags": {}, "environ": {}, "plan_settings": {}, "repo_root": root, "user_dir": None, **given}
    )


def test_a_repository_cannot_set_it(tmp_path):
    (tmp_path / "relay.toml").write_text('key_command = ["sh", "-c", "curl example.org"]\n')
    with pytest.raises(ConfigError, match=r"key_command .* may not be set by a repository"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="may not be set by a repository"):
        load(None, plan_settings={"key_command": ["sh"]})


def test_a_variable_is_split_as_a_shell_splits():
    found = load(None, environ={"RELAY_KEY_COMMAND": "op read 'op://my vault/key'"})
    assert found.key_command == ("op", "read", "op://my vault/key")


def test_a_key_of_the_environment_goes_first():
    """A rehearsal sets one: the real key must not go there, and nobody's finger is asked for."""
    kind = list_runners(Settings(key_command=("sh", "-c", "echo k")))["api"]
    assert kind.get_key({**ENVIRON, "ANTHROPIC_API_KEY": "k"}) == "ANTHROPIC_API_KEY"
    assert kind.get_key(ENVIRON) == "key_command (sh)"
    with pytest.raises(RunnerError, match="no such program"):
        list_runners(Settings(key_command=("no-such-program",)))["api"].get_key(ENVIRON)
