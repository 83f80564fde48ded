"""`python -m relay` and the `relay` command."""

import gc
import os
import sys


def _stop() -> None:
    """End at Ctrl-C where nothing has begun yet, or all is done."""
    os.write(2, b"Interrupted.\n")
    os._exit(130)


try:
    from relay.setup.program import drop_unsafe_imports

    drop_unsafe_imports()  # before whatever else is imported: it may be looked for in the current directory
except KeyboardInterrupt:
    _stop()
gc.set_threshold(100_000)  # a short command, which makes 50,000 objects, ends before a collection would pay


def main() -> int:
    """Run the command line and return its exit code."""
    from relay.cli.boundary import Asked, run_guarded
    from relay.cli.main import relay
    from relay.cli.screen import prepare_streams

    _restart_in_utf8()
    prepare_streams()
    argv = sys.argv[1:]
    asked = Asked()
    code = run_guarded(lambda: relay.main(args=argv, prog_name="relay", standalone_mode=False, obj=asked), argv, asked)
    gc.freeze()  # everything is closed: a last collection would look through all modules and free nothing
    return code


def enter() -> None:
    """Run the command line and end the process at once: Python would take all modules apart first, for 10 ms.

    Ctrl-C while relay is still being imported, or ends, is one line as well.
    """
    try:
        code = main()
        _end(code)
    except KeyboardInterrupt:
        _stop()


def _end(code: int) -> None:
    import atexit
    import threading
    from contextlib import suppress

    # Nobody waits for the thread that still imports the SDK, for a session that is not held.
    if any(thread.name != "relay-sdk" for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(code)  # waits for them
    atexit._run_exitfuncs()  # noqa: SLF001  # as `sys.exit` does; libraries and tools count on it
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, or nobody reads it
            stream.flush()
    os._exit(code)


def _restart_in_utf8() -> None:
    """Start again where the locale's encoding is another one, in which not every text is an argument of a command.

    Names of files stay the bytes that they are; what is shown stays in the terminal's encoding.
    """
    if sys.getfilesystemencoding() != "utf-8" and sys.executable:
        os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding if sys.stdout else "utf-8")
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606  # itself


if __name__ == "__main__":
    enter()
