"""Detection of audio and video files by their first bytes, and repair of what taggers and recorders add.

Nothing is decoded here.
"""

from __future__ import annotations

import struct

_STREAMED = 1 << 30
"""A WAV's data length from this value on is a placeholder: a streaming recorder does not know the length yet."""
_MOST_CHUNKS = 100
"""Maximum number of chunks in a WAV before its audio."""
_MOST_TAGS = 10
_MOVIE_BOXES = (b"ftyp", b"moov", b"mdat", b"wide")
_FREE_BOXES = (b"free", b"skip", b"uuid")
"""Boxes without media, which may come first in an MP4."""
_EXTENSIBLE = 0xFFFE


class MediaError(ValueError):
    """The media can't be used. The message is the reason."""


def recognized(data: bytes) -> tuple[str | None, bytes]:
    """Return FFmpeg's name of a file's format, and the file without leading tags and zeros; None if it is unknown.

    FFmpeg's own detection is not used, since some of its formats refer to other files.
    """
    rest = data
    for _ in range(_MOST_TAGS):
        container = _container_of(rest)
        if container is not None:
            return container, rest
        if rest[:3] == b"ID3":
            rest = rest[_tag_length(rest) :]
        elif rest[:1] == b"\0":
            zeros = len(rest) - len(rest.lstrip(b"\0"))
            box = rest[max(0, zeros - 3) :]  # the length field of an MP4's first box starts with zeros
            rest = box if _container_of(box) == "mov" else rest[zeros:]
        else:
            break
    return ("mp3" if data[:3] == b"ID3" else None), data


def _container_of(data: bytes) -> str | None:
    match data[:4]:
        case b"RIFF" | b"RF64" | b"BW64":
            return "wav" if data[8:12] == b"WAVE" else None
        case b"fLaC":
            return "flac"
        case b"OggS":
            return "ogg"
        case b"\x1aE\xdf\xa3":
            return "matroska"
        case _:
            pass
    if data[4:8] in _MOVIE_BOXES:
        return "mov"
    if data[4:8] in _FREE_BOXES:
        length = int.from_bytes(data[:4], "big")
        return "mov" if data[length + 4 : length + 8] in (*_MOVIE_BOXES, *_FREE_BOXES) else None
    if data[:1] == b"\xff" and len(data) > 1 and data[1] & 0xE0 == 0xE0:
        return "mp3" if data[1] & 0x06 else "aac"  # MPEG audio's layer bits are 0 in AAC frames (ADTS)
    return None


def _tag_length(data: bytes) -> int:
    """Return the length of an ID3v2 tag: its header, its body (four groups of seven bits) and its footer."""
    body = sum((byte & 127) << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0), strict=False))
    return 10 + body + (10 if data[5:6] and data[5] & 0x10 else 0)


def checked_wav(data: bytes) -> bytes:
    """Return a WAV with a sample size that FFmpeg can read. Raises MediaError if the file is cut off.

    FFmpeg itself would accept a file that is shorter than its header says.
    """
    byte_rate, at = 0, 12
    repaired: bytearray | None = None
    for _ in range(_MOST_CHUNKS):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        if kind == b"fmt ":
            byte_rate = int.from_bytes(data[at + 8 : at + 12], "little")
            header = data[at : at + size]
            if (filled := _filled(header)) != header:
                repaired = repaired or bytearray(data)
                repaired[at : at + size] = filled
        if kind == b"data":
            if byte_rate and size < _STREAMED:
                check_length((len(data) - at) / byte_rate, size / byte_rate)
            break
        at += size + size % 2
    return data if repaired is None else bytes(repaired)


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
