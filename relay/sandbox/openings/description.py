"""What stands open, in words for the user."""

from pathlib import Path

from relay.sandbox.policy import Policy

_POWERS = {
    "docker.sock": "whoever reaches it is root on this machine",
    "podman.sock": "whoever reaches it can do on this machine what you can",
    "containerd.sock": "whoever reaches it is root on this machine",
}
_AGENTS = ("agent", "ssh")


def describe_opened(policy: Policy) -> tuple[str, ...]:
    """Return a sentence for each thing that leads out of the sandbox because the user said so."""
    sockets = tuple(_describe_socket(place) for place in policy.sockets)
    if policy.network:
        whole = "commands reach this machine's whole network, the services on its loopback included (network)"
        return (whole, *sockets)
    return (*(door.opens for door in policy.doors if door.opens), *sockets)


def _describe_socket(place: Path) -> str:
    power = _POWERS.get(place.name, "")
    if not power and any(word in place.name for word in _AGENTS):
        power = "whoever reaches it can sign and log in with your keys"
    return f"commands reach the socket {place}{': ' if power else ''}{power} (sockets)"
