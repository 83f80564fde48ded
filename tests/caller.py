"""Is a relay that `starter.py` forks, for whoever started it: `python -I -S caller.py SOCKET ARGS…`.

A file of its own, without the modules that can be done without: it is started for every command, and was two thirds of
what a short one took.
"""

import _signal as signal  # type: ignore[import-not-found]
import _socket as socket
import array
import marshal
import os
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def call(path, args):
    """Have a relay forked with what this process has, and end as it does."""
    request = {
        "args": args,
        "cwd": os.getcwd(),  # noqa: PTH109
        "environ": dict(os.environ),
        "parent": os.getppid(),
        "errors": sys.stdout.errors,
        "umask": os.umask(0),
        "ignored": [number for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN],
    }
    # A signal waits until it is known to whom it goes: on a busy machine the relay has printed by then.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    data = marshal.dumps(request)
    streams = array.array("i", [0, 1, 2])
    connection.sendmsg([len(data).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    connection.sendall(data)
    child = read_number(connection)
    for number in FORWARDED:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    code = read_number(connection)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


def read_number(connection):
    """Read a line with a number."""
    line = b""
    while not line.endswith(b"\n"):
        part = connection.recv(1)
        if not part:
            raise EOFError
        line += part
    return int(line)


if __name__ == "__main__":
    call(sys.argv[1], sys.argv[2:])
