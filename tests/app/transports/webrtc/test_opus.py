"""Opus packets: as FFmpeg makes them, and without threads of their own."""

from __future__ import annotations

import os
from pathlib import Path

import av
import numpy as np
import pytest

from app.transports.webrtc.opus import FRAME, Decoder, Encoder
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm


def frames(n: int) -> list[Pcm]:
    rng = np.random.default_rng(5)
    return [rng.normal(0, 3000, FRAME).astype(np.int16) for _ in range(n)]


def publicly(encoder: Encoder, pcm: Pcm) -> bytes:
    """One packet by PyAV's documented call."""
    frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
    frame.sample_rate = SPEAKER_RATE_HZ
    return b"".join(bytes(packet) for packet in encoder._codec.encode(frame))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_packets_are_those_of_the_documented_call() -> None:
    ours, theirs = Encoder(), Encoder()
    assert [ours.encode(pcm) for pcm in frames(20)] == [publicly(theirs, pcm) for pcm in frames(20)]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_a_call_s_codecs_start_no_thread() -> None:
    before = threads()
    encoder, decoder = Encoder(), Decoder()
    for pcm in frames(3):
        decoder.decode(encoder.encode(pcm))
    assert threads() == before
    assert publicly(Encoder(), frames(1)[0])
    control = Encoder()
    publicly(control, frames(1)[0])
    assert threads() > before  # what this is about: a thread for every core, as long as the encoder lives
