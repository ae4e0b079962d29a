"""Refuse every connection that would leave this machine, and remember that it was tried.

An audit hook of the interpreter sees every name lookup and every send, whatever library makes it, as long as it goes
through Python's sockets. The tests' conftest installs it, and ``sitecustomize`` next to this file does so in every
Python process that a test starts. Knows nothing of pytest.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Any

LOG = "PARLEY_TEST_NETWORK_LOG"
"""The environment variable that names the file in which child processes note what they tried."""

OURS = frozenset({None, "", "localhost", b"localhost"})
tried: list[str] = []


class LeavesTheMachine(RuntimeError):
    """A test tried to reach something that is not this machine."""


def install() -> None:
    """Begin to refuse, for the rest of this process: an audit hook can't be taken off again."""
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    match event:
        case "socket.connect" | "socket.sendto" | "socket.sendmsg":
            _check_address(event, arguments[0], arguments[1])
        case "socket.getaddrinfo" | "socket.gethostbyname":
            _check_name(event, arguments[0])
        case _:
            pass


def _check_address(event: str, sock: socket.socket, address: object) -> None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple):
        return  # a Unix socket, or a datagram on a connected one
    host = str(address[0])
    if host not in OURS and not _is_here(host):
        _refuse(f"{event}: {address}")


def _check_name(event: str, host: object) -> None:
    if host in OURS or host == socket.gethostname():
        return
    name = host.decode() if isinstance(host, bytes) else str(host)
    try:
        ipaddress.ip_address(name.partition("%")[0])  # reading a number asks nobody
    except ValueError:
        _refuse(f"{event}: {name}")


def _is_here(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # a name: connecting would look it up
    return address.is_loopback or address.is_unspecified or host in _own_addresses()


def _own_addresses() -> set[str]:
    import psutil

    return {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}


def _refuse(what: str) -> None:
    tried.append(what)
    if path := os.environ.get(LOG):
        with Path(path).open("a", encoding="utf-8") as log:
            log.write(f"{what}\n")
    raise LeavesTheMachine(f"{what} would leave this machine")
