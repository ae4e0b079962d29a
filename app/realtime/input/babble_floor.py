"""The level of the voices that never pause around a microphone: a user in front of it is well above.

Takes the levels of chunks, and forgets those older than a few seconds.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from engine.core import Wave

HISTORY = 250
"""Chunks of 32 ms that are remembered: 8 s, longer than most sentences and their pauses."""

SHARE = 0.4
"""The part of what is remembered that is below the floor. One person's speech has pauses, which count as silence: their
own level becomes the floor only if they speak for 5 s of the last 8."""

_SILENCE = 1e-9  # power


class BabbleFloor:
    """The power that two fifths of the last 8 s were below; what is no voice counts as silence."""

    def __init__(self) -> None:
        self._powers = deque([_SILENCE] * HISTORY, maxlen=HISTORY)  # before the first chunk nobody spoke

    def above_db(self, chunk: Wave, voiced: bool) -> float:
        """Return how far a chunk, float32 [n] in [-1, 1], is above the floor in dB; it counts from then on."""
        power = max(_SILENCE, float(np.square(chunk).mean()))
        self._powers.append(power if voiced else _SILENCE)
        at = int(SHARE * HISTORY)
        floor = float(np.partition(np.fromiter(self._powers, float), at)[at])
        return 10 * float(np.log10(power / floor))
