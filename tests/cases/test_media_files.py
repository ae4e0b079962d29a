"""Sound files that recorders and taggers write, and that other players play."""

from __future__ import annotations

import io
import os
import struct
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from app.media.audio import decode_audio
from tests.app.media.test_audio import recorded, sine

SECONDS = 2.0
EXTENSIBLE_PCM = bytes.fromhex("0100000000001000800000aa00389b71")
"""The sub-format of an extensible WAV header that says PCM."""


def seconds_of(data: bytes) -> float:
    """Decode a file, check that it is the tone of 440 Hz, and return its length."""
    pcm = decode_audio(data, limit_s=60)
    middle = pcm[8_000:24_000] / 1.0
    assert np.abs(np.fft.rfft(middle)).argmax() == pytest.approx(440, abs=1)
    assert np.abs(middle).max() > 5_500
    return len(pcm) / 16_000


def with_gap(gap_s: int, at_s: float) -> bytes:
    """Return an MP4 file whose timestamps jump by ``gap_s`` seconds."""
    file = io.BytesIO()
    out: Any = av.open(file, "w", format="mp4")
    stream = out.add_stream("aac", rate=48_000, layout="mono")
    pcm = sine(96_000, 48_000)
    for start in range(0, len(pcm), 1024):
        part = pcm[start : start + 1024].astype(np.float32) / 32_768
        frame = av.AudioFrame.from_ndarray(part[None], format="fltp", layout="mono")
        frame.sample_rate = 48_000
        frame.time_base = Fraction(1, 48_000)
        frame.pts = start + (gap_s * 48_000 if start >= at_s * 48_000 else 0)
        out.mux(stream.encode(frame))
    out.mux(stream.encode(None))
    out.close()
    return file.getvalue()


def wav_24_in_32(pcm: np.ndarray, rate_hz: int) -> bytes:
    """Return an extensible WAV file whose 32-bit containers have 24 valid bits."""
    data = (pcm.astype("<i4") << 16).tobytes()
    header = struct.pack("<HHIIHHHHI", 0xFFFE, 1, rate_hz, 4 * rate_hz, 4, 32, 22, 24, 4) + EXTENSIBLE_PCM
    chunks = b"WAVEfmt " + struct.pack("<I", len(header)) + header + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


def id3(*frames: bytes, version: int = 3) -> bytes:
    """Return an ID3v2 tag; its length is written in four groups of seven bits."""
    body = b"".join(frames)
    length = bytes(len(body) >> shift & 127 for shift in (21, 14, 7, 0))
    return b"ID3" + bytes([version, 0, 0]) + length + body


def cover(size: int) -> bytes:
    """Return an ID3 picture frame that says PNG, begins as a JPEG, and has no picture."""
    body = b"\0image/png\0\x03\0" + b"\xff\xd8\xff\xe0" + os.urandom(size)
    return b"APIC" + struct.pack(">I", len(body)) + b"\0\0" + body


@pytest.mark.xfail(strict=True, reason="a file with a gap in its timestamps is taken for one that is cut off")
def test_sound_after_a_gap_in_the_timestamps_of_an_mp4_is_kept() -> None:
    assert seconds_of(with_gap(gap_s=20, at_s=1.0)) >= SECONDS - 0.12


@pytest.mark.xfail(strict=True, reason="a FLAC file that begins with an ID3 tag is refused")
def test_a_flac_after_an_id3_tag_is_decoded() -> None:
    data = id3(bytes(10), version=4) + recorded("flac", "flac")
    assert seconds_of(data) == pytest.approx(SECONDS, abs=0.05)


@pytest.mark.xfail(strict=True, reason="a WAV file with 24 valid bits in 32-bit samples is refused")
def test_a_wav_of_24_bits_in_32_is_decoded() -> None:
    assert seconds_of(wav_24_in_32(sine(32_000, 16_000), 16_000)) == pytest.approx(SECONDS, abs=0.05)


def test_both_parts_of_a_chained_ogg_opus_file_are_decoded() -> None:
    one = recorded("ogg", "libopus")
    assert seconds_of(one + one) == pytest.approx(2 * seconds_of(one), abs=0.05)


def test_an_mp3_after_a_broken_cover_of_3_mb_is_decoded() -> None:
    data = id3(cover(3_000_000)) + recorded("mp3", "libmp3lame")
    assert seconds_of(data) == pytest.approx(SECONDS, abs=0.12)
