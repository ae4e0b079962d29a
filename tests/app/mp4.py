"""MP4 files as servers of films keep them. Knows nothing of what decodes them."""

from __future__ import annotations

import io
from pathlib import Path

import av


def with_its_index_first(data: bytes, format: str, folder: Path) -> bytes:
    """The first stream of a file, in one whose index comes before what it finds: it can be decoded up to a cut."""
    path = folder / "first.mp4"
    with (
        av.open(io.BytesIO(data), "r") as file,
        av.open(str(path), "w", format=format, options={"movflags": "faststart"}) as out,
    ):
        copied = out.add_stream_from_template(file.streams[0])
        for packet in file.demux(file.streams[0]):
            if packet.dts is not None:
                packet.stream = copied
                out.mux(packet)
    return path.read_bytes()
