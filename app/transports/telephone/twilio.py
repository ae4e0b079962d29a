"""``WS /v1/telephone/twilio/stream``: Twilio's Media Streams, a call's G.711 audio as JSON in both directions.

Source: Twilio's "Media Streams - WebSocket Messages" and "Validating Signatures". The handshake is signed with the
account's auth token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress

import msgspec
import pybase64
from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from app.access.auth import TWILIO as PATH
from app.access.auth import address_of, caller_of
from app.limits.fair_scheduler import LoopTimeBudget
from app.media import g711
from app.refusal import Closed, Refusal
from app.settings import Telephone
from app.telemetry import audit
from app.transports.disconnect import TOO_LARGE, Disconnect
from app.transports.telephone.media_stream import RATE_HZ
from app.transports.telephone.telephones import Telephones
from app.transports.websocket import TRY_LATER, deny
from engine.core import Pcm
from engine.deployment.secret_file import read_secret

SIGNATURE = "x-twilio-signature"

START_S = 10.0
"""Seconds until the stream must send its start message; it does so at once."""

MOST_CHARS = 32_000
"""Maximum characters of one message: three seconds of audio. Twilio sends 20 ms."""

LEAD_S = 0.2
"""Seconds of audio sent ahead of the caller.

Twilio buffers early audio and discards it on request, so network stalls are inaudible and interrupted answers stop at
once.
"""

MARK_S = 1.0
"""Seconds between two marks. Each mark returns when the audio before it has been played."""

NOT_UNDERSTOOD = 1007


class _Format(msgspec.Struct):
    encoding: str
    sampleRate: int


class _Start(msgspec.Struct):
    streamSid: str
    callSid: str
    mediaFormat: _Format


class _Media(msgspec.Struct):
    payload: str


class _Dtmf(msgspec.Struct):
    digit: str


class _Mark(msgspec.Struct):
    name: str


class _Message(msgspec.Struct):
    event: str
    start: _Start | None = None
    media: _Media | None = None
    dtmf: _Dtmf | None = None
    mark: _Mark | None = None


class Twilio:
    """The configured account and its signature check. Raises ConfigError if its token can't be read."""

    def __init__(self, settings: Telephone) -> None:
        self._token = read_secret(settings.twilio_token_file or "", "server.telephone.twilio_token_file").encode()
        self.url = (settings.twilio_url or "").rstrip("/")

    @property
    def stream_url(self) -> str:
        return f"wss{self.url.removeprefix('https')}{PATH}/stream"

    def signed(self, signature: str, url: str, form: Mapping[str, str]) -> bool:
        """Return whether a request to ``url`` was signed by the account."""
        text = url + "".join(name + form[name] for name in sorted(form))
        digest = hmac.new(self._token, text.encode("utf-8", "surrogatepass"), hashlib.sha1).digest()
        return hmac.compare_digest(base64.b64encode(digest), signature.encode("utf-8", "surrogateescape"))

    def signed_stream(self, signatures: Iterable[str]) -> bool:
        """Return whether a handshake was signed by the account. Some parts of Twilio sign the URL with a trailing
        slash.
        """
        urls = (self.stream_url, f"{self.stream_url}/")
        return any(self.signed(one, url, {}) for one in signatures for url in urls)


