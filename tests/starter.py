"""A warm relay: one process imports everything once and forks a child for every command.

The child is a process like any other, with the directory, environment, streams, signals and exit status that its
command was started with, and calls relay's own entry point: nothing in it is replaced, and the product has no hook.
Only Python's start and the imports are saved. What looks at the start itself, at its exit, or at the environment that
the kernel shows of a process, starts `python -m relay`.

    python starter.py SOCKET    imports, then forks a relay for every `caller.py` that connects

Where a warm relay has jobs or plays the demo, the ``python -m relay`` that it starts for each finds a package of that
name beside the socket first, which is `caller.py`. The relay of a job is told the process that forked it for its
parent, and is sent what the kernel sends when a parent dies once its caller's dies.
"""

import array
import contextlib
import gc
import importlib
import marshal
import os
import selectors
import signal
import socket
import sys

BACKLOG = 64
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def serve(path):
    """Fork a relay for every connection until the standard input ends."""
    import_all()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server, selectors.DefaultSelector() as selector:
        server.bind(path)
        server.listen(BACKLOG)
        selector.register(0, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ, lambda: accept(server, selector))
        os.write(1, b"ready\n")
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    return
                key.data()


def accept(server, selector):
    """Fork the relay that a connection asks for."""
    connection, _ = server.accept()
    with contextlib.suppress(EOFError, OSError):  # who asked for it has been killed
        Relay(connection, selector)


def import_all():
    """Import what a run imports, and compile what is compiled when it is first used."""
    import pkgutil

    import relay

    gc.disable()  # nothing of a module goes
    for module in pkgutil.walk_packages(relay.__path__, "relay."):
        if not module.name.startswith(("relay.rehearsal", "relay.__main__", "relay.sandbox.supervisor")):
            with contextlib.suppress(ModuleNotFoundError):  # an extra that is not installed
                importlib.import_module(module.name)
    for name in ("httpx2", "httpcore2", "truststore", "_strptime", "relay.rehearsal.server", "markdown_it", "yaml"):
        importlib.import_module(name)
    "".encode("idna")
    compile_all()
    gc.collect()
    gc.freeze()
    gc.enable()


def import_queue():
    """Import what only a command of the queue needs, when the first one comes: all but a tenth of what it takes."""
    if "procrastinate" not in sys.modules:
        importlib.import_module("procrastinate")
        importlib.import_module("psycopg")
        gc.freeze()


def compile_all():
    """Compile the constructors of relay's modules."""
    from relay.base.redaction import redact
    from relay.gate.checker_output import ran_no_tests
    from relay.run.commit.disclosures import find_starter

    for module in [module for name, module in sys.modules.items() if name.startswith("relay.")]:
        for thing in list(vars(module).values()):
            getattr(thing, "__init__", None)
    ran_no_tests("ok")
    find_starter("a")
    redact("a")


class Relay:
    """A relay that runs: who asked for it is told which process it is and how it ended."""

    def __init__(self, connection, selector):
        request, streams = receive(connection)
        if "fleet" in request["args"]:
            import_queue()
        parents = adopt(request)
        ended, living = os.pipe()  # a relay has the other end until it ends
        self.child = os.fork()
        if self.child == 0:
            become_relay(request, streams, living)
        for fd in (living, *streams):
            os.close(fd)
        self.connection, self.selector, self.watched = connection, selector, {}
        self.watch(ended, self.end)
        self.watch(connection.fileno(), self.lose_caller)
        for parent in parents:
            self.watch(parent, self.lose_parent)
        self.tell(self.child)

    def watch(self, fd, act):
        """Act once, when a descriptor is ready."""
        self.watched[fd] = act
        self.selector.register(fd, selectors.EVENT_READ, lambda: self.act(fd))

    def act(self, fd):
        """Do what is to be done when it is ready, unless another in the same look has ended it all."""
        if fd in self.watched:
            self.selector.unregister(fd)
            self.watched.pop(fd)()
            if fd != self.connection.fileno():
                os.close(fd)

    def lose_caller(self):
        """End with who asked for it."""
        os.kill(self.child, signal.SIGKILL)

    def lose_parent(self):
        """Be sent what the kernel sends when a parent dies."""
        os.kill(self.child, signal.SIGINT)

    def end(self):
        """Tell how it ended."""
        _, status = os.waitpid(self.child, 0)
        self.tell(os.waitstatus_to_exitcode(status))
        for fd in self.watched:
            self.selector.unregister(fd)
            if fd != self.connection.fileno():
                os.close(fd)
        self.watched.clear()
        self.connection.close()

    def tell(self, number):
        """Write a line with a number."""
        with contextlib.suppress(BrokenPipeError):
            self.connection.sendall(b"%d\n" % number)


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
        os.closerange(living + 1, 1024)
        os.chdir(request["cwd"])
        os.umask(request["umask"])
        os.environ.clear()
        os.environ.update(request["environ"])
        if not {"--jobs", "demo", "lab", "work", "worker"}.isdisjoint(request["args"]):
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
