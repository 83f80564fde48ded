"""The one error boundary: turns whatever a command raises into words on standard error and an exit code.

======================================  ====  ==========================================================
raised                                  exit  shown
======================================  ====  ==========================================================
`FlagError`                             2     as `RelayError`: what was typed is not allowed
`RelayError`                            1     ``Error:``, a ``Caused by:`` for each cause, ``Hint:``; with
                                              ``--json`` the same as one JSON document
full disk, no permission                1     the same, in the system's words
click's usage errors                    2     usage line and what is allowed
Ctrl-C, `Interrupted`                   130   one line: the command to type again
a closed pipe                           1     nothing
anything else                           3     that relay has a bug, and a log file ready to paste
======================================  ====  ==========================================================
"""

import errno
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from relay import __version__
from relay.base.errors import ExitCode, FlagError, RelayError
from relay.base.hints import AT_ROOT, RUN, Caller, Command
from relay.base.interrupts import Interrupted
from relay.cli.screen import complain, render_document

if TYPE_CHECKING:
    from relay.setup.place import Place


_ENVIRONMENT_ERRNOS = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE
})  # fmt: skip


class Asked:
    """How the user called relay, for the words of an error. Mutable: the command notes it."""

    def __init__(self) -> None:
        self.caller = AT_ROOT


def note_place(plan: str | None = None, *, needs_repo: bool = True) -> "Place":
    """Find where the current command works, and note how it was typed there.

    Args:
        plan: As in `relay.setup.place.get_place`.
        needs_repo: The same.

    Raises:
        RelayError: There is no repository, or a setting is not allowed.
    """
    from relay.setup.place import get_place

    place = get_place(plan=plan, environ=os.environ, needs_repo=needs_repo)
    click.get_current_context().ensure_object(Asked).caller = place.caller
    return place


def run_guarded(run: Callable[[], object], argv: list[str], asked: Asked | None = None) -> int:
    """Run a command and turn its end into an exit code.

    Args:
        run: Returns the exit code; None means 0.
        argv: The command line, for the bug report.
        asked: What the command notes while it runs; None when it notes nothing.
    """
    asked, code = asked or Asked(), int(ExitCode.DONE)
    try:
        try:
            result = run()
            code = result if isinstance(result, int) else ExitCode.DONE
        except BrokenPipeError:
            raise
        except (KeyboardInterrupt, Interrupted):
            code = _say_interrupted(argv, asked.caller)
        except Exception as error:  # noqa: BLE001  # the boundary: nothing above it can handle a bug
            code = _report(error, argv, asked.caller)
        sys.stdout.flush()
    except BrokenPipeError:
        return _close_pipe()
    except OSError as error:
        complain(f"Error: what was printed is not all there: {error.strerror}")
        return max(code, _close_pipe())
    return code


def _report(error: Exception, argv: list[str], caller: Caller) -> int:
    code = ExitCode.USER
    match error:
        case click.Abort() if isinstance(error.__cause__, KeyboardInterrupt):
            return _say_interrupted(argv, caller)
        case click.Abort():
            complain("Error: stopped: the question was not answered")
        case click.ClickException():
            return _say_usage(error)
        case FlagError():
            code = ExitCode.USAGE
            _say_error(error, caller)
        case RelayError() if "--json" in argv:  # one line on standard error, where nothing else is then
            from relay.cli.documents import ErrorDocument, SaidError, fill

            hint = caller.write(error.hint) or _find_room(error.message)
            said = fill(SaidError, error, message=error.message, hint=hint)
            complain(render_document(ErrorDocument(error=said, exit_code=int(code))))
        case RelayError():
            _say_error(error, caller)
        case OSError() if error.errno in _ENVIRONMENT_ERRNOS:
            where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, (str, bytes)) else ""
            words = f"{error.strerror or error}{where}"
            _say_block("Error", words)
            _say_block("Hint", _find_room(words) or "nothing was lost; put this right and run the command again")
        case _:
            return _say_bug(error, argv)
    return code


def _say_interrupted(argv: list[str], caller: Caller) -> int:
    name = argv[0] if argv else "run"
    way = ("`", RUN, "` resumes.") if name == "run" else ("type the same `", Command(words=(name,)), "` again.")
    complain(caller.write(("Interrupted. Nothing is lost; ", way)))
    return ExitCode.INTERRUPTED


def _say_usage(error: click.ClickException) -> int:
    ctx, way = error.ctx if isinstance(error, click.UsageError) else None, ""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        complain(error.format_message())
        return ExitCode.USAGE
    _say_block("Error", error.format_message())
    if isinstance(error, click.NoSuchOption):
        from relay.config.sources import find_other_way

        way = find_other_way(error.option_name)
    if way or ctx is not None:
        _say_block("Hint", way or (f"`{ctx.command_path} --help` shows what is allowed" if ctx else ""))
    return ExitCode.USAGE if isinstance(error, click.UsageError) else ExitCode.USER


def _say_error(error: RelayError, caller: Caller) -> None:
    _say_block("Error", str(error))
    for cause in error.causes:
        _say_block("Caused by", cause)
    if hint := caller.write(error.hint) or _find_room(str(error)):
        _say_block("Hint", hint)


def _find_room(words: str) -> str:
    """Return what helps where a disk is full, as git or the system says in these words; else an empty string."""
    is_full = any(one in words for one in (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "Out of diskspace"))
    return "nothing was lost; make room on the disk (df -h .) and run the command again" if is_full else ""


def _say_bug(error: Exception, argv: list[str]) -> int:
    """Write a report for a maintainer into the temporary directory, and say where.

    It has command line, versions and the traceback without the values of variables. It leaves out the environment, and
    replaces keys and the values of variables that look like secrets.
    """
    import platform
    import tempfile
    import traceback

    from relay.base.redaction import redact_for_strangers

    words = f"{type(error).__name__}: {str(error)[:500]}" if str(error) else type(error).__name__
    _say_block("Error", redact_for_strangers(f"relay failed, and it is relay's fault: {words}", os.environ))
    text = (
        f"relay {__version__} bug report\n\n"
        f"command:  {' '.join(['relay', *argv])}\n"
        f"time:     {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n"
        f"python:   {platform.python_version()} ({sys.implementation.name})\n"
        f"platform: {platform.platform()}\n\n"
        f"{''.join(traceback.format_exception(error, limit=-50))}"
    )
    try:
        handle, name = tempfile.mkstemp(prefix=f"relay-bug-{time.strftime('%Y%m%d-%H%M%S')}-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(redact_for_strangers(text, os.environ))
        _say_block("Hint", f"{name} is ready to paste into a report (read it first)")
    except OSError:
        complain("Hint: no log file could be written; run the command again with a writable TMPDIR")
    return ExitCode.BUG


def _say_block(label: str, text: str) -> None:
    """Print ``label: text``; what goes on in a further line is indented: no text can pose as another label."""
    complain(f"{label}: " + "\n  ".join(text.splitlines() or [""]))


def _close_pipe() -> int:
    """Point standard output at nothing, so that the interpreter's own last flush stays quiet."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # not a real file (a test's buffer): there is no last flush to keep quiet
    finally:
        os.close(null)
    return ExitCode.USER
