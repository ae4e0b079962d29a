"""Two machines in namespaces: the house, in which the containers are, and a caller behind a firewall that blocks UDP.

The house is the namespace that this process is in already. Knows no container.
"""

from __future__ import annotations

from pathlib import Path

from scripts.containers.machine import call

NAME = "parley.localhost"
"""The server's name: for one like this Caddy is its own authority."""

HOUSE = "198.18.0.1"
CALLER = "198.18.0.2"
INSIDE = "172.30.42.2"
"""An address in the network of compose.yaml."""

TURN_PORT = "3478"


def build(folder: Path) -> None:
    """Make both, and names for them in an /etc/hosts of our own mounts."""
    hosts = folder / "hosts"
    names = {"127.0.0.1": "localhost", HOUSE: NAME, INSIDE: "parley prometheus"}
    hosts.write_text("".join(f"{address} {name}\n" for address, name in names.items()))
    ip("link", "set", "lo", "up")
    ip("address", "add", f"{INSIDE}/32", "dev", "lo")
    call(["mount", "--bind", hosts, "/etc/hosts"])
    namespaces = Path("/run/netns")
    namespaces.mkdir(exist_ok=True)
    call(["mount", "-t", "tmpfs", "tmpfs", namespaces])  # ours, so that no name is left behind
    ip("netns", "add", "caller")
    ip("link", "add", "house0", "type", "veth", "peer", "name", "caller0", "netns", "caller")
    ip("address", "add", f"{HOUSE}/24", "dev", "house0")
    ip("link", "set", "house0", "up")
    at_caller("address", "add", f"{CALLER}/24", "dev", "caller0")
    for link in ("lo", "caller0"):
        at_caller("link", "set", link, "up")


def block_udp_but_turn() -> None:
    """Let the caller send datagrams to the TURN server's port, and to no other of the house."""
    at_caller("rule", "add", "ipproto", "udp", "dport", TURN_PORT, "lookup", "main", "priority", "10")
    at_caller("rule", "add", "to", f"{HOUSE}/24", "ipproto", "udp", "blackhole", "priority", "20")


def block_udp() -> None:
    """Let the caller send no datagram at all to the house."""
    at_caller("rule", "delete", "priority", "10")


def ip(*words: str) -> None:
    call(["ip", *words])


def at_caller(*words: str) -> None:
    call(["ip", "-netns", "caller", *words])
