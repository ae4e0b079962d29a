"""The UDP ports of a call, and the addresses from which datagrams are accepted.

aioice answers strangers with more bytes than they send, fails on some datagrams, and queues the others. Here a
stranger's datagram is only read: an address is accepted once it has proved that it knows the password in the answer.
Source: RFC 8445 (ICE), RFC 8489 (STUN), RFC 7983, 7 (meaning of the first byte).
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aioice import Candidate, Connection, TransportPolicy, stun
from aioice.candidate import candidate_foundation, candidate_priority
from aioice.ice import StunProtocol, relayed_candidate, server_reflexive_candidate
from aioice.turn import UDP_SOCKET_BUFFER_SIZE

from app.settings import Settings
from app.telemetry import log
from app.transports.webrtc import aioice_compat, aiortc_compat

SIZES = range(1, 1473)
"""Accepted datagram sizes in bytes. aiortc reads the first byte even of an empty datagram, and libsrtp's buffer holds
only an Ethernet frame; both would end the call.
"""

STUN_BYTES = range(4)
"""First bytes of STUN messages."""

MAX_PEERS = 100
"""Maximum addresses of one client: RFC 8445's limit on checks."""

MAX_WAITING = 1024
"""Maximum waiting datagrams: a burst of camera frames."""

SERVERS_S = 5.0
"""Seconds for STUN and TURN servers to respond."""

FULL = (486, 508)
"""Errors of a TURN server whose quota is used up, or whose ports are taken (RFC 8656, 19)."""

Address = tuple[str, int]


class PeerProtocol(StunProtocol):
    """One socket of a call. ``followed`` is called for each address that proves the password."""

    def __init__(self, receiver: Connection, followed: Callable[[], None]) -> None:
        super().__init__(receiver)
        self._inside = aioice_compat.inside(receiver)
        self._peers: set[Address] = set()
        self._followed = followed
        self._own_name = f"{receiver.local_username}:".encode()

    def datagram_received(self, data: bytes | str, addr: tuple[Any, ...]) -> None:
        peer: Address = (addr[0], addr[1])
        if not isinstance(data, bytes) or len(data) not in SIZES:
            return
        if data[0] in STUN_BYTES:
            self._take_message(data, peer)
        elif peer in self._peers and self._inside.queue.qsize() < MAX_WAITING:
            self.receiver.data_received(data, self.local_candidate.component)

    def send_stun(self, message: stun.Message, addr: Address) -> None:
        """Respond only to addresses that have proved the password, since a stranger may forge its address."""
        if message.message_class == stun.Class.ERROR and message.error_code in (400, 401):
            return
        if message.message_class == stun.Class.RESPONSE:
            self._take_peer(addr)
        super().send_stun(message, addr)

    def _take_message(self, data: bytes, peer: Address) -> None:
        if self._own_name not in data and data[8:20] not in self.transactions:
            return  # a stranger's, which costs no more than that
        try:
            message = stun.parse_message(data)
        except (ValueError, struct.error):  # struct.error: an attribute with a wrong length
            return
        transaction = self.transactions.get(message.transaction_id)
        match message.message_class:
            case stun.Class.REQUEST if peer in self._peers or len(self._inside.check_list) < MAX_PEERS:
                if "PRIORITY" in message.attributes:  # a check without it is invalid (RFC 8445, 7.1.1)
                    self.receiver.request_received(message, peer, self)
            case stun.Class.RESPONSE | stun.Class.ERROR if transaction is not None:
                self._take_peer(peer)  # it knows the random transaction id
                transaction.response_received(message, peer)
            case _:
                pass

    def _take_peer(self, peer: Address) -> None:
        if len(self._peers) < MAX_PEERS:
            self._peers.add(peer)
        self._followed()


def use_ports(transport: Any, settings: Settings, followed: Callable[[], None]) -> None:
    """Make an RTCIceTransport find its addresses by the settings. ``followed`` is called when its client is seen."""
    connection = aiortc_compat.inside(transport).connection
    make = partial(PeerProtocol, connection, followed)
    connection.get_component_candidates = partial(_candidates, connection, settings, make)


def close_ports(transport: Any) -> None:
    """Close an RTCIceTransport's ports at once."""
    for protocol in aioice_compat.inside(aiortc_compat.inside(transport).connection).protocols:
        protocol.transport.abort()


