"""Sounds: caps before decoding, and the same samples however they are cut."""

from __future__ import annotations

import io
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from app.media import audio
from app.media.audio import MediaError, decode_audio, decode_base64, pcm16
from tests.app.mp4 import with_its_index_first


def sine(samples: int, rate_hz: int, hz: float = 440.0) -> np.ndarray:
    return (9000 * np.sin(2 * np.pi * hz * np.arange(samples) / rate_hz)).astype(np.int16)


def wav(pcm: np.ndarray, rate_hz: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, pcm, rate_hz, format="WAV")
    return file.getvalue()


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
def test_compressed_audio_is_capped_by_what_it_decodes_to(kind: str, decoded: list[int]) -> None:
    """Ten minutes of silence are some kilobytes: no more than the cap of it is ever kept, and one block decoded."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 8_000, 1, format=kind) as out:
        for _ in range(600):  # in one piece libsndfile's Vorbis encoder overruns its stack
            out.write(np.zeros(8_000, np.int16))
    with pytest.raises(MediaError, match="longer than 2 s"):
        decode_audio(file.getvalue(), limit_s=2)
    assert 0 < sum(decoded) <= 16_000


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The samples of each block that was decoded and kept."""
    blocks: list[int] = []
    mixed = audio._mixed

    def noted(frame: Any, channels: int) -> Any:
        blocks.append(frame.samples)
        return mixed(frame, channels)

    monkeypatch.setattr(audio, "_mixed", noted)
    return blocks


@pytest.mark.fault("I5.2")
def test_many_channels_at_a_high_rate_cost_no_more_than_stereo(decoded: list[int]) -> None:
    """Seconds alone would let 16 times as much through."""
    data = recorded("flac", "flac", 2.0, rate_hz=192_000, layout="7.1")
    with pytest.raises(MediaError, match="too many samples"):
        decode_audio(data, limit_s=4)
    assert 0 < 8 * sum(decoded) <= 4 * 96_000
    assert len(decode_audio(data, limit_s=60)) == pytest.approx(32_000, abs=200)


