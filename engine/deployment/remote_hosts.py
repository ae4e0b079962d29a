"""Addresses of servers that a stage asks: which of them are this very machine. Looks no name up, opens no socket."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """``host`` or ``host:port``, as people read it: who gets what is sent to this address."""
    return urlsplit(url).netloc.rpartition("@")[2]


def is_local(url: str) -> bool:
    """Whether what is sent to this address stays on this machine, as far as the address itself tells.

    A name other than ``localhost`` may lead anywhere, so it is not local, whatever it leads to today.
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
    return one.is_loopback or one.is_unspecified  # to connect to 0.0.0.0 is to connect to oneself
