"""Where templates and examples are: inside the installed package, or next to it in a checkout."""

from pathlib import Path

from relay.errors import RelayError

_PACKAGE = Path(__file__).resolve().parent.parent


def get_shipped(name: str, *, package: Path = _PACKAGE) -> Path:
    """Return a shipped file or folder, such as ``templates`` or ``examples/PLAN.md``.

    Args:
        name: Relative path with forward slashes; never from outside relay.
        package: The package's own directory.

    Raises:
        RelayError: The installation is incomplete.
    """
    installed = package / "_shipped" / name
    if installed.exists():
        return installed
    # Beside an installed package other distributions may have put folders of these names.
    checkout = package.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).exists():
        return checkout / name
    raise RelayError(f"this installation of relay lacks {name}", hint="install relay again")
