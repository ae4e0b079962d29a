"""Speech gate for recognizers that invent words.

Whisper and similar models write words where nobody speaks, most often "Thank you.", and name noises in brackets.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm

FRAME = MIC_RATE_HZ * 30 // 1000
QUIET = 60.0
"""Root mean square of a frame, in int16 (-55 dBFS). A clip without a louder frame is silence."""
_NOISE = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*")  # "[BLANK_AUDIO]", "(music)", "*laughs*"


def is_loud(pcm: Pcm) -> bool:
    """Whether int16 [samples] at MIC_RATE_HZ may contain speech."""
    return bool(loudness(np.pad(pcm, (0, -len(pcm) % FRAME)), FRAME).max(initial=0.0) > QUIET)


def loudness(pcm: Pcm, frame: int) -> NDArray[np.float32]:
    """Return the root mean square [frames] of int16 [samples]; an incomplete last frame is left out."""
    frames = pcm[: len(pcm) // frame * frame].reshape(-1, frame).astype(np.float32)
    return np.sqrt(np.square(frames).mean(axis=1))


def spoken(text: str) -> str:
    """Return a transcript on one line, or "" if it names noises only."""
    return " ".join(text.split()) if any(map(str.isalnum, _NOISE.sub("", text))) else ""
