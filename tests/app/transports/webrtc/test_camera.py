"""A call's camera: the newest picture joins the user's turn, at a budgeted rate, however fast pictures come."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from aiortc import RTCRtpReceiver, VideoStreamTrack
from aiortc.rtcrtpparameters import RTCRtpCodecParameters
from av.error import FFmpegError

from app.media.images import encode_frame, image_of_url
from app.realtime.input import camera_buffer
from app.realtime.protocol.client_events import CameraFrame
from app.transports.webrtc import camera as camera_module
from app.transports.webrtc.camera import MAX_BYTES, MAX_FRAMES, Camera
from engine import PICTURES, CameraFeed
from tests.app.rig import TIMEOUT_S, eventually, silence, tone
from tests.app.transports.webrtc.caller import Caller


def picture(width: int, height: int, level: int = 200) -> av.VideoFrame:
    pixels = np.full((height, width, 3), level, np.uint8)
    return av.VideoFrame.from_ndarray(pixels, format="rgb24")


class Grey(VideoStreamTrack):
    """Pictures, thirty a second."""

    async def recv(self) -> av.VideoFrame:
        pts, time_base = await self.next_timestamp()
        frame = picture(320, 240)
        frame.pts, frame.time_base = pts, time_base
        return frame


@dataclass
class Packet:
    """Of an RtpPacket, what is read here."""

    sequence_number: int
    timestamp: int
    _data: bytes


def encoded(kind: str, width: int, height: int, count: int = 1, key: bool = False) -> list[bytes]:
    """Frames as a camera sends them; each a key frame, or the first one only."""
    codec: Any = av.CodecContext.create({"VP8": "libvpx", "H264": "libx264"}[kind], "w")
    codec.width, codec.height, codec.pix_fmt, codec.time_base = width, height, "yuv420p", Fraction(1, 30)
    codec.options = {"deadline": "realtime"} if kind == "VP8" else {"preset": "ultrafast", "tune": "zerolatency"}
    codec.gop_size = 1 if key else 300
    frames: list[bytes] = []
    for n in range(count):
        frame = picture(width, height, 50 + n).reformat(format="yuv420p")
        frame.pts = n
        frames += [bytes(one) for one in codec.encode(frame)]
    return frames + [bytes(one) for one in codec.encode(None)]


def giant(width: int, height: int) -> bytes:
    """A small key frame of VP8 whose header says another size."""
    frame = bytearray(encoded("VP8", 64, 64)[0])
    frame[6:10] = width.to_bytes(2, "little") + height.to_bytes(2, "little")
    return bytes(frame)


class Transceiver:
    """Of an RTCRtpTransceiver, what a Camera takes the place of."""

    kind = "video"

    def __init__(self, *names: str) -> None:
        self._codecs = [RTCRtpCodecParameters(f"video/{name}", 90_000, payloadType=n) for n, name in enumerate(names)]
        transport: Any = SimpleNamespace(state="new")
        self.receiver = RTCRtpReceiver("video", transport)


class Sent:
    """A camera, what it showed, what it refused, and whether it asked for a key frame."""

    def __init__(self, kind: str = "VP8", every_s: float = 0.0) -> None:
        self.seen: list[CameraFrame] = []
        self.refused: list[str] = []
        self.asked = 0
        self.camera = Camera(
            CameraFeed(fps=1 / every_s if every_s else math.inf), self.seen.append, self.refused.append
        )
        self.camera.attach(Transceiver(kind))
        self._number = 65_530

    def send(self, frames: list[bytes]) -> None:
        """Each frame in packets, and the beginning of another one, which shows that it is whole."""
        for frame in frames:
            for at in range(0, len(frame), 1200):
                self._packet(frame[at : at + 1200])
            self._number += 1 << 16  # the next timestamp
        self._packet(b"", keep=True)

    def _packet(self, data: bytes, keep: bool = False) -> None:
        packet = Packet(self._number & 0xFFFF, self._number >> 16, data)
        self._number += 0 if keep else 1
        asked, none = self.camera.add(packet)
        self.asked += asked
        assert none is None, "aiortc would decode it"


@pytest.mark.parametrize("kind", ["VP8", "H264"])
@pytest.mark.parametrize(("every_s", "pictures"), [(0.0, 20), (1000.0, 1)])
async def test_pictures_come_at_a_budgeted_rate(kind: str, every_s: float, pictures: int) -> None:
    sent = Sent(kind, every_s)
    sent.send(encoded(kind, 64, 48, 20))
    await sent.camera.decode_waiting()
    assert [one.pixels.shape for one in sent.seen] == [(48, 64, 3)] * pictures
    assert not sent.refused


@pytest.mark.parametrize(("kind", "giants"), [("VP8", [giant(16383, 16383)] * 3), ("H264", None)], ids=["VP8", "H264"])
async def test_a_frame_that_is_too_large_is_told_and_not_decoded(kind: str, giants: list[bytes] | None) -> None:
    """Of VP8 the header alone says so: 16383×16383 took 900 MB and two seconds. What comes behind it is seen."""
    sent = Sent(kind)
    for frame in giants or encoded("H264", 4096, 2304, 3, key=True):
        sent.send([frame])
        await sent.camera.decode_waiting()
    assert not sent.seen
    assert len(sent.refused) == 1
    assert "too large" in sent.refused[0]
    sent.send(encoded(kind, 64, 48))
    await sent.camera.decode_waiting()
    assert len(sent.seen) == 1


async def test_the_decoders_themselves_refuse_what_is_too_large() -> None:
    """Whatever the header's reader may have missed."""
    codec = camera_module._decoder("VP8")
    with pytest.raises(FFmpegError):
        codec.decode(av.Packet(giant(16383, 16383)))
    assert codec.decode(av.Packet(giant(64, 64)))


