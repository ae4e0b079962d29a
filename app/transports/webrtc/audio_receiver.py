"""The audio received in a call: RTP packets of the client's microphone in, samples out, without delay.

Replaces aiortc's jitter buffer, which delays speech by 80 ms, adds to the delay with each loss, and holds back the end
of speech. Decoding happens in the packet's own callback: it takes 0.1 ms, less than a hop to a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from app.telemetry import log_failure
from app.transports.silence import SilenceFiller
from app.transports.webrtc import aiortc_compat
from app.transports.webrtc.jitter import Jitter
from app.transports.webrtc.opus import OpusDecoder
from engine import MIC_RATE_HZ
from engine.core import Pcm

HELD_S = 0.060
"""Seconds that a packet waits for missing ones if nothing follows: the duration of three packets."""


class AudioReceiver:
    """Receives the packets of one aiortc receiver. ``on_samples`` accepts int16 at ``rate_hz`` and never waits.

    ``decode`` converts a payload, or None for a lost packet, to samples. Senders with silence suppression leave packets
    out without a gap in their sequence numbers, so only the next timestamp shows the pause. If ``clock_hz`` is set (the
    rate of timestamps), the silence that no timer has added by then is added before that packet. Use None if the sender
    pauses only when nothing is spoken.
    """

    def __init__(
        self,
        on_samples: Callable[[Pcm], None],
        rate_hz: int = MIC_RATE_HZ,
        decode: Callable[[bytes | None], Pcm] | None = None,
        clock_hz: int | None = None,
    ) -> None:
        self._on_samples = on_samples
        self._rate_hz = rate_hz
        self._clock_hz = clock_hz
        self._jitter = Jitter[Any]()
        self._decode_one = decode or OpusDecoder(rate_hz).decode
        self._ssrc: int | None = None
        self._silence = SilenceFiller(self._add_silence)
        self._next_ticks: int | None = None  # the expected timestamp of the next packet
        self._received_to_s = 0.0  # end of the audio so far, on the event loop's clock
        self._timer: asyncio.TimerHandle | None = None

    @property
    def made_up_s(self) -> float:
        """Return the seconds of added silence for which no packet arrived."""
        return self._silence.made_up_s

    def attach(self, receiver: Any) -> None:
        """Receive this receiver's packets. Raises RuntimeError for an unsupported version of aiortc."""
        aiortc_compat.inside(receiver).jitter_buffer = self

    def add(self, packet: Any) -> tuple[bool, None]:
        """Add an RTP packet. Never raises, since aiortc would end the call silently."""
        try:
            self._take(packet)
        except Exception:  # noqa: BLE001 - see above; the packet is skipped
            log_failure("call.bad_packet")
        return False, None  # no picture to request, and nothing for aiortc to decode

    def close(self) -> None:
        """Stop receiving. May be called twice."""
        self._flush_in(None)
        self._silence.close()
        self._on_samples = lambda pcm: None

    def _take(self, packet: Any) -> None:
        now = asyncio.get_running_loop().time()
        if packet.ssrc != self._ssrc:  # a new stream with its own numbers
            self._ssrc = packet.ssrc
            self._jitter = Jitter[Any]()
            self._next_ticks = None
            self._received_to_s = now
        self._received_to_s = min(self._received_to_s, now)
        self._decode(self._jitter.push(packet.sequence_number, packet))
        self._flush_in(HELD_S if self._jitter.holds else None)

    def _decode(self, packets: list[Any]) -> None:
        for packet in packets:
            if packet is not None:
                self._receive_pause(packet)
                self._silence.heard()
            pcm = self._decode_one(None if packet is None else packet.payload)
            self._receive_samples(pcm)
            if self._clock_hz is not None and self._next_ticks is not None:
                self._next_ticks += len(pcm) * self._clock_hz // self._rate_hz

    def _receive_pause(self, packet: Any) -> None:
        """Add the silence that the sender left out before a packet, at most as much as the elapsed time."""
        if self._clock_hz is None:
            return
        if self._next_ticks is not None:
            left_out = (packet.timestamp - self._next_ticks + 2**31) % 2**32 - 2**31  # timestamps have 32 bits
            passed_s = asyncio.get_running_loop().time() - self._received_to_s
            self._silence.fill(min(left_out / self._clock_hz, passed_s))
        self._next_ticks = packet.timestamp

    def _receive_samples(self, pcm: Pcm) -> None:
        self._received_to_s += len(pcm) / self._rate_hz
        self._on_samples(pcm)

    def _add_silence(self, seconds: float) -> None:
        self._receive_samples(np.zeros(round(seconds * self._rate_hz), np.int16))

    def _flush_in(self, seconds: float | None) -> None:
        """Wait no longer than that for missing packets; None if none are missing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._flush)

    def _flush(self) -> None:
        self._decode(self._jitter.flush())
