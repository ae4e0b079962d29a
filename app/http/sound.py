"""Speech as an audio stream or file, encoded as it arrives: raw samples, WAV, and the formats of FFmpeg's encoders.

A stream's length is unknown at its start, so its header leaves the length open.
"""

from __future__ import annotations

import io
from typing import IO, Any, Literal, Protocol

import av
import numpy as np

from engine import SPEAKER_RATE_HZ
from engine.core import Wave

FileFormat = Literal["mp3", "opus", "aac", "flac", "wav"]
Format = Literal[FileFormat, "pcm", "pcm16"]
MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg; codecs=opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": f"audio/pcm; rate={SPEAKER_RATE_HZ}; channels=1",
    "pcm16": f"audio/pcm; rate={SPEAKER_RATE_HZ}; channels=1",
}


class SoundFileEncoder(Protocol):
    """Converts float32 [samples] at SPEAKER_RATE_HZ to bytes. All returned pieces together are one file."""

    def push(self, wave: Wave) -> bytes: ...

    def end(self) -> bytes:
        """Return the remaining bytes. Nothing may be pushed afterwards."""
        ...


def encoder(format: Format) -> SoundFileEncoder:
    """Return a new encoder. ``pcm`` (also called ``pcm16``) is 16-bit little-endian mono without a header."""
    return _Raw() if format in ("pcm", "pcm16") else _FileEncoder(format, _Bytes())


def file_encoder(file: IO[bytes], format: FileFormat) -> SoundFileEncoder:
    """Return an encoder that writes to a file and returns no bytes. The file is seekable, so its header has the
    length.
    """
    return _FileEncoder(format, file)


def encoded(wave: Wave, format: Format) -> bytes:
    """Return a complete clip as the bytes of an audio file."""
    if format in ("pcm", "pcm16"):
        return samples(wave)
    file = io.BytesIO()  # seekable, so that the container writes its length
    one = _FileEncoder(format, file)
    one.push(wave)
    one.end()
    return file.getvalue()


def samples(wave: Wave) -> bytes:
    """Return a wave as 16-bit little-endian samples."""
    return (np.clip(wave, -1, 1) * 32767).astype("<i2").tobytes()


class _Raw:
    """Encodes samples without a header."""

    def push(self, wave: Wave) -> bytes:
        return samples(wave)

    def end(self) -> bytes:
        return b""


_CODECS: dict[FileFormat, tuple[str, str, dict[str, str]]] = {
    "mp3": ("mp3", "libmp3lame", {"id3v2_version": "0"}),
    "opus": ("ogg", "libopus", {"page_duration": "20000"}),  # µs; the default delays the audio by a second
    "aac": ("adts", "aac", {}),
    "flac": ("flac", "flac", {}),
    "wav": ("wav", "pcm_s16le", {"fflags": "+bitexact"}),  # without the name of the library
}


class _FileEncoder:
    """Writes a container to ``target``. Returns its bytes if ``target`` is a buffer."""

    def __init__(self, format: FileFormat, target: _Bytes | IO[bytes]) -> None:
        container, codec, options = _CODECS[format]
        self._target = target
        self._file: Any = av.open(target, "w", format=container, options={"flush_packets": "1", **options})
        self._stream: Any = self._file.add_stream(codec, rate=SPEAKER_RATE_HZ, layout="mono")
        self._file.start_encoding()  # so that even an empty file has its header
        self._at = 0

    def push(self, wave: Wave) -> bytes:
        if len(wave):
            pcm = np.frombuffer(samples(wave), "<i2")
            frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
            frame.sample_rate = SPEAKER_RATE_HZ
            frame.pts = self._at
            self._at += len(wave)
            self._file.mux(self._stream.encode(frame))
        return self._taken()

    def end(self) -> bytes:
        self._file.mux(self._stream.encode(None))
        self._file.close()
        return self._taken()

    def _taken(self) -> bytes:
        return self._target.take() if isinstance(self._target, _Bytes) else b""


class _Bytes:
    """A write-only buffer for a container. Without ``seek``, the container never goes back."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def take(self) -> bytes:
        pieces = self._pieces
        self._pieces = []
        return b"".join(pieces)
