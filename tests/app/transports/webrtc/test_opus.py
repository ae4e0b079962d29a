"""Opus packets: as FFmpeg makes them, and without threads of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from app.media.audio import decode_audio
from app.transports.webrtc.opus import FRAME, OpusDecoder, OpusEncoder
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ
from engine.audio.resampler import resample
from engine.core import Pcm

SPOKEN = Path(__file__).parents[3] / "data" / "spoken"


def frames(n: int) -> list[Pcm]:
    rng = np.random.default_rng(5)
    return [rng.normal(0, 3000, FRAME).astype(np.int16) for _ in range(n)]


def publicly(encoder: OpusEncoder, pcm: Pcm) -> bytes:
    """One packet by PyAV's documented call."""
    frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
    frame.sample_rate = SPEAKER_RATE_HZ
    return b"".join(bytes(packet) for packet in encoder._codec.encode(frame))


def likeness_db(encoder: Any) -> float:
    """How far what is decoded lies above its difference to what was encoded, at the delay where that is greatest."""
    pcm = decode_audio((SPOKEN / "in_000.ogg").read_bytes(), 60)[: 3 * MIC_RATE_HZ]
    said = resample(pcm, MIC_RATE_HZ, SPEAKER_RATE_HZ)
    said = said[: len(said) // FRAME * FRAME]
    decoder = OpusDecoder(SPEAKER_RATE_HZ)
    heard = np.concatenate([decoder.decode(encoder.encode(piece)) for piece in said.reshape(-1, FRAME)])
    part = said[:-SPEAKER_RATE_HZ].astype(np.float64)
    errors = [np.square(heard[delay:][: len(part)] - part).mean() for delay in range(SPEAKER_RATE_HZ // 50)]
    return 10 * float(np.log10(np.square(part).mean() / min(errors)))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_packets_are_those_of_the_documented_call() -> None:
    ours, theirs = OpusEncoder(), OpusEncoder()
    assert [ours.encode(pcm) for pcm in frames(20)] == [publicly(theirs, pcm) for pcm in frames(20)]


def test_speech_comes_back_as_it_was() -> None:
    assert likeness_db(OpusEncoder()) > 15
    control = OpusEncoder()
    codec: Any = av.CodecContext.create("libopus", "w")
    codec.sample_rate, codec.layout, codec.format = SPEAKER_RATE_HZ, "mono", "s16"
    codec.bit_rate, codec.options = 40_000, {"application": "voip", "frame_duration": "20", "fec": "1"}
    codec.open()
    control._codec = codec
    assert likeness_db(control) < 12  # at the same rate, with redundancy for losses


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_a_call_s_codecs_start_no_thread() -> None:
    before = threads()
    encoder, decoder = OpusEncoder(), OpusDecoder()
    for pcm in frames(3):
        decoder.decode(encoder.encode(pcm))
    assert threads() == before
    assert publicly(OpusEncoder(), frames(1)[0])
    control = OpusEncoder()
    publicly(control, frames(1)[0])
    # What this is about: a thread for every core, as long as the encoder lives, and none more where there is one core.
    assert threads() > before or len(os.sched_getaffinity(0)) == 1
