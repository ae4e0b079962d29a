"""A filter of whole frames over pieces of any length: nothing is lost, and the delay is less than a frame."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.realtime.input.frames import FRAME, PcmFrames
from engine.core import Pcm


def through(pcm: Pcm, pieces: list[int]) -> Pcm:
    frames = PcmFrames(lambda frame: frame[:, 0] - frame[:, 1], channels=2)
    sound = np.stack([pcm, np.ones_like(pcm)], axis=1)
    out: list[Pcm] = []
    at = 0
    for piece in pieces:
        out.append(frames.push(sound[at : at + piece]))
        assert len(out[-1]) == len(sound[at : at + piece])
        at += piece
    return np.concatenate(out)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_the_order_of_samples_stays_and_they_wait_for_less_than_a_frame(pieces: list[int]) -> None:
    pcm = np.arange(1, sum(pieces) + 1, dtype=np.int16)
    out = through(pcm, pieces)
    late = int(np.count_nonzero(out != 0) < len(out)) and int(np.flatnonzero(out)[0]) if out.any() else len(out)
    assert np.array_equal(out[out != 0], (pcm - 1)[(pcm - 1) != 0][: np.count_nonzero(out)])
    assert late <= FRAME + 1


@pytest.mark.parametrize("piece", [FRAME, 2 * FRAME, 16 * FRAME])
def test_pieces_of_whole_frames_wait_for_nothing(piece: int) -> None:
    pcm = np.arange(1, 4 * piece + 1, dtype=np.int16)
    assert np.array_equal(through(pcm, [piece] * 4), pcm - 1)
