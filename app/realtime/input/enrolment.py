"""Enrolment: the embedding of a person's voice from a recording of theirs alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.realtime.input.speaker_encoder import unit
from app.realtime.input.turn_detector import CHUNK
from app.realtime.ports import Embedding, SpeakerEncoder, Vad
from app.refusal import Refusal
from engine.core import MIC_RATE_HZ, Pcm

NEEDED_S = 3.0
"""Seconds of speech that an enrolment needs."""

USED_S = 30.0
"""Seconds of speech that it uses, at most."""

ALIKE = 0.3
"""Likeness of the two most different groups of parts of one person's speech, at least."""

_PART = MIC_RATE_HZ * 3 // 2  # samples of a part
_VOICE = 0.5  # probability of speech


def enrolled(recording: Pcm, encoder: SpeakerEncoder, vad: Vad) -> Embedding:
    """Return the embedding of the voice in int16 [samples] at MIC_RATE_HZ.

    ``vad`` must be a new detector. Raises Refusal if there is too little speech, or that of several people.
    """
    speech = _speech(recording, vad)[: round(USED_S * MIC_RATE_HZ)]
    seconds = len(speech) / MIC_RATE_HZ
    if seconds < NEEDED_S:
        message = f"The recording has {seconds:.1f} s of speech: send at least {NEEDED_S:.0f} s of one person."
        raise Refusal("invalid_value", message, "file")
    starts = range(0, len(speech) - _PART + 1, _PART)
    parts = np.array([encoder.embed(speech[at : at + _PART]) for at in starts])
    if _likeness_of_halves(parts) < ALIKE:
        message = "The recording seems to contain several voices: record one person alone."
        raise Refusal("invalid_value", message, "file")
    return unit(parts.mean(0))


def _likeness_of_halves(parts: NDArray[np.float32]) -> float:
    """Return how alike two groups of embeddings [parts, width] are: those nearer to either of the least alike two."""
    likeness = parts @ parts.T
    first, second = np.unravel_index(int(likeness.argmin()), likeness.shape)
    is_first = likeness[first] >= likeness[second]
    if is_first.all():  # all parts are the same
        return 1.0
    return float(unit(parts[is_first].sum(0)) @ unit(parts[~is_first].sum(0)))


def _speech(recording: Pcm, vad: Vad) -> Pcm:
    """Return the chunks in which somebody speaks, joined."""
    chunks = [recording[at : at + CHUNK] for at in range(0, len(recording) - CHUNK + 1, CHUNK)]
    spoken = [chunk for chunk in chunks if vad.probability(np.divide(chunk, 32768, dtype=np.float32)) >= _VOICE]
    return np.concatenate([*spoken, np.empty(0, np.int16)])
