"""Echo cancellers of several libraries with one interface, for ``benchmarks.echoes``. Install those that you compare.

``pywebrtc-audio`` (0.4 MB, Apache-2.0) and ``livekit`` (12 MB, Apache-2.0) have WebRTC's AEC3. ``pyaec`` (0.2 MB, no
licence in its wheel) has SpeexDSP. Not compared: ``aec-audio-processing`` has no wheels, and ``speexdsp-aec`` needs a
library of the system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from app.realtime.input.echo_canceller import WebRtcEchoCanceller
from app.realtime.input.frames import FRAME, PcmFrames
from app.realtime.ports import EchoCanceller
from engine.core import MIC_RATE_HZ, Pcm


class _Framed:
    """An echo canceller that takes whole frames."""

    def __init__(self, filter: Callable[[Pcm, Pcm], Pcm]) -> None:
        self._frames = PcmFrames(lambda frame: filter(frame[:, 0].copy(), frame[:, 1].copy()), channels=2)

    def process(self, near: Pcm, far: Pcm) -> Pcm:
        return self._frames.push(np.stack([near, far], axis=1))


def livekit() -> EchoCanceller:
    rtc: Any = import_module("livekit.rtc")
    processor: Any = rtc.AudioProcessingModule(echo_cancellation=True, high_pass_filter=True)

    def filter(near: Pcm, far: Pcm) -> Pcm:
        played = rtc.AudioFrame(far.tobytes(), MIC_RATE_HZ, 1, FRAME)
        heard = rtc.AudioFrame(bytearray(near.tobytes()), MIC_RATE_HZ, 1, FRAME)
        processor.process_reverse_stream(played)
        processor.process_stream(heard)
        return np.frombuffer(bytes(heard.data), np.int16)

    return _Framed(filter)


def pyaec() -> EchoCanceller:
    canceller: Any = import_module("pyaec").Aec(FRAME, MIC_RATE_HZ // 2, MIC_RATE_HZ, True)

    def filter(near: Pcm, far: Pcm) -> Pcm:
        return np.array(canceller.cancel_echo(near.tolist(), far.tolist()), np.int16)

    return _Framed(filter)


LIBRARIES: Mapping[str, Callable[[], EchoCanceller]] = {
    "pywebrtc-audio": WebRtcEchoCanceller,
    "livekit": livekit,
    "pyaec": pyaec,
}
