"""Encoding of jobs for a decoder process, and of their results, for a socket.

The bytes after a message's header are the file, or the decoded arrays one after another.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.media.audio import decode_audio
from app.media.containers import MediaError
from app.media.images import Image, ImageKind, scaled
from app.media.videos import decode_video
from engine import CameraFeed
from engine.ipc import frames

_MOST_RESULT_BYTES = 1 << 30
_KINDS = frozenset(["|u1", "<i2"])
_PIECE_BYTES = 1 << 18


class ImageJob(msgspec.Struct, frozen=True, tag="image"):
    """Decode an image, and scale it so that no side is longer than ``side`` pixels (0: keep its size)."""

    kind: ImageKind
    width: int
    height: int
    side: int = 0
    cpu_s: float = 5.0
    """Maximum CPU time. Ordinary images take less than a tenth of it."""

    def run(self, data: bytearray) -> Result:
        pixels = Image(bytes(data), self.kind, self.width, self.height).decode()
        return Result((scaled(pixels, self.side) if self.side else pixels,))


class AudioJob(msgspec.Struct, frozen=True, tag="audio"):
    """Decode a recording."""

    limit_s: float
    cpu_s: float = 20.0

    def run(self, data: bytearray) -> Result:
        return Result((decode_audio(data, self.limit_s),))


class VideoJob(msgspec.Struct, frozen=True, tag="video"):
    """Decode a video."""

    limit_s: float
    feed: CameraFeed
    cpu_s: float = 40.0

    def run(self, data: bytearray) -> Result:
        video = decode_video(data, self.limit_s, self.feed)
        return Result((video.frames, *(() if video.pcm is None else (video.pcm,))), video.fps)


Job = ImageJob | AudioJob | VideoJob


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Decoded arrays: pixels, samples, or frames and optionally samples."""

    arrays: Sequence[NDArray[Any]]
    fps: float = 0.0


class _ResultHeader(msgspec.Struct, frozen=True):
    arrays: list[tuple[str, list[int]]] = []
    fps: float = 0.0
    error: str = ""
    """The reason why the file cannot be used."""


def send_job(connection: socket.socket, job: Job, file: BinaryIO) -> None:
    """Send a job and its file. Closes the file, which frees its memory while the job runs."""
    header = msgspec.msgpack.encode(job)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    connection.sendall(frames.LENGTHS.pack(len(header), size) + header)
    while piece := file.read(_PIECE_BYTES):
        connection.sendall(piece)
    file.close()


def receive_job(connection: socket.socket) -> tuple[Job, bytearray] | None:
    """Return the next job and its file, which the job may change; None if the connection was closed."""
    found = frames.header(connection)
    if found is None or (data := frames.received(connection, found[1])) is None:
        return None
    return msgspec.msgpack.decode(found[0], type=Job), data


def send_result(connection: socket.socket, result: Result | MediaError) -> None:
    """Send a result, or the reason why there is none."""
    if isinstance(result, MediaError):
        return frames.send(connection, msgspec.msgpack.encode(_ResultHeader(error=str(result))), [])
    arrays = [np.ascontiguousarray(array) for array in result.arrays]
    header = _ResultHeader([(array.dtype.str, list(array.shape)) for array in arrays], result.fps)
    pieces = [array.reshape(-1).view(np.uint8).data for array in arrays]
    return frames.send(connection, msgspec.msgpack.encode(header), pieces)


def receive_result(connection: socket.socket) -> Result:
    """Receive a result.

    Raises MediaError with the process's reason, EOFError if the connection was closed or the message is no result.
    """
    found, _ = frames.required(frames.header(connection, _MOST_RESULT_BYTES))
    try:
        header = msgspec.msgpack.decode(found, type=_ResultHeader)
    except msgspec.DecodeError:
        raise EOFError from None
    if header.error:
        raise MediaError(header.error)
    arrays = [_array(connection, kind, shape) for kind, shape in header.arrays]
    return Result(arrays, header.fps)


def _array(connection: socket.socket, kind: str, shape: list[int]) -> NDArray[Any]:
    size = math.prod(shape) * (2 if kind == "<i2" else 1)
    if kind not in _KINDS or min(shape, default=0) < 0 or size > _MOST_RESULT_BYTES:
        raise EOFError
    return np.frombuffer(frames.required(frames.received(connection, size)), kind).reshape(shape)
