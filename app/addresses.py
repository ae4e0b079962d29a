"""Addresses of clients: one way to write each, and which of them are one subscriber's. Knows no socket."""

from __future__ import annotations

import ipaddress


def plain(address: str) -> str:
    """The address as everything else knows it: a socket on ``::`` sees IPv4 clients as ``::ffff:a.b.c.d``."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address without its zone; None for what is none, as of a socket that has no address."""
    try:
        return ipaddress.ip_address(plain(address).partition("%")[0])
    except ValueError:
        return None


def is_local(address: str) -> bool:
    """Whether it is this very machine's: its loopback, or no address at all."""
    one = parsed(address)
    return one is None or one.is_loopback


def subscriber(address: str) -> str:
    """Return what stands for all addresses of one subscriber: one IPv4 address, or 64 bits of IPv6."""
    one = parsed(address)
    if one is None:
        return address
    return str(one) if one.version == 4 else str(ipaddress.ip_network((one, 64), strict=False))
