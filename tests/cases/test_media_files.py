"""Sound files that recorders and taggers write, and that other players play."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from app.media.audio import MediaError, decode_audio
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


def after(first: bytes, mp4: bytes) -> bytes:
    """Return an MP4 file with boxes before it: its table of places (stco) counts from the file's beginning."""
    at = mp4.index(b"stco") + 8
    count = int.from_bytes(mp4[at : at + 4], "big")
    places = struct.unpack_from(f">{count}I", mp4, at + 4)
    moved = struct.pack(f">{count}I", *(place + len(first) for place in places))
    return first + mp4[: at + 4] + moved + mp4[at + 4 + len(moved) :]


def movie_first(mp4: bytes) -> bytes:
    """Return an MP4 file whose movie box is before its sound, so that its beginning can be played."""
    at = mp4.index(b"moov") - 4
    head, movie = mp4[:at], mp4[at:]
    moved = after(movie, movie + head)  # every place moves by the length of the movie box
    start = int.from_bytes(head[:4], "big")
    return head[:start] + moved[len(movie) : 2 * len(movie)] + head[start:]


def id3(*frames: bytes, version: int = 3) -> bytes:
    """Return an ID3v2 tag; its length is written in four groups of seven bits."""
    body = b"".join(frames)
    length = bytes(len(body) >> shift & 127 for shift in (21, 14, 7, 0))
    return b"ID3" + bytes([version, 0, 0]) + length + body


def cover(size: int) -> bytes:
    """Return an ID3 picture frame that says PNG, begins as a JPEG, and has no picture."""
    body = b"\0image/png\0\x03\0" + b"\xff\xd8\xff\xe0" + os.urandom(size)
    return b"APIC" + struct.pack(">I", len(body)) + b"\0\0" + body


def test_sound_after_a_gap_in_the_timestamps_of_an_mp4_is_kept() -> None:
    assert seconds_of(with_gap(gap_s=20, at_s=1.0)) >= SECONDS - 0.12


def wav_in_containers(bits: int, container: int, extensible: bool, channels: int = 1) -> bytes:
    """Return a WAV file with samples of ``bits`` in the upper bits of their containers."""
    scaled = (sine(32_000, 16_000).astype(np.int64) << (container - 16)) & ~((1 << (container - bits)) - 1)
    size = container // 8
    samples = scaled.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :size]
    data = np.repeat(samples[:, None], channels, axis=1).tobytes()
    said = (0xFFFE if extensible else 1, channels, 16_000, 16_000 * channels * size, channels * size)
    header = struct.pack("<HHIIHH", *said, container if extensible else bits)
    if extensible:
        header += struct.pack("<HHI", 22, bits, 0) + EXTENSIBLE_PCM
    chunks = b"WAVEfmt " + struct.pack("<I", len(header)) + header + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks)) + chunks


@pytest.mark.parametrize(
    ("bits", "container", "extensible", "channels"),
    [
        (24, 32, True, 1),
        (24, 32, True, 2),
        (24, 32, False, 1),
        (20, 24, True, 1),
        (20, 24, False, 2),
        (12, 16, True, 1),
        (12, 16, False, 1),
        (32, 32, True, 1),
        (24, 24, True, 2),
        (16, 16, False, 1),
    ],
)
def test_samples_may_be_smaller_than_their_containers(
    bits: int, container: int, extensible: bool, channels: int
) -> None:
    data = wav_in_containers(bits, container, extensible, channels)
    assert seconds_of(data) == pytest.approx(SECONDS, abs=0.05)


def long_wav(name: bytes) -> bytes:
    """Return a WAV file of the form for more than 4 GB, whose lengths stand in a chunk of their own."""
    data = sine(32_000, 16_000).tobytes()
    header = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
    sizes = struct.pack("<QQQI", len(data) + 72, len(data), 32_000, 0)
    chunks = b"WAVEds64" + struct.pack("<I", len(sizes)) + sizes + b"fmt " + struct.pack("<I", 16) + header
    return name + b"\xff" * 4 + chunks + b"data" + b"\xff" * 4 + data


FILES: dict[str, Callable[[], bytes]] = {
    "ID3 before a FLAC": lambda: id3(bytes(10), version=4) + recorded("flac", "flac"),
    "ID3 before a WAV": lambda: id3(bytes(300)) + wav_in_containers(16, 16, False),
    "ID3 before an AAC": lambda: id3(bytes(300), version=2) + recorded("adts", "aac"),
    "ID3 before an M4A": lambda: id3(bytes(40)) + recorded("mp4", "aac"),
    "ID3 before an Ogg": lambda: id3(bytes(40)) + recorded("ogg", "libopus"),
    "two tags": lambda: id3(bytes(40)) + id3(bytes(40), version=4) + recorded("flac", "flac"),
    "a tag and zeros": lambda: id3(bytes(40)) + bytes(100) + recorded("flac", "flac"),
    "zeros before a FLAC": lambda: bytes(4096) + recorded("flac", "flac"),
    "zeros before a WAV": lambda: bytes(7) + wav_in_containers(16, 16, False),
    "zeros before an M4A": lambda: bytes(64) + recorded("mp4", "aac"),
    "zeros before an MP3": lambda: bytes(500) + recorded("mp3", "libmp3lame"),
    "a free box first": lambda: after(struct.pack(">I", 24) + b"free" + bytes(16), recorded("mp4", "aac")),
    "two skip boxes first": lambda: after(2 * (struct.pack(">I", 8) + b"skip"), recorded("mp4", "aac")),
    "RF64": lambda: long_wav(b"RF64"),
    "BW64": lambda: long_wav(b"BW64"),
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_what_taggers_and_recorders_put_into_a_file_is_read(file: Callable[[], bytes]) -> None:
    assert seconds_of(file()) == pytest.approx(SECONDS, abs=0.12)


@pytest.mark.parametrize(("gap_s", "at_s"), [(20, 1.0), (1, 0.5), (300, 1.5), (5, 0.1), (50_000, 1.0)])
def test_a_gap_in_the_timestamps_may_be_anywhere(gap_s: int, at_s: float) -> None:
    assert seconds_of(with_gap(gap_s, at_s)) >= SECONDS - 0.12


def test_a_file_with_a_gap_that_is_cut_off_is_refused() -> None:
    whole = movie_first(with_gap(20, 1.0))
    assert seconds_of(whole) >= SECONDS - 0.12
    with pytest.raises(MediaError, match="cut off"):
        decode_audio(whole[: len(whole) * 6 // 10], limit_s=60)


@pytest.mark.parametrize(
    "data",
    [bytes(1000), id3(bytes(10)), id3(bytes(10)) + b"hello", b"\0" * 9 + b"hello", b"The free lunch" * 9, b"ID3"],
    ids=["zeros", "a tag alone", "a tag and text", "zeros and text", "text", "three letters"],
)
def test_what_is_no_sound_is_refused_in_one_sentence(data: bytes) -> None:
    with pytest.raises(MediaError):
        decode_audio(data, limit_s=60)


def test_both_parts_of_a_chained_ogg_opus_file_are_decoded() -> None:
    one = recorded("ogg", "libopus")
    assert seconds_of(one + one) == pytest.approx(2 * seconds_of(one), abs=0.05)


def test_an_mp3_after_a_broken_cover_of_3_mb_is_decoded() -> None:
    data = id3(cover(3_000_000)) + recorded("mp3", "libmp3lame")
    assert seconds_of(data) == pytest.approx(SECONDS, abs=0.12)
