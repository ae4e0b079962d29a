"""Speech gate for recognizers that invent words.

Whisper and similar models write words where nobody speaks, name noises in brackets, and repeat themselves in noise.
"""

from __future__ import annotations

import re
import zlib

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm

FRAME = MIC_RATE_HZ * 30 // 1000
QUIET = 60.0
"""Root mean square of a frame, in int16 (-55 dBFS). A clip without a louder frame is silence."""
MOST_WORDS_PER_S = 6.0
MOST_CHARACTERS_PER_S = 28.0
SPARE_WORDS = 2
SPARE_CHARACTERS = 15
"""What a clip of no length may have, since a short clip can begin and end within a word."""
MOST_COMPRESSION = 2.2
"""Upper bound for how much shorter zlib makes a text. Whisper's own is 2.4; prompts of telephone systems reach 1.9."""
_NOISE = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*")  # "[BLANK_AUDIO]", "(music)", "*laughs*"
_INVENTED = re.compile(
    r"(you|the|(thanks|thank you) for watching|ご視聴ありがとうございました|продолжение следует)\W*|.*\bamara\.org\b.*",
    re.IGNORECASE,
)
"""Whole transcripts of noise and music: ends of the videos with subtitles that such models were trained on."""


def is_loud(pcm: Pcm) -> bool:
    """Whether int16 [samples] at MIC_RATE_HZ may contain speech."""
    return bool(loudness(np.pad(pcm, (0, -len(pcm) % FRAME)), FRAME).max(initial=0.0) > QUIET)


def loudness(pcm: Pcm, frame: int) -> NDArray[np.float32]:
    """Return the root mean square [frames] of int16 [samples]; an incomplete last frame is left out."""
    frames = pcm[: len(pcm) // frame * frame].reshape(-1, frame).astype(np.float32)
    return np.sqrt(np.square(frames).mean(axis=1))


def spoken(text: str, length_s: float) -> str:
    """Return the transcript of a clip on one line, or "" if it cannot be what somebody said.

    It cannot if it only names noises, is a phrase that models write for noise, repeats itself, or has more words than
    anybody can say in ``length_s``.
    """
    line = " ".join(text.split())
    named = any(map(str.isalnum, _NOISE.sub("", line)))
    return line if named and not _INVENTED.fullmatch(line) and _is_sayable(line, length_s) else ""


def _is_sayable(line: str, length_s: float) -> bool:
    data = line.encode()
    return (
        len(line.split()) <= SPARE_WORDS + MOST_WORDS_PER_S * length_s
        and len(line) <= SPARE_CHARACTERS + MOST_CHARACTERS_PER_S * length_s
        and len(data) <= MOST_COMPRESSION * len(zlib.compress(data))
    )
