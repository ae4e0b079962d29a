"""A call's camera: frames are decoded within a budget, and the newest one is passed on at the model's rate.

A model uses one or two frames per second, not thirty; the other frames are only decoded. Replaces aiortc's decoding,
which accepts frames of any size and queues any number of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import av
from aiortc import MediaStreamTrack
from aiortc.jitterbuffer import JitterBuffer
from aiortc.mediastreams import MediaStreamError
from aiortc.rtcrtpreceiver import NackGenerator
from aiortc.rtp import RTP_HISTORY_SIZE
from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext

from app.limits.rate_limiter import TokenBucket
from app.media.images import encode_frame, image_url
from app.realtime.protocol.client_events import CameraFrame
from app.transports.webrtc import aiortc_compat
from engine import CameraFeed

MAX_PIXELS = 2560 * 1600
"""Maximum pixels of a frame: cameras send 1280×720, screens more, and a decoder holds five or more frames."""

PIXELS_S = 1920 * 1080 * 30
"""Pixels decoded per second, with a burst of one second: a third of a core."""

MAX_FRAMES, MAX_BYTES = 30, 4 * 1024 * 1024
"""Maximum frames and bytes that wait for decoding: one second."""

ASK_S = 1.0
"""Seconds between two requests for a key frame."""

DECODERS = {"VP8": "vp8", "H264": "h264"}
"""FFmpeg's own decoders, which check a frame's size before they allocate memory."""


class Camera:
    """Receives the packets of one aiortc video receiver. ``add_frame`` and ``refuse`` never wait.

    ``add_frame`` receives frames as ``feed`` defines; ``refuse`` is called once if frames are too large.
    """

    def __init__(
        self, feed: CameraFeed, add_frame: Callable[[CameraFrame], None], refuse: Callable[[str], None]
    ) -> None:
        self._feed = feed
        self._add_frame = add_frame
        self._refuse = refuse
        self._packets = JitterBuffer(capacity=512, is_video=True)
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._now = asyncio.get_running_loop().time
        self._kind = "VP8"
        self._codec = _decoder("VP8")
        self._lost = True  # frames are missing: the next readable one is a key frame
        self._budget = TokenBucket(PIXELS_S, PIXELS_S)
        self._asked_s = self._next_s = self._now()

    def attach(self, transceiver: Any) -> None:
        """Receive this transceiver's packets in one codec. Raises RuntimeError for an unsupported version of aiortc."""
        receiver, inside = aiortc_compat.inside(transceiver.receiver), aiortc_compat.inside(transceiver)
        inside.codecs = _of_one_kind(inside.codecs)
        self._kind = inside.codecs[0].name
        self._codec = _decoder(self._kind)
        receiver.jitter_buffer = self
        receiver.nack_generator = _Losses()

    def add(self, packet: Any) -> tuple[bool, None]:
        """Add an RTP packet. Returns whether to request a key frame, and nothing for aiortc to decode."""
        broken, frame = self._packets.add(packet)
        if frame is not None and frame.data:
            self._put(frame.data)
        return self._asks() or broken, None

    async def watch(self) -> None:
        """Decode frames until cancelled."""
        while True:
            self._news.clear()
            await self.decode_waiting()
            await self._news.wait()

    async def decode_waiting(self) -> None:
        """Decode the waiting frames in a thread, one after another, and pass on those that are due."""
        while self._frames:
            data = self._frames.popleft()
            self._bytes -= len(data)
            picture = await self._decoded(data, wanted=self._now() >= self._next_s)
            if picture is not None:
                self._next_s = self._now() + 1 / self._feed.fps
                self._add_frame(picture)

    async def _decoded(self, data: bytes, wanted: bool) -> CameraFrame | None:
        codec = self._codec
        try:
            return await asyncio.to_thread(_decode, codec, data, self._feed.side if wanted else 0)
        except FFmpegError:
            if codec.width * codec.height > MAX_PIXELS:
                self._refuse_size(codec.width, codec.height)
            self._lose()
            return None
        finally:
            self._budget.take(min(codec.width * codec.height, MAX_PIXELS), self._now())

    def _put(self, data: bytes) -> None:
        """Queue a frame for decoding, if allowed."""
        key = _is_key(self._kind, data)
        if (self._lost and not key) or self._budget.wait_s(self._now()):
            self._lost = True
            return
        width, height = _size_of(self._kind, data) if key else (0, 0)
        if width * height > MAX_PIXELS:
            self._refuse_size(width, height)
            self._lose()
        elif len(self._frames) >= MAX_FRAMES or self._bytes + len(data) > MAX_BYTES:
            self._lose()
        else:
            self._lost = False
            self._frames.append(data)
            self._bytes += len(data)
            self._news.set()

    def _lose(self) -> None:
        """Drop frames until the next key frame."""
        self._frames.clear()
        self._bytes = 0
        self._lost = True

    def _asks(self) -> bool:
        """Return whether it is time to request a key frame from the client."""
        now_s = self._now()
        if not self._lost or now_s < self._asked_s + ASK_S or self._budget.wait_s(now_s):
            return False
        self._asked_s = now_s
        return True

    def _refuse_size(self, width: int, height: int) -> None:
        self._refuse(
            f"Frames of {width}×{height} pixels are too large: send at most {MAX_PIXELS} pixels, such as 2560×1600."
        )
        self._refuse = lambda message: None


