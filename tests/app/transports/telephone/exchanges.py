"""Telephone exchanges as their protocols describe them, each with one caller's telephone."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import struct
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import psutil
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from app.media import g711
from engine.core import Pcm
from tests.app.rig import TIMEOUT_S, Running

TOKEN = "the-auth-token-of-an-account"
URL = "https://voice.example.org"
STREAM = f"wss{URL.removeprefix('https')}/v1/telephone/twilio/stream"


@dataclass(frozen=True, slots=True)
class Reached:
    """The ports at which a server takes calls."""

    port: int
    audiosocket: int = 0
    sip: int = 0
    limit_s: float = TIMEOUT_S
    """The longest that a call may last."""


def reached(server: Running, but: Reached | None = None) -> Reached:
    """Return the ports of a server in this process, before there is a call; ``but`` are another server's."""
    others = set() if but is None else {but.port, but.audiosocket, but.sip}
    own = [one for one in psutil.Process().net_connections("inet4") if one.laddr.port not in others]
    listening = {one.laddr.port for one in own if one.status == psutil.CONN_LISTEN} - {server.port}
    bound = {one.laddr.port for one in own if one.type == socket.SOCK_DGRAM}
    assert len(listening) <= 1
    assert len(bound) <= 1
    return Reached(server.port, *(listening or {0}), *(bound or {0}))


class Telephone(Protocol):
    """The caller's end. ``sound`` is what was heard, as (time, int16 [samples] at 8 kHz); ``ended``: the server gave
    the call back."""

    name: str
    ended: asyncio.Event

    @property
    def sound(self) -> Sequence[tuple[float, Pcm]]: ...

    async def speak(self, pcm: Pcm) -> None:
        """Send int16 at 8 kHz, in frames of 20 ms, at once."""
        ...

    async def press(self, key: str) -> None: ...

    async def hang_up(self) -> None: ...

    async def send_nonsense(self) -> None: ...


def heard(telephone: Telephone) -> Pcm:
    return np.concatenate([pcm for _, pcm in telephone.sound]) if telephone.sound else np.empty(0, np.int16)


def frames(pcm: Pcm) -> list[Pcm]:
    return [pcm[at : at + 160] for at in range(0, len(pcm), 160)]


def sign(url: str, form: Mapping[str, str] | None = None, token: str = TOKEN) -> str:
    """Twilio's proof that a request is an account's: base64 of HMAC-SHA1 over the address and the form's fields."""
    text = url + "".join(f"{name}{value}" for name, value in sorted((form or {}).items()))
    return base64.b64encode(hmac.new(token.encode(), text.encode(), hashlib.sha1).digest()).decode()


class StreamPhone:
    """A caller behind Twilio's Media Streams. It plays what comes in real time, and marks come back when played; what
    waits when it is told to clear that is not heard, and marks among it come back at once (``cleared``: how often)."""

    def __init__(self, socket: ClientConnection, name: str) -> None:
        self._socket, self.name = socket, name
        self.sound: list[tuple[float, Pcm]] = []
        self.ended = asyncio.Event()
        self.closed = (0, "")
        self.cleared, self._plays_until_s = 0, 0.0
        self._thrown_away = asyncio.Event()
        self._number = 0

    @property
    def waiting_s(self) -> float:
        """Seconds of sound that came and have yet to be played."""
        return max(0.0, self._plays_until_s - time.monotonic())

    async def put(self, event: str, **fields: Any) -> None:
        self._number += 1
        message = {"event": event, "sequenceNumber": str(self._number), "streamSid": "MZ1", **fields}
        await self._socket.send(json.dumps(message))

    async def start(self, encoding: str = "audio/x-mulaw", rate_hz: int = 8000) -> None:
        await self._socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        format = {"encoding": encoding, "sampleRate": rate_hz, "channels": 1}
        ids = {"accountSid": "AC1", "streamSid": "MZ1", "callSid": self.name}
        await self.put("start", start={**ids, "tracks": ["inbound"], "mediaFormat": format, "customParameters": {}})

    async def listen(self) -> None:
        self._plays_until_s, marks = 0.0, set[asyncio.Task[None]]()
        try:
            while True:
                message = json.loads(await self._socket.recv())
                assert message["streamSid"] == "MZ1"
                match message["event"]:
                    case "media":
                        now = time.monotonic()
                        pcm = g711.decode_ulaw(base64.b64decode(message["media"]["payload"]))
                        self.sound.append((now, pcm))
                        self._plays_until_s = max(now, self._plays_until_s) + len(pcm) / 8000
                    case "clear":
                        self._clear()
                    case "mark":
                        marks.add(asyncio.create_task(self._mark(message["mark"], self._plays_until_s)))
        except ConnectionClosed:
            pass
        finally:
            for mark in marks:
                mark.cancel()
            await asyncio.gather(*marks, return_exceptions=True)
        self.closed = (self._socket.close_code or 0, self._socket.close_reason or "")
        self.ended.set()

    def _clear(self) -> None:
        self.cleared += 1
        self._thrown_away.set()
        self._thrown_away = asyncio.Event()
        now = time.monotonic()
        unplayed, self._plays_until_s = max(0, round((self._plays_until_s - now) * 8000)), now
        while unplayed and self.sound:
            came_s, pcm = self.sound.pop()
            if unplayed < len(pcm):
                self.sound.append((came_s, pcm[: len(pcm) - unplayed]))
            unplayed = max(0, unplayed - len(pcm))

    async def _mark(self, mark: Any, due_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due_s - time.monotonic())):
                await self._thrown_away.wait()
        with suppress(ConnectionClosed):
            await self.put("mark", mark=mark)

    async def speak(self, pcm: Pcm) -> None:
        for one in frames(pcm):
            payload = base64.b64encode(g711.encode_ulaw(one)).decode()
            await self.put("media", media={"track": "inbound", "chunk": "1", "timestamp": "5", "payload": payload})

    async def press(self, key: str) -> None:
        await self.put("dtmf", dtmf={"track": "inbound_track", "digit": key})

    async def hang_up(self) -> None:
        await self.put("stop", stop={"accountSid": "AC1", "callSid": self.name})
        await self._socket.close()

    async def send_nonsense(self) -> None:
        await self._socket.send('{"event": 7')


