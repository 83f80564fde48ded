"""Every way in which a command can end, as words and an exit code."""

import errno
import json
import signal
import subprocess
import sys
from functools import partial

import click
import pytest

from relay.base.errors import ConfigError, RelayError
from relay.base.hints import Caller
from relay.base.interrupts import Interrupted
from relay.base.redaction import redact_for_strangers
from relay.cli.boundary import Asked, run_guarded
from relay.cli.main import relay as group
from tests.cli.manual import list_commands


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


def test_a_result_is_the_exit_code():
    assert [run_guarded(partial(int, code), []) for code in (0, 4)] == [0, 4]
    assert run_guarded(lambda: None, []) == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted()])
def test_an_interrupt_is_130_and_names_the_command_that_was_interrupted(error, capsys):
    asked = Asked()
    asked.caller = Caller(plan="b.md")
    assert run_guarded(raising(error), ["run", "--plan", "b.md"], asked) == 130
    assert run_guarded(raising(error), ["plan", "--plan", "b.md", "x"], asked) == 130
    assert run_guarded(raising(error), []) == 130
    assert capsys.readouterr().err == (
        "Interrupted. Nothing is lost; `relay run --plan b.md` resumes.\n"
        "Interrupted. Nothing is lost; type the same `relay plan --plan b.md` again.\n"
        "Interrupted. Nothing is lost; `relay run` resumes.\n"
    )


def test_a_full_disk_is_not_a_bug(capsys):
    for file in (("/data/x",), ()):
        assert run_guarded(raising(OSError(errno.ENOSPC, "No space left on device", *file)), []) == 1
        words = ": ".join(("Error: No space left on device", *file))
        hint = "nothing was lost; make room on the disk (df -h .) and run the command again"
        assert capsys.readouterr().err == f"{words}\nHint: {hint}\n"
        run_guarded(raising(RelayError(f"git failed: {words}")), [])
        assert capsys.readouterr().err == f"Error: git failed: {words}\nHint: {hint}\n"


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
    logs = list(tmp_path.glob("relay-bug-*"))
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


@pytest.fixture
def start(project, environ):
    """Start relay from a script, up to its first line."""

    def run(script, *args):
        code = f"import sys, time\n{script}\nfrom relay.__main__ import enter\nsys.argv[1:] = {args}\nenter()\n"
        pipe = subprocess.PIPE
        running = subprocess.Popen([sys.executable, "-c", code], env=environ, cwd=project, stdout=pipe, stderr=pipe)
        assert running.stdout is not None
        running.stdout.readline()
        return running

    return run


def test_a_closed_pipe_is_quiet(start):
    """`relay … | head -1` prints no error and no traceback."""
    says = "from relay.cli.screen import say\n    [say('x' * 100) for _ in range(10000)]"
    running = start(f"from relay.cli.main import relay\n@relay.command('talk')\ndef talk():\n    {says}", "talk")
    running.stdout.close()
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (1, b"")


def test_ctrl_c_in_a_command_and_while_relay_is_imported_is_130_and_one_line(start):
    """The import of a module is held until the signal is there."""
    waits = "print('up', flush=True)\n    time.sleep(30)"
    sleepy = f"from relay.cli.main import relay\n@relay.command('sleepy')\ndef sleepy():\n    {waits}"
    hold = "class Hold:\n  def find_spec(self, name, *_):\n   if name == 'relay.cli.boundary':\n    "
    for script, args, said in (
        (sleepy, ["sleepy"], b"Interrupted. Nothing is lost; type the same `relay sleepy` again."),
        (f"{hold}{waits}\nsys.meta_path.insert(0, Hold())", ["status"], b"Interrupted."),
    ):
        running = start(script, *args)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
        assert (running.returncode, err.strip()[: len(said)], err.strip().count(b"\n")) == (130, said, 0)


def test_the_process_ends_with_what_was_left_for_its_end(project, environ):
    """It does not take its modules apart; what libraries registered runs, and threads are waited for."""
    script = (
        "import atexit, sys, threading, time\nfrom relay.__main__ import enter\n"
        "atexit.register(print, 'registered', end='')\n"
        "go = threading.Event()\n"
        "threading.Thread(target=lambda: (go.wait(), print('thread'))).start(); go.set()\n"
        "sys.argv[1:] = ['status', '--plan', 'none.md']\nenter()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "none.md" in done.stderr
    assert done.stdout == "thread\nregistered"


def test_every_command_option_and_argument_has_help():
    """`relay --help` has a line for each, all else has its words, and what may be left out is in brackets."""
    for command, context in list_commands()[1:]:
        name = context.command_path
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


@pytest.mark.parametrize(
    ("words", "code", "said"), [("init >&- 2>&- <&-", 0, ""), ("--version >/dev/full", 1, "No space left on device")]
)
def test_streams_that_cannot_be_written(tmp_path, words, code, said):
    """One that is closed leads nowhere, not into a file of relay's; a full one is said, without a traceback."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    command = f"cd {tmp_path} && exec {sys.executable} -m relay {words}"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (code, True, False)
    assert "init" not in words or (tmp_path / "PLAN.md").read_text().startswith("# What")