async def ignore(track: MediaStreamTrack) -> None:
    """Read an unused track to its end, since aiortc queues its decoded data without a limit."""
    try:
        while True:
            await track.recv()
    except MediaStreamError:
        return


class _Losses(NackGenerator):
    """The missing packets of a receiver. A jump counts as a new start, not as 30,000 losses."""

    def add(self, packet: Any) -> bool:
        if self.max_seq is not None and RTP_HISTORY_SIZE < (packet.sequence_number - self.max_seq & 0xFFFF) < 0x8000:
            self.max_seq = None
            self.missing = set()
        return super().add(packet)


def _of_one_kind(codecs: list[Any]) -> list[Any]:
    """Return the common codecs of one kind, preferably VP8, so that the format of packets is known."""
    kind = "VP8" if any(one.name == "VP8" for one in codecs) else codecs[0].name
    kept = [one for one in codecs if one.name == kind]
    types = {one.payloadType for one in kept}
    return [*kept, *(one for one in codecs if one.name.lower() == "rtx" and one.parameters.get("apt") in types)]


def _decoder(kind: str) -> VideoCodecContext:
    codec = cast("VideoCodecContext", av.CodecContext.create(DECODERS[kind], "r"))
    codec.options = {"max_pixels": str(MAX_PIXELS)}
    codec.thread_count = 1  # one call uses at most one core
    return codec


def _decode(codec: VideoCodecContext, data: bytes, side: int) -> CameraFrame | None:
    """Decode a frame, and return it if a longer ``side`` is wanted. Raises FFmpegError."""
    frames = codec.decode(av.Packet(data))
    if not frames or not side:
        return None
    pixels, jpeg = encode_frame(frames[-1], side)
    return CameraFrame(pixels, image_url(jpeg))


def _is_key(kind: str, data: bytes) -> bool:
    """Return whether this is a key frame.

    VP8: RFC 6386, 9.1. H.264: it starts with an IDR slice, or with what may precede one (ITU-T H.264, 7.4.1).
    """
    return not data[0] & 1 if kind == "VP8" else len(data) > 4 and data[4] & 0x1F in (5, 6, 7, 9)


def _size_of(kind: str, data: bytes) -> tuple[int, int]:
    """Return width and height in a VP8 key frame's header (RFC 6386, 9.1). H.264's decoder checks them itself."""
    if kind != "VP8":
        return 0, 0
    return int.from_bytes(data[6:8], "little") & 0x3FFF, int.from_bytes(data[8:10], "little") & 0x3FFF
