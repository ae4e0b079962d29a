"""Bytes as sound: the same however they are cut, of each kind that servers send, and one sentence for what is none."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import StageFailed
from engine.worker.remote.pcm_stream import SoundBytes

WHO = "The speech server at x"
SAMPLES = (np.sin(np.arange(999) / 7) * 20_000).astype("<i2")


def wav(data: bytes, code: int = 1, channels: int = 1, rate_hz: int = 22_050, bits: int = 16, **fields: int) -> bytes:
    """A WAV file; ``size`` is what its header says of the samples."""
    width = channels * bits // 8
    form = struct.pack("<HHIIHH", code, channels, rate_hz, rate_hz * width, width, bits)
    if code == 0xFFFE:
        form += struct.pack("<HHIH", 22, bits, 0, fields.get("real", 1)) + b"\0" * 14
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"LIST" + struct.pack("<I", 3) + b"abc\0"
    size = fields.get("size", len(data))
    return b"RIFF" + struct.pack("<I", 0xFFFFFFFF) + b"WAVE" + chunks + b"data" + struct.pack("<I", size) + data


def read(data: bytes, cuts: list[int] | None = None, rate_hz: int = 24_000, kind: str = "") -> tuple[np.ndarray, int]:
    sound = SoundBytes(rate_hz, WHO, kind)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts or ()), len(data)]
    waves = [sound.feed(data[a:b]) for a, b in pairwise(edges)]
    return np.concatenate(waves), sound.rate_hz


@given(st.lists(st.integers(0, 2100), max_size=20), st.booleans())
def test_sound_is_the_same_however_its_bytes_are_cut(cuts: list[int], has_header: bool) -> None:
    data = wav(SAMPLES.tobytes()) if has_header else SAMPLES.tobytes()
    wave, rate_hz = read(data, cuts)
    assert np.array_equal(wave, SAMPLES / np.float32(32768))
    assert rate_hz == (22_050 if has_header else 24_000)


def test_a_wav_may_have_two_channels_other_samples_and_an_unknown_length() -> None:
    both = np.stack([SAMPLES, np.zeros_like(SAMPLES)], axis=1)
    half, plain = SAMPLES / np.float32(65536), SAMPLES / np.float32(32768)
    assert np.allclose(read(wav(both.tobytes(), channels=2))[0], half, atol=1e-6)
    for size in (0, 0xFFFFFFFF, 0x7FFFFFFF):
        assert np.array_equal(read(wav(SAMPLES.tobytes(), size=size))[0], plain)
    assert np.array_equal(read(wav(plain.astype("<f4").tobytes(), code=3, bits=32))[0], plain)
    assert np.array_equal(read(wav(SAMPLES.tobytes(), code=0xFFFE))[0], plain)
    assert np.allclose(read(wav((SAMPLES.astype("<i4") << 16).tobytes(), bits=32))[0], plain, atol=1e-6)


def test_what_follows_a_wavs_samples_is_no_sound() -> None:
    data = wav(SAMPLES.tobytes()) + b"LIST\x04\0\0\0abcd"
    assert np.array_equal(read(data)[0], read(data, list(range(0, len(data), 3)))[0])
    assert len(read(data)[0]) == len(SAMPLES)


def test_half_a_sample_at_the_end_is_left_out() -> None:
    assert len(read(SAMPLES.tobytes() + b"x")[0]) == len(SAMPLES)
    assert len(read(b"x")[0]) == len(read(b"")[0]) == 0


@pytest.mark.parametrize(
    ("data", "kind", "told"),
    [
        (b"ID3\x04" + bytes(100), "", "compressed audio instead of raw samples"),
        (b"OggS" + bytes(100), "audio/ogg", "compressed audio"),
        (b"\xff\xfb\x90\x64", "audio/mpeg", "compressed audio"),
        (wav(b"", bits=24), "", "its samples have 24 bits, in format 1"),
        (wav(b"", code=6, bits=8), "", "its samples have 8 bits, in format 6"),
        (wav(b"", rate_hz=0), "", "1 channels at 0 Hz"),
        (wav(b"", channels=0), "", "0 channels"),
        (b"RIFF\0\0\0\0WAVEdata\0\0\0\0", "", "does not state its sample format"),
        (b"RIFF\0\0\0\0WAVE" + b"LIST\xff\xff\xff\x7f" + bytes(70_000), "", "its header does not end"),
    ],
)
def test_what_cannot_be_read_is_told(data: bytes, kind: str, told: str) -> None:
    with pytest.raises(StageFailed, match=told) as caught:
        read(data, kind=kind)
    assert str(caught.value).startswith(WHO)


def test_raw_samples_may_be_called_mpeg_and_begin_like_it_where_they_are_not() -> None:
    assert len(read(b"\xff\xfb\x90\x64")[0]) == 2
    assert len(read(SAMPLES.tobytes(), kind="audio/mpeg")[0]) == len(SAMPLES)


@given(st.binary(max_size=400), st.sampled_from([b"", b"RIFF\0\0\0\0WAVE", b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0"]))
def test_any_bytes_are_sound_or_one_error(data: bytes, head: bytes) -> None:
    try:
        wave, _ = read(head + data, [1, 5, 50])
    except StageFailed:
        return
    assert wave.dtype == np.float32
