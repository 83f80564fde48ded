"""What happens to a fleet's remote, clocks, tickets and database while a worker is at a step, with real processes."""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from relay.fleet.claims import Bid, PhaseClaim
from relay.fleet.overview import open_registry
from relay.git.remote import Remote, RemoteError
from relay.git.repository import open_repo
from rigs.crash.steps import PHASES, STEPS, StepRig
from rigs.crash.tracer import Fault

_SKEW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t which, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, at);
    if (which == CLOCK_REALTIME && getenv("SKEW_S")) at->tv_sec += atol(getenv("SKEW_S"));
    return failed;
}
"""
_LEASE_S = 15
Row = Callable[[StepRig, Path], list[str]]


def command(rig: StepRig, root: Path, *args: str) -> str:
    """Return what a shell runs to have relay do something in a clone."""
    env = [f"{name}={value}" for name, value in rig.environ.items()]
    return (
        f"cd {shlex.quote(str(root))} && {shlex.join(['env', '-i', *env, sys.executable, '-P', '-m', 'relay', *args])}"
    )


def meet(rig: StepRig, top: Path, step: str, then: str, *, kills: bool = False) -> tuple[list[str], str]:
    """Have something happen while a worker is at a step; return what is wrong by then, and what it said."""
    on, at, _ = STEPS[step]
    ended, said = rig.work(
        top / "ann", "--phase", "1", fault=Fault(at=at, mode="x", on=on.format(top=str(top)[1:]), then=then)
    )
    wrong = [] if ended.reached == 1 else [f"not met: {ended} {said}"]
    return wrong + ([] if kills or ended.code is not None else [f"killed: {ended}"]), said


def go_on(rig: StepRig, top: Path, since: int) -> list[str]:
    """Have the same worker do the rest; return what does not hold."""
    said = rig.work(top / "ann")[1]
    wrong = rig.check(top, {}, since=since)
    answers = sum(bool(one.usage) for one in rig.server.requests[since:])
    wrong += [f"{answers} answers"] if answers != 3 * PHASES else []
    return [*wrong, said] if wrong else []


def is_said(words: str, said: str) -> list[str]:
    """Return what is wrong when a person does not read this."""
    return [] if re.search(words, said) else [f"{words!r} is not said: {said}"]


def try_read_only(rig: StepRig, top: Path) -> list[str]:
    """The remote's file system is mounted anew, to be read only."""
    away, since = top / "away.git", len(rig.server.requests)
    subprocess.run(["mount", "--bind", away, away], check=True)
    try:
        wrong, said = meet(rig, top, "the second request", f"mount -o remount,ro,bind {away}")
        wrong += is_said("(?i)read-only file system|unable to create temporary object directory", said)
    finally:
        subprocess.run(["umount", away], check=True)
    return wrong + go_on(rig, top, since)


def try_full(rig: StepRig, top: Path) -> list[str]:
    """The remote is on a file system of its own, in memory, and somebody fills it."""
    away, since = top / "away.git", len(rig.server.requests)
    away.rename(top / "elsewhere")
    away.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", away], check=True)
    try:
        subprocess.run(["cp", "-a", f"{top}/elsewhere/.", str(away)], check=True)
        fill = f"cat /dev/zero > {away}/filler 2> /dev/null; true"
        wrong, said = meet(rig, top, "the second request", fill)
        wrong += is_said("(?i)no space left|unable to", said)
        (away / "filler").unlink()
        return wrong + go_on(rig, top, since)
    finally:
        subprocess.run(["umount", away], check=True)


def try_refused(rig: StepRig, top: Path) -> list[str]:
    """A hook takes nothing, as a host over its quota does."""
    hook, since = top / "away.git/hooks/pre-receive", len(rig.server.requests)
    hook.parent.mkdir(exist_ok=True)
    then = f"printf '#!/bin/sh\\necho over quota >&2; exit 1\\n' > {hook}; chmod +x {hook}"
    wrong, said = meet(rig, top, "the second request", then)
    wrong += is_said("over quota", said)
    hook.unlink()
    return wrong + go_on(rig, top, since)


def try_twice(rig: StepRig, top: Path) -> list[str]:
    """The same phase is given to another worker, and to another one of the same clone, while one is at it."""
    since, out = len(rig.server.requests), top / "twice"
    again = [command(rig, top / name, "work", "--phase", "1") for name in ("bob", "ann")]
    wrong, _ = meet(rig, top, "the second request", f"({again[0]}; {again[1]}) > {out} 2>&1; true")
    wrong += is_said("claimed by .* for [0-9]+ s more", out.read_text())
    wrong += is_said("another relay is at work on phase 1 in this clone", out.read_text())
    return wrong + go_on(rig, top, since)


