"""Opening of recordings with FFmpeg, after the container's tables were checked."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import av

from app.media.mp4_tables import checked_mp4
from app.media.webm_elements import checked_webm

_MOST_STREAMS = 32
"""Maximum streams of a file. FFmpeg needs some kilobytes for each."""
_CHECKS = {"mov": checked_mp4, "matroska": checked_webm}


def opened(data: bytes, container: str, codecs: Iterable[str], **options: str) -> Any:
    """Return a file as an open PyAV container. Only the given codecs may run.

    Raises MediaError if its tables are too large, and PyAV's errors.
    """
    if container in _CHECKS:
        data = _CHECKS[container](data)
    options = {
        "codec_whitelist": ",".join(sorted(codecs)),
        "probesize": "1000000",
        "max_streams": str(_MOST_STREAMS),
        **options,
    }
    return av.open(io.BytesIO(data), format=container, options=options, metadata_errors="replace")
