"""Decoding of audio, with every size checked first; pictures are in ``images``.

Raises MediaError with one sentence. Never reads files or URLs that a client names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import av.error
import numpy as np
import pybase64
from numpy.typing import NDArray

from app.media.containers import MediaError, check_length, check_wav, recognized, writable
from app.media.opening import opened
from engine import MIC_RATE_HZ
from engine.audio.resampler import Resampler
from engine.core import Pcm

__all__ = ["SOUND_CODECS", "MediaError", "check_whole", "decode_audio", "decode_base64", "pcm16", "pcm16_count"]

_MAX_CHANNELS = 8
_RATES_HZ = range(4_000, 192_001)


def decode_base64(text: str) -> bytes:
    """Decode base64: standard alphabet with padding only."""
    try:
        return pybase64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        raise MediaError("the data is not valid base64 (standard alphabet, with padding)") from None


def pcm16_count(data: bytes) -> int:
    """Return the number of 16-bit samples."""
    if len(data) % 2:
        raise MediaError(f"{len(data)} bytes are not whole 16-bit samples")
    return len(data) // 2


def pcm16(data: bytes) -> Pcm:
    """Return little-endian 16-bit samples as int16 [samples]."""
    pcm16_count(data)
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False)


def decode_audio(file: bytes | bytearray, limit_s: float) -> Pcm:
    """Decode a WAV, FLAC, OGG, MP3, AAC, M4A, MP4 or WebM file to int16 [samples] at MIC_RATE_HZ, channels mixed.

    Decoding stops with an error beyond ``limit_s``, or beyond the samples of that many seconds of stereo at 48 kHz,
    whatever the header says. Pictures in the file are never decoded. A bytearray is changed in place; bytes are copied.
    """
    data = writable(file)
    container = recognized(data)
    if container is None:
        raise MediaError(f"unknown audio or video format: use {_KINDS}")
    if container == "wav":
        check_wav(data)
    try:
        with opened(data, container, SOUND_CODECS) as media:
            return _sound(media, limit_s)
    except (av.error.FFmpegError, RuntimeError, EOFError):
        raise MediaError(f"the file is damaged or cut off, or its format is unknown: use {_KINDS}") from None


_KINDS = "WAV, FLAC, OGG, MP3, AAC, M4A, MP4 or WebM"
SOUND_CODECS = frozenset(
    [
        "pcm_u8",
        "pcm_s16le",
        "pcm_s24le",
        "pcm_s32le",
        "pcm_f32le",
        "pcm_f64le",
        "pcm_s16be",
        "pcm_s24be",
        "pcm_f32be",
        "pcm_alaw",
        "pcm_mulaw",
        "flac",
        "alac",
        "vorbis",
        "opus",
        "libopus",
        "mp3",
        "mp3float",
        "mp2",
        "mp2float",
        "aac",
        "aac_latm",
        "adpcm_ima_wav",
        "adpcm_ms",
        "gsm_ms",
    ]
)
"""Codecs for recordings of speech. FFmpeg's other codecs are never run."""

_SAMPLES_S = 2 * 48_000
"""Average number of samples of all channels that a second may have."""


def _sound(file: Any, limit_s: float) -> Pcm:
    """Decode the first audio stream of an open file."""
    stream = next(iter(file.streams.audio), None)
    if stream is None:
        raise MediaError("the file contains no audio")
    if stream.codec_context is None or stream.codec_context.name not in SOUND_CODECS:
        raise MediaError(f"the file's audio codec is not supported: use {_KINDS}")
    stream.codec_context.thread_count = 1
    pieces = list[Pcm]()
    seconds = 0.0
    samples = 0
    end_s = 0.0
    resampler: tuple[int, Resampler[np.int16]] | None = None
    for frame in _frames(file, stream):
        rate_hz, channels = int(frame.sample_rate), len(frame.layout.channels)
        if rate_hz not in _RATES_HZ or not 1 <= channels <= _MAX_CHANNELS:
            raise MediaError(
                f"audio of {channels} channels at {rate_hz} Hz is not supported: use at most {_MAX_CHANNELS} channels "
                f"at {_RATES_HZ[0]} to {_RATES_HZ[-1]} Hz"
            )
        seconds, samples = seconds + frame.samples / rate_hz, samples + frame.samples * channels
        end_s = seconds if frame.time is None else max(seconds, frame.time + frame.samples / rate_hz)
        if seconds > limit_s:
            raise MediaError(f"the audio is longer than {limit_s:g} s")
        if samples > limit_s * _SAMPLES_S:
            raise MediaError("the audio has too many samples: send it with a lower rate, or in mono")
        if resampler is None or resampler[0] != rate_hz:
            pieces += [resampler[1].flush()] if resampler else []
            resampler = rate_hz, Resampler(rate_hz, MIC_RATE_HZ)
        pieces.append(resampler[1].push(_mixed(frame, channels)))
    if resampler is None or not samples:
        raise MediaError("the audio file contains no samples")
    check_whole(stream, seconds, pauses_s=end_s - seconds)
    return np.concatenate([*pieces, resampler[1].flush()])


def _frames(file: Any, stream: Any) -> Iterator[Any]:
    """Yield the frames that can be decoded. Damaged packets are skipped, as players do."""
    for packet in file.demux(stream):
        with suppress(av.error.InvalidDataError):
            yield from packet.decode()


def _mixed(frame: Any, channels: int) -> Pcm:
    """Return the mean of a frame's channels as int16 [samples], for any sample format."""
    wave: NDArray[Any] = frame.to_ndarray()
    wave = wave if frame.format.is_planar else wave.reshape(-1, channels).T
    match wave.dtype.kind:
        case "f":
            wave = np.nan_to_num(np.clip(wave, -1, 1) * 32767)
        case "u":
            wave = (wave.astype(np.int16) - 128) * 256
        case _:
            wave = wave >> (8 * wave.dtype.itemsize - 16)
    return wave.mean(axis=0).astype(np.int16)


def check_whole(stream: Any, seconds: float, pauses_s: float = 0.0) -> None:
    """Raise MediaError if a file contains much less than its header says, except for MP3, where this would be a guess.

    ``pauses_s`` are gaps between timestamps, which MP4 files may have.
    """
    if stream.duration and stream.container.format.name.startswith(("mov", "flac")):
        check_length(seconds, float(stream.duration * stream.time_base) - pauses_s)
