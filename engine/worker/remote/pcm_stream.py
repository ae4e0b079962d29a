"""Streaming decoder of raw PCM samples and WAV files. Sans I/O.

Source: Multimedia Programming Interface and Data Specifications 1.0 (RIFF), and Microsoft's WAVEFORMATEXTENSIBLE.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from engine.core import Wave
from engine.errors import StageFailed

LARGEST_HEADER = 1 << 16
"""Maximum bytes before the samples of a WAV file."""
SLOWEST_HZ, FASTEST_HZ = 4_000, 192_000
MOST_CHANNELS = 8

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_DTYPES = {(_PCM, 16): "<i2", (_PCM, 32): "<i4", (_FLOAT, 32): "<f4"}
_PACKED = (b"ID3", b"OggS", b"fLaC", b"\x1aE\xdf\xa3")  # MP3, Ogg, FLAC, WebM
_FRAMED = ("audio/mpeg", "audio/mp3", "audio/aac")  # MP3 and AAC may begin with a frame: with byte 0xFF, as samples may


class SoundBytes:
    """Decodes one sound. Raises StageFailed if it cannot be decoded.

    Args:
        rate_hz: The sample rate of raw samples, which are int16 little-endian mono. A WAV file contains its own rate.
        who: The server, as the subject of error messages.
        kind: The media type that the server declares, if any.
    """

    def __init__(self, rate_hz: int, who: str, kind: str = "") -> None:
        self.rate_hz = rate_hz
        """The sample rate of the samples that ``feed`` returns."""
        self._who = who
        self._packed = (*_PACKED, *([b"\xff"] if kind in _FRAMED else []))
        self._held = b""
        self._in_header = True
        self._dtype = np.dtype("<i2")
        self._channels = 1
        self._left: float = float("inf")  # bytes of samples that are still to come

    def feed(self, data: bytes) -> Wave:
        """Return the samples that are complete: float32 [samples] in [-1, 1], mono. Bytes after the end are ignored."""
        self._held += data
        if self._in_header and not self._read_header():
            return np.empty(0, np.float32)
        size = self._dtype.itemsize * self._channels
        count = int(min(len(self._held), self._left)) // size * size
        self._left -= count
        samples = self._held[:count]
        self._held = self._held[count:] if self._left else b""
        return self._mono(np.frombuffer(samples, self._dtype))

    def _read_header(self) -> bool:
        """Return whether the header is complete."""
        if self._held.startswith(self._packed):
            raise StageFailed(f"{self._who} returned compressed audio instead of raw samples (pcm).")
        if len(self._held) < 4:
            return False
        if self._held.startswith(b"RIFF"):
            return self._read_chunks()
        self._in_header = False
        return True

    def _read_chunks(self) -> bool:
        """Read a WAV file's chunks up to its samples. Return whether they have all arrived."""
        at, form = 12, b""
        while len(self._held) >= at + 8:
            name, size = self._held[at : at + 4], int.from_bytes(self._held[at + 4 : at + 8], "little")
            at += 8
            if name == b"data":
                self._understand(form)
                self._left = size if 0 < size < 0x7FFF_0000 else float("inf")  # the size of a stream is unknown
                self._held = self._held[at:]
                self._in_header = False
                return True
            if len(self._held) >= at + size and name == b"fmt ":
                form = self._held[at : at + size]
            at += size + size % 2
        if len(self._held) > LARGEST_HEADER:
            raise self._unreadable("its header does not end")
        return False

    def _understand(self, form: bytes) -> None:
        if len(form) < 16:
            raise self._unreadable("it does not state its sample format")
        code, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", form)
        if code == _EXTENSIBLE and len(form) >= 26:
            (code,) = struct.unpack_from("<H", form, 24)
        if (code, bits) not in _DTYPES:
            raise self._unreadable(f"its samples have {bits} bits, in format {code}")
        if not (SLOWEST_HZ <= rate_hz <= FASTEST_HZ and 1 <= channels <= MOST_CHANNELS):
            raise self._unreadable(f"it has {channels} channels at {rate_hz} Hz")
        self.rate_hz = rate_hz
        self._channels = channels
        self._dtype = np.dtype(_DTYPES[code, bits])

    def _mono(self, samples: NDArray[np.generic]) -> Wave:
        full = 1.0 if self._dtype.kind == "f" else float(np.iinfo(self._dtype).max) + 1
        wave = samples.astype(np.float32) / np.float32(full)
        return wave.reshape(-1, self._channels).mean(axis=1, dtype=np.float32) if self._channels > 1 else wave

    def _unreadable(self, why: str) -> StageFailed:
        return StageFailed(f"{self._who} returned a WAV file that cannot be read: {why}.")
