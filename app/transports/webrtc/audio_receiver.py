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
from app.transports.webrtc.opus import Decoder
from engine import MIC_RATE_HZ
from engine.core import Pcm

HELD_S = 0.060
"""Seconds that a packet waits behind a gap when nothing follows: three packets' time."""

QUIET_S, QUIET_STEP_S, LONGEST_QUIET_S = 0.3, 0.1, 10.0
"""A microphone that sends nothing (switched off, or it saves silence) is silent: after so long, in steps of so much, up
to the longest pause that any turn detection waits for. A spike of 200 ms is no silence."""


class AudioReceiver:
    """The place where aiortc puts the packets of one receiver. ``on_samples`` takes int16 at ``rate_hz`` and never
    waits; ``decode`` makes them of a payload, and of None where one is lost."""

    def __init__(
        self,
        on_samples: Callable[[Pcm], None],
        rate_hz: int = MIC_RATE_HZ,
        decode: Callable[[bytes | None], Pcm] | None = None,
    ) -> None:
        self._on_samples, self._rate_hz = on_samples, rate_hz
        self._jitter, self._decode_one = Jitter(), decode or Decoder(rate_hz).decode
        self._ssrc: int | None = None
        self._quiet_s = 0.0
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
        if packet.ssrc != self._ssrc:  # another microphone: it counts from anew
            self._ssrc, self._jitter = packet.ssrc, Jitter()
        self._quiet_s = 0.0
        self._decode(self._jitter.push(packet.sequence_number, packet.payload))
        self._again_in(HELD_S if self._jitter.holds else QUIET_S)

    def _decode(self, payloads: list[bytes | None]) -> None:
        for payload in payloads:
            self._on_samples(self._decode_one(payload))

    def _again_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._nothing_came)

    def _nothing_came(self) -> None:
        if self._jitter.holds:
            self._decode(self._jitter.flush())
            self._again_in(QUIET_S)
        elif self._quiet_s < LONGEST_QUIET_S:
            self._quiet_s += QUIET_STEP_S
            self._on_samples(np.zeros(round(QUIET_STEP_S * self._rate_hz), np.int16))
            self._again_in(QUIET_STEP_S)
