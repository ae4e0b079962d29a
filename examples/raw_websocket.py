"""Ask a typed question over a plain WebSocket, and keep the spoken answer as a WAV file.

    python examples/raw_websocket.py "What can you do?" --url ws://127.0.0.1:8000

Every message is JSON with a ``type``. The client adds an item to the conversation, asks for a response, and reads
events until that response is done. Needs the package ``websockets`` alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import wave

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException


async def ask(url: str, question: str) -> tuple[str, bytes]:
    """Return the answer's words, and its sound as 16-bit samples at 24 kHz."""
    words, sound = "", b""
    address = url.replace("http", "ws", 1) if url.startswith("http") else url
    async with connect(f"{address}/v1/realtime", max_size=None) as socket:
        content = [{"type": "input_text", "text": question}]
        item = {"type": "message", "role": "user", "content": content}
        await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
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
    parser = argparse.ArgumentParser(description="Ask a typed question, and keep the spoken answer.")
    parser.add_argument("question", nargs="?", default="What can you do?")
    parser.add_argument("--url", default="ws://127.0.0.1:8000")
    parser.add_argument("--output", default="answer.wav")
    chosen = parser.parse_args()
    try:
        words, sound = asyncio.run(ask(chosen.url, chosen.question))
    except (OSError, WebSocketException, ValueError) as error:
        raise SystemExit(f"No session at {chosen.url}: {error}") from None
    with wave.open(chosen.output, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(sound)
    print(words)


if __name__ == "__main__":
    main()
