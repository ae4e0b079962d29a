"""A client of the Realtime API that notes when what arrived. It plays nothing and knows only the wire.

The clock is the client's own; a turn counts from the moment its trigger was sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pybase64
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from app.bench.player import Player
from engine import SPEAKER_RATE_HZ, EngineError
from engine.core import Pcm

PIECE_S = 0.02
TURN_S = 30.0
"""An answer that is not complete by then is a failure."""


class BenchError(EngineError):
    """The server cannot be measured."""

    code = "bench_failed"


@dataclass(slots=True)
class Turn:
    """One answer as its client saw it. Times are in seconds from the trigger; None: it never came."""

    begun_s: float
    player: Player = field(default_factory=Player)
    status: str = "missing"
    text: str = ""

    @property
    def ttfa_s(self) -> float | None:
        heard_s = self.player.audible_s
        return None if heard_s is None else heard_s - self.begun_s

    @property
    def complete(self) -> bool:
        return self.status == "completed" and self.ttfa_s is not None


class Client:
    """One session. A task reads it from ``open_client`` on; answers are awaited one at a time."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._turns: asyncio.Queue[Turn] = asyncio.Queue()
        self._turn: Turn | None = None
        self.trigger_s = 0.0
        """When what the next answer counts from was sent."""

    async def typed(self, text: str) -> Turn:
        """Send a text message, ask for the answer, and wait until it is complete."""
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        await self.send({"type": "conversation.item.create", "item": item})
        self.trigger_s = time.monotonic()
        await self.send({"type": "response.create"})
        return await self.answer()

    def speech_ended(self) -> None:
        """The last voiced sample was sent: the next answer counts from here."""
        self.trigger_s = time.monotonic()

    async def answer(self) -> Turn:
        """The next complete answer; one that never came after a while."""
        try:
            async with asyncio.timeout(TURN_S):
                return await self._turns.get()
        except TimeoutError:
            return Turn(self.trigger_s)

    async def microphone(self, pcm: Pcm) -> None:
        """Send int16 [samples] at SPEAKER_RATE_HZ as the microphone of a browser would: 20 ms every 20 ms."""
        begun_s = time.monotonic()
        size = round(PIECE_S * SPEAKER_RATE_HZ)
        for i, at in enumerate(range(0, len(pcm), size)):
            await asyncio.sleep(max(0.0, begun_s + i * PIECE_S - time.monotonic()))
            audio = pybase64.b64encode(pcm[at : at + size].tobytes()).decode()
            await self.send({"type": "input_audio_buffer.append", "audio": audio})

    async def send(self, event: dict[str, Any]) -> None:
        await self._socket.send(orjson.dumps(event).decode())

    async def read(self) -> None:
        """Take events for ever."""
        async for message in self._socket:
            self._take(orjson.loads(message), time.monotonic())

    def _take(self, event: dict[str, Any], now_s: float) -> None:
        match event["type"]:
            case "response.created":
                self._turn = Turn(self.trigger_s)
            case "response.output_audio.delta" if self._turn is not None:
                pcm = np.frombuffer(pybase64.b64decode(event["delta"]), "<i2")
                self._turn.player.receive(now_s, pcm.astype(np.float32) / np.float32(32768))
            case "response.output_audio_transcript.delta" if self._turn is not None:
                self._turn.text += event["delta"]
            case "response.done" if self._turn is not None:
                self._turn.status = event["response"]["status"]
                self._turns.put_nowait(self._turn)
            case _:
                pass


@asynccontextmanager
async def open_client(url: str) -> AsyncGenerator[Client]:
    """A session at ``ws://host:port`` while the block lasts. Raises BenchError if there is none to be had."""
    try:
        async with connect(f"{url}/v1/realtime?model=bench", compression=None, proxy=None, max_size=None) as socket:
            client = Client(socket)
            reading = asyncio.create_task(client.read(), name="bench client")
            try:
                yield client
            finally:
                reading.cancel()
    except (OSError, WebSocketException) as error:
        raise BenchError(f"no session at {url}: {error}") from None
