"""The client's channel over WebRTC: Opus over RTP, and events on a data channel. The server plays in real time."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import numpy as np
import orjson
from aiortc import RTCConfiguration, RTCIceServer, RTCPeerConnection, RTCSessionDescription
from aiortc.exceptions import InvalidStateError
from aiortc.rtcrtpsender import RTCRtpSender

from app.client.channel import ClientError, not_connected, refusal, server_parts, tls_context
from app.client.events import AudioDelta, Event, Other, ResponseDone, decode
from app.realtime.timer_lateness import MOST_S
from app.transports.webrtc.audio_receiver import AudioReceiver
from app.transports.webrtc.opus import FRAME, FRAME_S
from app.transports.webrtc.opus_track import OpusTrack
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm

OPEN_S = 20.0
"""Maximum seconds for connecting (ICE and DTLS)."""

EARLY_S = 0.060
"""Audio that arrived at most this long before the event that starts its answer belongs to it. Older audio belongs to
the answer before.
"""

EARLY_PACKETS = round((0.060 + MOST_S) / FRAME_S)
"""Maximum number of packets that can arrive early: a late server sends this many at once."""

UNREAD = 10_000
"""Maximum number of unread events. The client reads all the time, so reaching the limit means that it has stopped."""


@asynccontextmanager
async def opened(
    url: str,
    model: str = "",
    key: str | None = None,
    trust: ssl.SSLContext | None = None,
    silence_s: float = 0.0,
    ice_servers: Iterable[RTCIceServer] = (),
    through: Callable[[str], str] = str,
) -> AsyncGenerator[CallChannel]:
    """Open a call to the server at ``http(s)://host:port`` while the block lasts. Raises ClientError.

    ``ice_servers`` are STUN and TURN servers; of several TURN servers aiortc uses one. ``silence_s`` has no effect,
    since ICE itself detects a lost server. ``through`` rewrites the SDP that each side receives, first the offer and
    then the answer, as a relay between client and server does.
    """
    # None would select a public STUN server
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[*ice_servers]))
    channel = CallChannel(connection)
    try:
        try:
            async with asyncio.timeout(OPEN_S):
                await connection.setLocalDescription(await connection.createOffer())
                answer = await _answered(url, model, key, through(connection.localDescription.sdp), trust)
                await connection.setRemoteDescription(RTCSessionDescription(through(answer), "answer"))
                await channel.connected()
        except TimeoutError:
            raise ClientError(f"the call to {url} was not connected within {OPEN_S:g} s", "call_failed") from None
        yield channel
    finally:
        channel.close()
        await connection.close()


class CallChannel:
    """An open call. The end of an answer is reported after the end of its audio."""

    plays = True

    def __init__(self, connection: RTCPeerConnection) -> None:
        self._data_channel = connection.createDataChannel("oai-events")
        self._part: Pcm = np.empty(0, np.int16)  # audio of less than a packet, which waits for more
        self._track = OpusTrack(time.monotonic)
        self._receiver = AudioReceiver(self._add_samples, SPEAKER_RATE_HZ)
        sound = connection.addTransceiver(self._track, "sendrecv")
        codecs = RTCRtpSender.getCapabilities("audio").codecs
        sound.setCodecPreferences([codec for codec in codecs if codec.mimeType == "audio/opus"])
        self._receiver.attach(sound.receiver)
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(UNREAD)
        self._open = asyncio.Event()
        self._lost = False
        self._playing: str | None = None  # the response that is playing
        self._early: deque[tuple[float, Pcm]] = deque(maxlen=EARLY_PACKETS)  # audio with its arrival time
        self._ended: ResponseDone | None = None  # the response's end, which waits for the end of its audio
        self._data_channel.on("open", self._open.set)
        self._data_channel.on("message", self._take)
        self._data_channel.on("close", self._lose)
        connection.on("connectionstatechange", lambda: self._on_state(connection.connectionState))

    async def connected(self) -> None:
        """Wait until the data channel is open."""
        await self._open.wait()

    async def send(self, event: dict[str, Any]) -> None:
        try:
            self._data_channel.send(orjson.dumps(event).decode())
        except InvalidStateError:
            raise self._gone() from None

    async def speak(self, pcm: Pcm) -> None:
        if self._lost:
            raise self._gone()
        samples = np.concatenate([self._part, pcm.astype("<i2", copy=False)])
        whole = len(samples) // FRAME * FRAME
        self._part = samples[whole:]
        if whole:
            self._track.push(samples[:whole].tobytes())

    async def receive(self) -> Event:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)  # for further calls
            raise self._gone()
        return event

    def close(self) -> None:
        """Stop receiving audio. May be called twice."""
        self._receiver.close()
        self._lose()

    def _take(self, message: str | bytes) -> None:
        try:
            event = decode(message)
        except ValueError:
            self._lose()
            return
        match event:
            case ResponseDone() if event.id == self._playing:
                self._ended = event
                return
            case Other(type="output_audio_buffer.started"):
                self._playing = event.event["response_id"]
            case Other(type="output_audio_buffer.stopped" | "output_audio_buffer.cleared"):
                self._playing = None
            case _:
                pass
        self._put(event)
        if self._playing is not None:
            self._catch_up()
        if self._ended is not None and self._playing is None:
            event = self._ended
            self._ended = None
            self._put(event)

    def _add_samples(self, pcm: Pcm) -> None:
        self._early.append((time.monotonic(), pcm))
        if self._playing is not None:
            self._catch_up()

    def _catch_up(self) -> None:
        """Assign recent audio to the answer that is playing. Older audio is silence after the previous answer."""
        now_s = time.monotonic()
        while self._early:
            came_s, pcm = self._early.popleft()
            if now_s - came_s < EARLY_S:
                self._put(AudioDelta(str(self._playing), "", pcm.tobytes()))

    def _put(self, event: Event) -> None:
        if self._events.qsize() < UNREAD - 1:
            self._events.put_nowait(event)
        else:
            self._lose()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._events.put_nowait(None)

    def _on_state(self, state: str) -> None:
        if state in ("failed", "closed"):
            self._lose()

    def _gone(self) -> ClientError:
        return ClientError("the call has ended", "connection_lost")


async def _answered(url: str, model: str, key: str | None, offer: str, trust: ssl.SSLContext | None) -> str:
    """Return the server's answer to an offer. Ignores proxies of the environment. Raises ClientError."""
    parts = server_parts(url)
    headers = {"content-type": "application/sdp"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    verify = tls_context(parts, trust) or False
    try:
        async with httpx2.AsyncClient(verify=verify, trust_env=False, timeout=OPEN_S) as http:
            asked = f"{parts.scheme}://{parts.netloc}/v1/realtime/calls"
            response = await http.post(asked, params={"model": model}, content=offer.encode(), headers=headers)
    except httpx2.HTTPError as error:
        raise not_connected(url, error) from None
    if not response.is_success:
        raise refusal(response.content, f"the server refused the call: {response.status_code}")
    return response.text
