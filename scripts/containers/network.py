"""Two hosts in network namespaces: the house, which runs the containers, and a caller behind a firewall that blocks
UDP.

The house is the namespace of this process.
"""

from __future__ import annotations

from pathlib import Path

from scripts.containers.machine import call

NAME = "parley.localhost"
"""Name of the server; for a name under localhost, Caddy signs the certificate itself."""

HOUSE = "198.18.0.1"
CALLER = "198.18.0.2"
INSIDE = "172.30.42.2"
"""An address in the network of compose.yaml."""

TURN_PORT = "3478"


def build(folder: Path) -> None:
    """Create both hosts, and an /etc/hosts for them that only this mount namespace sees."""
    hosts = folder / "hosts"
    names = {"127.0.0.1": "localhost", HOUSE: NAME, INSIDE: "parley prometheus"}
    hosts.write_text("".join(f"{address} {name}\n" for address, name in names.items()))
    ip("link", "set", "lo", "up")
    ip("address", "add", f"{INSIDE}/32", "dev", "lo")
    call(["mount", "--bind", hosts, "/etc/hosts"])
    namespaces = Path("/run/netns")
    namespaces.mkdir(exist_ok=True)
    call(["mount", "-t", "tmpfs", "tmpfs", namespaces])  # in this mount namespace, so that no name remains afterwards
    ip("netns", "add", "caller")
    ip("link", "add", "house0", "type", "veth", "peer", "name", "caller0", "netns", "caller")
    ip("address", "add", f"{HOUSE}/24", "dev", "house0")
    ip("link", "set", "house0", "up")
    at_caller("address", "add", f"{CALLER}/24", "dev", "caller0")
    for link in ("lo", "caller0"):
        at_caller("link", "set", link, "up")


def block_udp_but_turn() -> None:
    """Block the caller's UDP to the house except to the TURN server's port."""
    at_caller("rule", "add", "ipproto", "udp", "dport", TURN_PORT, "lookup", "main", "priority", "10")
    at_caller("rule", "add", "to", f"{HOUSE}/24", "ipproto", "udp", "blackhole", "priority", "20")


def block_udp() -> None:
    """Block all of the caller's UDP to the house."""
    at_caller("rule", "delete", "priority", "10")


def ip(*words: str) -> None:
    call(["ip", *words])


def at_caller(*words: str) -> None:
    call(["ip", "-netns", "caller", *words])
