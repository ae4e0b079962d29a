"""Voiceprints: read as they were written, and refused otherwise."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from app.realtime.input.speaker_encoder import WIDTH
from app.realtime.input.voiceprint import read, written
from app.refusal import Refusal
from tests.app.voices import embedding_of


def of(values: np.ndarray) -> str:
    return "campplus.1." + base64.urlsafe_b64encode(values.astype("<f2").tobytes()).decode()


def test_a_voiceprint_is_read_as_it_was_written() -> None:
    voice = np.random.default_rng(1).normal(size=WIDTH).astype(np.float32)
    voice /= np.linalg.norm(voice)
    assert read(written(voice)) @ voice > 0.9999
    assert len(written(voice)) < 1024


@pytest.mark.parametrize(
    "voiceprint",
    [
        "",
        "campplus.1.",
        "campplus.1.????",
        "campplus.1.é",
        written(embedding_of(300)).replace("campplus.1.", "campplus.2."),
        written(embedding_of(300))[:-4],
        of(np.zeros(WIDTH)),
        of(np.full(WIDTH, np.nan)),
        of(np.full(WIDTH, 1.0)),
        of(np.ones(WIDTH + 1) / WIDTH**0.5),
    ],
)
def test_anything_else_is_refused(voiceprint: str) -> None:
    with pytest.raises(Refusal, match="request a new one at POST /v1/speakers") as refused:
        read(voiceprint)
    assert refused.value.param == "session.audio.input.turn_detection.voiceprint"
