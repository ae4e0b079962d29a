"""The healthy client beside an attack: round trips of what costs nothing, and answers if it asks. Prints Waits as JSON.

    python -m tests.attacks.bystander WS_URL KEY [asks | listens]

``asks`` requests written answers, ``listens`` spoken ones.

It runs in a process of its own, so that an attacker in the test's process does not count as the server's slowness; a
line on its input ends it.
"""

from __future__ import annotations

import asyncio
import base64
import os
import statistics
import sys
import time
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from app.client.player import Player
from tests.attacks.target import Spoken, Waits

EVERY_S = 0.02
GIVEN_UP_S = 60.0


class Client:
    """One session; ``waits_ms`` are its round trips, ``answers`` those that were completed."""

    def __init__(self, socket: ClientConnection, asks: bool, listens: bool) -> None:
        self._socket, self._asks = socket, asks
        self._modality = "audio" if listens else "text"
        self._player = Player()
        self._asked_s = 0.0
        self.spoken: list[Spoken] = []
        self.waits_ms: list[float] = []
        self.answers = 0
        self.broken: str | None = None

    async def run(self) -> None:
        """Until it is cancelled, or something goes wrong."""
        try:
            await self._socket.recv()  # session.created
            if self._asks:
                await self._ask()
            while True:
                begun = time.perf_counter()
                try:
                    await self._round()
                finally:  # one that is stopped in it has waited so long, at least
                    self.waits_ms.append((time.perf_counter() - begun) * 1000)
                await asyncio.sleep(EVERY_S)
        except (WebSocketException, OSError, TimeoutError) as error:
            self.broken = f"{type(error).__name__}: {error}"

    async def _round(self) -> None:
        async with asyncio.timeout(GIVEN_UP_S):
            await self._socket.send('{"type":"input_audio_buffer.clear"}')
            while (await self._event())["type"] != "input_audio_buffer.cleared":
                pass

    async def _event(self) -> dict[str, Any]:
        event: dict[str, Any] = msgspec.json.decode(await self._socket.recv())
        if event["type"] == "response.output_audio.delta":
            pcm = np.frombuffer(base64.b64decode(event["delta"]), "<i2")
            self._player.receive(time.monotonic(), pcm.astype(np.float32) / np.float32(32768))
        if event["type"] == "response.done" and self._asks:
            if (status := event["response"]["status"]) != "completed":
                self.broken = f"an answer ended as {status}: {event['response'].get('status_details')}"
            self.answers += 1
            if self._player.first_s is not None:
                first_sound_s = self._player.first_s - self._asked_s
                self.spoken.append(Spoken(self._asked_s, first_sound_s, self._player.underruns))
            await self._ask()
        return event

    async def _ask(self) -> None:
        words = [{"type": "input_text", "text": "what is two plus three"}]
        item = {"type": "message", "role": "user", "content": words}
        response = {"conversation": "none", "input": [item], "output_modalities": [self._modality]}
        self._player = Player()
        self._asked_s = time.monotonic()
        await self._socket.send(msgspec.json.encode({"type": "response.create", "response": response}).decode())


async def main(url: str, key: str, asks: bool, listens: bool) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with suppress(OSError):
        os.nice(-10)
    async with connect(url, max_size=None, compression=None, ping_interval=None, additional_headers=headers) as socket:
        client = Client(socket, asks or listens, listens)
        task = asyncio.create_task(client.run())
        while not (client.waits_ms or task.done()):  # noqa: ASYNC110 - a stall before the first round would be nobody's
            await asyncio.sleep(EVERY_S)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    waits = client.waits_ms or [GIVEN_UP_S * 1000]
    seen = Waits(len(waits), statistics.median(waits), max(waits), client.answers, client.broken, client.spoken)
    sys.stdout.buffer.write(msgspec.json.encode(seen))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], "asks" in sys.argv[3:], "listens" in sys.argv[3:]))
