"""Talk with a server through this machine's microphone and loudspeaker, and interrupt its answers.

    .venv/bin/pip install --constraint constraints.txt -e ".[device]"
    python examples/microphone.py --url http://127.0.0.1:8000

The server finds the turns. When it hears the user, the loudspeaker pauses at once. After "mm-hm" the answer goes on.
After other words the client says how much of it was heard, so that the conversation keeps no more. Ctrl-C ends the
program.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
from contextlib import suppress
from typing import Any

try:
    import sounddevice
except (ImportError, OSError):  # OSError: the package is installed, but PortAudio is not
    raise SystemExit(
        "microphone.py needs sounddevice and PortAudio. "
        "Run .venv/bin/pip install --constraint constraints.txt -e '.[device]'; on Debian, apt install libportaudio2."
    ) from None

from parley_voice.app.client import (
    AudioDelta,
    Client,
    ClientError,
    PlaybackPaused,
    PlaybackResumed,
    SpeechStarted,
    TextDelta,
    TranscriptionCompleted,
    connect,
)

FORMAT = {"samplerate": 24_000, "channels": 1, "dtype": "int16", "blocksize": 480}


class Loudspeaker:
    """The sound that waits to be played. PortAudio calls ``play`` in a thread of its own."""

    def __init__(self) -> None:
        self.paused = False
        self._waiting, self._item, self._played = bytearray(), "", 0

    def add(self, event: AudioDelta) -> None:
        if event.item_id != self._item:
            self._item, self._played = event.item_id, 0
        self._waiting += event.delta

    def play(self, out: Any, frames: int, time: Any, status: Any) -> None:
        piece = b"" if self.paused else bytes(self._waiting[: len(out)])
        del self._waiting[: len(piece)]
        out[:] = piece.ljust(len(out), b"\0")
        self._played += len(piece)

    def stop(self) -> dict[str, Any] | None:
        """Fall silent. Return where the answer was cut, or None if all of it had been played."""
        self.paused = False
        cut = {"item_id": self._item, "content_index": 0, "audio_end_ms": self._played // 48}
        return cut if self._waiting and not self._waiting.clear() else None


async def listen(client: Client) -> None:
    """Send the microphone's sound as it comes."""
    pieces, loop = asyncio.Queue[bytes](maxsize=500), asyncio.get_running_loop()  # 10 s

    def heard(piece: Any, frames: int, time: Any, status: Any) -> None:
        loop.call_soon_threadsafe(pieces.put_nowait, bytes(piece))

    with sounddevice.RawInputStream(callback=heard, **FORMAT):
        while True:
            await client.send("input_audio_buffer.append", audio=base64.b64encode(await pieces.get()).decode())


async def talk(url: str) -> None:
    loudspeaker = Loudspeaker()
    async with connect(url) as client, asyncio.TaskGroup() as tasks:
        await client.configure(audio={"input": {"transcription": {"model": "default"}}})
        tasks.create_task(listen(client))
        with sounddevice.RawOutputStream(callback=loudspeaker.play, **FORMAT):
            async for event in client.events():
                match event:
                    case AudioDelta():
                        loudspeaker.add(event)
                    case PlaybackPaused() | PlaybackResumed():
                        loudspeaker.paused = isinstance(event, PlaybackPaused)
                    case SpeechStarted():
                        if (cut := loudspeaker.stop()) is not None:
                            await client.send("conversation.item.truncate", **cut)
                    case TranscriptionCompleted(transcript=words):
                        print(f"\nyou: {words}\nanswer: ", end="", flush=True)
                    case TextDelta(delta=words):
                        print(words, end="", flush=True)
                    case _:
                        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Talk with a server.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(talk(parser.parse_args().url))
    except ClientError as error:
        raise SystemExit(str(error)) from None
    except ExceptionGroup as errors:  # of the microphone, the loudspeaker or the connection
        raise SystemExit(str(errors.exceptions[0])) from None