class AsteriskPhone:
    """A caller behind an Asterisk's AudioSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader, self._writer, self.name = reader, writer, name
        self.sound: list[tuple[float, Pcm]] = []
        self.ended = asyncio.Event()

    def put(self, kind: int, payload: bytes = b"") -> None:
        self._writer.write(struct.pack(">BH", kind, len(payload)) + payload)

    async def listen(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, length = struct.unpack(">BH", await self._reader.readexactly(3))
                payload = await self._reader.readexactly(length)
                if kind == 0x00:
                    break
                assert kind == 0x10
                self.sound.append((time.monotonic(), np.frombuffer(payload, "<i2")))
        self.ended.set()

    async def speak(self, pcm: Pcm) -> None:
        for one in frames(pcm):
            self.put(0x10, one.astype("<i2").tobytes())

    async def press(self, key: str) -> None:
        self.put(0x03, key.encode())

    async def hang_up(self) -> None:
        self.put(0x00)
        self._writer.close()

    async def send_nonsense(self) -> None:
        self.put(0x77, b"?")


class SipPhone(asyncio.DatagramProtocol):
    """A telephone that calls by SIP itself, without a proxy: its signalling. ``rtp`` has its sound."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages = asyncio.Queue[str]()
        self.seen: list[str] = []
        self.ended = asyncio.Event()
        self.referred_to = ""
        self.tag = ""
        self.drop_answers = 0
        self.rtp = Rtp()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    @property
    def sound(self) -> list[tuple[float, Pcm]]:
        return self.rtp.sound

    def put(self, method: str, number: int = 1, body: str = "", **headers: str) -> None:
        host, port = self.transport.get_extra_info("sockname")
        lines = [
            f"{method} sip:parley@127.0.0.1 SIP/2.0",
            f"Via: SIP/2.0/UDP {host}:{port};branch=z9hG4bK{'INVITE' if method == 'CANCEL' else method}{number};rport",
            *(["Record-Route: <sip:127.0.0.1;lr>"] if not self.tag else []),  # a proxy asks once to be on the way
            "Max-Forwards: 70",
            'f: "A caller" <sip:caller@example.org>;tag=caller',
            f"t: <sip:parley@127.0.0.1>{f';tag={self.tag}' if self.tag else ''}",
            f"Call-ID: {self.name}",
            f"CSeq: {number} {method}",
            f"Contact: <sip:caller@{host}:{port}>",
            *(f"{name}: {value}" for name, value in headers.items()),
            *(["Content-Type: application/sdp"] if body else []),
            f"Content-Length: {len(body)}",
        ]
        self.transport.sendto("\r\n".join([*lines, "", body]).encode())

    def datagram_received(self, data: bytes, addr: Any) -> None:
        text = data.decode()
        self.seen.append(text)
        if text.startswith("SIP/2.0"):
            if self.drop_answers and text.startswith("SIP/2.0 200"):
                self.drop_answers -= 1
                return
            self.messages.put_nowait(text)
            return
        copied = [one for one in text.split("\r\n") if one.split(":")[0] in ("via", "from", "to", "call-id", "cseq")]
        status = "202 Accepted" if text.startswith("REFER") else "200 OK"
        self.transport.sendto("\r\n".join([f"SIP/2.0 {status}", *copied, "content-length: 0", "", ""]).encode())
        if text.startswith("REFER"):
            self.referred_to = text.partition("refer-to: <")[2].partition(">")[0]
            self.put("BYE", 9)
            self.ended.set()
        elif text.startswith("BYE"):
            self.ended.set()

    async def answer(self) -> str:
        """The next response but 100."""
        while (text := await self.messages.get()).startswith("SIP/2.0 100"):
            pass
        return text

    def invite(self, law: int = 0, number: int = 1) -> None:
        self.put("INVITE", number, SDP.format(port=self.rtp.port, law=law))

    def ack(self, answer: str) -> None:
        self.tag = answer.partition("to: ")[2].partition("\r\n")[0].partition("tag=")[2]
        self.rtp.server = ("127.0.0.1", int(answer.partition("m=audio ")[2].split()[0]))
        self.put("ACK")

    async def listen(self) -> None:
        await self.ended.wait()

    async def speak(self, pcm: Pcm) -> None:
        for number, one in enumerate(frames(pcm)):
            self.rtp.put(0, g711.encode_ulaw(one))
            if number % 10 == 9:
                await asyncio.sleep(0)

    async def press(self, key: str) -> None:
        self.rtp.press(key)

    async def hang_up(self) -> None:
        self.put("BYE", 2)

    async def send_nonsense(self) -> None:
        self.transport.sendto(b"INVITE\r\n\r\n")


