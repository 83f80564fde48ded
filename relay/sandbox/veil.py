"""What a sandbox keeps from commands that is there on this machine: asked when one of them failed."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from relay.base.secrecy import is_secret_name
from relay.base.tree import read_start
from relay.base.values import dataclass
from relay.sandbox.bwrap import Bwrap
from relay.sandbox.places import (
    find_emptied,
    find_home_directory,
    find_real,
    find_toolchains,
    is_below,
    is_socket,
    is_there,
)
from relay.sandbox.run import Sandbox
from relay.sandbox.toolchains import FIXED, NEVER, build_env
from relay.sandbox.view import DEV_NULL, Op

_ENVIRONMENTS = (".venv/bin", "venv/bin", "node_modules/.bin", "vendor/bin")
_ASSIGNED = re.compile(rb"^(?:export )?([A-Za-z_][A-Za-z0-9_]{2,})=", re.MULTILINE)
_MAX_FILE_BYTES = 64 * 1024
_MAX_INSTALLED = 2_000
_LISTENING = "0A"
"""State of a socket in /proc/net/tcp. Source: include/net/tcp_states.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Veil:
    """What commands of one sandbox do not get. Every answer is looked up when it is asked for."""

    root: Path
    home: Path | None
    network: bool
    """Whether they reach it."""
    dropped: frozenset[str]
    """Variables that are set here and not given to them."""
    barred: frozenset[str]
    """Those of them that no setting gives."""
    is_covered: Callable[[Path], bool] = field(hash=False)
    """Whether a place that is there on this machine cannot be seen by them."""
    path: str
    """Where programs are looked for."""
    virtual_env: str
    """The environment that is active; may be empty."""

    def find_hidden(self, place: str) -> str:
        """Return the place that they do not see, of a path or of what it leads to; empty when they see it."""
        path = Path(self.root, place.replace("~", str(self.home or "~"), 1) if place.startswith("~/") else place)
        path = Path(os.path.normpath(path))
        if not is_there(path):
            return ""
        return next((str(one) for one in (path, find_real(path)) if self.is_covered(one)), "")

    def is_socket(self, place: str) -> bool:
        """Say whether a path is a Unix socket of this machine."""
        return place.startswith("/") and is_socket(place)

    def is_masked(self, path: str) -> bool:
        """Say whether a file of the repository is there and is one that holds secrets."""
        real = os.path.normpath(Path(self.root, path))
        inside = Path(real).is_relative_to(self.root) and is_secret_name(os.path.basename(real))  # noqa: PTH119
        return inside and Path(real).is_file()

    def find_listener(self, port: int) -> bool:
        """Say whether a service of this machine listens on a TCP port."""
        wanted = f":{port:04X}"
        for table in ("tcp", "tcp6"):
            try:
                lines = Path("/proc/net", table).read_text().splitlines()[1:]
            except OSError:
                continue
            if any(f[1].endswith(wanted) and f[3] == _LISTENING for f in map(str.split, lines)):
                return True
        return False

    def find_program(self, name: str) -> str:
        """Return where a program is that commands do not find, relative inside the repository; empty for nowhere."""
        for place in _ENVIRONMENTS:
            if os.access(self.root / place / name, os.X_OK):
                return f"{place}/{name}"
        if found := shutil.which(name, path=self.path):
            return found
        venvs = self.home / ".cache/pypoetry/virtualenvs" if self.home else None
        known = sorted(venvs.glob(f"*/bin/{name}")) if venvs and "/" not in name and venvs.is_dir() else []
        return str(known[0]) if known else ""

    def find_masked_names(self) -> frozenset[str]:
        """Return the variables that the repository's ``.env`` sets; their values are nobody's to see."""
        try:
            data = read_start(self.root / ".env", _MAX_FILE_BYTES) or b""
        except OSError:
            return frozenset()
        return frozenset(name.decode() for name in _ASSIGNED.findall(data))

    def find_linked(self, name: str) -> str:
        """Return the hidden directory that an installed package really is in; empty when there is none.

        Source: PEP 610 for Python's editable installations; npm links into node_modules.
        """
        link = self.root / "node_modules" / name
        if link.is_symlink() and (hidden := self.find_hidden(str(link))):
            return hidden
        venvs = [self.root / ".venv", self.root / "venv", *([Path(self.virtual_env)] if self.virtual_env else [])]
        for venv in venvs:
            for count, file in enumerate(venv.glob("lib/python3*/site-packages/*.dist-info/direct_url.json")):
                if count < _MAX_INSTALLED and (hidden := self.find_hidden(_read_place(file))):
                    return hidden
        return ""


def _read_place(file: Path) -> str:
    import json
    from urllib.parse import unquote, urlsplit

    try:
        found = json.loads((read_start(file, _MAX_FILE_BYTES) or b"").decode("utf-8", "replace"))
        editable = bool(found["dir_info"].get("editable"))
        return unquote(urlsplit(found["url"]).path) if editable else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def lift_veil(sandbox: Sandbox) -> Veil | None:
    """Return what commands of a sandbox do not get; None where nothing is kept from them."""
    if not sandbox.mechanism.confines:
        return None
    policy = sandbox.policy
    given = build_env(policy, home=policy.root, tmp=sandbox.tmp)
    dropped = frozenset(policy.env) - given.keys() - FIXED.keys()
    return Veil(
        root=policy.root,
        home=find_home_directory(policy.env),
        network=policy.reaches_hosts,
        dropped=dropped,
        barred=frozenset(name for name in dropped if NEVER.fullmatch(name)),
        is_covered=_find_cover(sandbox),
        path=policy.env.get("PATH", ""),
        virtual_env=policy.env.get("VIRTUAL_ENV", ""),
    )


def _find_cover(sandbox: Sandbox) -> Callable[[Path], bool]:
    confinement, policy = sandbox.confinement, sandbox.policy
    if not isinstance(confinement, Bwrap):
        home = find_home_directory(policy.env)
        covered, shown = (
            find_emptied(home, policy.apart),
            (policy.root, *find_toolchains(home, policy.env, ()), *policy.writable),
        )
        return lambda place: is_below(place, covered) and not is_below(place, shown)
    mounts = [mount for mount in confinement.list_mounts() if mount.op is not Op.FREEZE]

    def is_covered(place: Path) -> bool:
        covering = [mount for mount in mounts if place.is_relative_to(mount.dest)]
        return bool(covering) and (covering[-1].op is Op.EMPTY or covering[-1].source == DEV_NULL)

    return is_covered
