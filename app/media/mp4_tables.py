"""Limits on the tables of MP4 and MOV files, checked before FFmpeg opens the file.

FFmpeg allocates an index entry for each sample that a table announces, and a few bytes can announce billions. Boxes
that decoding does not need are blanked, so that FFmpeg never reads their tables. Source: ISO/IEC 14496-12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.media.containers import MediaError, clear, writable

MOST_SAMPLES = 500_000
"""Maximum index entries of all tracks: three hours of AAC. FFmpeg needs about 36 bytes for each."""
_MOST_PCM_SAMPLES = 60_000_000
"""Maximum samples of uncompressed audio: five minutes at 192 kHz. FFmpeg indexes them in groups."""
_PCM_GROUP = 160
"""Minimum samples in one index entry of uncompressed audio."""
_MOST_TRACKS = 32
_MOST_TRACK_ID = (1 << 31) - 1
"""FFmpeg counts for seconds if a track's number is negative as a signed one."""
_MOST_FRAGMENTS = 100_000
"""Maximum fragments times tracks: FFmpeg keeps a record for each combination."""
_MOST_BOXES = 200_000
_MOST_DESCRIPTION_BYTES = 1 << 16

_Tree = Mapping[bytes, Any]
_SAMPLE_TABLES = dict.fromkeys(b"stsd stts ctts stss stsc stsz stz2 stco co64".split())
_MEDIA_INFO = {b"vmhd": None, b"smhd": None, b"dinf": {b"dref": None}, b"stbl": _SAMPLE_TABLES}
_MEDIA = {b"mdhd": None, b"hdlr": None, b"minf": _MEDIA_INFO}
_TRACK = {b"tkhd": None, b"edts": {b"elst": None}, b"mdia": _MEDIA}
_MOVIE = {b"mvhd": None, b"trak": _TRACK, b"mvex": {b"mehd": None, b"trex": None}}
_FRAGMENT = {b"mfhd": None, b"traf": {b"tfhd": None, b"tfdt": None, b"trun": None}}
_FILE: _Tree = {b"ftyp": None, b"moov": _MOVIE, b"moof": _FRAGMENT, b"mdat": None}
"""The boxes that decoding needs. None marks a box without children."""
_ENTRY_BYTES = {
    b"stts": 8, b"ctts": 8, b"stss": 4, b"stsc": 12, b"stco": 4, b"co64": 8, b"elst": 12, b"dref": 12, b"stsd": 16,
}  # fmt: skip
"""Minimum bytes of one entry in tables that begin with version, flags and a count."""


def checked_mp4(file: bytes | bytearray) -> bytearray:
    """Return the file without boxes that decoding does not need. Raises MediaError if its tables are too large.

    A bytearray is changed and returned; bytes are copied.
    """
    data = writable(file)
    _Reader(data).check()
    return data


