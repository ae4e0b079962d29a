"""Addresses of servers that stages call, and whether they are on this machine. No name lookup, no socket."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """Return the ``host`` or ``host:port`` of a URL, without a user name or password."""
    return urlsplit(url).netloc.rpartition("@")[2]


def is_local(url: str) -> bool:
    """Whether requests to this URL stay on this machine, as far as the URL itself shows.

    A name other than ``localhost`` counts as remote: what it resolves to may change.
    """
    host = (urlsplit(url).hostname or "").rstrip(".").partition("%")[0]
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761, 6.3
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    one = mapped or address
    return one.is_loopback or one.is_unspecified  # a connection to 0.0.0.0 reaches this machine
