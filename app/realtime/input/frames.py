"""Runs a filter that takes whole frames over pieces of any length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.core import MIC_RATE_HZ, Pcm

FRAME = MIC_RATE_HZ // 100
"""Samples of one frame: 10 ms."""


class PcmFrames:
    """Passes int16 [FRAME, channels] to ``filter``, which returns int16 [FRAME].

    As many samples come out as go in. Pieces whose lengths differ by whole frames wait for nothing; others for less
    than a frame, once: of 512 samples, for 128 of a frame's 160. They can't wait for less while each piece gives as
    much as it brought.
    """

    def __init__(self, filter: Callable[[Pcm], Pcm], channels: int) -> None:
        self._filter = filter
        self._pending: Pcm = np.zeros((0, channels), np.int16)
        self._ready: Pcm = np.zeros(0, np.int16)
        self._begun = False

    def push(self, sound: Pcm) -> Pcm:
        """Return int16 [n] for int16 [n, channels]."""
        wanted = len(sound)
        sound = np.concatenate([self._pending, sound])
        lead = 0
        if not self._begun:  # the first frame begins before the sound does, so that it ends with it
            lead = -len(sound) % FRAME
            sound = np.concatenate([np.zeros((lead, sound.shape[1]), np.int16), sound])
            self._begun = True
        whole = len(sound) // FRAME * FRAME
        filtered = [self._filter(sound[at : at + FRAME]) for at in range(0, whole, FRAME)]
        self._pending = sound[whole:]
        self._ready = np.concatenate([self._ready, np.concatenate(filtered)[lead:] if filtered else self._ready[:0]])
        late = np.zeros(max(0, wanted - len(self._ready)), np.int16)
        out = self._ready[: wanted - len(late)]
        self._ready = self._ready[len(out) :]
        return np.concatenate([late, out])
