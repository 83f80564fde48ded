"""Opens ports and streams inside a sandbox, and then becomes the command.

relay runs this file as a program, `python -I -S inside.py WORD… -- COMMAND…`. It imports little of the standard library
and nothing else, because every command pays for each import. The words:

PORT=SOCKET    listen on the loopback's PORT, and forward each connection to the Unix socket SOCKET
abstract       close abstract Unix sockets that were bound outside: they belong to a network namespace, and this command
               is in the host's
streams=I,O,E  take these descriptors for input, output and errors
terminal       make standard input the controlling terminal

The process that forwards connections is no child of the command's, which would wait for it. It ends with the process
namespace.
"""

import _socket
import _thread
import os
import struct
import sys

FAILED = 125
"""Exit code if the command could not be started as asked; it did not run."""
MISSING = 127
"""Exit code for a missing program, as shells use it."""
LEAST_ABI = 6
"""First version of Landlock that knows abstract sockets (Linux 6.12)."""

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_VERSION_FLAG = 1
_SCOPE_ABSTRACT = 1
_PR_SET_NO_NEW_PRIVS = 38
_CHUNK_BYTES = 64 * 1024
_WAITING = 64


def find_abi() -> int:
    """Return this kernel's version of Landlock; 0 for none."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    return max(0, int(call(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))))


def _leave_abstract_sockets() -> None:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    attribute = struct.pack("=QQQ", 0, 0, _SCOPE_ABSTRACT)
    size = ctypes.c_size_t(len(attribute))
    rules = int(library.syscall(ctypes.c_long(_CREATE_RULESET), attribute, size, ctypes.c_uint(0)))
    if rules < 0:
        raise OSError(ctypes.get_errno(), "no Landlock that knows abstract sockets")
    zero = ctypes.c_ulong(0)
    library.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)
    if int(library.syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(rules), ctypes.c_uint(0))):
        raise OSError(ctypes.get_errno(), "Landlock")
    os.close(rules)


def _listen(port: int) -> list[_socket.socket]:
    """Listen on both addresses of `localhost`; the IPv6 one may be missing."""
    found = []
    for family, address in ((_socket.AF_INET, "127.0.0.1"), (_socket.AF_INET6, "::1")):
        try:
            listener = _socket.socket(family, _socket.SOCK_STREAM)
            listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            # Accepted connections inherit it. Without it the end of an answer waits 40 ms for the receipt of its start.
            listener.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
            listener.bind((address, port))
            listener.listen(_WAITING)
        except OSError:
            if family == _socket.AF_INET:
                raise
            continue
        found.append(listener)
    return found


def _pump(source: _socket.socket, target: _socket.socket) -> None:
    """Forward one direction to its end; the other may go on."""
    try:
        while chunk := source.recv(_CHUNK_BYTES):
            target.sendall(chunk)
        target.shutdown(_socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(_socket.SHUT_RDWR)
            except OSError:
                continue  # it has ended


def _carry(inner: _socket.socket, path: str) -> None:
    outer = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        outer.connect(path)
        _thread.start_new_thread(_pump, (inner, outer))
    except (OSError, RuntimeError):
        return  # both ends are closed with their last name
    _pump(outer, inner)


def _serve(listener: _socket.socket, path: str) -> None:
    while True:
        try:
            fd, _ = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001  # what `socket` itself calls
            _thread.start_new_thread(_carry, (_socket.socket(fileno=fd), path))
        except (OSError, RuntimeError):
            continue  # the other side has gone, or there are too many: the next may do


def _fork_forwarder(ports: list[tuple[_socket.socket, str]]) -> None:
    """Forward connections in a process that is no child of the command's and shares no stream with it."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        kept = {listener.fileno() for listener, _ in ports}
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # pathlib costs 5 ms of every start
            if (fd := int(name)) > 2 and fd not in kept:  # noqa: PLR2004  # the three streams
                try:
                    os.close(fd)
                except OSError:
                    continue  # the listing's own
        for listener, path in ports[1:]:
            _thread.start_new_thread(_serve, (listener, path))
        _serve(*ports[0])
    finally:
        # This process is a copy of the command's and must never return into its code.
        os._exit(FAILED)


def _take_streams(fds: list[int], *, terminal: bool) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    if terminal:
        import fcntl
        import termios

        if os.getsid(0) != os.getpid():
            os.setsid()  # only a session leader can have a controlling terminal
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def main(arguments: list[str]) -> None:
    """Do what the words say and become the command.

    Raises:
        OSError: A word could not be carried out.
    """
    at = arguments.index("--")
    words, command = arguments[:at], arguments[at + 1 :]
    given = dict(word.split("=", 1) for word in words if "=" in word)
    streams = given.pop("streams", "")
    ports = [(listener, path) for port, path in given.items() for listener in _listen(int(port))]
    if ports:
        _fork_forwarder(ports)
    for listener, _ in ports:
        listener.close()
    if "abstract" in words:
        _leave_abstract_sockets()
    if streams:
        _take_streams([int(fd) for fd in streams.split(",")], terminal="terminal" in words)
    try:
        os.execvp(command[0], command)  # noqa: S606  # the caller names the program
    except FileNotFoundError:
        os.write(2, f"relay: {command[0]}: command not found\n".encode())
        sys.exit(MISSING)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        os.write(2, f"relay: the command was not started: {error}\n".encode())
        sys.exit(FAILED)
