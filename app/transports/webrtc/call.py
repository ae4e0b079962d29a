"""One call: a WebRTC connection and the session that it carries, from the offer until nothing of it is left.

The microphone's packets become the session's ``Hear``, the data channel's messages its commands; its notices go out on
the channel as events, its sound as packets of the ``Voice``. Whatever ends first ends the rest: the client hangs up,
closes the channel or vanishes, the session expires, the server drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from typing import Any

import aioice.ice
from aiortc import RTCConfiguration, RTCDataChannel, RTCIceServer, RTCPeerConnection
from aiortc.exceptions import InvalidAccessError, InvalidStateError, OperationError
from aiortc.rtcrtpsender import RTCRtpSender

from app.realtime.commands import Hear, See, Told
from app.realtime.events_out import encode
from app.realtime.house import House
from app.realtime.line import Line
from app.realtime.notices import AudioPiece, Notice
from app.realtime.session import Session
from app.realtime.trouble import Refusal
from app.service import Service
from app.telemetry import log
from app.transports.leave import SLOW, Leave, first, watch
from app.transports.outbox import Outbox
from app.transports.webrtc.camera import ignore, watch_camera
from app.transports.webrtc.channel import Channel
from app.transports.webrtc.ears import Ears
from app.transports.webrtc.guard import take_plausible
from app.transports.webrtc.inbox import Inbox
from app.transports.webrtc.offer import UNPARSEABLE, checked
from app.transports.webrtc.voice import Voice
from app.transports.websocket import told_in
from engine.core import Pcm

LEAD_S, PACKET_S = 0.040, 0.020
"""At most 60 ms leave ahead of the listener: a barge-in can't recall them, and a busy machine needs them."""

PLAYER_S = 0.040
"""What a browser's own buffers add to the way of a sample."""

GATHER_S, CONNECT_S, CLOSE_S = 10.0, 12.0, 5.0
"""The longest that may take: finding the server's addresses, a client's connecting, and hanging up."""

# Consent checks come every 5 s, and each waits half a second for its answer: four are missed within 27 s.
aioice.ice.CONSENT_FAILURES = 4


