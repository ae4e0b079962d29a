"""One WebRTC connection of a call: answers an offer, and carries events and media until it ends.

A call has one, and another one when its client resumes: a ``Transport`` with ``PlayedAudio``. Microphone packets become
``InputSamples``, messages of the data channel client events, and camera frames ``CameraFrame``. Server events are sent
on the data channel, and audio as packets of the ``OpusTrack``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager
from typing import Any

from aiortc import RTCConfiguration, RTCDataChannel, RTCIceServer, RTCPeerConnection
from aiortc.rtcconfiguration import RTCIceTransportPolicy
from aiortc.rtcrtpsender import RTCRtpSender

from app.limits.fair_scheduler import LoopTimeBudget
from app.realtime.protocol.client_events import CameraFrame, InputSamples, Received
from app.realtime.protocol.dialect import REALTIME, Dialect
from app.realtime.protocol.server_events import ErrorEvent
from app.refusal import Closed, Refusal
from app.settings import Settings
from app.telemetry import log, log_failure
from app.transports.channel import Channel
from app.transports.disconnect import SLOW, TOO_LARGE, Disconnect
from app.transports.inbox import Inbox
from app.transports.webrtc.audio_receiver import AudioReceiver
from app.transports.webrtc.camera import Camera, ignore
from app.transports.webrtc.data_channel import DataChannel
from app.transports.webrtc.guard import guard_connecting, guard_datagrams
from app.transports.webrtc.ice import close_ports, use_ports
from app.transports.webrtc.messages import bound_messages
from app.transports.webrtc.offer import checked
from app.transports.webrtc.opus import CLOCK_HZ
from app.transports.webrtc.opus_track import OpusTrack
from app.transports.webrtc.turn_credentials import servers_for
from engine import CameraFeed
from engine.core import Pcm

PLAYER_S = 0.040
"""Seconds of buffering in a browser, if its page does not report a value."""

GATHER_S, FOLLOW_S, CONNECT_S, CLOSE_S = 10.0, 5.0, 12.0, 5.0
"""Maximum seconds for finding the server's addresses, for the client's first check (right after the answer), for
connecting after that, and for closing.
"""


class PeerConnection:
    """One connection. ``id``, ``inbox`` and ``loop_time`` are the call's; ``feed`` defines the camera input.

    ``now`` returns monotonic seconds.
    """

    def __init__(
        self,
        id: str,
        settings: Settings,
        inbox: Inbox,
        loop_time: LoopTimeBudget,
        feed: CameraFeed,
        now: Callable[[], float] = time.monotonic,
        dialect: Dialect = REALTIME,
    ) -> None:
        self._id = id
        self._settings = settings
        self._loop_time = loop_time
        self._inbox = inbox
        self._gone = asyncio.Event()
        self._send_timeout_s = settings.limits.send_timeout_s
        self._opened = asyncio.Event()
        self.channel = Channel(self, settings.limits, loop_time, sound=self, opened=self._opened, dialect=dialect)
        """The channel of the call's events."""
        self.client = ""
        """The client's address, as far as it is known.

        It determines which addresses the client may name as candidates.
        """
        self.connected: Callable[[], None] = lambda: None
        """Called when the client has connected."""
        self.delay_s = PLAYER_S
        self._now = now
        self.last_seen_s = now()
        self._way_s = 0.0
        self._track = OpusTrack(now)
        self._receiver = AudioReceiver(self._add_samples, clock_hz=CLOCK_HZ)
        self._camera = Camera(feed, self._add_frame, self._refuse_picture)
        self._connection = RTCPeerConnection(_configuration(settings))
        guard_connecting(self._connection, id)
        self._data_channel: DataChannel | None = None
        self._followed = asyncio.Event()
        self._connected = asyncio.Event()
        self._over = asyncio.Event()
        self._why = Disconnect()
        self._closing: asyncio.Task[None] | None = None

    @property
    def lag_s(self) -> float:
        """Return the seconds between sending a sample and the listener hearing it."""
        return self._way_s + self.delay_s

    @property
    def ahead_s(self) -> float:
        return self._track.ahead_s

    def play(self, pcm: bytes) -> None:
        """Send little-endian int16 at SPEAKER_RATE_HZ as packets. Never waits."""
        self._track.push(pcm)

    def stop(self) -> None:
        """Do nothing: at most 80 ms are ahead, which are already packets."""

    async def accept(self, sdp: str) -> str:
        """Return the answer to an offer, with all addresses of the server. Raises Refusal, and Closed."""
        connection = self._connection
        offer = checked(sdp, self.client)
        connection.on("connectionstatechange", self._on_state)
        connection.on("datachannel", self._on_channel)
        transceiver = connection.addTransceiver(self._track, "sendrecv")
        transceiver.setCodecPreferences(
            [codec for codec in RTCRtpSender.getCapabilities("audio").codecs if codec.mimeType == "audio/opus"]
        )
        try:
            async with asyncio.timeout(GATHER_S):
                with self._answerable():
                    await connection.setRemoteDescription(offer.description)
                self._receiver.attach(transceiver.receiver)
                for one in connection.getTransceivers():
                    if one.kind == "video":
                        self._camera.attach(one)
                for transport in self._transports():
                    use_ports(transport.transport, self._settings, self._followed.set)
                    guard_datagrams(transport, self._seen, self._loop_time, self._id)
                with self._answerable():
                    await connection.setLocalDescription(await connection.createAnswer())
        except TimeoutError:
            raise Closed("unavailable", "The server did not find its own addresses in time; try again.") from None
        if connection.sctp is not None:
            bound_messages(connection.sctp, self._refuse)
        answer = connection.localDescription.sdp
        if "a=candidate:" not in answer:
            message = "The server has no free UDP port: all of server.ice_ports are in use, or its TURN "
            raise Closed("no_port", message + "server does not respond. Try again later.")
        return offer.answer(answer)

    async def messages(self) -> AsyncGenerator[Received]:
        """Yield the client's input until the connection ends. There is no clean close here, so it always raises
        Disconnect.
        """
        async with aclosing(self._inbox.received(self._gone)) as received:
            async for one in received:
                yield one
        raise Disconnect

    async def send(self, text: str) -> None:
        assert self._data_channel is not None, "nothing is sent before the channel is opened"
        await self._data_channel.send(text)
        await self._measure()

    async def run(self) -> None:
        """Watch the client and read its tracks until the connection ends. Raises Disconnect, in groups."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_client(), name=f"client:{self._id}")
            tasks.create_task(self._watch_inbox(), name=f"inbox:{self._id}")
            for receiver in self._connection.getReceivers():
                tasks.create_task(self._read(receiver.track), name=f"read:{self._id}")

    async def close(self, disconnect: Disconnect) -> None:
        """Let the client receive pending events if the close is clean, and free the connection."""
        if disconnect.how == "goodbye" and self._data_channel is not None:
            try:
                async with asyncio.timeout(self._send_timeout_s):
                    await self._data_channel.emptied()
            except TimeoutError:
                log("call.goodbye_unheard", call=self._id)
        await self.free()

    async def free(self) -> None:
        """Free the connection, even if the caller is cancelled meanwhile. May be called twice."""
        self._gone.set()
        self._inbox.wake()
        self._receiver.close()
        if self._closing is None:
            self._closing = asyncio.create_task(self._free(), name=f"close:{self._id}")
        await asyncio.shield(self._closing)

    async def _free(self) -> None:
        """Close the connection and its ports: if aiortc's close fails or is cut short, its sockets stay open."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._connection.close()
        except TimeoutError:
            log("call.close_late", call=self._id, after_s=CLOSE_S)
        except Exception:  # noqa: BLE001 - whatever it stumbles over: what the connection holds is let go here
            log_failure("call.close_failed", call=self._id)
        for transport in self._transports():
            close_ports(transport.transport)

    def _transports(self) -> set[Any]:
        """Return the transports of audio, video and events: a single one if they are bundled."""
        return {one.transport for one in (self._connection.sctp, *self._connection.getReceivers()) if one is not None}

    @contextmanager
    def _answerable(self) -> Generator[None]:
        """Convert aiortc's errors to a refusal of the offer, since the offer was checked and only aiortc runs here."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            log("call.unanswerable", call=self._id, error=type(error).__name__)
            raise Refusal("invalid_offer", "The SDP offer can't be answered: its sections do not fit.", "sdp") from None

    def _end(self, disconnect: Disconnect) -> None:
        if not self._over.is_set():
            self._why = disconnect
            self._over.set()

    def _refuse(self, message: str) -> None:
        """Report that a limit was exceeded, and disconnect."""
        self.channel.put(ErrorEvent(Refusal("message_too_large", message), None))
        self._end(Disconnect(TOO_LARGE, message, "goodbye"))

    def _said(self, message: str | bytes) -> None:
        self._inbox.put(self.channel.decode(message), len(message))

    def _seen(self) -> None:
        self.last_seen_s = self._now()

    def _add_samples(self, pcm: Pcm) -> None:
        self._inbox.put(Received(InputSamples(pcm)), pcm.nbytes)

    def _refuse_picture(self, message: str) -> None:
        self._inbox.put(Received(Refusal("picture_too_large", message)), 0)

    def _add_frame(self, frame: CameraFrame) -> None:
        self._inbox.put(Received(frame), frame.pixels.nbytes)

    def _on_state(self) -> None:
        state = self._connection.connectionState
        if state == "connected":
            self._connected.set()
            self.connected()
        elif state in ("failed", "closed"):
            self._end(Disconnect(1000 if state == "closed" else 1006, f"the connection is {state}"))

    def _on_channel(self, channel: RTCDataChannel) -> None:
        """Use the first channel for events. It is called oai-events, but only its position counts."""
        if self._data_channel is None:
            channel.on("message", self._said)
            channel.on("close", lambda: self._end(Disconnect(1000, "the client closed the data channel")))
            self._data_channel = DataChannel(channel, self.channel.dialect)
            self._opened.set()

    async def _measure(self) -> None:
        """Measure the network delay from the client's receiver reports."""
        for sender in self._connection.getSenders():
            for report in (await sender.getStats()).values():
                round_trip_s = getattr(report, "roundTripTime", None)
                if round_trip_s is not None:
                    self._way_s = round_trip_s / 2

    async def _watch_client(self) -> None:
        try:
            async with asyncio.timeout(FOLLOW_S) as deadline:
                await self._followed.wait()
                deadline.reschedule(asyncio.get_running_loop().time() + CONNECT_S)
                await self._connected.wait()
                deadline.reschedule(None)
                await self._over.wait()
        except TimeoutError:
            raise Disconnect(1006, "the client did not connect") from None
        raise self._why

    async def _watch_inbox(self) -> None:
        await self._inbox.overflowed.wait()
        raise Disconnect(SLOW, "the client sends more than can be processed", "cut")

    async def _read(self, track: Any) -> None:
        """Read a track to its end, even an unused one, since aiortc limits none of them."""
        if track is None:
            return
        if track.kind == "video":
            await self._camera.watch()
        else:
            await ignore(track)


def _configuration(settings: Settings) -> RTCConfiguration:
    """Return the connection's configuration. An empty list of servers uses none; None would use a public STUN
    server.
    """
    found = servers_for("server", settings.ice_servers, time.time())
    servers = [RTCIceServer(list(one.urls), one.username, one.credential) for one in found]
    policy = RTCIceTransportPolicy.RELAY if settings.ice_relay_only else RTCIceTransportPolicy.ALL
    return RTCConfiguration(iceServers=servers, iceTransportPolicy=policy)
