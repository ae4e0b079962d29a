"""Whether there is speech in a clip, before ears that invent words are asked, and in what they wrote.

Whisper and its like write words where nobody speaks, "Thank you." above all, and name noises in brackets.
"""

from __future__ import annotations

import re

import numpy as np

from engine.core import MIC_RATE_HZ, Pcm

FRAME = MIC_RATE_HZ * 30 // 1000
QUIET = 60.0
"""Root mean square of a frame, in int16 (-55 dBFS): a clip that is nowhere louder is silence."""
_NOISE = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*")  # "[BLANK_AUDIO]", "(music)", "*laughs*"


def is_loud(pcm: Pcm) -> bool:
    """Whether anything in int16 [samples] at MIC_RATE_HZ may be speech."""
    whole = np.pad(pcm, (0, -len(pcm) % FRAME)).reshape(-1, FRAME).astype(np.float32)
    return bool(len(whole)) and float(np.sqrt(np.square(whole).mean(axis=1)).max()) > QUIET


def spoken(text: str) -> str:
    """What was written down, on one line; "" where that is noises only."""
    return " ".join(text.split()) if any(map(str.isalnum, _NOISE.sub("", text))) else ""
