"""A warm relay: one process imports everything once and forks a child for every command.

The child is a process like any other, with the directory, environment, streams, signals and exit status that its
command was started with, and calls relay's own entry point: nothing in it is replaced, and the product has no hook.
Only Python's start and the imports are saved. What looks at the start itself, at its exit, or at the environment that
the kernel shows of a process, starts `python -m relay`.

    python starter.py SOCKET    imports, then forks a relay for every `caller.py` that connects

Where a warm relay has jobs, the ``python -m relay`` that it starts for each finds a package of that name beside the
socket first, which is `caller.py`. The relay of a job is told the process that forked it for its parent, and is sent
what the kernel sends when a parent dies once its caller's dies.
"""

import array
import contextlib
import marshal
import os
import select
import signal
import socket
import sys

BACKLOG = 64
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def serve(path):
    """Fork a child for every connection until the standard input is closed."""
    import_all()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen(BACKLOG)
        os.write(1, b"ready\n")
        while True:
            readable, _, _ = select.select([server.fileno(), 0], [], [])
            if 0 in readable:
                return
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                os._exit(attend(connection))
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def import_all():
    """Import what a run imports, and compile what is compiled when it is first used."""
    import gc
    import importlib
    import pkgutil

    import relay

    for module in pkgutil.walk_packages(relay.__path__, "relay."):
        if not module.name.startswith(("relay.rehearsal", "relay.__main__", "relay.sandbox.launcher")):
            importlib.import_module(module.name)
    for name in ("httpx2", "httpcore2", "truststore", "_strptime", "relay.rehearsal.server", "markdown_it", "yaml"):
        importlib.import_module(name)
    "".encode("idna")
    compile_all()
    gc.collect()
    gc.freeze()


def compile_all():
    """Compile the regular expressions and constructors of relay's modules."""
    from relay.gate.checker_output import ran_no_tests
    from relay.regexes import _Regex
    from relay.run.commit.autorun import find_starter
    from relay.secrets.patterns import redact

    for module in [module for name, module in sys.modules.items() if name.startswith("relay.")]:
        for thing in list(vars(module).values()):
            getattr(thing, "search" if isinstance(thing, _Regex) else "__init__", None)
    ran_no_tests("ok")
    find_starter("a")
    redact("a")


def attend(connection):
    """Fork the relay, and tell who asked for it which process it is and how it ended."""
    request, streams = receive(connection)
    parents = adopt(request)
    ended, living = os.pipe()  # a relay has the other end until it ends
    child = os.fork()
    if child == 0:
        connection.close()
        become_relay(request, streams, living)
    for fd in (living, *streams):
        os.close(fd)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(b"%d\n" % child)
        readable, _, _ = select.select([ended, connection.fileno(), *parents], [], [])
        if parents and parents[0] in readable and ended not in readable:
            os.kill(child, signal.SIGINT)
            readable, _, _ = select.select([ended, connection.fileno()], [], [])
        if ended not in readable:  # who asked for it was killed
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    return 0


def adopt(request):
    """Be the parent of a job in place of its caller's parent, whose descriptor is returned; none for other commands."""
    args = request["args"]
    at = args.index("--job-of") + 1 if "--job-of" in args else 0
    if not at or args[at] != str(request["parent"]):
        return []
    try:
        parent = os.pidfd_open(request["parent"])
    except ProcessLookupError:
        return []
    args[at] = str(os.getpid())
    return [parent]


def receive(connection):
    """Read what is to be run, and its three streams."""
    streams = array.array("i")
    header, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_LEN(3 * streams.itemsize))
    for _, _, payload in ancillary:
        streams.frombytes(payload)
    with connection.makefile("rb") as stream:
        return marshal.loads(stream.read(int.from_bytes(header, "big"))), list(streams)


def become_relay(request, streams, living):
    """Be the program from here on."""
    code = 70
    try:
        os.setsid()
        for target, source in enumerate(streams):
            os.dup2(source, target)
        os.closerange(3, living)
        os.closerange(living + 1, 64)
        os.chdir(request["cwd"])
        os.umask(request["umask"])
        os.environ.clear()
        os.environ.update(request["environ"])
        if "--jobs" in request["args"] or "work" in request["args"]:
            os.environ["PYTHONPATH"] = sys.argv[1].rpartition("/")[0]
        for number in FORWARDED:
            signal.signal(number, signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL)
        if signal.SIGINT not in request["ignored"]:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # as at Python's start
        sys.stdout = open(1, "w", encoding="utf-8", errors=request["errors"], buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        sys.argv = ["relay", *request["args"]]
        code = call_relay()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def call_relay():
    """Return the exit status."""
    from relay.__main__ import main

    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


if __name__ == "__main__":
    serve(sys.argv[1])
