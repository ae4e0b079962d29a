"""A call's camera: its frames are decoded within a budget, and the newest is passed on at a rate.

A model looks at a picture or two a second, not at thirty; what is read in between costs its decoding only. Takes the
place of aiortc's own decoding, which takes frames of any size, and lets any number of them wait.
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
"""The largest frame: cameras send 1280×720 and screens more, and a decoder holds five or more of them."""

PIXELS_S = 1920 * 1080 * 30
"""Pixels that are decoded in a second, and a second of them at once: a third of a core."""

MAX_FRAMES, MAX_BYTES = 30, 4 * 1024 * 1024
"""The frames and bytes that may wait for their decoding: a second."""

ASK_S = 1.0
"""Seconds between two requests for a key frame."""

DECODERS = {"VP8": "vp8", "H264": "h264"}
"""FFmpeg's own: they look at a frame's size before they make room for it."""


class Camera:
    """The place where aiortc puts the packets of one video receiver. ``add_frame`` and ``refuse`` never wait.

    ``add_frame`` gets pictures as the ``feed`` says; ``refuse`` is told, once, that frames are too large.
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
        self._lost = True  # frames are missing: the next one that can be read is a key frame
        self._budget = TokenBucket(PIXELS_S, PIXELS_S)
        self._asked_s = self._next_s = self._now()

    def attach(self, transceiver: Any) -> None:
        """See what this transceiver gets, in one codec. Raises RuntimeError where aiortc is another one."""
        receiver, inside = aiortc_compat.inside(transceiver.receiver), aiortc_compat.inside(transceiver)
        inside.codecs = _of_one_kind(inside.codecs)
        self._kind = inside.codecs[0].name
        self._codec = _decoder(self._kind)
        receiver.jitter_buffer = self
        receiver.nack_generator = _Losses()

    def add(self, packet: Any) -> tuple[bool, None]:
        """One RTP packet; whether a key frame is to be asked for. Nothing is left for aiortc to decode."""
        broken, frame = self._packets.add(packet)
        if frame is not None and frame.data:
            self._put(frame.data)
        return self._asks() or broken, None

    async def watch(self) -> None:
        """Decode what comes, until it is cancelled."""
        while True:
            self._news.clear()
            await self.decode_waiting()
            await self._news.wait()

    async def decode_waiting(self) -> None:
        """Decode the frames that wait, one after the other in a thread, and show those whose time has come."""
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
        """Let a frame wait for its decoding, if it may."""
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
        """Nothing can be read before the next key frame."""
        self._frames.clear()
        self._bytes = 0
        self._lost = True

    def _asks(self) -> bool:
        """Whether it is time to ask for a key frame."""
        now_s = self._now()
        if not self._lost or now_s < self._asked_s + ASK_S or self._budget.wait_s(now_s):
            return False
        self._asked_s = now_s
        return True

    def _refuse_size(self, width: int, height: int) -> None:
        self._refuse(
            f"Frames of {width}×{height} pixels are too large to be looked at: send {MAX_PIXELS} pixels at most, "
            "like 2560×1600."
        )
        self._refuse = lambda message: None


async def ignore(track: MediaStreamTrack) -> None:
    """Read a track that nobody wants: what aiortc decodes of it waits without a bound."""
    try:
        while True:
            await track.recv()
    except MediaStreamError:
        return


class _Losses(NackGenerator):
    """The missing packets, for a receiver that asks for them; a jump is another beginning, and not 30 000 losses."""

    def add(self, packet: Any) -> bool:
        if self.max_seq is not None and RTP_HISTORY_SIZE < (packet.sequence_number - self.max_seq & 0xFFFF) < 0x8000:
            self.max_seq = None
            self.missing = set()
        return super().add(packet)


def _of_one_kind(codecs: list[Any]) -> list[Any]:
    """Return, of the codecs that both sides have, VP8 if it is there: what a packet holds is known then."""
    kind = "VP8" if any(one.name == "VP8" for one in codecs) else codecs[0].name
    kept = [one for one in codecs if one.name == kind]
    types = {one.payloadType for one in kept}
    return [*kept, *(one for one in codecs if one.name.lower() == "rtx" and one.parameters.get("apt") in types)]


def _decoder(kind: str) -> VideoCodecContext:
    codec = cast("VideoCodecContext", av.CodecContext.create(DECODERS[kind], "r"))
    codec.options = {"max_pixels": str(MAX_PIXELS)}
    codec.thread_count = 1  # one call takes one core at most
    return codec


def _decode(codec: VideoCodecContext, data: bytes, side: int) -> CameraFrame | None:
    """The picture, if one of such a longer side is wanted. Raises FFmpegError."""
    frames = codec.decode(av.Packet(data))
    if not frames or not side:
        return None
    pixels, jpeg = encode_frame(frames[-1], side)
    return CameraFrame(pixels, image_url(jpeg))


def _is_key(kind: str, data: bytes) -> bool:
    """VP8: RFC 6386, 9.1; H.264: it begins with an IDR slice, or with what may come before one (ITU-T H.264, 7.4.1)."""
    return not data[0] & 1 if kind == "VP8" else len(data) > 4 and data[4] & 0x1F in (5, 6, 7, 9)


def _size_of(kind: str, data: bytes) -> tuple[int, int]:
    """Width and height that a key frame's header tells (RFC 6386, 9.1); of H.264 the decoder itself reads it first."""
    if kind != "VP8":
        return 0, 0
    return int.from_bytes(data[6:8], "little") & 0x3FFF, int.from_bytes(data[8:10], "little") & 0x3FFF
