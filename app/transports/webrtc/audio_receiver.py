"""The sound that the server hears of a call: RTP packets of the client's microphone in, samples out, at once.

Takes the place of aiortc's own jitter buffer, which delays speech by 80 ms, adds to that with every loss, and holds
back the end of what was said. Decoding happens here, in the packet's own turn: it takes 0.1 ms, a hop to a thread more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from app.telemetry import log_failure
from app.transports.webrtc import aiortc_compat
from app.transports.webrtc.jitter import Jitter
from app.transports.webrtc.opus import OpusDecoder
from engine import MIC_RATE_HZ
from engine.core import Pcm

HELD_S = 0.060
"""Seconds that a packet waits behind a gap when nothing follows: three packets' time."""

QUIET_S, QUIET_STEP_S, LONGEST_QUIET_S = 0.3, 0.1, 10.0
"""A microphone that sends nothing (switched off, or it saves silence) is silent: after so long, in steps of so much, up
to the longest pause that any turn detection waits for. A spike of 200 ms is no silence."""

SHORTEST_PAUSE_S = 0.020
"""A packet's time: what is left out between two packets that follow each other is no less."""


class AudioReceiver:
    """The place where aiortc puts the packets of one receiver. ``on_samples`` takes int16 at ``rate_hz`` and never
    waits; ``decode`` makes them of a payload, and of None where one is lost.

    Who saves silence leaves packets out, without a gap in their numbers: only the next one's timestamp says how long.
    Where ``clock_hz`` says how timestamps count, what no timer has made up of such a pause by then is made up before
    that packet. None is for a listener whose sender pauses where nothing is said.
    """

    def __init__(
        self,
        on_samples: Callable[[Pcm], None],
        rate_hz: int = MIC_RATE_HZ,
        decode: Callable[[bytes | None], Pcm] | None = None,
        clock_hz: int | None = None,
    ) -> None:
        self.made_up_s = 0.0
        """Seconds of silence among what was heard of which no packet came."""
        self._on_samples = on_samples
        self._rate_hz = rate_hz
        self._clock_hz = clock_hz
        self._jitter = Jitter[Any]()
        self._decode_one = decode or OpusDecoder(rate_hz).decode
        self._ssrc: int | None = None
        self._quiet_s = 0.0
        self._next_ticks: int | None = None  # the timestamp of what follows the last packet
        self._received_to_s = 0.0  # the time up to which something was heard, on the event loop's clock
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, receiver: Any) -> None:
        """Hear what this receiver gets. Raises RuntimeError where aiortc is not the one that this was written for."""
        aiortc_compat.inside(receiver).jitter_buffer = self

    def add(self, packet: Any) -> tuple[bool, None]:
        """One RTP packet. Never raises: aiortc would end the call, without a word."""
        try:
            self._take(packet)
        except Exception:  # noqa: BLE001 - see above; the packet is skipped
            log_failure("call.bad_packet")
        return False, None  # no picture to ask for, and nothing for aiortc to decode

    def close(self) -> None:
        """Hear no more. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_samples = lambda pcm: None

    def _take(self, packet: Any) -> None:
        now = asyncio.get_running_loop().time()
        if packet.ssrc != self._ssrc:  # another microphone: it counts from anew
            self._ssrc = packet.ssrc
            self._jitter = Jitter[Any]()
            self._next_ticks = None
            self._received_to_s = now
        self._received_to_s = min(self._received_to_s, now)
        self._decode(self._jitter.push(packet.sequence_number, packet))
        self._again_in(HELD_S if self._jitter.holds else QUIET_S)

    def _decode(self, packets: list[Any]) -> None:
        for packet in packets:
            if packet is not None:
                self._receive_pause(packet)
                self._quiet_s = 0.0
            pcm = self._decode_one(None if packet is None else packet.payload)
            self._receive_samples(pcm)
            if self._clock_hz is not None and self._next_ticks is not None:
                self._next_ticks += len(pcm) * self._clock_hz // self._rate_hz

    def _receive_pause(self, packet: Any) -> None:
        """Make up what the sender has left out before a packet; no more than has passed, whatever it says."""
        if self._clock_hz is None:
            return
        if self._next_ticks is not None:
            left_out = (packet.timestamp - self._next_ticks + 2**31) % 2**32 - 2**31  # timestamps have 32 bits
            passed_s = asyncio.get_running_loop().time() - self._received_to_s
            pause_s = min(left_out / self._clock_hz, passed_s, LONGEST_QUIET_S - self._quiet_s)
            if pause_s >= SHORTEST_PAUSE_S:
                self._make_up(pause_s)
        self._next_ticks = packet.timestamp

    def _receive_samples(self, pcm: Pcm) -> None:
        self._received_to_s += len(pcm) / self._rate_hz
        self._on_samples(pcm)

    def _make_up(self, seconds: float) -> None:
        self._quiet_s += seconds
        self.made_up_s += seconds
        self._receive_samples(np.zeros(round(seconds * self._rate_hz), np.int16))

    def _again_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._nothing_came)

    def _nothing_came(self) -> None:
        if self._jitter.holds:
            self._decode(self._jitter.flush())
            self._again_in(QUIET_S)
        elif self._quiet_s < LONGEST_QUIET_S:
            self._make_up(QUIET_STEP_S)
            self._again_in(QUIET_STEP_S)
