"""What relay depends on has a floor that no known hole is below, and constraints.txt keeps it without an address."""

import re
import tomllib
from pathlib import Path

from tests.setup.constraints import render

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[0-9.]+) --hash=sha256:[0-9a-f]{64}")
FLOORS = {"h11": (0, 16), "httpcore2": (2, 10), "httpx2": (2, 12), "pygments": (2, 20)}
"""Below these are the advisories that relay's own imports, and what they bring along, can reach."""


def parse(version):
    return tuple(int(part) for part in version.split("."))


def read_floors():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = (re.match(r"([\w-]+)>=([0-9.]+)", line) for line in wanted)
    return {match[1].lower(): parse(match[2]) for match in found if match}


def read_pins():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = [PIN.fullmatch(line) for line in lines]
    assert None not in pins
    return {pin["name"]: parse(pin["version"]) for pin in pins if pin}


def test_no_floor_is_below_a_known_hole():
    floors = read_floors()
    assert {name: floor for name, floor in FLOORS.items() if floors.get(name, (0,)) < floor} == {}


def test_every_dependency_is_pinned_at_or_above_its_floor():
    pins, floors = read_pins(), read_floors()
    assert {name for name, floor in floors.items() if pins.get(name, (0,)) < floor} == set()


def test_the_file_holds_names_versions_and_digests_only():
    digest = "0" * 64
    found = {"url": "https://x.example/a", "archive_info": {"hashes": {"sha256": digest}}}
    entry = {"metadata": {"name": "A_b", "version": "1.2"}, "download_info": found}
    own = {"metadata": {"name": "relay", "version": "0"}, "download_info": {"url": "file:///x", "dir_info": {}}}
    text = render({"install": [entry, own]})
    assert text.splitlines()[-1] == f"a-b==1.2 --hash=sha256:{digest}"
    assert "://" not in text + (ROOT / "constraints.txt").read_text()
