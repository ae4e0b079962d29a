"""Decoding of videos to the frame rate, size and audio that a model accepts.

Sizes are checked before decoding, or as soon as they are known. Raises MediaError with one sentence. Never reads files
or URLs that a client names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import av.error
import numpy as np
from numpy.typing import NDArray

from app.media.audio import SOUND_CODECS, MediaError, check_whole, decode_audio, decode_base64
from app.media.containers import recognized, writable
from app.media.images import fitted, rotation
from app.media.opening import opened
from engine import AudioPart, CameraFeed, ImagePart, Part, VideoPart
from engine.core import Pcm

MAX_VIDEO_BYTES = 20 * 1024 * 1024
"""A minute as recorded by phones. In base64 it fits into a request body."""

MAX_PIXELS = 4_000_000_000
"""Maximum pixels of all decoded frames: a minute of 1920 × 1080 at 30 fps, about ten seconds on one core."""

MAX_FRAME_PIXELS = 3840 * 2160

_CODECS = frozenset(["h264", "hevc", "mpeg4", "vp8", "libvpx", "vp9", "libvpx-vp9", "av1", "libdav1d", "mjpeg"])
_KINDS = "MP4, MOV or WebM"


@dataclass(frozen=True, slots=True, eq=False)
class Video:
    """uint8 [frames, height, width, 3] at ``fps``, and int16 [samples] at MIC_RATE_HZ if it has audio.

    ``apart``: the model supports no video, and receives the frames as images and the audio as the user's speech.
    """

    frames: NDArray[np.uint8]
    fps: float
    pcm: Pcm | None
    apart: bool = False

    def taken(self, abilities: Collection[str], written: bool) -> Video:
        """Return the video in the form that a model with these abilities accepts.

        If the video is taken apart and text accompanies it (``written``), the audio is dropped.
        """
        if "video" in abilities:
            return self
        pcm = None if written or "audio" not in abilities else self.pcm
        return replace(self, pcm=pcm, apart=True)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.frames.nbytes + (0 if self.pcm is None else self.pcm.nbytes)


def parts_of(frames: Iterable[Any], fps: float, pcm: Pcm | None, apart: bool) -> tuple[Part, ...]:
    """Return the parts of a video for the engine."""
    if not apart:
        return (VideoPart(frames, fps, pcm),)
    return (*map(ImagePart, frames), *(() if pcm is None else (AudioPart(pcm),)))


def video_of_url(url: str) -> bytes:
    """Return the file of a ``data:video/…;base64,`` URI. Fetches nothing."""
    head, comma, body = url.partition(",")
    if not comma or not head.startswith("data:video/") or not head.endswith(";base64"):
        raise MediaError("video_url must be a data URI of a video in base64; URLs are not fetched")
    if len(body) > MAX_VIDEO_BYTES * 4 // 3 + 4:
        raise MediaError(f"the video is larger than {MAX_VIDEO_BYTES // 2**20} MiB")
    return decode_base64(body)


def decode_video(file: bytes | bytearray, limit_s: float, feed: CameraFeed) -> Video:
    """Decode an MP4, MOV or WebM file of at most ``limit_s``, frame by frame, to the model's camera settings.

    The result has ``feed.fps`` frames per second, or a half (a quarter, …) of that to stay within ``feed.most``.
    A bytearray is changed in place; bytes are copied.
    """
    data = writable(file)
    container = recognized(data)
    if container not in ("mov", "matroska"):
        raise MediaError(f"unknown video format: use {_KINDS}")
    try:
        with opened(data, container, _CODECS | SOUND_CODECS, max_pixels=str(2 * MAX_FRAME_PIXELS)) as media:
            frames, fps = _sampled(media, limit_s, feed)
            sounds = bool(media.streams.audio)
    except (av.error.FFmpegError, RuntimeError, EOFError):
        raise MediaError(f"the video is damaged or cut off, or its format is unknown: use {_KINDS}") from None
    return Video(frames, fps, decode_audio(data, limit_s) if sounds else None)


def _sampled(file: Any, limit_s: float, feed: CameraFeed) -> tuple[NDArray[np.uint8], float]:
    """Return the selected frames of an open file in the first one's size, and their rate per second."""
    stream = next(iter(file.streams.video), None)
    if stream is None:
        raise MediaError("the file contains no video")
    taken, fps, end_s = list[NDArray[np.uint8]](), feed.fps, 0.0
    for frame, at_s in _timed(file, stream):
        if at_s > limit_s:
            raise MediaError(f"the video is longer than {limit_s:g} s")
        end_s = at_s + float((frame.duration or 0) * (frame.time_base or 0))
        if at_s < len(taken) / fps:
            continue
        picture = _upright(frame, feed.side)
        taken.append(fitted(picture, *taken[0].shape[:2]) if taken else picture)
        if len(taken) > feed.most:
            taken, fps = taken[::2], fps / 2
    if not taken:
        raise MediaError("no frame of the video can be decoded; the file may be damaged: send another one")
    check_whole(stream, end_s)
    return np.stack(taken), fps


def _timed(file: Any, stream: Any) -> Iterator[tuple[Any, float]]:
    """Yield the frames with their times in seconds from the first one, never decreasing."""
    if stream.codec_context is None or stream.codec_context.name not in _CODECS:
        raise MediaError("the video's codec is not supported: use H.264, H.265, MPEG-4, VP8, VP9, AV1 or MJPEG")
    stream.codec_context.thread_count = 1
    first_s, at_s, pixels = None, 0.0, 0
    for packet in file.demux(stream):
        _check_size(stream.codec_context.width, stream.codec_context.height)
        try:
            frames = packet.decode()
        except av.error.InvalidDataError:
            continue  # damaged packets are skipped, as players do
        for frame in frames:
            pixels += frame.width * frame.height
            if pixels > MAX_PIXELS:
                raise MediaError("the video has too many pixels: reduce its size or frame rate")
            time_s = at_s if frame.time is None else float(frame.time)
            first_s = time_s if first_s is None else first_s
            at_s = max(at_s, time_s - first_s)
            yield frame, at_s


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_FRAME_PIXELS:
        raise MediaError(f"the video has {width}x{height} pixels; the limit is {MAX_FRAME_PIXELS / 1e6:.1f} million")


def _upright(frame: Any, longest: int) -> NDArray[np.uint8]:
    """Return a frame as uint8 [height, width, 3], no side longer than ``longest`` pixels."""
    scale = min(1.0, longest / max(frame.width, frame.height))
    width, height = (max(1, round(side * scale)) for side in (frame.width, frame.height))
    pixels: NDArray[np.uint8] = frame.to_ndarray(format="rgb24", width=width, height=height)
    return np.ascontiguousarray(np.rot90(pixels, k=round(rotation(frame) / 90)))
