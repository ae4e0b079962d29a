"""Voiceprints: embeddings of voices as text, which clients keep and send back. The server stores none."""

from __future__ import annotations

import base64
import binascii

import numpy as np

from app.realtime.input.speaker_encoder import MODEL, WIDTH, unit
from app.realtime.ports import Embedding
from app.refusal import Refusal

PATH = "session.audio.input.turn_detection.voiceprint"

_PREFIX = f"{MODEL}.1."
"""The model, and the version of the format: float16 [WIDTH] in base64url."""


def written(embedding: Embedding) -> str:
    """Return an embedding as a voiceprint."""
    return _PREFIX + base64.urlsafe_b64encode(embedding.astype("<f2").tobytes()).decode("ascii")


def read(voiceprint: str) -> Embedding:
    """Return the embedding in a voiceprint. Raises Refusal."""
    prefix, values = voiceprint[: len(_PREFIX)], voiceprint[len(_PREFIX) :]
    try:
        data = base64.b64decode(values.encode("ascii"), altchars=b"-_", validate=True)
        embedding = np.frombuffer(data, "<f2").astype(np.float32)
    except (ValueError, binascii.Error):
        embedding = np.zeros(0, np.float32)
    is_valid = prefix == _PREFIX and embedding.shape == (WIDTH,) and np.isfinite(embedding).all()
    if not is_valid or not 0.9 < float(np.linalg.norm(embedding)) < 1.1:
        raise Refusal("invalid_value", "The voiceprint is not valid: request a new one at POST /v1/speakers.", PATH)
    return unit(embedding)
