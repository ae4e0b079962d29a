"""Limits on the elements of WebM and Matroska files, checked before FFmpeg opens the file.

Elements that decoding does not need (tags, attachments, chapters, indices) are turned into padding, because FFmpeg
keeps a record for each of their entries. Source: RFC 8794 (EBML) and RFC 9559 (Matroska).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from app.media.containers import MediaError, clear, writable

_Tree = Mapping[int, Any]
_MOST_ELEMENTS = 300_000
_MOST_HEADER_BYTES = 1 << 18
"""Maximum bytes of all track descriptions and file information."""
_SEGMENT, _CLUSTER, _INFO, _TRACKS = 0x18538067, 0x1F43B675, 0x1549A966, 0x1654AE6B
_BLOCK_GROUP: _Tree = {0xA1: None, 0x9B: None, 0xFB: None, 0x75A2: None}
_IN_CLUSTER: _Tree = {0xE7: None, 0xA3: None, 0xA0: _BLOCK_GROUP}
_FILE: _Tree = {0x1A45DFA3: None, _SEGMENT: {_INFO: None, _TRACKS: None, _CLUSTER: _IN_CLUSTER}}
"""The elements that decoding needs. None marks an element whose children are not looked at."""
_NOT_NEEDED = (0x1C53BB6B, 0x114D9B74, 0x1254C367, 0x1941A469, 0x1043A770)
"""Cues, SeekHead, Tags, Attachments and Chapters."""
_ENDS = {_SEGMENT: frozenset(_FILE), _CLUSTER: frozenset([*_FILE, _INFO, _TRACKS, _CLUSTER, *_NOT_NEEDED])}
"""The elements whose length may be unknown, and those that end them."""


def checked_webm(file: bytes | bytearray) -> bytearray:
    """Return the file without elements that decoding does not need, up to its first damaged element.

    A bytearray is changed and returned; bytes are copied. Raises MediaError if it has too many elements.
    """
    data = writable(file)
    end = _Reader(data).walk(0, len(data), _FILE)
    del data[end:]
    return data


class _Reader:
    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._elements = 0
        self._header_bytes = 0

    def walk(self, at: int, end: int, tree: _Tree, ends: Collection[int] = ()) -> int:
        """Check the elements of a parent and return where they end: before one of ``ends``, or a damaged one."""
        while at < end:
            self._count()
            kind, body = self._vint(at, end, keep_marker=True)
            size, start = self._vint(body, end, keep_marker=False)
            if kind is None or size is None or kind in ends:
                return at
            children = tree.get(kind)
            unknown = size == (1 << 7 * (start - body)) - 1
            if unknown and kind not in _ENDS:
                return at
            stop = min(end, start + size) if not unknown else end
            if kind not in tree:
                self._pad(at, stop)
            elif kind in (_INFO, _TRACKS):
                self._header_bytes += stop - start
                if self._header_bytes > _MOST_HEADER_BYTES:
                    raise MediaError("the file's track descriptions are too large")
            elif children is not None:
                reached = self.walk(start, stop, children, _ENDS[kind] if unknown else ())
                if reached < stop and not unknown:
                    self._pad(reached, stop)
                stop = reached if unknown else stop
            at = stop
        return at

    def _count(self) -> None:
        self._elements += 1
        if self._elements > _MOST_ELEMENTS:
            raise MediaError(f"the file has more than {_MOST_ELEMENTS} elements")

    def _vint(self, at: int, end: int, keep_marker: bool) -> tuple[int | None, int]:
        """Return a number of variable length and where it ends; None if it is damaged."""
        if at >= end:
            return None, at
        length = 9 - self._data[at].bit_length()
        if length > (4 if keep_marker else 8) or at + length > end:
            return None, at
        number = int.from_bytes(self._data[at : at + length], "big")
        return number if keep_marker else number & ((1 << 7 * length) - 1), at + length

    def _pad(self, start: int, stop: int) -> None:
        """Replace bytes by one element of padding (Void)."""
        length = stop - start
        if length >= 9:
            header = b"\xec\x01" + (length - 9).to_bytes(7, "big")
        else:
            header = bytes([0xEC, 0x80 | length - 2]) if length >= 2 else b"\0"
        self._data[start : start + len(header)] = header
        clear(self._data, start + len(header), stop)
