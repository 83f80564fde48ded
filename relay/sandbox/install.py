"""The one command that installs bubblewrap here."""

import shutil
import sys

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


def find_install_command() -> str | None:
    """Return the command for the package manager found; None when none is known or there is nothing to install."""
    if sys.platform != "linux":
        return None
    return next((command for program, command in _INSTALLERS.items() if shutil.which(program)), None)
