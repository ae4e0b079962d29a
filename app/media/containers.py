"""Detection of audio and video files by their first bytes, and repair of what taggers and recorders add.

Nothing is decoded here. Files are changed in place, because each copy of a large file counts.
"""

from __future__ import annotations

import re
import struct

import numpy as np

_STREAMED = 1 << 30
"""A WAV's data length from this value on is a placeholder: a streaming recorder does not know the length yet."""
_MOST_CHUNKS = 100
"""Maximum number of chunks in a WAV before its audio."""
_MOST_FORMAT_BYTES = 40
"""Bytes of a WAV's format; the extensible one is the longest."""
_MOST_TAGS = 10
_ZEROS = re.compile(rb"\0+")
_MOVIE_BOXES = (b"ftyp", b"moov", b"mdat", b"wide")
_FREE_BOXES = (b"free", b"skip", b"uuid")
"""Boxes without media, which may come first in an MP4."""
_EXTENSIBLE = 0xFFFE


class MediaError(ValueError):
    """The media can't be used. The message is the reason."""


def writable(data: bytes | bytearray) -> bytearray:
    """Return a file that may be changed: the same object, or a copy of bytes."""
    return data if isinstance(data, bytearray) else bytearray(data)


def clear(data: bytearray, start: int, stop: int) -> None:
    """Set a part of a file to zeros, without memory for as many zeros."""
    np.frombuffer(data, np.uint8)[start:stop] = 0


def recognized(data: bytearray) -> str | None:
    """Return FFmpeg's name of a file's format, and remove tags and zeros before it; None if it is unknown.

    FFmpeg's own detection is not used, since some of its formats refer to other files.
    """
    at = 0
    for _ in range(_MOST_TAGS):
        container = _container_at(data, at)
        if container is not None:
            del data[:at]
            return container
        if data.startswith(b"ID3", at):
            at += _tag_length(data[at : at + 10])
        elif zeros := _ZEROS.match(data, at):
            box = max(at, zeros.end() - 3)  # the length field of an MP4's first box starts with zeros
            at = box if _container_at(data, box) == "mov" else zeros.end()
        else:
            break
    return "mp3" if data.startswith(b"ID3") else None


def _container_at(data: bytearray, at: int) -> str | None:
    head = bytes(data[at : at + 12])
    match head[:4]:
        case b"RIFF" | b"RF64" | b"BW64":
            return "wav" if head[8:12] == b"WAVE" else None
        case b"fLaC":
            return "flac"
        case b"OggS":
            return "ogg"
        case b"\x1aE\xdf\xa3":
            return "matroska"
        case _:
            pass
    if head[4:8] in _MOVIE_BOXES:
        return "mov"
    if head[4:8] in _FREE_BOXES:
        next_box = at + int.from_bytes(head[:4], "big")
        return "mov" if bytes(data[next_box + 4 : next_box + 8]) in (*_MOVIE_BOXES, *_FREE_BOXES) else None
    if head[:1] == b"\xff" and len(head) > 1 and head[1] & 0xE0 == 0xE0:
        return "mp3" if head[1] & 0x06 else "aac"  # MPEG audio's layer bits are 0 in AAC frames (ADTS)
    return None


def _tag_length(header: bytearray) -> int:
    """Return the length of an ID3v2 tag: its header, its body (four groups of seven bits) and its footer."""
    body = sum((byte & 127) << shift for byte, shift in zip(header[6:10], (21, 14, 7, 0), strict=False))
    return 10 + body + (10 if header[5:6] and header[5] & 0x10 else 0)


def check_wav(data: bytearray) -> None:
    """Give a WAV a sample size that FFmpeg can read. Raises MediaError if the file is cut off.

    FFmpeg itself would accept a file that is shorter than its header says.
    """
    byte_rate, at = 0, 12
    for _ in range(_MOST_CHUNKS):
        kind, size = bytes(data[at : at + 4]), int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        if kind == b"fmt ":
            byte_rate = int.from_bytes(data[at + 8 : at + 12], "little")
            header = bytes(data[at : at + min(size, _MOST_FORMAT_BYTES)])
            data[at : at + len(header)] = _filled(header)
        if kind == b"data":
            if byte_rate and size < _STREAMED:
                check_length((len(data) - at) / byte_rate, size / byte_rate)
            break
        at += size + size % 2


def _filled(header: bytes) -> bytes:
    """Return a WAV's format with samples that fill their containers: 24 bits in 32 are the upper ones, the rest is
    0.
    """
    if len(header) < 16:
        return header
    kind, channels, rate_hz, byte_rate, block, bits = struct.unpack("<HHIIHH", header[:16])
    container = block // channels * 8 if channels else 0
    if kind not in (1, _EXTENSIBLE) or container not in (16, 24, 32) or not container - 8 <= bits <= container:
        return header
    rest = header[16:]
    if kind == _EXTENSIBLE and len(rest) >= 4:
        rest = rest[:2] + struct.pack("<H", container) + rest[4:]
    return struct.pack("<HHIIHH", kind, channels, rate_hz, byte_rate, block, container) + rest


def check_length(seconds: float, said_s: float) -> None:
    """Raise MediaError if a file contains much less than the ``said_s`` seconds that its header states."""
    if seconds < 0.95 * said_s - 0.5:
        raise MediaError(f"the file is cut off: it contains {seconds:.1f} s of {said_s:.1f} s; send the whole file")
