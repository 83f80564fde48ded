"""What helps where no sandbox holds: the command that installs bubblewrap, or what lets it make its namespaces."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from relay.base.errors import SandboxError

_INSTALLERS = {
    "apt-get": "sudo apt-get install -y bubblewrap",
    "dnf": "sudo dnf install -y bubblewrap",
    "yum": "sudo yum install -y bubblewrap",
    "apk": "sudo apk add bubblewrap",
    "pacman": "sudo pacman -S --noconfirm bubblewrap",
    "zypper": "sudo zypper install -y bubblewrap",
    "xbps-install": "sudo xbps-install -y bubblewrap",
    "emerge": "sudo emerge sys-apps/bubblewrap",
    "brew": "brew install bubblewrap",
}


_MARKS = (".dockerenv", "run/.containerenv", "run/systemd/container")
_VARIABLES = ("container", "KUBERNETES_SERVICE_HOST")
"""Of podman and nspawn; of Kubernetes. Source: https://systemd.io/CONTAINER_INTERFACE/."""


def find_install_command() -> str | None:
    """Return the command for the package manager found; None when none is known or there is nothing to install."""
    if sys.platform != "linux":
        return None
    return next((command for program, command in _INSTALLERS.items() if shutil.which(program)), None)


def is_container(environ: Mapping[str, str], *, top: Path = Path("/")) -> bool:
    """Whether this machine says of itself that it is a container: docker, podman, nspawn or a pod of Kubernetes.

    Args:
        environ: relay's own environment.
        top: Where containers leave their marks.
    """
    return any((top / mark).exists() for mark in _MARKS) or any(environ.get(name) for name in _VARIABLES)


def require_container(environ: Mapping[str, str], *, top: Path = Path("/")) -> None:
    """Refuse a machine that is no container; see `is_container`.

    Raises:
        SandboxError: It is none.
    """
    if not is_container(environ, top=top):
        raise SandboxError(
            "commands run in the container alone only inside of one, and nothing says that this machine is a container",
            hint="leave out --sandbox container: relay's own sandbox is bubblewrap",
        )


def find_way(root: Path, *, has_bwrap: bool, proc: Path = Path("/proc/sys"), top: Path = Path("/")) -> str:
    """Return what to do where commands could not be confined; what is found on the machine says which it is.

    Args:
        root: The repository.
        has_bwrap: Whether bubblewrap is installed.
        proc: Where the kernel's settings are.
        top: Where containers leave their marks.
    """
    if not os.access(root, os.W_OK) or not root.stat().st_mode & 0o222:  # root's commands have no rights of root's
        return f"{root} cannot be written by you: give yourself write access, or work in a copy that you may write"
    if Path(tempfile.gettempdir()).resolve().is_relative_to(root.resolve()):
        return "temporary files are in the repository here, where commands write: unset TMPDIR, or name another place"
    if not has_bwrap:
        return find_install_command() or "install bubblewrap; relay has no other mechanism here"
    if is_container({}, top=top):
        return (
            "bubblewrap is installed, and this container lets it make no namespaces: start the container with "
            "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        )
    for name, closed, way in _CLOSED:
        if _read(proc / name) == closed:
            return f"bubblewrap is installed, and the kernel lets it make no namespaces: sudo sysctl -w {way}"
    return "bubblewrap is installed, and does not hold here; relay doctor shows each part"


_CLOSED = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
)
"""Of Ubuntu since 23.10, of Debian before 11, of RHEL 7 and hardened systems."""


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