def recorded(
    container: str,
    codec: str | None,
    seconds: float = 2.0,
    rate_hz: int = 48_000,
    layout: str = "mono",
    video: str = "",
) -> bytes:
    """A tone as a file of a kind that browsers and phones record, with pictures in it or without."""
    file = io.BytesIO()
    out: Any = av.open(file, "w", format=container)
    sound = out.add_stream(codec, rate=rate_hz, layout=layout) if codec else None
    if video:
        shown = out.add_stream(video, rate=10)
        shown.width, shown.height, shown.pix_fmt = 64, 48, "yuv420p"
        for i in range(int(10 * seconds)):
            picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 7 * i, np.uint8), format="rgb24")
            picture.pts, picture.time_base = i, Fraction(1, 10)
            out.mux(shown.encode(picture.reformat(format="yuv420p")))
        out.mux(shown.encode(None))
    if sound is not None:
        frame = av.AudioFrame.from_ndarray(sine(int(seconds * rate_hz), rate_hz)[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts = rate_hz, 0
        fitted = av.AudioResampler(sound.codec_context.format or "s16", layout, rate_hz)
        for block in [*fitted.resample(frame), *fitted.resample(None)]:
            out.mux(sound.encode(block))
        out.mux(sound.encode(None))
    out.close()
    return file.getvalue()


KINDS: dict[str, tuple[Any, ...]] = {
    "webm": ("webm", "libopus"),
    "webm with pictures": ("webm", "libopus", 2.0, 48_000, "mono", "libvpx"),
    "m4a": ("ipod", "aac"),
    "mp4 with pictures": ("mp4", "aac", 2.0, 48_000, "stereo", "mpeg4"),
    "mp3": ("mp3", "libmp3lame", 2.0, 44_100, "stereo"),
    "ogg": ("ogg", "libopus"),
    "flac": ("flac", "flac", 2.0, 96_000, "stereo"),
    "wav": ("wav", "pcm_s16le", 2.0, 8_000),
    "wav of 24 bits": ("wav", "pcm_s24le"),
    "wav of floats": ("wav", "pcm_f32le"),
    "aac": ("adts", "aac", 2.0, 22_050),
    "alac": ("ipod", "alac"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_recording_is_heard(kind: str) -> None:
    pcm = decode_audio(recorded(*KINDS[kind]), limit_s=10)
    assert pcm.dtype == np.int16
    assert len(pcm) / 16_000 == pytest.approx(2.0, abs=0.12)
    middle = pcm[8_000:24_000] / 1.0
    assert np.abs(np.fft.rfft(middle)).argmax() == pytest.approx(440, abs=1)
    assert 5_500 < np.abs(middle).max() < 11_000  # a voice in the middle is 3 dB softer on either side


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.fault("I5.1")
def test_damaged_recordings_are_errors_or_shorter(kind: str) -> None:
    data = recorded(*KINDS[kind])
    for damaged in (data[: len(data) // 2], data[: len(data) // 3] + bytes(500) + data[len(data) // 2 :], data[:40]):
        with suppress(MediaError):
            assert 0 < len(decode_audio(damaged, limit_s=3)) <= 2.2 * 16_000


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: recorded("webm", "libopus")[400:], "unknown audio or video format"),
        (lambda: recorded("ipod", "aac")[:9_000], "damaged or cut off"),
        (lambda: recorded("ipod", "alac")[:60_000], "damaged or cut off"),
        (lambda: recorded("webm", None, video="libvpx"), "contains no audio"),
        (lambda: recorded("mp4", None, video="mpeg4"), "contains no audio"),
        (lambda: b"Dear all, please find the recording attached.\n" * 50, "unknown audio or video format"),
        (lambda: b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "unknown audio or video format"),
        (lambda: b"ffconcat version 1.0\nfile /etc/passwd\n", "unknown audio or video format"),
        (lambda: recorded("matroska", "ac3"), "codec is not supported"),
    ],
    ids=["webm's rest", "half an m4a", "half an alac", "webm film", "mp4 film", "text", "playlist", "list", "ac3"],
)
@pytest.mark.fault("I5.1")
def test_what_is_no_recording_is_told(make: Any, told: str) -> None:
    with pytest.raises(MediaError, match=told):
        decode_audio(make(), limit_s=3)


def test_half_of_a_file_that_says_how_long_it_is_is_not_taken_for_it(tmp_path: Path) -> None:
    """An m4a whose index comes first can be decoded up to the cut."""
    data = with_its_index_first(recorded("ipod", "aac"), "ipod", tmp_path)
    assert len(decode_audio(data, limit_s=3)) > 31_000
    with pytest.raises(MediaError, match=r"cut off: it contains .* s of 2\.0 s"):
        decode_audio(data[: len(data) // 2], limit_s=3)


@pytest.mark.parametrize("kind", ["wav", "wav of 24 bits", "wav of floats", "flac"])
def test_half_of_a_wav_or_flac_is_not_taken_for_it(kind: str) -> None:
    """Its sound can be read up to the cut."""
    data = recorded(*KINDS[kind])
    with pytest.raises(MediaError, match=r"cut off: it contains .* s of 2\.0 s"):
        decode_audio(data[: len(data) // 2], limit_s=3)


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x00\xf0\xff\x7f", b"\0\0\0\0"])
def test_of_a_wav_whose_length_nobody_knew_yet_what_is_there_is_heard(length: bytes) -> None:
    data = wav(sine(32_000, 16_000))
    streamed = data[:40] + length + data[44:]
    assert len(decode_audio(streamed[: len(data) // 2], limit_s=3)) == pytest.approx(16_000, abs=50)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["webm", "m4a", "mp3", "flac"]), st.binary(max_size=60), st.floats(0, 1))
@pytest.mark.fault("I5.1")
def test_damaged_recordings_never_crash(kind: str, noise: bytes, where: float) -> None:
    data = RECORDED[kind]
    at = int(where * len(data))
    for damaged in (data[:at] + noise + data[at:], data[:at] + noise + data[at + len(noise) :], data[:4] + noise):
        with suppress(MediaError):
            assert len(decode_audio(damaged, limit_s=3)) <= 3 * 16_000


RECORDED = {kind: recorded(KINDS[kind][0], KINDS[kind][1], 0.3) for kind in ("webm", "m4a", "mp3", "flac")}


@pytest.mark.fault("I3.4")
def test_samples_that_are_no_numbers_never_become_sound() -> None:
    wave = np.array([0.5, np.nan, np.inf, -np.inf, 1e30, -0.5] * 2_000, np.float32)
    file = io.BytesIO()
    soundfile.write(file, wave, 16_000, format="WAV", subtype="FLOAT")
    pcm = decode_audio(file.getvalue(), limit_s=2)
    assert pcm.dtype == np.int16
    assert len(pcm) == len(wave)


@pytest.mark.fault("I3.1", "I3.2")
def test_base64_and_pcm_are_read_strictly() -> None:
    assert pcm16(decode_base64("AQD/fw==")).tolist() == [1, 32767]
    assert decode_base64("") == b""
    for text in ("A", "AAA", "A===", "AA\nAA", "-_-_", "ä"):
        with pytest.raises(MediaError):
            decode_base64(text)
    with pytest.raises(MediaError):
        pcm16(b"abc")
