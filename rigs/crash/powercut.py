"""Power cuts: a file system in a file that is shut down without its journal being written, and mounted again.

A kill leaves what was written; a power cut leaves what was synced. Needs root and loop devices.
"""

import argparse
import contextlib
import fcntl
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rigs.crash.rig import Rig, Trial, open_rig
from rigs.crash.tracer import Fault, find_obstacle, leave_mounts

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN; source: the kernel's fs/ext4/ext4.h, _IOR('X', 125, __u32)."""
_NO_LOG_FLUSH = 2


class Disk:
    """An ext4 file system that can lose its power."""

    def __init__(self, folder: Path) -> None:
        self.image, self.mount_point, self.boot_id = folder / "image", folder / "disk", folder / "boot_id"
        with self.image.open("wb") as file:
            file.truncate(256 << 20)
        subprocess.run(["mkfs.ext4", "-q", str(self.image)], check=True)
        self.mount_point.mkdir()
        self._mount()

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.mount_point)], check=True)

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.mount_point)], check=True)

    def cut(self) -> Path:
        """Lose what was not synced; return the file with the boot id of the next start."""
        fd = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)
        subprocess.run(["umount", str(self.mount_point)], check=True)
        self._mount()
        self.boot_id.write_text(f"{random.randbytes(8).hex()}\n")
        return self.boot_id


def find_disk_obstacle() -> str:
    """Return why there can be no power cuts here; empty when there can."""
    if obstacle := find_obstacle():
        return obstacle
    try:
        with tempfile.TemporaryDirectory() as folder:
            Disk(Path(folder).resolve()).close()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no loop device can be mounted: {error}"
    return ""


@contextlib.contextmanager
def open_disk() -> Iterator[Disk]:
    """Give a disk that can lose its power."""
    leave_mounts()  # a sandbox that anybody starts meanwhile would keep the disk mounted
    with tempfile.TemporaryDirectory(prefix="relay-power-") as folder:
        disk = Disk(Path(folder).resolve())
        try:
            yield disk
        finally:
            disk.close()


@contextlib.contextmanager
def open_disk_rig() -> Iterator[Rig]:
    """Open a rig whose repository is on a disk that loses its power after every kill."""
    with open_disk() as disk, open_rig(watched=disk.mount_point, cut=disk.cut) as rig:
        yield rig


def try_cut(rig: Rig, seed: int, *, no_sync: bool) -> Trial:
    """Cut the power once, at a call chosen by `seed`."""
    fault = Fault(at=random.Random(seed).randint(1, rig.reference.count), mode="b", no_sync=no_sync)
    return rig.try_faults([fault])


def main() -> int:
    """Print a line for relay as it is and one for relay without its syncs; exit status 1 when the first one fails."""
    parser = argparse.ArgumentParser(prog="python -m rigs.crash.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=250, help="how many cuts")
    parser.add_argument("--controls", type=int, default=25, help="how many with every sync left out")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin none after this time")
    asked = parser.parse_args()
    if obstacle := find_disk_obstacle():
        print(f"no power can be cut here: {obstacle}")  # noqa: T201  # a command
        return 1
    begun, failures = time.monotonic(), {}
    with open_disk_rig() as rig:
        for no_sync, trials in ((True, asked.controls), (False, asked.cuts)):
            made, failed = 0, 0
            while made < trials and time.monotonic() - begun < asked.seconds:
                trial = try_cut(rig, made, no_sync=no_sync)
                made, failed = made + 1, failed + bool(trial.wrong)
                if trial.wrong and not no_sync:
                    print(f"FAILED power cut: {trial}", flush=True)  # noqa: T201
            name = "power cut, every sync left out (the control)" if no_sync else "power cut"
            print(f"| {name} | {made} | {trials} | {made} | {failed} |", flush=True)  # noqa: T201
            failures[no_sync] = failed
    return int(failures[False] > 0)


if __name__ == "__main__":
    sys.exit(main())
