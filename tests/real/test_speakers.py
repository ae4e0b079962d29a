"""The speaker embedding with its weights: it tells the voices of the recordings apart."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from app.realtime.input.enrolment import enrolled
from app.realtime.input.speaker_encoder import MODEL, CampPlus
from app.realtime.input.speaker_gate import CHECKS
from app.realtime.input.turn_detector import Silero
from engine import MIC_RATE_HZ
from engine.core import Pcm
from engine.training.nano.eval_ears import SPOKEN, read
from tests.real.conftest import WeightsOf

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def voices() -> dict[str, list[Pcm]]:
    """Recordings of more than 1.5 s by voice."""
    found: dict[str, list[Pcm]] = defaultdict(list)
    for one in read(SPOKEN):
        if len(one.pcm) > 1.5 * MIC_RATE_HZ:
            found[one.voice].append(one.pcm)
    return {name: lines[:6] for name, lines in found.items() if len(lines) >= 6}


def test_voices_are_told_apart(weights_of: WeightsOf, voices: dict[str, list[Pcm]]) -> None:
    encoder = CampPlus(weights_of(MODEL))
    known = {name: encoder.embed(np.concatenate(lines[:2])) for name, lines in voices.items()}
    for name, lines in voices.items():
        for line in lines[2:]:
            likeness = {one: float(encoder.embed(line) @ known[one]) for one in known}
            assert max(likeness, key=likeness.__getitem__) == name
            assert likeness[name] > CHECKS[-1].accept


def test_an_enrolment_is_like_its_voice(weights_of: WeightsOf, voices: dict[str, list[Pcm]]) -> None:
    """Synthetic voices are too much alike to show that a recording of two people is refused."""
    encoder = CampPlus(weights_of(MODEL))
    lines = next(iter(voices.values()))
    assert enrolled(np.concatenate(lines), encoder, Silero()) @ encoder.embed(lines[0]) > 0.5
