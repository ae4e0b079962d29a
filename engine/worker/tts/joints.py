"""Removes pauses where an answer's clauses meet in the middle of a phrase."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from engine.core import Wave

Piece = tuple[Wave, float | None]
"""Samples, and the share (0 to 1) of the clause spoken at their end, or None if the library does not report it."""

KEPT_S = 0.02
"""Seconds of silence kept on each side of a joint within a phrase. Most voices produce 0.06 to 0.13 s."""
FADE_S = 0.004
QUIET = 0.004
"""Maximum amplitude of a sample that counts as silence."""


def ends_within_phrase(text: str) -> bool:
    """Return whether a clause ends without punctuation, so that its phrase continues in the next clause."""
    return text.rstrip()[-1:].isalnum()


def joined(pieces: Iterable[Piece], rate_hz: int, begins_within: bool, ends_within: bool) -> Iterator[Piece]:
    """Yield a clause's pieces, with the silence trimmed at the ends that lie within a phrase."""
    found = [*pieces]
    loud = [i for i, (wave, _) in enumerate(found) if np.abs(wave).max(initial=0.0) > QUIET]
    for i, (wave, share) in enumerate(found):
        if loud and begins_within and i <= loud[0]:
            wave = _without_lead(wave, rate_hz) if i == loud[0] else wave[:0]
        if loud and ends_within and i >= loud[-1]:
            wave = _without_lead(wave[::-1], rate_hz)[::-1] if i == loud[-1] else wave[:0]
        yield wave, share


def _without_lead(wave: NDArray[np.float32], rate_hz: int) -> NDArray[np.float32]:
    begin = int(np.argmax(np.abs(wave) > QUIET)) - round(KEPT_S * rate_hz)
    if begin <= 0:
        return wave
    wave = wave[begin:].copy()
    fade = min(len(wave), round(FADE_S * rate_hz))
    wave[:fade] *= np.linspace(0, 1, fade, dtype=np.float32)
    return wave
