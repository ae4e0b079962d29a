"""A telephone's audio as RTP: G.711 packets in both directions, and pressed keys. Source: RFC 3550, 3551, 4733.

Packets are accepted from the offer's address. Behind NAT a telephone sends from another one: the first packet from the
offer's host or from the exchange then decides, and only a packet of the same stream (SSRC) may change that. On hold
nothing is sent, and received audio is not the caller's (but music, for example).
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
from aiortc.rtp import RtpPacket

from app.limits.fair_scheduler import LoopTimeBudget
from app.media import g711
from app.transports.datagram_intake import DatagramIntake
from app.transports.disconnect import Disconnect
from app.transports.telephone.media_stream import KEYS, LEAD_S, RATE_HZ
from app.transports.telephone.sdp import PCMU, RtpOffer
from app.transports.webrtc.audio_receiver import AudioReceiver
from engine.core import Pcm

FRAME = RATE_HZ // 50
"""Samples per packet, as telephones send and ``ptime`` says."""

SILENT_PACKETS = 5
"""Silent packets sent at the start, and after the destination has changed."""

MOST_WAITING = 512
"""Maximum number of pieces that wait for the session: ten seconds."""

STAY_S = 60.0
"""Seconds between two signs of life of a call on hold, from which nothing arrives."""

MOST_UNHEARD = 500
"""Maximum number of packets, ten seconds, sent to a host that is no SIP peer and from which nothing has arrived: its
address may be that of somebody who has not called.
"""

MOST_BYTES = 1500
"""Maximum bytes of a packet; one of 20 ms has 172."""


class RtpStream(asyncio.DatagramProtocol):
    """The RTP of one call, which sends nothing before the session begins.

    ``hosts`` are the allowed senders; ``is_peer`` returns whether a host may call the server. ``loop_time`` is the
    call's.
    """

    def __init__(
        self, name: str, offer: RtpOffer, hosts: set[str], loop_time: LoopTimeBudget, is_peer: Callable[[str], bool]
    ) -> None:
        self.name = name
        self.loop_time = loop_time
        self.lead_s = LEAD_S
        self.way_s = 0.02
        self.offer = offer
        self._hosts = hosts
        self._is_peer = is_peer
        self._intake = DatagramIntake(self._read, loop_time)
        self._source: tuple[str, int] | None = None  # of the caller's audio, once it has arrived
        self._source_ssrc = 0
        self._unheard = 0  # packets sent to a place from which nothing has arrived
        self._placed = asyncio.Event()
        """Set once there is a destination for audio, or the call is over."""
        if offer.port:
            self._placed.set()
        self._received = asyncio.Queue[Pcm | str | None](MOST_WAITING)
        self._receiver = AudioReceiver(self._add, RATE_HZ, self._decode, RATE_HZ)
        self._transport: asyncio.DatagramTransport | None = None
        self._last: Pcm = np.zeros(FRAME, np.int16)
        self._key_s: int | None = None  # timestamp of the last key, whose packets arrive three times or more
        self._part: Pcm = np.empty(0, np.int16)
        self._ssrc = random.getrandbits(32)
        self._sequence = random.getrandbits(15)
        self._origin_s = time.monotonic()
        self._ticks = 0
        self._first_tick = random.getrandbits(31)
        self._staying: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The local port."""
        assert self._transport is not None
        return self._transport.get_extra_info("sockname")[1]

    @property
    def made_up_s(self) -> float:
        return self._receiver.made_up_s

    def redirect(self, offer: RtpOffer, hosts: set[str]) -> None:
        """Apply a later offer: another destination or codec, a hold, or its end."""
        moved = offer.place != self.offer.place
        self.offer = offer
        self._hosts = hosts
        if moved:
            self._source = None
            self._placed.set()
        if self._transport is None or self._transport.is_closing():
            return
        self._stay()
        if moved and self._ticks < self._now():  # nothing is being played
            self._show_place()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._stay()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if addr[0] in self._hosts and len(data) <= MOST_BYTES:
            self._intake.put(data, addr[:2])

    def _read(self, data: bytes, address: tuple[str, int]) -> None:
        try:
            packet = RtpPacket.parse(data)
        except (ValueError, IndexError, struct.error):
            return
        is_sound = packet.payload_type == self.offer.payload_type
        if not (is_sound or packet.payload_type == self.offer.keys) or not self._is_source(address, packet.ssrc):
            return
        self._source = address
        self._source_ssrc = packet.ssrc
        self._unheard = 0
        if is_sound and self.offer.speaks:
            self._receiver.add(packet)
        elif not is_sound and len(packet.payload) == 4:
            self._press(packet)

    def _is_source(self, address: tuple[str, int], ssrc: int) -> bool:
        """Return whether the caller's audio may come from an address.

        The offered address may always send. Another one may if nothing has arrived yet, or if it sends the same stream
        as before, because a NAT has given it another port.
        """
        if self._source is None or address in (self._source, self.offer.place):
            return True
        return self._source != self.offer.place and ssrc == self._source_ssrc

    def hang_up(self) -> None:
        """Record that the caller has hung up. May be called twice."""
        self._placed.set()
        if self._received.full():
            self._received.get_nowait()
        self._received.put_nowait(None)

    async def received(self) -> AsyncGenerator[Pcm | str]:
        self._show_place()
        while (one := await self._received.get()) is not None:
            yield one

    async def send(self, pcm: Pcm) -> None:
        await self._placed.wait()
        if self._ticks < self._now() - RATE_HZ // 10:
            self._part = np.zeros(-len(pcm) % FRAME, np.int16)  # otherwise less than a packet would wait for the end
        samples = np.concatenate([self._part, pcm])
        whole = len(samples) // FRAME * FRAME
        for at in range(0, whole, FRAME):
            self._put(samples[at : at + FRAME])
        self._part = samples[whole:]

    async def stop(self) -> None:
        """Drop an incomplete packet. Sent packets will be heard."""
        self._part = self._part[:0]

    async def close(self, disconnect: Disconnect) -> None:
        """Free the port. SIP tells the caller."""
        self._intake.close()
        self._receiver.close()
        if self._staying is not None:
            self._staying.cancel()
        if self._transport is not None:
            self._transport.close()

    @property
    def _law(self) -> tuple[Callable[[bytes], Pcm], Callable[[Pcm], bytes]]:
        if self.offer.law == PCMU:
            return g711.decode_ulaw, g711.encode_ulaw
        return g711.decode_alaw, g711.encode_alaw

    def _stay(self) -> None:
        """Report a call on hold regularly, with an empty piece of audio."""
        if self._staying is not None:
            self._staying.cancel()
        if not self.offer.speaks:
            self._add(np.empty(0, np.int16))
            self._staying = asyncio.get_running_loop().call_later(STAY_S, self._stay)

    def _show_place(self) -> None:
        """Send silence, from which relays learn where audio comes from."""
        for _ in range(SILENT_PACKETS):
            self._put(np.zeros(FRAME, np.int16))

    def _now(self) -> int:
        return round((time.monotonic() - self._origin_s) * RATE_HZ)

    def _put(self, frame: Pcm) -> None:
        """Send a packet. After a pause its timestamp jumps by the elapsed time, and its marker bit is set."""
        if not self.offer.receives:
            return
        now, marker = self._now(), 0
        if now > self._ticks + FRAME:
            self._ticks = now
            marker = 1
        self._sequence = (self._sequence + 1) & 0xFFFF
        packet = RtpPacket(
            payload_type=self.offer.payload_type,
            marker=marker,
            sequence_number=self._sequence,
            timestamp=(self._first_tick + self._ticks) & 0xFFFFFFFF,
            ssrc=self._ssrc,
            payload=self._law[1](frame),
        )
        self._ticks += FRAME
        place = self._source or self.offer.place
        if not self._is_peer(place[0]):
            self._unheard += 1
        assert self._transport is not None
        if self._unheard <= MOST_UNHEARD:
            self._transport.sendto(packet.serialize(), place)

    def _decode(self, payload: bytes | None) -> Pcm:
        """Decode a packet's payload. None, a lost packet, repeats the previous result at half its volume."""
        self._last = self._last // 2 if payload is None else self._law[0](payload)
        return self._last

    def _add(self, one: Pcm | str) -> None:
        if not self._received.full():
            self._received.put_nowait(one)

    def _press(self, packet: RtpPacket) -> None:
        if packet.timestamp != self._key_s and packet.payload[0] < len(KEYS):
            self._key_s = packet.timestamp
            self._add(KEYS[packet.payload[0]])