@contextlib.contextmanager
def _worker(rig: StepRig, root: Path, *args: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """Run a worker beside others."""
    argv = [sys.executable, "-P", "-m", "relay", "work", "--lease", str(_LEASE_S), *args]
    child = subprocess.Popen(
        argv, cwd=root, env=rig.environ | environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def try_skew(rig: StepRig, top: Path) -> list[str]:
    """An hour ahead, a worker lets one alone that lives; an hour behind, it takes over from one that died."""
    source, library = top / "skew.c", top / "skew.so"
    source.write_text(_SKEW)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    skewed = {"LD_PRELOAD": str(library)}
    with _worker(rig, top / "ann", "--phase", "1") as ann:
        while not rig.registry(top).read().held:
            time.sleep(0.2)
        with _worker(rig, top / "bob", "--phase", "1", SKEW_S="3600", **skewed) as bob:
            ahead = bob.communicate(timeout=120)[0]
        ann.wait(120)
    wrong = is_said("claimed by|is done and on", ahead)
    wrong += [f"taken over from one that lives: {ahead}"] if "(attempt 2)" in ahead else []
    dead = open_registry(rig.registry(top).remote, "main", "PLAN.md", worker="dead", lease_s=_LEASE_S)
    claims = dead.read()
    bid = Bid(phase_id="2", reserve_usd=1.0, cap_usd=None, spent_usd=0.0, seen_usd=0.0, ended=claims.ended)
    wrong += [] if isinstance(dead.take(bid), PhaseClaim) else ["phase 2 could not be claimed"]
    with _worker(rig, top / "bob", "--phase", "all", SKEW_S="-3600", **skewed) as bob:
        behind = bob.communicate(timeout=120)[0]
    wrong += is_said("claimed by dead .* for 36[0-9]{2} s more; looks again", behind)
    return wrong


def try_partition(rig: StepRig, top: Path) -> list[str]:
    """The way to the remote hangs until the claim has run out."""
    since, paused, ssh = len(rig.server.requests), top / "paused", top / "ssh"
    ssh.write_text(f'#!/bin/sh\nwhile [ -e {paused} ]; do sleep 0.2; done\nshift $(($# - 1))\neval "$1"\n')
    ssh.chmod(0o755)
    for name in ("ann", "bob"):
        rig.git(top / name, "remote", "set-url", "origin", f"ssh://host{top}/away.git")
    environ = {"GIT_SSH": str(ssh), "GIT_SSH_VARIANT": "simple"}
    with _worker(rig, top / "ann", "--phase", "1", **environ) as ann:
        while not (top / "ann.relay/1/1.txt").exists() and ann.poll() is None:
            time.sleep(0.1)
        paused.touch()
        said = ann.communicate(timeout=120)[0]
    paused.unlink()
    wrong = is_said("another worker's by now|is not|git (push|fetch|ls-remote)", said)
    for name in ("ann", "bob"):
        rig.git(top / name, "remote", "set-url", "origin", str(top / "away.git"))
    return wrong + go_on(rig, top, since)


def try_many_claims(rig: StepRig, top: Path) -> list[str]:
    """Two workers want the same forty phases."""
    code = "import sys; from rigs.crash.faults import claim_forty; claim_forty(*sys.argv[1:])"
    argv = [sys.executable, "-c", code, str(top)]
    children = [subprocess.Popen([*argv, name], stdout=subprocess.PIPE, text=True) for name in ("ann", "bob")]
    won = [child.communicate(timeout=300)[0].split() for child in children]
    held = sorted(claim.phase_id for claim in rig.registry(top).read().held)
    wrong = [] if sorted(won[0] + won[1]) == held else [f"{won} {held}"]
    return wrong + ([] if len(set(held)) == len(held) == 40 else [f"{len(held)} are held"])


def claim_forty(top: str, worker: str) -> None:
    """Print which of forty phases a worker could claim."""
    repo = open_repo(Path(top, worker))
    remote = Remote(repo=repo, name=str(Path(top, "away.git")), environ=os.environ)
    registry = open_registry(remote, "main", "PLAN.md", worker=worker, lease_s=300)
    for number in range(1, 41):
        bid = Bid(phase_id=str(number), reserve_usd=0.1, cap_usd=20.0, spent_usd=0.0, seen_usd=0.0)
        with contextlib.suppress(RemoteError):
            if isinstance(registry.take(bid), PhaseClaim):
                print(number)  # noqa: T201  # to its parent


ROWS: dict[str, Row] = {
    "the remote becomes read-only": try_read_only,
    "the remote is full": try_full,
    "the remote takes nothing": try_refused,
    "a phase is delivered twice": try_twice,
    "the network hangs": try_partition,
    "clocks an hour apart": try_skew,
    "two workers, forty claims": try_many_claims,
}