class Call:
    """``id`` is the protocol's ``rtc_…``. ``start`` are the settings that its session begins with."""

    def __init__(self, id: str, service: Service, house: House, start: dict[str, Any] | None, model: str = "") -> None:
        self.id = id
        self._service, self._limits = service, house.limits
        self._inbox = Inbox()
        self._outboxes: set[Outbox] = set()
        self._voice, self._ears = Voice(house.now), Ears(self._hear)
        self._lag_s = PLAYER_S
        line = Line(LEAD_S, PACKET_S, plays=True, lag_s=lambda: self._lag_s)
        self._session = Session(house, self._tell, model, start, line)
        self._connection = RTCPeerConnection(_configuration(service))
        self._channel: asyncio.Future[RTCDataChannel] = asyncio.get_running_loop().create_future()
        self._connected, self._over = asyncio.Event(), asyncio.Event()
        self._why = ""

    async def accept(self, sdp: str) -> str:
        """The answer to an offer, with every address of the server. Raises Refusal."""
        connection = self._connection
        offer = checked(sdp)
        connection.on("connectionstatechange", self._on_state)
        connection.on("datachannel", self._on_channel)
        transceiver = connection.addTransceiver(self._voice, "sendrecv")
        transceiver.setCodecPreferences(
            [codec for codec in RTCRtpSender.getCapabilities("audio").codecs if codec.mimeType == "audio/opus"]
        )
        try:
            async with asyncio.timeout(GATHER_S):
                await connection.setRemoteDescription(offer)
                self._ears.attach(transceiver.receiver)
                await connection.setLocalDescription(await connection.createAnswer())
        except (*UNPARSEABLE, OperationError, InvalidStateError, InvalidAccessError, ConnectionError) as error:
            raise Refusal("invalid_offer", f"The SDP offer can't be answered: {error}.", "sdp") from None
        for transport in {one.transport.transport for one in (connection.sctp, *connection.getReceivers()) if one}:
            take_plausible(transport)
        return connection.localDescription.sdp

    async def run(self) -> None:
        """Serve the call until it ends; then nothing of it is left."""
        outbox = Outbox(self._limits.unsent_s)
        leave = Leave(1000, "")
        try:
            async with asyncio.TaskGroup() as tasks, aclosing(self._inbox.told()) as told:
                with self.listening(outbox):
                    tasks.create_task(self._write(outbox), name=f"write:{self.id}")
                    tasks.create_task(self._watch_client(), name=f"client:{self.id}")
                    tasks.create_task(self._watch_inbox(), name=f"inbox:{self.id}")
                    tasks.create_task(watch(self._session, self._service), name=f"watch:{self.id}")
                    for receiver in self._connection.getReceivers():
                        tasks.create_task(self._read(receiver.track), name=f"read:{self.id}")
                    await self._session.run(told)
        except* Leave as leaves:
            leave = first(leaves)
        log("call.closed", call=self.id, session=self._session.id, code=leave.code, reason=leave.reason)
        if leave.how == "goodbye":
            await self._say_goodbye(outbox)

    async def close(self) -> None:
        """Free the connection. May be called twice."""
        self._ears.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._connection.close()
        except TimeoutError:
            log("call.close_late", call=self.id, after_s=CLOSE_S)

    def hang_up(self, why: str) -> None:
        """End the call. May be called twice."""
        self._why = self._why or why
        self._over.set()

    def say(self, message: str | bytes) -> None:
        """An event for the session: the client's own, or another's who may speak for it."""
        self._inbox.put(told_in(message), len(message))

    def greet(self, outbox: Outbox) -> None:
        """Tell one who comes later what the client was told first."""
        for text in encode(self._session.greeting()):
            outbox.put(text)

    @contextmanager
    def listening(self, outbox: Outbox) -> Generator[None]:
        """Put every event of the session into ``outbox`` too, while the block lasts."""
        self._outboxes.add(outbox)
        try:
            yield
        finally:
            self._outboxes.discard(outbox)

    async def over(self) -> None:
        """Wait for the end of the call."""
        await self._over.wait()

    def _hear(self, pcm: Pcm) -> None:
        self._inbox.put(Told(Hear(pcm)), pcm.nbytes)

    def _see(self, frame: See) -> None:
        self._inbox.put(Told(frame), frame.pixels.nbytes)

    def _tell(self, notice: Notice) -> None:
        if isinstance(notice, AudioPiece):
            self._voice.push(notice.pcm)
            return
        for text in encode(notice):
            for outbox in self._outboxes:
                outbox.put(text)

    def _on_state(self) -> None:
        state = self._connection.connectionState
        if state == "connected":
            self._connected.set()
        elif state in ("failed", "closed"):
            self.hang_up(f"the connection is {state}")

    def _on_channel(self, channel: RTCDataChannel) -> None:
        """The first channel carries the events; it is called oai-events, but its place is what counts."""
        if not self._channel.done():
            channel.on("message", self.say)
            channel.on("close", lambda: self.hang_up("the client closed the data channel"))
            self._channel.set_result(channel)

    async def _write(self, outbox: Outbox) -> None:
        """The only one who sends on the channel."""
        channel = Channel(await self._channel, self._limits.send_timeout_s)
        while True:
            await outbox.changed()
            if outbox.overflowed:
                raise Leave(SLOW, "the client reads too slowly", "cut")
            await self._send_all(channel, outbox)
            await self._measure()

    async def _send_all(self, channel: Channel, outbox: Outbox) -> None:
        try:
            while (text := outbox.take()) is not None:
                await channel.send(text)
        except TimeoutError:
            raise Leave(SLOW, "the client does not read", "cut") from None
        except ConnectionError:
            raise Leave(1006, "the client vanished", "gone") from None

    async def _measure(self) -> None:
        """How long a sample is on its way, by the client's receiver reports."""
        for sender in self._connection.getSenders():
            for report in (await sender.getStats()).values():
                round_trip_s = getattr(report, "roundTripTime", None)
                if round_trip_s is not None:
                    self._lag_s = PLAYER_S + round_trip_s / 2

    async def _watch_client(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S) as deadline:
                await self._connected.wait()
                deadline.reschedule(None)
                await self._over.wait()
        except TimeoutError:
            raise Leave(1006, "the client did not connect", "gone") from None
        raise Leave(1000, self._why, "gone")

    async def _watch_inbox(self) -> None:
        await self._inbox.overflowed.wait()
        raise Leave(SLOW, "the client says more than can be obeyed", "cut")

    async def _read(self, track: Any) -> None:
        """Every track is read: what aiortc decodes waits without a bound."""
        if track is None:
            return
        if track.kind == "video":
            await watch_camera(track, self._service.settings.camera_every_s, self._see)
        else:
            await ignore(track)

    async def _say_goodbye(self, outbox: Outbox) -> None:
        """Send what is left, if the client takes it."""
        if not self._channel.done() or self._channel.cancelled():
            return
        channel = Channel(self._channel.result(), self._limits.send_timeout_s)
        try:
            await self._send_all(channel, outbox)
            await channel.emptied()
        except (Leave, TimeoutError):
            log("call.goodbye_unheard", call=self.id)


def _configuration(service: Service) -> RTCConfiguration:
    """An empty list of servers is one that asks nobody: None would be a public STUN server."""
    servers = [RTCIceServer(list(one.urls), one.username, one.credential) for one in service.settings.ice_servers]
    return RTCConfiguration(iceServers=servers)