@dataclass(slots=True)
class _Track:
    """Sizes of one track's tables; repeated tables are added up."""

    handlers: set[bytes] = field(default_factory=set[bytes])
    samples: int = 0
    edits: int = 0
    chunks: int = 0
    most_in_chunk: int = 0
    times: list[int] = field(default_factory=list[int])
    """The number of entries of each stts table."""
    first_duration: int = 0

    @property
    def is_pcm(self) -> bool:
        """Whether FFmpeg indexes the chunks instead of the samples."""
        return self.handlers == {b"soun"} and self.times == [1] and self.first_duration == 1

    @property
    def entries(self) -> int:
        """The number of index entries that FFmpeg makes."""
        if self.is_pcm and self.samples <= _MOST_PCM_SAMPLES:
            samples = self.chunks * (self.most_in_chunk // _PCM_GROUP + 1)
        else:
            samples = max(self.samples, self.chunks)
        return samples * max(1, self.edits)


class _Reader:
    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._boxes = 0
        self._tracks = list[_Track]()
        self._fragments = 0
        self._runs = 0

    def check(self) -> None:
        """Blank the boxes that decoding does not need. Raises MediaError."""
        self._walk(0, len(self._data), _FILE)
        _check(len(self._tracks), _MOST_TRACKS, "tracks")
        _check(self._fragments * max(1, len(self._tracks)), _MOST_FRAGMENTS, "fragments")
        _check(sum(track.entries for track in self._tracks) + self._runs, MOST_SAMPLES, "samples")

    def _walk(self, at: int, end: int, tree: _Tree) -> None:
        for kind, start, body, stop in self._boxes_in(at, end):
            if kind not in tree:
                self._blank(start, body, stop)
                continue
            if kind == b"trak":
                self._tracks.append(_Track())
            if (children := tree[kind]) is not None:
                self._fragments += kind == b"moof"
                self._walk(body, stop, children)
            elif kind not in (b"ftyp", b"mdat"):
                self._measure(kind, memoryview(self._data)[body:stop])

    def _boxes_in(self, at: int, end: int) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield the type, start, start of the body, and end of each box. A box ends with its parent at the latest."""
        while at + 8 <= end:
            self._boxes += 1
            _check(self._boxes, _MOST_BOXES, "boxes")
            size = int.from_bytes(self._data[at : at + 4], "big")
            body = at + 8
            if size == 1 and at + 16 <= end:
                size = int.from_bytes(self._data[body : body + 8], "big")
                body += 8
            stop = min(end, at + size) if size else end
            if stop < body:
                break
            yield bytes(self._data[at + 4 : at + 8]), at, body, stop
            at = stop
        if at < end:
            clear(self._data, at, end)

    def _blank(self, start: int, body: int, stop: int) -> None:
        """Turn a box into one that FFmpeg skips. (It looks for movies in boxes of the type ``free``.)"""
        clear(self._data, body, stop)
        self._data[start + 4 : start + 8] = b"skip"

    def _measure(self, kind: bytes, body: memoryview) -> None:
        if kind == b"trun":
            self._runs += _number(body, 4)
        if not self._tracks:
            return
        track = self._tracks[-1]
        if kind in _ENTRY_BYTES:
            self._measure_table(track, kind, body)
        elif kind == b"tkhd":
            if _number(body, 20 if bytes(body[:1]) == b"\1" else 12) > _MOST_TRACK_ID:
                raise MediaError("the file is damaged: a track's number is too large")
        elif kind == b"hdlr":
            track.handlers.add(bytes(body[8:12]))
        elif kind in (b"stsz", b"stz2"):
            track.samples += _number(body, 8)

    def _measure_table(self, track: _Track, kind: bytes, body: memoryview) -> None:
        count = _number(body, 4)
        if count * _ENTRY_BYTES[kind] > len(body):
            raise MediaError("the file is damaged: a table is larger than its box")
        _check(count, MOST_SAMPLES, "table entries")
        match kind:
            case b"stts":
                track.times.append(count)
                track.first_duration = _number(body, 12)
            case b"stsc":
                counts = (_number(body, at) for at in range(12, 8 + 12 * count, 12))
                track.most_in_chunk = max(track.most_in_chunk, *counts, 0)
            case b"stco" | b"co64":
                track.chunks += count
            case b"elst":
                track.edits += count
            case b"stsd":
                _check_description(body)
            case _:
                pass


def _check_description(body: memoryview) -> None:
    """Raise MediaError if a sample description is large or contains tables, which FFmpeg would read there too."""
    _check(len(body), _MOST_DESCRIPTION_BYTES, "bytes of codec description")
    text = bytes(body)
    if any(name in text for name in (*_SAMPLE_TABLES, b"elst", b"trun", b"trak", b"moov", b"meta", b"udta")):
        raise MediaError("the file is damaged: its codec description contains other tables")


def _number(body: memoryview, at: int) -> int:
    return int.from_bytes(body[at : at + 4], "big")


def _check(count: int, most: int, of: str) -> None:
    if count > most:
        raise MediaError(f"the file announces {count} {of}; the limit is {most}")
