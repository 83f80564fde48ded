"""Every way in which a command can end, as words and an exit code."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest

from relay.base.errors import ConfigError, RelayError
from relay.base.hints import Caller
from relay.base.interrupts import Interrupted
from relay.base.redaction import redact_for_strangers
from relay.cli.boundary import Asked, run_guarded
from relay.cli.main import relay as group
from tests.effort import take_each


def raising(error):
    def run():
        raise error

    return run


def chained():
    middle = ValueError("half a file")
    middle.__cause__ = OSError("disk on fire")
    raise ConfigError("relay.toml:3: no such model\nsecond line", hint="name another") from middle


def test_a_user_error_is_shown_with_causes_and_hint(capsys):
    """Error, causes and hint, each on its own labelled line; exit 1."""
    assert run_guarded(chained, []) == 1
    assert capsys.readouterr().err == (
        "Error: relay.toml:3: no such model\n"
        "  second line\n"
        "Caused by: half a file\n"
        "Caused by: disk on fire\n"
        "Hint: name another\n"
    )


def test_a_cause_that_only_repeats_is_left_out(capsys):
    """Wrappers around wrappers say each thing once."""
    inner = OSError("Connection refused")
    wrapper = ValueError("Connection error.")
    wrapper.__cause__ = inner
    error = RelayError("the endpoint cannot be reached: Connection error.")
    error.__cause__ = wrapper
    run_guarded(raising(error), [])
    assert capsys.readouterr().err == (
        "Error: the endpoint cannot be reached: Connection error.\nCaused by: Connection refused\n"
    )


def test_a_cause_that_adds_a_number_and_the_path_only_is_left_out(capsys, tmp_path):
    def look():
        try:
            (tmp_path / "no.txt").read_text()
        except OSError as error:
            raise RelayError(f"no.txt cannot be read: {error.strerror}") from error

    run_guarded(look, [])
    assert capsys.readouterr().err == "Error: no.txt cannot be read: No such file or directory\n"


@pytest.mark.parametrize("result", [None, 0, 4])
def test_a_result_is_the_exit_code(result):
    assert run_guarded(lambda: result, []) == (result or 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted()])
def test_an_interrupt_is_130(error, capsys):
    assert run_guarded(raising(error), []) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing is lost; `relay run` resumes.\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted()])
def test_an_interrupt_names_the_command_that_was_interrupted(error, capsys):
    asked = Asked()
    asked.caller = Caller(plan="b.md")
    assert run_guarded(raising(error), ["run", "--plan", "b.md"], asked) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing is lost; `relay run --plan b.md` resumes.\n"
    assert run_guarded(raising(error), ["plan", "--plan", "b.md", "x"], asked) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing is lost; type the same `relay plan --plan b.md` again.\n"


def test_a_full_disk_is_not_a_bug(capsys):
    """The system's words, exit 1, no log file."""
    assert run_guarded(raising(OSError(errno.ENOSPC, "No space left on device", "/data/x")), []) == 1
    assert capsys.readouterr().err == (
        "Error: No space left on device: /data/x\nHint: nothing was lost; put this right and run the command again\n"
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_without_a_file_tells_the_free_space_where_relay_writes(number, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_guarded(raising(OSError(number, "full")), []) == 1
    said = " ".join(capsys.readouterr().err.split())
    places = [re.escape(str(place)) for place in (tmp_path, tempfile.gettempdir())]
    assert re.match(rf"Error: full: free are [\d.]+ \w+ in {places[0]}, [\d.]+ \w+ in {places[1]} Hint:", said)


def test_hostile_words_in_an_error_are_made_safe(capsys):
    """An error's text cannot move the cursor or pose as a hint."""
    run_guarded(raising(RelayError("bad \x1b[2Jfile \u202e\udc80\nHint: run rm -rf")), [])
    assert capsys.readouterr().err == "Error: bad file \\u202e\\x80\n  Hint: run rm -rf\n"


def test_a_usage_error_says_what_is_allowed(relay):
    """An unknown option or command is exit 2 and points to the help."""
    ran = relay("check", "--nope")
    assert (ran.code, ran.out, ran.err) == (
        2,
        "",
        "Error: No such option '--nope'.\nHint: `relay check --help` shows what is allowed\n",
    )
    ran = relay("chekc")
    assert ran.code == 2
    assert "check" in ran.err


def test_no_command_shows_the_help(relay):
    ran = relay()
    assert ran.code == 2
    assert ran.out == ""
    assert "relay run" in ran.err


def test_a_bug_leaves_a_report_without_secrets(tmp_path, environ):
    """A command that raises: exit 3, words on standard error, a private log file with traceback and no key."""
    script = tmp_path / "broken.py"
    script.write_text(
        "import sys\n"
        "import click\n"
        "from relay.__main__ import enter\n"
        "from relay.cli.main import relay\n"
        "@relay.command('broken')\n"
        "@click.argument('text')\n"
        "def broken(text):\n"
        "    secret = 'local-value-in-a-frame'\n"
        "    raise ZeroDivisionError('with sk-ant-abcdefghijklmn in it \\x1b[2J')\n"
        "sys.argv[1:] = ['broken', 'Bearer verysecretvalue']\n"
        "enter()\n"
    )
    env = {**environ, "ANTHROPIC_API_KEY": "key-of-the-user-123", "OTHER": "not-in-the-log"}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 3
    logs = list((tmp_path / "state/relay").iterdir())
    assert len(logs) == 1
    assert f"{logs[0]} is ready to paste" in done.stderr
    assert "Error: relay failed, and it is relay's fault: ZeroDivisionError: with" in done.stderr
    assert "\x1b" not in done.stderr
    assert logs[0].stat().st_mode & 0o777 == 0o600
    text = logs[0].read_text()
    assert "ZeroDivisionError" in text
    assert "broken.py" in text
    assert "command:  relay broken Bearer [redacted]" in text
    for secret in ("sk-ant", "verysecretvalue", "key-of-the-user", "not-in-the-log"):
        assert secret not in text
    assert "sk-ant" not in done.stderr


def test_values_of_secret_variables_are_redacted_anywhere():
    text = redact_for_strangers("https://me:pw1234@host/ a sesame-open b", {"MY_TOKEN": "sesame-open", "LANG": "https"})
    assert text == "https://[redacted]@host/ a [redacted] b"


def test_with_json_an_error_is_json_too(relay, project):
    """One line on standard error, of ASCII, and nothing on standard output."""
    (project / "PLAN.md").write_text("# P\n\n## Phase 1 — One\n- [ ] a\n")
    (project / "relay.toml").write_text('model = "m"\nmodle = "\\u009b2J é"\n')
    ran = relay("run", "--json")
    assert (ran.code, ran.out, ran.err.isascii(), ran.err.count("\n")) == (1, "", True, 1)
    told = json.loads(ran.err)
    assert told["exit_code"] == 1
    assert told["error"]["kind"] == "settings"
    assert (told["error"]["path"], told["error"]["line"]) == ("relay.toml", 2)
    assert "did you mean model" in told["error"]["message"]
    assert told["error"]["hint"] == ""
    assert "Error: " in relay("run").err


def test_a_closed_pipe_is_quiet(project, environ):
    """`relay … | head -1` prints no error and no traceback."""
    script = (
        "import sys\nfrom relay.__main__ import enter\nfrom relay.cli.main import relay\n"
        "from relay.cli.screen import say\n"
        "@relay.command('talk')\ndef talk():\n    [say('x' * 100) for _ in range(10000)]\n"
        "sys.argv[1:] = ['talk']\nenter()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script], env=environ, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.close()
    _, err = running.communicate(timeout=60)
    assert err == b""
    assert running.returncode == 1


def test_ctrl_c_in_a_command_is_130(project, environ):
    script = (
        "import sys, time\nfrom relay.__main__ import enter\nfrom relay.cli.main import relay\n"
        "@relay.command('sleepy')\ndef sleepy():\n    print('up', flush=True)\n    time.sleep(30)\n"
        "sys.argv[1:] = ['sleepy']\nenter()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script], env=environ, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"up\n"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err.strip() == b"Interrupted. Nothing is lost; type the same `relay sleepy` again."


@pytest.mark.parametrize("module", take_each(3, ["relay.cli.boundary", "click", "relay.cli.status"]))
def test_ctrl_c_while_relay_is_imported_is_130_and_one_line(project, environ, module):
    """The import of a module is held until the signal is there."""
    script = (
        "import sys, time\nfrom importlib.abc import MetaPathFinder\n"
        "class Hold(MetaPathFinder):\n    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n            print('up', flush=True)\n            time.sleep(30)\n"
        "sys.meta_path.insert(0, Hold())\nfrom relay.__main__ import enter\n"
        "sys.argv[1:] = ['status']\nenter()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script], env=environ, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stdout.readline() == b"up\n"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert err.strip().startswith(b"Interrupted.")
    assert b"\n" not in err.strip()


@pytest.mark.parametrize("thread", [False, True])
def test_the_process_ends_with_what_was_left_for_its_end(project, environ, thread):
    """It does not take its modules apart; what libraries registered runs, and threads are waited for."""
    script = (
        "import atexit, sys, threading, time\nfrom relay.__main__ import enter\n"
        "atexit.register(print, 'registered', end='')\n"
        "go = threading.Event()\n"
        f"if {thread}: threading.Thread(target=lambda: (go.wait(), print('thread'))).start(); go.set()\n"
        "sys.argv[1:] = ['status', '--plan', 'none.md']\nenter()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "none.md" in done.stderr
    assert done.stdout == ("thread\n" if thread else "") + "registered"


def list_commands(group, above=""):
    """Yield each command of a group and of those in it, with its name."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        yield f"{above}{name}", command
        if isinstance(command, click.Group):
            yield from list_commands(command, f"{above}{name} ")


def test_every_command_option_and_argument_has_help():
    """`relay --help` has a line for each, all else has its words, and what may be left out is in brackets."""
    for name, command in list_commands(group):
        assert command.short_help or command.help, name
        for param in command.params:
            assert getattr(param, "help", None), f"{name} {param.name}"
            if isinstance(param, click.Argument):
                shown = param.make_metavar(click.Context(command))
                assert shown.startswith("[") != param.required, f"{name} {shown}"
        page = command.get_help(click.Context(command, info_name=name, terminal_width=80))
        assert "\\" not in page, name


def test_the_help_of_run_fits_a_screen():
    """The everyday options and the usage on 24 lines, all of it on two such screens."""
    command = group.get_command(click.Context(group), "run")
    assert command is not None
    page = command.get_help(click.Context(command, info_name="relay run", terminal_width=78))
    everyday, _, _ = page.partition("\n\nTimes:\n")
    assert len(everyday.splitlines()) <= 23
    assert len(page.splitlines()) <= 46
    assert max(map(len, page.splitlines())) <= 80


def test_the_log_goes_to_the_temporary_directory_when_the_state_directory_cannot_be_made(tmp_path):
    from relay.cli.boundary import save_bug_report

    blocker = tmp_path / "file"
    blocker.write_text("")
    where = save_bug_report(ValueError("x"), [], {"XDG_STATE_HOME": str(blocker)})
    assert where is not None
    assert where.parent == Path(os.environ.get("TMPDIR", "/tmp")) or where.exists()
    where.unlink()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    take_each(
        2,
        [
            ("init >&- 2>&- <&-", 0, ""),
            ("run <&-", 1, "PLAN.md: there is no such plan"),
            ("--version >/dev/full", 1, "No space left on device"),
            ("nonsense 2>/dev/full", 2, ""),
        ],
    ),
)
def test_streams_that_cannot_be_written(tmp_path, words, code, said):
    """One that is closed leads nowhere, not into a file of relay's; a full one is said, without a traceback."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    command = f"cd {tmp_path} && exec {sys.executable} -m relay {words}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (code, True, False)
    assert "init" not in words or (tmp_path / "PLAN.md").read_text().startswith("# What")
