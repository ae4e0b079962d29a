"""A telephone's sound as RTP: packets of G.711 both ways, and pressed keys. Source: RFC 3550, 3551, 4733.

Packets are taken from the host of the offer alone, or from the exchange's own. On hold nothing is sent, and what
comes is not the caller: music, say.
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

from app.media import g711
from app.transports.disconnect import Disconnect
from app.transports.telephone.media_stream import KEYS, LEAD_S, RATE_HZ
from app.transports.telephone.sdp import PCMU, RtpOffer
from app.transports.webrtc.audio_receiver import AudioReceiver
from engine.core import Pcm

FRAME = RATE_HZ // 50
"""Samples of a packet: what telephones send, and ``ptime`` says."""

SILENT_PACKETS = 5
"""Silent packets at the beginning, and where sound goes to another place."""

MOST_WAITING = 512
"""Pieces of sound that wait for the session: ten seconds."""

STAY_S = 60.0
"""Seconds between two signs of a call on hold: nothing comes of it, and still it has not vanished."""

MOST_BYTES = 1500
"""Bytes of a packet; one of 20 ms has 172."""


class RtpStream(asyncio.DatagramProtocol):
    """``began`` is called once the session takes the call. ``hosts`` are those whose packets are taken."""

    def __init__(self, name: str, offer: RtpOffer, hosts: set[str], began: Callable[[], None]) -> None:
        self.name = name
        self.lead_s = LEAD_S
        self.way_s = 0.02
        self.offer = offer
        self._hosts = hosts
        self._began = began
        self._place = (offer.host, offer.port)
        self._placed = asyncio.Event()
        """Set once there is a place to send sound to, or the call is over."""
        if offer.port:
            self._placed.set()
        self._received = asyncio.Queue[Pcm | str | None](MOST_WAITING)
        self._receiver = AudioReceiver(self._add, RATE_HZ, self._decode, RATE_HZ)
        self._transport: asyncio.DatagramTransport | None = None
        self._last: Pcm = np.zeros(FRAME, np.int16)
        self._key_s: int | None = None  # the timestamp of the last key: its packets come three times and more
        self._part: Pcm = np.empty(0, np.int16)
        self._ssrc = random.getrandbits(32)
        self._sequence = random.getrandbits(15)
        self._origin_s = time.monotonic()
        self._ticks = 0
        self._first_tick = random.getrandbits(31)
        self._staying: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port at which packets are taken."""
        assert self._transport is not None
        return self._transport.get_extra_info("sockname")[1]

    @property
    def made_up_s(self) -> float:
        return self._receiver.made_up_s

    def redirect(self, offer: RtpOffer, hosts: set[str]) -> None:
        """Obey a later offer: sound goes to another place or in another law, or the call is put on hold, or goes on."""
        moved = (offer.host, offer.port) != (self.offer.host, self.offer.port)
        self.offer = offer
        self._hosts = hosts
        if moved:
            self._place = (offer.host, offer.port)
            self._placed.set()
        if self._transport is None or self._transport.is_closing():
            return
        self._stay()
        if moved and self._ticks < self._now():  # nothing is being said
            self._show_place()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._stay()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if addr[0] not in self._hosts or len(data) > MOST_BYTES:
            return
        try:
            packet = RtpPacket.parse(data)
        except (ValueError, IndexError, struct.error):
            return
        if packet.payload_type == self.offer.payload_type:
            self._place = addr[:2]  # a telephone behind a NAT sends from another place than it says
            if self.offer.speaks:
                self._receiver.add(packet)
        elif packet.payload_type == self.offer.keys and len(packet.payload) == 4:
            self._press(packet)

    def hang_up(self) -> None:
        """The caller has hung up. May be called twice."""
        self._placed.set()
        if self._received.full():
            self._received.get_nowait()
        self._received.put_nowait(None)

    async def received(self) -> AsyncGenerator[Pcm | str]:
        self._began()
        self._show_place()
        while (one := await self._received.get()) is not None:
            yield one

    async def send(self, pcm: Pcm) -> None:
        await self._placed.wait()
        if self._ticks < self._now() - RATE_HZ // 10:
            self._part = np.zeros(-len(pcm) % FRAME, np.int16)  # what is less than a packet would wait for the end
        samples = np.concatenate([self._part, pcm])
        whole = len(samples) // FRAME * FRAME
        for at in range(0, whole, FRAME):
            self._put(samples[at : at + FRAME])
        self._part = samples[whole:]

    async def stop(self) -> None:
        """Let what has left be heard; the part of a packet that has not is dropped."""
        self._part = self._part[:0]

    async def close(self, disconnect: Disconnect) -> None:
        """Free the port; what the caller is told is said in SIP."""
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
        """Say from time to time that a call on hold is there still, by a piece of no sound."""
        if self._staying is not None:
            self._staying.cancel()
        if not self.offer.speaks:
            self._add(np.empty(0, np.int16))
            self._staying = asyncio.get_running_loop().call_later(STAY_S, self._stay)

    def _show_place(self) -> None:
        """Relays learn from silence where sound comes from."""
        for _ in range(SILENT_PACKETS):
            self._put(np.zeros(FRAME, np.int16))

    def _now(self) -> int:
        return round((time.monotonic() - self._origin_s) * RATE_HZ)

    def _put(self, frame: Pcm) -> None:
        """Send a packet; behind a pause its timestamp jumps by the time that has passed, and its marker says so."""
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
        assert self._transport is not None
        self._transport.sendto(packet.serialize(), self._place)

    def _decode(self, payload: bytes | None) -> Pcm:
        """A lost packet is the last one again, half as loud."""
        self._last = self._last // 2 if payload is None else self._law[0](payload)
        return self._last

    def _add(self, one: Pcm | str) -> None:
        if not self._received.full():
            self._received.put_nowait(one)

    def _press(self, packet: RtpPacket) -> None:
        if packet.timestamp != self._key_s and packet.payload[0] < len(KEYS):
            self._key_s = packet.timestamp
            self._add(KEYS[packet.payload[0]])
