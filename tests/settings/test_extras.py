"""What is not installed with relay is asked for in the way in which relay was installed."""

import re
import tomllib
from pathlib import Path

import pytest

from relay.base.hints import advise_extra

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
USED = {
    name
    for path in (ROOT / "relay").rglob("*.py")
    for name in re.findall(r"advise_extra\([\"'](\w+)[\"']\)", path.read_text())
}


@pytest.mark.parametrize(
    ("mark", "way"),
    [
        ("pipx_metadata.json", "pipx inject relay-build "),
        ("uv-receipt.toml", "uv pip install --python {place} "),
        ("pyvenv.cfg", "{place}/bin/python -m pip install "),
    ],
)
def test_by_whoever_installed_relay(tmp_path, mark, way):
    """Into relay's own environment: another one does not help, and the name of a package is not relay's."""
    (tmp_path / mark).write_text("")
    assert advise_extra("fleet", tmp_path).startswith(way.format(place=tmp_path))


def test_all_packages_of_an_extra_are_named():
    """Each that the code asks for is one of relay's."""
    assert {"notify", "socks", "fleet", "otel", "cloud"} == USED
    for name in USED:
        assert all(re.split(r"[<>=]", package)[0] in advise_extra(name) for package in EXTRAS[name]), name


def test_nobody_is_sent_to_a_package_of_another_project():
    """`relay` is another project. `relay-build` is not published: the page that names it says so, and no hint does."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if re.search(r"install '?\"?relay\[", page.read_text())] == []
    assert "relay-build is **not on PyPI yet**" in (ROOT / "README.md").read_text()
    hints = (ROOT / "relay").rglob("*.py")
    assert [place for place in hints if re.search(r"install '?\"?relay(?:-build)?\[", place.read_text())] == []
