"""A person at a terminal who answers each question in turn."""

import os
import pty
import select
from collections.abc import Mapping, Sequence
from pathlib import Path


def answer_at_terminal(
    argv: Sequence[str], answers: Sequence[str], *, cwd: Path, environ: Mapping[str, str], prompt: str
) -> tuple[str, int]:
    """Run a program on a terminal, type the next answer at each prompt; return what was shown and the exit code."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execve(argv[0], [*argv], {**os.environ, **environ})
    shown, answered = b"", 0
    while select.select([fd], [], [], 120)[0]:
        try:
            chunk = os.read(fd, 65536)
        except OSError:  # EIO: nobody has the other end open any more
            break
        shown += chunk
        if shown.endswith(prompt.encode()) and answered < len(answers):
            os.write(fd, answers[answered].encode())
            answered += 1
    os.close(fd)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