async def test_what_waits_is_bounded_and_a_key_frame_goes_on() -> None:
    """Nobody decodes: frames are dropped, not piled up; then those that need what is lost are no use."""
    sent = Sent()
    first, *rest = encoded("VP8", 64, 48, MAX_FRAMES + 20)
    sent.send([first, *rest])
    assert len(sent.camera._frames) < MAX_FRAMES
    await sent.camera.decode_waiting()
    seen = len(sent.seen)
    sent.send(rest[-5:])
    await sent.camera.decode_waiting()
    assert len(sent.seen) == seen
    sent.send(encoded("VP8", 64, 48))
    await sent.camera.decode_waiting()
    assert len(sent.seen) == seen + 1


async def test_no_more_is_decoded_in_a_second_than_a_camera_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small packets can hold large pictures: beyond a budget of pixels they are left out until it is paid."""
    sent, now_s = Sent(), 0.0
    monkeypatch.setattr(sent.camera, "_now", lambda: now_s)
    sent.camera._asked_s = sent.camera._next_s = 0.0
    frames = encoded("VP8", 1920, 1080, 3, key=True)
    for _ in range(30):
        sent.send(frames)
        await sent.camera.decode_waiting()
    decoded = len(sent.seen)
    assert 30 <= decoded <= 33
    assert not sent.asked
    now_s = 2.0
    sent.send(frames)
    await sent.camera.decode_waiting()
    assert len(sent.seen) > decoded
    now_s, asked = 5.0, sent.asked
    for _ in range(30):
        sent.send(frames)
        await sent.camera.decode_waiting()
    assert sent.asked == asked, "what is asked for is not looked at before the budget is paid"
    now_s = 6.0
    sent.send(frames)
    assert sent.asked == asked + 1


async def test_what_waits_is_bounded_in_bytes_too() -> None:
    sent, most = Sent(), 0
    large = encoded("VP8", 64, 48)[0] + bytes(500_000)
    for _ in range(MAX_FRAMES // 2):
        sent.send([large])
        most = max(most, sum(map(len, sent.camera._frames)))
    assert MAX_BYTES // 2 < most <= MAX_BYTES


async def test_a_jump_in_the_numbers_is_no_loss_of_thousands() -> None:
    """aiortc counts each that is missing, for each packet."""
    losses = camera_module._Losses()
    for number in (0, 30_000, 60_000, 24_464, 24_467):
        losses.add(Packet(number, 0, b""))
        assert len(losses.missing) <= 2
    assert losses.missing == {24_465, 24_466}


async def test_vp8_is_chosen_where_both_sides_have_it() -> None:
    camera = Camera(CameraFeed(), print, print)
    both, one = Transceiver("H264", "VP8", "rtx"), Transceiver("H264", "rtx")
    both._codecs[2].parameters = {"apt": 1}
    one._codecs[1].parameters = {"apt": 7}
    for transceiver, names in ((both, ["VP8", "rtx"]), (one, ["H264"])):
        camera.attach(transceiver)
        assert [codec.name for codec in transceiver._codecs] == names


@pytest.mark.parametrize(("size", "small"), [((1280, 720), (640, 360)), ((480, 640), (480, 640)), ((3, 3), (2, 2))])
def test_a_frame_is_scaled_and_can_be_read_again(size: tuple[int, int], small: tuple[int, int]) -> None:
    pixels, jpeg = encode_frame(picture(*size), CameraFeed().side)
    assert pixels.shape == (small[1], small[0], 3)
    again = image_of_url("data:image/jpeg;base64," + base64.b64encode(jpeg).decode()).decode()
    assert again.shape == pixels.shape
    assert int(again.mean()) == pytest.approx(200, abs=6)


@pytest.mark.slow
async def test_the_newest_pictures_join_the_turn(serve_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[CameraFrame] = []
    see = camera_buffer.CameraBuffer.add_frame

    def counted(self: camera_buffer.CameraBuffer, frame: CameraFrame, now_s: float, position: int) -> None:
        looked.append(frame)
        see(self, frame, now_s, position)

    monkeypatch.setattr(camera_buffer.CameraBuffer, "add_frame", counted)
    monkeypatch.setattr(camera_buffer, "FRESH_S", TIMEOUT_S)  # on a slow machine pictures are old ones
    async with serve_with(camera_every_s=0.2) as server:
        caller = Caller(server)
        caller.peer.addTrack(Grey())
        await caller.connect()
        await eventually(lambda: len(looked) >= PICTURES)
        caller.mouth.say(np.concatenate([tone(0.5), silence(1.0)]))
        await caller.until("response.done")
        added = next(event for event in caller.of("conversation.item.added") if event["item"]["role"] == "user")
        parts = added["item"]["content"]
        assert [part["type"] for part in parts] == ["input_image"] * 3 + ["input_audio"]
        assert image_of_url(parts[2]["image_url"]).decode().shape == (240, 320, 3)
        assert caller.of("response.done")[0]["response"]["status"] == "completed"
        await caller.hang_up()
        await server.empty()
