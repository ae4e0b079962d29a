"""What the clients' programs in Python share: their task, the user's voice, and how they report.

A program is started with its task as JSON and prints its report as JSON on its last line. Knows no client.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
import wave
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RATE_HZ = 24_000
LOUD = 500
PIECE_BYTES = RATE_HZ // 50 * 2  # 20 ms of 16 bits
TIMEOUT_S = 40.0

PHRASE = "say: the quick brown fox"
WORDS = PHRASE.removeprefix("say: ")
LONG = "long 200"
TOOL_CALL = 'tool get_weather {"city": "Oslo"}'
HOSTED_CALL = 'tool forecast {"city": "Oslo"}'
RECALL = "said"
"""What the user types; the scripted family knows these."""

ENOUGH_S = 2.0
"""How much of a long answer has come when the user speaks over it: it comes ahead, so he has heard some words of it."""


@dataclass(frozen=True)
class Task:
    """What to do, where, and what to say."""

    scenario: str
    base: str
    """``host:port``"""
    speech: str
    """A file of int16 samples at RATE_HZ."""
    tools: str = ""
    """The address of an MCP server, where the scenario has one."""

    @property
    def realtime(self) -> str:
        return f"ws://{self.base}/v1/realtime"

    @property
    def live(self) -> str:
        return f"ws://{self.base}/v1/live/sessions"


@dataclass
class Report:
    """What the client's user got. Seconds are of sound that was handed to him."""

    transcript: str = ""
    """Of the last answer."""
    audio_s: float = 0.0
    sound: str = ""
    """The speech that came over HTTP: a file, as base64."""
    heard: str = ""
    """The user's own words, as the client was told them."""
    call: dict[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    """Whether the client learned that the answer was interrupted."""
    interrupted_audio_s: float = 0.0
    """How much of the interrupted answer came in all."""
    cut_ms: int | None = None
    """Where the client had the interrupted answer truncated."""
    errors: list[str] = field(default_factory=list[str])
    """What the client was told that went wrong; its own emitters may swallow what a callback raises."""


def read_task() -> Task:
    return Task(**json.loads(sys.argv[1]))


def run(play: Callable[[Task], Awaitable[Report]], within_s: float = TIMEOUT_S) -> None:
    """Do the task, and print the report."""

    async def within_time() -> Report:
        async with asyncio.timeout(within_s):
            return await play(read_task())

    print(json.dumps(asdict(asyncio.run(within_time()))))


async def voice(task: Task, pause_s: float = 1.2) -> AsyncGenerator[bytes]:
    """The user's voice and the silence after it, 20 ms every 20 ms."""
    pcm = await asyncio.to_thread(Path(task.speech).read_bytes) + bytes(int(pause_s * RATE_HZ) * 2)
    begun_s = time.monotonic()
    for i, at in enumerate(range(0, len(pcm), PIECE_BYTES)):
        await asyncio.sleep(max(0.0, begun_s + i * 0.02 - time.monotonic()))
        yield pcm[at : at + PIECE_BYTES]


def pieces(task: Task) -> list[bytes]:
    """The user's voice, 20 ms each."""
    pcm = Path(task.speech).read_bytes()
    return [pcm[at : at + PIECE_BYTES] for at in range(0, len(pcm), PIECE_BYTES)]


def wav(task: Task) -> bytes:
    """The user's voice as a file."""
    return riff(Path(task.speech).read_bytes())


def riff(pcm: bytes) -> bytes:
    """16-bit mono samples as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE_HZ)
        out.writeframes(pcm)
    return file.getvalue()


def audible_s(audio: bytes | bytearray) -> float:
    """Seconds of pieces in which something can be heard."""
    samples = array("h", bytes(audio))
    size = PIECE_BYTES // 2
    blocks = (samples[at : at + size] for at in range(0, len(samples), size))
    return sum(0.02 for block in blocks if max(block) > LOUD or min(block) < -LOUD)


def seconds(audio: bytes | bytearray) -> float:
    return len(audio) / 2 / RATE_HZ