async def _candidates(
    connection: Any,
    settings: Settings,
    make: Callable[[], PeerProtocol],
    component: int,
    addresses: list[str],
    timeout: int = 5,
) -> list[Candidate]:
    """Gather candidates, replacing aioice's method with the same parameters. Returns none if no port is free."""
    if settings.ice_address is not None and addresses:
        addresses = ["::" if ":" in settings.ice_address else "0.0.0.0"]
    inside = aioice_compat.inside(connection)
    hosts: list[PeerProtocol] = []
    for address in addresses:
        if (protocol := await _listening(address, settings.ice_ports, make)) is None:
            continue
        host, port = protocol.transport.get_extra_info("sockname")[:2]
        protocol.local_candidate = _host_candidate(component, settings.ice_address or host, port)
        hosts.append(protocol)
        inside.protocols.append(protocol)  # at once, so that a cancellation closes the existing ones
    more = await _answered(connection, hosts, make, component)
    inside.protocols += [protocol for _, protocol in more if protocol is not None]
    return [*(one.local_candidate for one in hosts), *(candidate for candidate, _ in more)]


async def _listening(host: str, ports: tuple[int, ...], make: Callable[[], PeerProtocol]) -> PeerProtocol | None:
    """Bind a UDP socket to one of the ports. Returns its protocol; None if all are taken, or the address is gone."""
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    for port in _in_any_order(ports):
        listener = socket.socket(family, socket.SOCK_DGRAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UDP_SOCKET_BUFFER_SIZE)
            listener.bind((host, port))
        except OSError:
            listener.close()
            continue
        _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(make, sock=listener)
        return protocol
    return None


def _in_any_order(ports: tuple[int, ...]) -> Iterator[int]:
    """Yield all ports, starting at a random one; 0 means any free port."""
    if not ports:
        yield 0
        return
    first, last = ports
    count = last - first + 1
    begin = random.randrange(count)
    for n in range(count):
        yield first + (begin + n) % count


def _host_candidate(component: int, host: str, port: int) -> Candidate:
    return Candidate(
        foundation=candidate_foundation("host", "udp", host),
        component=component,
        transport="udp",
        priority=candidate_priority(component, "host"),
        host=host,
        port=port,
        type="host",
    )


async def _answered(
    connection: Any, hosts: list[PeerProtocol], make: Callable[[], PeerProtocol], component: int
) -> list[tuple[Candidate, StunProtocol | None]]:
    """Return the addresses from STUN and TURN servers that respond in time."""
    asked: list[asyncio.Task[tuple[Candidate, StunProtocol | None]]] = []
    if connection.stun_server is not None:
        plain = [one for one in hosts if ipaddress.ip_address(one.local_candidate.host).version == 4]
        asked += [asyncio.create_task(server_reflexive_candidate(one, connection.stun_server)) for one in plain]
    if connection.turn_server is not None:
        relay = relayed_candidate(
            component=component,
            hide_related_address=aioice_compat.inside(connection).transport_policy == TransportPolicy.RELAY,
            protocol_factory=make,
            turn_server=connection.turn_server,
            turn_username=connection.turn_username,
            turn_password=connection.turn_password,
            turn_ssl=connection.turn_ssl,
            turn_transport=connection.turn_transport,
        )
        asked.append(asyncio.create_task(relay))  # pyright: ignore[reportArgumentType]
    if not asked:
        return []
    done, late = await asyncio.wait(asked, timeout=SERVERS_S)
    for task in late:
        task.cancel()
    if connection.turn_server is not None and (asked[-1] in late or asked[-1].exception() is not None):
        _log_no_relay(connection, None if asked[-1] in late else asked[-1].exception())
    return [task.result() for task in done if task.exception() is None]


def _log_no_relay(connection: Any, error: BaseException | None) -> None:
    """Log why a TURN server provides no address, and what to do."""
    host, port = connection.turn_server
    hint = "check that it runs and its port is open, or correct server.ice_servers"
    if isinstance(error, stun.TransactionFailed):
        hint = "its secret, or username and credential, must match server.ice_servers"
        if error.response.error_code in FULL:
            hint = "it has no free relays: raise its limits (coturn: total-quota, user-quota, max-port)"
    log("call.no_relay", server=f"{host}:{port}", error=str(error or "no response"), hint=hint)
