"""Filters silence and hallucinated transcripts for recognizers that invent words.

Whisper and similar models write words for silence, put names of noises in brackets, and repeat themselves in noise.
"""

from __future__ import annotations

import re
import zlib

import numpy as np
from numpy.typing import NDArray

from engine.core import MIC_RATE_HZ, Pcm

FRAME = MIC_RATE_HZ * 30 // 1000
QUIET = 60.0
"""Root mean square of a frame in int16 units (-55 dBFS). A clip without a louder frame counts as silence."""
MOST_WORDS_PER_S = 6.0
MOST_CHARACTERS_PER_S = 28.0
SPARE_WORDS = 2
SPARE_CHARACTERS = 15
"""Allowance on top of the rates above, because a short clip can begin and end within a word."""
MOST_COMPRESSION = 2.2
"""Maximum zlib compression ratio of a transcript. Whisper itself uses 2.4; prompts of telephone systems reach 1.9."""
_NOISE = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*")  # "[BLANK_AUDIO]", "(music)", "*laughs*"
_INVENTED = re.compile(
    r"(you|the|(thanks|thank you) for watching|ご視聴ありがとうございました|продолжение следует)\W*|.*\bamara\.org\b.*",
    re.IGNORECASE,
)
"""Transcripts that models produce for noise and music: closing phrases of the subtitled videos they were trained on."""


def is_loud(pcm: Pcm) -> bool:
    """Return whether int16 [samples] at MIC_RATE_HZ may contain speech."""
    return bool(loudness(np.pad(pcm, (0, -len(pcm) % FRAME)), FRAME).max(initial=0.0) > QUIET)


def loudness(pcm: Pcm, frame: int) -> NDArray[np.float32]:
    """Return the root mean square [frames] of int16 [samples]. An incomplete last frame is ignored."""
    frames = pcm[: len(pcm) // frame * frame].reshape(-1, frame).astype(np.float32)
    return np.sqrt(np.square(frames).mean(axis=1))


def spoken(text: str, length_s: float) -> str:
    """Return a clip's transcript on one line, or "" if it is implausible.

    A transcript is implausible if it only names noises, is a phrase that models write for noise, is very repetitive, or
    has more words or characters than fit into ``length_s`` seconds.
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
