"""Sounds and pictures: caps before decoding, and the same samples however they are cut."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from fractions import Fraction
from typing import Any

import av
import numpy as np
import psutil
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from app.media import (
    MediaError,
    Resampler,
    decode_audio,
    decode_base64,
    decode_image,
    decode_image_url,
    pcm16,
    resample,
)


def sine(samples: int, rate_hz: int, hz: float = 440.0) -> np.ndarray:
    return (9000 * np.sin(2 * np.pi * hz * np.arange(samples) / rate_hz)).astype(np.int16)


def wav(pcm: np.ndarray, rate_hz: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, pcm, rate_hz, format="WAV")
    return file.getvalue()


def jpeg(orientation: int | None = None) -> bytes:
    """48 wide, 32 high, its left half white; with the EXIF orientation that a camera writes."""
    encoder: Any = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = 48, 32, "yuvj420p", Fraction(1)
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:, :24] = 255
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuvj420p")
    frame.pts = 0
    data = b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
    if orientation is None:
        return data
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    exif = b"Exif\x00\x00MM\x00\x2a\x00\x00\x00\x08\x00\x01" + entry + bytes(4)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=8))
def test_resampling_does_not_depend_on_how_the_sound_is_cut(sizes: list[int]) -> None:
    pcm = sine(sum(sizes), 24_000)
    resampler, pieces, at = Resampler(24_000, 16_000), [], 0
    for size in sizes:
        pieces.append(resampler.push(pcm[at : at + size]))
        at += size
    pieces.append(resampler.flush())
    assert np.array_equal(np.concatenate(pieces), resample(pcm, 24_000, 16_000))


def test_resampling_keeps_the_pitch_and_the_length() -> None:
    out = resample(sine(24_000, 24_000), 24_000, 16_000)
    assert abs(len(out) - 16_000) <= 2
    assert np.abs(np.fft.rfft(out[:16_000] / 1.0)).argmax() == pytest.approx(440, abs=1)
    same = sine(100, 16_000)
    assert Resampler(16_000, 16_000).push(same) is same


def test_a_wav_is_mixed_and_brought_to_the_microphones_rate() -> None:
    stereo = np.stack([sine(8_000, 8_000), np.zeros(8_000, np.int16)], axis=1)
    pcm = decode_audio(wav(stereo, 8_000), limit_s=2)
    assert abs(len(pcm) - 16_000) <= 2
    assert 4000 < np.abs(pcm).max() < 5000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        wav(sine(100, 16_000))[:30],
        wav(np.zeros(0, np.int16)),
        wav(sine(40_000, 16_000)),
        wav(np.zeros((10, 9), np.int16)),
        wav(sine(10, 16_000), 1000),
        b"\xff\xd8\xff\xe0",
    ],
    ids=["nothing", "a header's start", "truncated", "no samples", "too long", "9 channels", "1 kHz", "a picture"],
)
@pytest.mark.fault("I5.1")
def test_audio_that_is_refused(data: bytes) -> None:
    with pytest.raises(MediaError):
        decode_audio(data, limit_s=2)


@pytest.mark.fault("I5.1")
def test_a_wav_whose_header_lies_about_its_length_is_read_to_the_limit_only() -> None:
    data = bytearray(wav(sine(16_000, 16_000)))
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    with suppress(MediaError):
        assert len(decode_audio(bytes(data), limit_s=2)) <= 32_000


@pytest.mark.fault("I5.2")
@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3"])
def test_compressed_audio_is_capped_by_what_it_decodes_to(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes of silence are some kilobytes: no more than the cap and a sample of it is ever decoded."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 8_000, 1, format=kind) as out:
        for _ in range(600):  # in one piece libsndfile's Vorbis encoder overruns its stack
            out.write(np.zeros(8_000, np.int16))
    read: list[int] = []
    whole = soundfile.SoundFile.read

    def noted(self: Any, frames: int, **how: Any) -> Any:
        read.append(frames)
        return whole(self, frames, **how)

    monkeypatch.setattr(soundfile.SoundFile, "read", noted)
    with pytest.raises(MediaError, match="longer than 2 s"):
        decode_audio(file.getvalue(), limit_s=2)
    assert read == [16_001]


@pytest.mark.fault("I3.4")
def test_samples_that_are_no_numbers_never_become_sound() -> None:
    wave = np.array([0.5, np.nan, np.inf, -np.inf, 1e30, -0.5] * 2_000, np.float32)
    file = io.BytesIO()
    soundfile.write(file, wave, 16_000, format="WAV", subtype="FLOAT")
    pcm = decode_audio(file.getvalue(), limit_s=2)
    assert pcm.dtype == np.int16
    assert len(pcm) == len(wave)


@pytest.mark.fault("I6.3")
def test_pictures_are_upright() -> None:
    assert decode_image(jpeg()).shape == (32, 48, 3)
    assert decode_image(jpeg())[16, 4, 0] > 200
    turned = decode_image(jpeg(6))  # "the 0th row is the visual right-hand side": shown turned right
    assert turned.shape == (48, 32, 3)
    assert turned[4, 16, 0] > 200  # the left half has become the upper one
    assert turned[44, 16, 0] < 50
    upside_down = decode_image(jpeg(3))
    assert upside_down[16, 44, 0] > 200


@pytest.mark.fault("I6.1", "I6.2")
def test_pictures_that_are_refused() -> None:
    bomb = bytearray(jpeg())
    at = bomb.index(b"\xff\xc0")
    bomb[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    for data in (b"", b"\xff\xd8", jpeg()[:60], bytes(bomb), b"GIF89a" + bytes(50), b"\x89PNG\r\n\x1a\n" + bytes(30)):
        with pytest.raises(MediaError):
            decode_image(data)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 600))
@pytest.mark.fault("I6.2")
def test_damaged_pictures_never_crash(noise: bytes, at: int) -> None:
    data = jpeg()
    for damaged in (noise, data[:at] + noise + data[at:], data[:at]):
        with suppress(MediaError):
            assert decode_image(damaged).dtype == np.uint8


@pytest.mark.parametrize(
    "url", ["", "data:,", "data:image/png;base64", "data:image/gif;base64,AAAA", "https://x/y.png"]
)
@pytest.mark.fault("I8.1")
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(MediaError):
        decode_image_url(url)


@pytest.mark.fault("I3.1", "I3.2")
def test_base64_and_pcm_are_read_strictly() -> None:
    assert pcm16(decode_base64("AQD/fw==")).tolist() == [1, 32767]
    assert decode_base64("") == b""
    for text in ("A", "AAA", "A===", "AA\nAA", "-_-_", "ä"):
        with pytest.raises(MediaError):
            decode_base64(text)
    with pytest.raises(MediaError):
        pcm16(b"abc")


def test_resamplers_start_no_threads() -> None:
    """A session has three; a thread for each core of the machine would come with every one of them."""
    before = psutil.Process().num_threads()
    resamplers = [Resampler(24_000, 16_000) for _ in range(5)]
    for one in resamplers:
        one.push(np.zeros(480, np.int16))
    assert psutil.Process().num_threads() == before
