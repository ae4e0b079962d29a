"""Whether there is speech in a clip, before ears that invent words are asked, and in what they wrote.

Whisper and its like write words where nobody speaks, "Thank you." above all, and name noises in brackets.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm

FRAME = MIC_RATE_HZ * 30 // 1000
QUIET = 60.0
"""Root mean square of a frame, in int16 (-55 dBFS): a clip that is nowhere louder is silence."""
_NOISE = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*")  # "[BLANK_AUDIO]", "(music)", "*laughs*"


def is_loud(pcm: Pcm) -> bool:
    """Whether anything in int16 [samples] at MIC_RATE_HZ may be speech."""
    return bool(loudness(np.pad(pcm, (0, -len(pcm) % FRAME)), FRAME).max(initial=0.0) > QUIET)


def loudness(pcm: Pcm, frame: int) -> NDArray[np.float32]:
    """Root mean square [frames] of int16 [samples], in frames of so many; less than one at the end does not count."""
    frames = pcm[: len(pcm) // frame * frame].reshape(-1, frame).astype(np.float32)
    return np.sqrt(np.square(frames).mean(axis=1))


def spoken(text: str) -> str:
    """Return the text that was written down, on one line; "" where it is noises only."""
    return " ".join(text.split()) if any(map(str.isalnum, _NOISE.sub("", text))) else ""
