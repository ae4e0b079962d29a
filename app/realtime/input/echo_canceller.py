"""Removes the playback's echo from a microphone's signal: WebRTC's AEC3, for clients that have no echo cancellation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from app.realtime.input.frames import PcmFrames
from app.realtime.ports import EchoCanceller
from app.telemetry import log
from engine.core import MIC_RATE_HZ, Pcm


class WebRtcEchoCanceller:
    """WebRTC's AEC3, which estimates the delay itself and follows clocks that drift."""

    def __init__(self) -> None:
        from pywebrtc_audio import AudioProcessor  # only where there is an echo

        self._processor: Any = AudioProcessor(
            sample_rate=MIC_RATE_HZ, echo_cancellation=True, noise_suppression=False, auto_gain_control=False
        )
        self._frames = PcmFrames(self._filtered, channels=2)

    def process(self, near: Pcm, far: Pcm) -> Pcm:
        return self._frames.push(np.stack([near, far], axis=1))

    def _filtered(self, frame: Pcm) -> Pcm:
        return self._processor.process(np.ascontiguousarray(frame[:, 0]), np.ascontiguousarray(frame[:, 1]))


@cache
def available() -> bool:
    """Return whether the library is installed: its wheels need glibc 2.28 on Linux."""
    return find_spec("pywebrtc_audio") is not None


def echo_canceller(mode: str) -> Callable[[], EchoCanceller] | None:
    """Return what makes the canceller of a session for ``TurnSettings.echo_cancellation``; None: nothing is cancelled.

    Logs once if the library is missing.
    """
    if mode == "never":
        return None
    if not available():
        log("echo_cancellation.unavailable", hint="run: pip install pywebrtc-audio")
        return None
    return WebRtcEchoCanceller
