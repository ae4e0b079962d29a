"""Opening of recordings with FFmpeg, after the container's tables were checked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import av

from app.media.mp4_tables import checked_mp4
from app.media.webm_elements import checked_webm

_MOST_STREAMS = 32
"""Maximum streams of a file. FFmpeg needs some kilobytes for each."""
_CHECKS = {"mov": checked_mp4, "matroska": checked_webm}


class _MemoryFile:
    """A file in memory that PyAV reads without copying it, as ``io.BytesIO`` would."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> bytes:
        piece = bytes(self._data[self._at : self._at + size])
        self._at += len(piece)
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        begin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._data)}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def tell(self) -> int:
        return self._at


def opened(data: bytearray, container: str, codecs: Iterable[str], **options: str) -> Any:
    """Return a file as an open PyAV container. Only the given codecs may run.

    Tables that decoding does not need are blanked in ``data``. Raises MediaError if the others are too large, and
    PyAV's errors.
    """
    if container in _CHECKS:
        _CHECKS[container](data)
    options = {
        "codec_whitelist": ",".join(sorted(codecs)),
        "probesize": "1000000",
        "max_streams": str(_MOST_STREAMS),
        **options,
    }
    return av.open(_MemoryFile(data), format=container, options=options, metadata_errors="replace")