SDP = """v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP {law} 101\r\n\
a=rtpmap:101 telephone-event/8000\r\na=ptime:20\r\n"""


class Rtp(asyncio.DatagramProtocol):
    """A telephone's sound, its packets written by hand."""

    def __init__(self) -> None:
        self.sound: list[tuple[float, Pcm]] = []
        self.packets: list[tuple[int, int, int, int]] = []
        """Of each packet that came: marker, payload type, number, timestamp."""
        self.server: tuple[str, int] = ("", 0)
        self.law = 0
        self._number = self._ticks = 0
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    @property
    def port(self) -> int:
        return self.transport.get_extra_info("sockname")[1]

    def put(self, kind: int, payload: bytes, ticks: int = 160) -> None:
        self._number += 1
        self._ticks += ticks
        head = struct.pack(">BBHII", 0x80, kind, self._number, self._ticks, 7)
        self.transport.sendto(head + payload, self.server)

    def press(self, key: str) -> None:
        code = "0123456789*#ABCD".index(key)
        for number in range(3):
            self.put(101, struct.pack(">BBH", code, 0x8A if number else 0x0A, 160), 160 if not number else 0)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        _, kind, number, ticks, _ = struct.unpack(">BBHII", data[:12])
        self.packets.append((kind >> 7, kind & 127, number, ticks))
        decode = g711.decode_ulaw if kind & 127 == 0 else g711.decode_alaw
        self.sound.append((time.monotonic(), decode(data[12:])))


@asynccontextmanager
async def sip(server: Reached, law: int = 0) -> AsyncGenerator[SipPhone]:
    """A call that comes by SIP."""
    async with sip_phone(server) as phone:
        phone.invite(law)
        answer = await phone.answer()
        assert answer.startswith("SIP/2.0 200"), answer
        phone.ack(answer)
        async with _listening(phone, server.limit_s):
            yield phone


@asynccontextmanager
async def sip_phone(server: Reached) -> AsyncGenerator[SipPhone]:
    """A telephone that has not called yet."""
    loop, phone = asyncio.get_running_loop(), SipPhone(f"{uuid.uuid4()}@example.org")
    await loop.create_datagram_endpoint(lambda: phone, remote_addr=("127.0.0.1", server.sip))
    await loop.create_datagram_endpoint(lambda: phone.rtp, ("127.0.0.1", 0))
    try:
        async with asyncio.timeout(server.limit_s):
            yield phone
    finally:
        phone.transport.close()
        phone.rtp.transport.close()


@asynccontextmanager
async def twilio(server: Reached, name: str = "CA1", started: bool = True) -> AsyncGenerator[StreamPhone]:
    """A call that Twilio brings, from its handshake on."""
    headers = {"x-twilio-signature": sign(STREAM)}
    async with connect(f"ws://127.0.0.1:{server.port}/v1/telephone/twilio/stream", additional_headers=headers) as ws:
        phone = StreamPhone(ws, name)
        if started:
            await phone.start()
        async with _listening(phone, server.limit_s):
            yield phone


@asynccontextmanager
async def asterisk(server: Reached, name: str | None = None) -> AsyncGenerator[AsteriskPhone]:
    """A call that an Asterisk brings."""
    call = uuid.UUID(name) if name else uuid.uuid4()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.audiosocket)
    phone = AsteriskPhone(reader, writer, str(call))
    phone.put(0x01, call.bytes)
    try:
        async with _listening(phone, server.limit_s):
            yield phone
    finally:
        writer.close()


@asynccontextmanager
async def _listening(phone: StreamPhone | AsteriskPhone | SipPhone, limit_s: float) -> AsyncGenerator[None]:
    async with asyncio.timeout(limit_s), asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(phone.listen())
        yield
        listening.cancel()
