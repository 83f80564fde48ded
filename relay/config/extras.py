"""Packages that some of relay needs and that are not installed with it, and how they get beside this relay."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "relay-build"


def advise_extra(name: str, place: Path = Path(sys.prefix)) -> str:
    """Return what to type so that an extra's packages are there, as whoever installed relay puts them there.

    Args:
        name: Of the extra.
        place: The environment in which relay is.
    """
    try:
        found = [line.partition(";") for line in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:  # not installed: it runs from its source
        found = []
    packages = [package.strip() for package, _, marker in found if f"extra == '{name}'" in marker.replace('"', "'")]
    if not packages:
        return f"pip install '.[{name}]', in a checkout of relay"
    if (place / "pipx_metadata.json").exists():
        way = f"pipx inject {DISTRIBUTION}"
    elif (place / "uv-receipt.toml").exists() or find_spec("pip") is None:
        way = f"uv pip install --python {shlex.quote(str(place))}"
    else:
        way = f"{shlex.quote(str(place / 'bin/python'))} -m pip install"
    return f"{way} {shlex.join(packages)}"
