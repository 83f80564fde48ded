"""Which hosts a command may reach: names as the user wrote them, and addresses that are nobody's private business."""

import ipaddress
from collections.abc import Collection

from relay.config.network import EVERY

_EXAMPLES = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
"""For documentation (RFC 5737): not routed, and nobody's private network either."""
_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is handed out for the internet (RFC 4291); NAT64 and its like lie outside."""
_CARRIERS = (ipaddress.ip_network("2002::/16"), ipaddress.ip_network("2001::/32"))
"""In it addresses that hold one of IPv4, to which a gateway goes on: 6to4, Teredo."""


def is_named(host: str, patterns: Collection[str]) -> bool:
    """Say whether a host is in the list. `*.example.org` is not example.org itself."""
    above = (f"*.{host[at + 1 :]}" for at, letter in enumerate(host) if letter == ".")
    return EVERY in patterns or host in patterns or any(pattern in patterns for pattern in above)


def is_public(address: str) -> bool:
    """Say whether an address is of the public internet: no loopback, private, link-local or special net."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        if found.scope_id is not None or found not in _UNICAST or any(found in net for net in _CARRIERS):
            return False
    elif any(found in net for net in _EXAMPLES):
        return True
    return found.is_global and not found.is_multicast
