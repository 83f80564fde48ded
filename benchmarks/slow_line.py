"""Stands in for ssh to this machine: runs a command over a line that is slow.

    GIT_SSH_COMMAND='python benchmarks/slow_line.py 0.2' git fetch far:/a/repository

Each byte takes half of the seconds there and half of them back. Nothing is encrypted, and no connection is made first.
"""

import os
import queue as queues
import subprocess
import sys
import threading
import time


def run_line(latency_s: float, command: str) -> int:
    """Run a command as ssh would, over a line that delays each byte on its way there and back; return its status."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "GIT_PROTOCOL") if name in os.environ}
    argv = ["sh", "-c", command]
    with subprocess.Popen(argv, env=kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as far:
        assert far.stdin
        assert far.stdout
        pass_late(0, os.dup(far.stdin.fileno()), latency_s / 2)
        far.stdin.close()
        pass_late(far.stdout.fileno(), os.dup(1), latency_s / 2).join()
        return far.wait()


def pass_late(source: int, target: int, late_s: float) -> threading.Thread:
    """Pass on bytes some time after they came, as long as there are any; return who does it."""
    held = queues.SimpleQueue[tuple[float, bytes]]()

    def hear() -> None:
        data = b"x"
        while data:
            data = os.read(source, 1 << 16)
            held.put((time.monotonic() + late_s, data))

    def tell() -> None:
        while True:
            due_s, data = held.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            if not data:
                os.close(target)
                return
            os.write(target, data)

    threading.Thread(target=hear, daemon=True).start()
    told = threading.Thread(target=tell, daemon=True)
    told.start()
    return told


if __name__ == "__main__":
    sys.exit(0 if "-G" in sys.argv else run_line(float(sys.argv[1]), sys.argv[-1]))
