"""Opus, 20 ms a packet, one channel: what the server says and hears. Source: RFC 6716, RFC 7587. Stateful, no clock."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, cast

import av
import av.error
import numpy as np

from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.audio.resampler import Resampler
from engine.core import Pcm

CLOCK_HZ = 48_000
"""RTP timestamps of Opus count at this rate, whatever the sound's own."""

FRAME_S = 0.020
FRAME = round(FRAME_S * SPEAKER_RATE_HZ)
FRAME_TICKS = round(FRAME_S * CLOCK_HZ)


def whole_frames(pcm: bytes) -> Pcm:
    """Little-endian int16 as int16 [frames * FRAME]: a last frame that is not whole ends in silence."""
    samples = np.frombuffer(pcm, "<i2")
    return np.concatenate([samples, np.zeros(-len(samples) % FRAME, np.int16)])


class OpusEncoder:
    """Speech at SPEAKER_RATE_HZ, without a resampler: it would hold back the first 20 ms."""

    def __init__(self) -> None:
        codec: Any = av.CodecContext.create("libopus", "w")
        codec.sample_rate = SPEAKER_RATE_HZ
        codec.layout = "mono"
        codec.format = "s16"
        codec.bit_rate = 32_000  # comes to 40 kb/s for speech
        codec.time_base = Fraction(1, SPEAKER_RATE_HZ)
        # Without SILK: a third of the CPU at the same rate, 4 ms less delay, nearer to what was encoded up to a loss of
        # 10 per cent, and this although only SILK carries redundancy for the packet before.
        codec.options = {"application": "lowdelay", "frame_duration": "20", "compression_level": "2"}
        codec.open()
        self._codec = codec

    def encode(self, pcm: Pcm) -> bytes:
        """int16 [FRAME] to one packet's payload.

        PyAV's public ``encode`` gives the same bytes, but cuts frames to size first, in a filter graph that starts a
        thread for every core: ours have their size.
        """
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(pcm[None]), format="s16", layout="mono")
        frame.sample_rate = SPEAKER_RATE_HZ
        return b"".join(bytes(packet) for packet in self._codec._send_frame_and_recv(frame))


class OpusDecoder:
    """Packets to int16 at ``rate_hz``; a lost one is concealed by the sound before it, fading out."""

    def __init__(self, rate_hz: int = MIC_RATE_HZ) -> None:
        codec: Any = av.CodecContext.create("libopus", "r")
        codec.sample_rate = CLOCK_HZ
        codec.layout = "mono"
        codec.format = "s16"
        self._codec = codec
        self._resampler = Resampler(CLOCK_HZ, rate_hz)
        self._last: Pcm = np.zeros(FRAME_TICKS, np.int16)
        self._gain = 1.0

    def decode(self, payload: bytes | None) -> Pcm:
        """The sound of a payload; None, or one that is no Opus, is a lost one."""
        try:
            frames = self._codec.decode(av.Packet(payload)) if payload else []
        except av.error.FFmpegError:
            frames = []
        if not frames:
            return self._resampler.push(self._conceal())
        self._last = np.concatenate([cast("Pcm", frame.to_ndarray()).reshape(-1) for frame in frames])
        self._gain = 1.0
        return self._resampler.push(self._last)

    def _conceal(self) -> Pcm:
        """The last frame again, half as loud at its end as at its beginning: after four losses all but silent."""
        before = self._gain
        self._gain = self._gain / 2
        last = self._last[-FRAME_TICKS:]
        return (last * np.linspace(before, self._gain, len(last))).astype(np.int16)
