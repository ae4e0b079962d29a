"""Bring calls of a telephone exchange to a server: a bridge between Twilio's Media Streams and a Realtime session.

    python examples/telephone_bridge.py --port 9000 --url ws://127.0.0.1:8000

The exchange connects to ws://…:9000 for each call (in Twilio's TwiML: ``<Connect><Stream url="wss://…"/></Connect>``,
behind a proxy that has a certificate). Sound stays G.711 mu-law at 8 kHz both ways. Parley takes such calls by itself
as well (app/TELEPHONES.md); a bridge is for exchanges that it does not know, and for sessions of one's own.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

PCMU = {"format": {"type": "audio/pcmu"}}
SETTINGS = {"type": "realtime", "instructions": "You answer the telephone.", "audio": {"input": PCMU, "output": PCMU}}
BYTES_MS = 8  # mu-law has a byte a sample, and 8 samples a millisecond


class Call:
    """One call. ``heard`` is the mark that the telephone has played last: an item, and milliseconds of its sound."""

    def __init__(self, phone: ServerConnection, session: ClientConnection) -> None:
        self._phone, self._session = phone, session
        self._stream, self._heard, self._sent = "", ("", 0), ("", 0)

    async def from_phone(self) -> None:
        """Hand the caller's sound to the session until they hang up."""
        await self._say("session.update", session=SETTINGS)
        async for message in self._phone:
            match json.loads(message):
                case {"event": "start", "streamSid": stream}:
                    self._stream = stream
                case {"event": "media", "media": {"payload": payload}}:
                    await self._say("input_audio_buffer.append", audio=payload)
                case {"event": "mark", "mark": {"name": name}}:
                    item, _, ms = name.rpartition(":")
                    self._heard = (item, int(ms))
                case {"event": "stop"}:
                    break
                case _:
                    pass
        await self._session.close()

    async def from_session(self) -> None:
        """Hand the answers to the telephone, and have it fall silent when the caller speaks."""
        async for message in self._session:
            match json.loads(message):
                case {"type": "response.output_audio.delta", "item_id": item, "delta": sound}:
                    before = self._sent[1] if self._sent[0] == item else 0
                    self._sent = (item, before + len(base64.b64decode(sound)) // BYTES_MS)
                    await self._play("media", media={"payload": sound})
                    await self._play("mark", mark={"name": f"{item}:{self._sent[1]}"})
                case {"type": "input_audio_buffer.speech_started"} if self._heard != self._sent:
                    item, ms = self._sent[0], self._heard[1] if self._heard[0] == self._sent[0] else 0
                    await self._play("clear")
                    await self._say("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=ms)
                    self._sent = self._heard
                case _:
                    pass

    async def _say(self, type: str, **fields: Any) -> None:
        await self._session.send(json.dumps({"type": type, **fields}))

    async def _play(self, event: str, **fields: Any) -> None:
        await self._phone.send(json.dumps({"event": event, "streamSid": self._stream, **fields}))


async def main() -> None:
    parser = argparse.ArgumentParser(description="Bring calls to a server.")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--url", default="ws://127.0.0.1:8000")
    chosen = parser.parse_args()

    async def answer(phone: ServerConnection) -> None:
        async with connect(f"{chosen.url}/v1/realtime", max_size=None) as session, asyncio.TaskGroup() as tasks:
            call = Call(phone, session)
            tasks.create_task(call.from_phone())
            tasks.create_task(call.from_session())

    async with serve(answer, "127.0.0.1", chosen.port) as server:
        print(f"calls are taken at ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(main())
    except OSError as error:
        raise SystemExit(f"The port cannot be used: {error}") from None
