"""Subtracts the playback's echo as a room's linear response predicts it, for speech recognition.

A Kalman filter in the frequency domain, in partitions of one frame (Kuech, Mabande and Enzner, "State-space
architecture of the partitioned-block-based acoustic echo controller", ICASSP 2014). It keeps adapting while the user
speaks, and does not distort the user's voice. It leaves more echo than a canceller with a suppressor, which turn
detection needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.realtime.input.frames import FRAME, PcmFrames
from engine.core import Pcm

_PARTITIONS = 20  # frames of the room's response: 200 ms
_BINS = FRAME + 1
_STAY = 0.9998**2  # square of the room's correlation from one frame to the next
_SMOOTH = 0.8  # weight of the past in the power of what the filter does not explain
_DECAY = 4.0  # partitions over which the expected response falls by 1/e
_SILENCE = 1e-6  # power that is added to every bin


class LinearEchoFilter:
    """An ``EchoCanceller`` without a suppressor. Its output is as late as ``PcmFrames``."""

    def __init__(self) -> None:
        shape = (_PARTITIONS, _BINS)
        self._frames = PcmFrames(self._filtered, channels=2)
        self._playback: NDArray[np.float32] = np.zeros(2 * FRAME, np.float32)
        self._spectra: NDArray[np.complex64] = np.zeros(shape, np.complex64)  # of the playback, newest first
        self._response: NDArray[np.complex64] = np.zeros(shape, np.complex64)
        expected = np.exp(-np.arange(_PARTITIONS, dtype=np.float32) / _DECAY)
        self._error: NDArray[np.float32] = np.repeat(expected[:, None], _BINS, axis=1)  # variance of the response
        self._unexplained: NDArray[np.float32] = np.zeros(_BINS, np.float32)

    def process(self, near: Pcm, far: Pcm) -> Pcm:
        return self._frames.push(np.stack([near, far], axis=1))

    def _filtered(self, frame: Pcm) -> Pcm:
        near, far = np.divide(frame.T, 32768, dtype=np.float32)
        self._playback = np.concatenate([self._playback[FRAME:], far])
        self._spectra = np.roll(self._spectra, 1, axis=0)
        self._spectra[0] = np.fft.rfft(self._playback)
        left = near - np.fft.irfft((self._spectra * self._response).sum(0))[FRAME:].astype(np.float32)
        self._adapt(np.fft.rfft(np.concatenate([np.zeros(FRAME, np.float32), left])).astype(np.complex64))
        return np.clip(np.rint(left * 32768), -32768, 32767).astype(np.int16)

    def _adapt(self, left: NDArray[np.complex64]) -> None:
        """Update the response by the spectrum of what the filter left in a frame."""
        powers = np.square(np.abs(self._spectra))
        power = np.square(np.abs(left), dtype=np.float32)
        self._unexplained += (1 - _SMOOTH) * (power - self._unexplained)
        steps = self._error / ((powers * self._error).sum(0) + self._unexplained + _SILENCE)
        change = np.fft.irfft(steps * np.conj(self._spectra) * left)
        change[:, FRAME:] = 0  # a partition's response is one frame long
        self._response = (self._response + np.fft.rfft(change)).astype(np.complex64)
        explained = (1 - 0.5 * steps * powers) * self._error
        self._error = _STAY * explained + (1 - _STAY) * np.square(np.abs(self._response))