class TwilioStream:
    """One started stream."""

    def __init__(self, socket: WebSocket, start: _Start, loop_time: LoopTimeBudget) -> None:
        self._socket = socket
        self.loop_time = loop_time
        self._stream = start.streamSid
        self.name = start.callSid
        self.lead_s = LEAD_S
        self.way_s = 0.05
        self.made_up_s = None
        self._ends_s = 0.0  # when everything sent would have been played, without network delay
        self._marked_s: float | None = None  # the same for the audio before the outstanding mark
        self._next_mark_s = 0.0
        self._marks = 0  # sent so far; the last one's name

    async def received(self) -> AsyncGenerator[Pcm | str]:
        async for message in _messages(self._socket):
            match message:
                case _Message(event="media", media=_Media(payload)):
                    yield g711.decode_ulaw(_sound(payload))
                case _Message(event="dtmf", dtmf=_Dtmf(digit)):
                    yield digit[:1]
                case _Message(event="mark", mark=_Mark(name)):
                    self._measure(name)
                case _Message(event="stop"):
                    return
                case _:
                    pass  # unknown message types are ignored

    async def send(self, pcm: Pcm) -> None:
        payload = pybase64.b64encode(g711.encode_ulaw(pcm)).decode("ascii")
        await self._put({"event": "media", "streamSid": self._stream, "media": {"payload": payload}})
        now_s = time.monotonic()
        self._ends_s = max(now_s, self._ends_s) + len(pcm) / RATE_HZ
        if self._marked_s is None and now_s >= self._next_mark_s:
            self._marked_s = self._ends_s
            self._next_mark_s = now_s + MARK_S
            self._marks += 1
            await self._put({"event": "mark", "streamSid": self._stream, "mark": {"name": str(self._marks)}})

    async def stop(self) -> None:
        """Clear Twilio's buffer. A mark that returns now was discarded too."""
        self._ends_s = 0.0
        self._marked_s = None
        await self._put({"event": "clear", "streamSid": self._stream})

    async def close(self, disconnect: Disconnect) -> None:
        await _close(self._socket, disconnect.code, disconnect.reason)

    def _measure(self, name: str) -> None:
        """Measure the delay from a returned mark: round trip and queue, beyond the audio sent ahead."""
        if self._marked_s is not None and name == str(self._marks):
            self.way_s = min(1.0, max(0.0, time.monotonic() - self._marked_s))
            self._marked_s = None

    async def _put(self, message: object) -> None:
        try:
            await self._socket.send_text(msgspec.json.encode(message).decode())
        except (WebSocketDisconnect, RuntimeError):  # RuntimeError: already closed
            raise Disconnect(1006, "the stream is gone") from None


async def serve_stream(socket: WebSocket, twilio: Twilio, telephones: Telephones) -> None:
    """Serve one stream from handshake to close."""
    if not twilio.signed_stream(socket.headers.getlist(SIGNATURE)):
        audit("telephone.refused", client=address_of(socket.scope), path=PATH)
        await deny(socket, 403, "invalid_signature", "The handshake is not signed with the account's auth token.")
        return
    await socket.accept()
    code, reason, address = 1000, "", address_of(socket.scope)
    try:
        async with telephones.unconfirmed.confirming(address, START_S):
            start = await _start(socket)
        loop_time = caller_of(socket.scope).loop_time or telephones.budget(address)
        await telephones.serve(TwilioStream(socket, start, loop_time))
    except TimeoutError:
        code, reason = NOT_UNDERSTOOD, "the stream did not start"
    except Disconnect as disconnect:
        code, reason = disconnect.code, disconnect.reason
    except (Closed, Refusal) as refused:
        code, reason = TRY_LATER, refused.code
    await _close(socket, code, reason)


async def _start(socket: WebSocket) -> _Start:
    """Return the stream's start message. Raises Disconnect."""
    async for message in _messages(socket):
        if message.event == "start" and (start := message.start) is not None:
            if (start.mediaFormat.encoding, start.mediaFormat.sampleRate) != ("audio/x-mulaw", g711.RATE_HZ):
                raise Disconnect(NOT_UNDERSTOOD, "the stream's audio must be audio/x-mulaw at 8000 Hz")
            return start
    raise Disconnect(1000, "the stream ended before it started")


async def _messages(socket: WebSocket) -> AsyncGenerator[_Message]:
    """Yield messages until the WebSocket is closed. Raises Disconnect for invalid messages."""
    while (event := await socket.receive())["type"] != "websocket.disconnect":
        text = event.get("text") or ""
        if len(text) > MOST_CHARS:
            raise Disconnect(TOO_LARGE, "a message is too large", "goodbye")
        try:
            yield msgspec.json.decode(text, type=_Message)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Disconnect(NOT_UNDERSTOOD, "invalid message", "goodbye") from None


def _sound(payload: str) -> bytes:
    try:
        return pybase64.b64decode(payload, validate=True)
    except ValueError:
        raise Disconnect(NOT_UNDERSTOOD, "a payload is not base64", "goodbye") from None


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    with suppress(WebSocketDisconnect, RuntimeError):
        await socket.close(code, reason)
