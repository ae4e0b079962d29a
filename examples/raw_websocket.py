"""Ask a question over a plain WebSocket, and keep the spoken answer as a WAV file.

    python examples/raw_websocket.py "What can you do?" --url ws://127.0.0.1:8000
    python examples/raw_websocket.py --audio question.wav

Every message is JSON with a ``type``. The client adds a text or the microphone's sound, requests a response, and reads
events until that response is done. It needs only the package ``websockets``.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import wave
from collections.abc import Iterator
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

RATE_HZ = 24_000
SECOND = RATE_HZ * 2  # bytes


def typed(question: str) -> Iterator[dict[str, Any]]:
    """Yield the event of a typed question."""
    content = [{"type": "input_text", "text": question}]
    yield {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}


def spoken(samples: bytes) -> Iterator[dict[str, Any]]:
    """Yield the events of a spoken question, 16-bit samples at 24 kHz. The client ends the turn (push to talk)."""
    audio = {"input": {"turn_detection": None}}
    yield {"type": "session.update", "session": {"type": "realtime", "audio": audio}}
    for at in range(0, len(samples), SECOND):
        piece = base64.b64encode(samples[at : at + SECOND]).decode()
        yield {"type": "input_audio_buffer.append", "audio": piece}
    yield {"type": "input_audio_buffer.commit"}


async def ask(url: str, question: Iterator[dict[str, Any]]) -> tuple[str, bytes]:
    """Return the answer's words, and its sound as 16-bit samples at 24 kHz."""
    words, sound = "", b""
    address = url.replace("http", "ws", 1) if url.startswith("http") else url
    async with connect(f"{address}/v1/realtime", max_size=None) as socket:
        for event in question:
            await socket.send(json.dumps(event))
        await socket.send(json.dumps({"type": "response.create"}))
        async for message in socket:
            match json.loads(message):
                case {"type": "response.output_audio_transcript.delta", "delta": delta}:
                    words += delta
                case {"type": "response.output_audio.delta", "delta": delta}:
                    sound += base64.b64decode(delta)
                case {"type": "response.done"}:
                    break
                case {"type": "error", "error": error}:
                    raise SystemExit(error["message"])
                case _:
                    pass  # a server may send events that this client does not know
    return words, sound


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a question, and keep the spoken answer.")
    parser.add_argument("question", nargs="?", default="What can you do?")
    parser.add_argument("--audio", metavar="FILE", help="a spoken question: a WAV file, 16-bit mono at 24 kHz")
    parser.add_argument("--url", default="ws://127.0.0.1:8000")
    parser.add_argument("--output", default="answer.wav")
    chosen = parser.parse_args()
    question = spoken(recorded(chosen.audio)) if chosen.audio else typed(chosen.question)
    try:
        words, sound = asyncio.run(ask(chosen.url, question))
    except (OSError, WebSocketException, ValueError) as error:
        raise SystemExit(f"No session at {chosen.url}: {error}") from None
    with wave.open(chosen.output, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(sound)
    print(words)


def recorded(path: str) -> bytes:
    """Return the samples of a WAV file. Exits if it has another format."""
    try:
        with wave.open(path) as file:
            if (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE_HZ, 1, 2):
                return file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise SystemExit(f"{path} cannot be read: {error}") from None
    raise SystemExit(f"{path} must be 16-bit mono at 24 kHz. `parley say -o {path}` writes such a file.")


if __name__ == "__main__":
    main()
