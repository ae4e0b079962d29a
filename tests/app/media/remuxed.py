"""Copies of a recording in another container."""

from __future__ import annotations

import io
from collections.abc import Mapping

import av


def remuxed(data: bytes, format: str, options: Mapping[str, str]) -> bytes:
    """Return the same packets of all streams in a file of another format, written with FFmpeg's options."""
    out = io.BytesIO()
    with av.open(io.BytesIO(data), "r") as file, av.open(out, "w", format=format, options=dict(options)) as copy:
        streams = {one.index: copy.add_stream_from_template(one) for one in file.streams}
        for packet in file.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream.index]
                copy.mux(packet)
    return out.getvalue()
