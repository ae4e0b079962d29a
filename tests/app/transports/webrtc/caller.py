"""A WebRTC client for the tests: another peer connection, a microphone that says what it is given, an ear."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from fractions import Fraction
from typing import Any, Self

import av
import httpx
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError

from tests.app.rig import TIMEOUT_S, Event, Running, check_event
from tests.app.transports.webrtc.relay import Relay, without_addresses

FRAME = 960  # 20 ms at 48 kHz


class Mouth(MediaStreamTrack):
    """Says what it is given, in real time, and is silent in between."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._said = np.empty(0, np.int16)
        self._begun_s: float | None = None
        self._frames = 0

    def say(self, pcm: Any) -> None:
        """int16 at 24 kHz."""
        self._said = np.concatenate([self._said, np.repeat(pcm, 2)])

    async def recv(self) -> av.AudioFrame:
        self._begun_s = self._begun_s or time.monotonic()
        await asyncio.sleep(self._begun_s + self._frames * 0.02 - time.monotonic())
        pcm, self._said = np.pad(self._said[:FRAME], (0, max(0, FRAME - len(self._said)))), self._said[FRAME:]
        frame = av.AudioFrame.from_ndarray(pcm[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, self._frames * FRAME, Fraction(1, 48_000)
        self._frames += 1
        return frame


@dataclasses.dataclass(slots=True)
class Heard:
    """A frame of the server's voice: when it came, its timestamp in ticks of 1/48000 s, how loud it is."""

    at_s: float
    ticks: int
    peak: int


class Caller:
    """One call. ``events`` are the data channel's, ``heard`` the frames of the voice; both checked as they come."""

    def __init__(self, server: Running, mouth: Any = None, through: Relay | None = None, record: bool = False) -> None:
        self.server, self.mouth, self.through = server, mouth or Mouth(), through
        self.query = {"record": "true"} if record else {}
        self.events: list[Event] = []
        self.heard: list[Heard] = []
        self.id = ""
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.channel = self.peer.createDataChannel("oai-events")
        self._news: asyncio.Queue[Event | None] = asyncio.Queue()
        self.channel.on("message", self._on_message)
        self.channel.on("close", lambda: self._news.put_nowait(None))
        self.peer.addTrack(self.mouth)
        self.ears: list[asyncio.Task[None]] = []
        self.peer.on("track", lambda track: self.ears.append(asyncio.create_task(self._listen(track))))

    async def offer(self) -> str:
        """An SDP offer as browsers post it: before any candidate was found."""
        await self.peer.setLocalDescription(await self.peer.createOffer())
        return without_addresses(self.peer.localDescription.sdp)

    async def connect(self, session: Any = None, resume: str = "", after: int = 0, **headers: str) -> Self:
        """Place the call, and wait for the greeting; with a token, come back to one, and wait for nothing."""
        form = {"sdp": (None, await self.offer(), "application/sdp")}
        if session is not None:
            form["session"] = (None, json.dumps(session), "application/json")
        async with httpx.AsyncClient(base_url=self.server.http) as http:
            query = {"resume": resume, "after": str(after)} if resume else self.query
            answer = await http.post("/v1/realtime/calls", params=query, files=form, headers=headers)
        assert answer.status_code == 201, answer.text
        self.id = answer.headers["location"].rpartition("/")[2]
        sdp = answer.text if self.through is None else self.through.between(answer.text)
        await self.peer.setRemoteDescription(RTCSessionDescription(sdp, "answer"))
        if not resume:
            await self.until("session.created")
        return self

    async def send(self, type: str, **fields: Any) -> Self:
        self.channel.send(json.dumps({"type": type, **fields}))
        return self

    async def next(self) -> Event:
        async with asyncio.timeout(TIMEOUT_S):
            event = await self._news.get()
        assert event is not None, "the call is over"
        return event

    async def until(self, type: str) -> Event:
        """The next event of a type."""
        while (event := await self.next())["type"] != type:
            pass
        return event

    async def closed(self) -> None:
        """Wait until the server has ended the call."""
        async with asyncio.timeout(TIMEOUT_S):
            while await self._news.get() is not None:
                pass

    async def say(self, text: str, **response: Any) -> None:
        """A typed turn, and ask for its answer."""
        content = [{"type": "input_text", "text": text}]
        await self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await self.send("response.create", response=response)

    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def of(self, type: str) -> list[Event]:
        return [event for event in self.events if event["type"] == type]

    async def sound(self, from_s: float = 0.0) -> Heard:
        """Wait for the first loud frame that came after ``from_s``."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                for frame in self.heard:
                    if frame.peak > 500 and frame.at_s >= from_s:
                        return frame
                await asyncio.sleep(0.002)

    async def hang_up(self) -> None:
        await self.peer.close()
        for ear in self.ears:
            ear.cancel()
        await asyncio.gather(*self.ears, return_exceptions=True)

    def _on_message(self, text: str) -> None:
        event = json.loads(text)
        check_event(event)
        self.events.append(event)
        self._news.put_nowait(event)

    async def _listen(self, track: MediaStreamTrack) -> None:
        try:
            while True:
                frame: Any = await track.recv()
                peak = int(np.abs(frame.to_ndarray()).max())
                self.heard.append(Heard(time.monotonic(), int(frame.pts), peak))
        except MediaStreamError:
            return


@asynccontextmanager
async def calling(server: Running, session: Any = None, **options: Any) -> AsyncGenerator[Caller]:
    """A call that has been greeted, hung up at the end."""
    caller = Caller(server, **options)
    try:
        yield await caller.connect(session)
    finally:
        await caller.hang_up()
