"""What `relay fleet template` prints starts a worker and stops it gently; `make templates` has the linters."""

import os
import signal
import subprocess
from functools import partial

import yaml

from tests.waiting import wait_until


def read_systemd(text):
    lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    assert (lines["KillSignal"], lines["KillMode"], lines["Restart"]) == ("SIGINT", "mixed", "always")
    return lines["ExecStart"].split()


def read_compose(text):
    worker = yaml.safe_load(text)["services"]["worker"]
    assert (worker["stop_signal"], worker["restart"]) == ("SIGINT", "unless-stopped")
    return worker["command"]


def read_k8s(text):
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    (stop,) = container["lifecycle"]["preStop"]["exec"]["command"][2:]
    assert stop.startswith("kill -INT 1; ")
    return container["command"]


READERS = {"systemd": read_systemd, "compose": read_compose, "k8s": read_k8s}
RELAY = """#!/bin/sh
trap 'echo handed over; exit 0' INT
echo "$*"
while :; do sleep 0.1; done
"""


def has_begun(place):
    return "fleet worker\n" in place.read_text()


def test_each_template_starts_a_worker_and_has_it_hand_over(stage, tmp_path):
    relay = tmp_path / "programs/relay"
    relay.parent.mkdir()
    relay.write_text(RELAY)
    relay.chmod(0o755)
    environ = {**os.environ, "PATH": f"{relay.parent}:{os.environ['PATH']}"}
    for kind, read in READERS.items():
        printed = stage.relay("fleet", "template", kind)
        assert printed.returncode == 0, printed.stderr
        out = tmp_path / kind
        with out.open("w") as file:
            worker = subprocess.Popen(read(printed.stdout), env=environ, stdout=file)
        wait_until(partial(has_begun, out), by=worker)
        worker.send_signal(signal.SIGINT)
        assert (worker.wait(30), out.read_text()) == (0, "fleet worker\nhanded over\n"), kind
