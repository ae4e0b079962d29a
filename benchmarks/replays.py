"""Record sessions of the script model and of nano, replay each, and count those whose events are equal.

    python -m benchmarks.replays [--sessions 100] [--at-once 4] [--folder FOLDER] [--models script,nano] [--json FILE]
    python -m benchmarks.replays --only FOLDER

Half of the sessions talk to the script model and half to nano, in real time: spoken and typed questions, questions over
the answer, and `semantic_vad` in every second session. With ``--folder`` the recordings are kept, and ``--only``
replays those of an earlier run. ``--models`` names other configurations, such as the starter with its language model.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from app.bench.subject import running
from app.bench.target import spoken
from app.recording.comparison import differences, events_of
from app.recording.file import read
from app.recording.replay import replay
from benchmarks.program import parser
from engine import SPEAKER_RATE_HZ
from engine.core import Pcm

SPOKEN = Path(__file__).parents[1] / "tests" / "data" / "spoken"
PIECE = SPEAKER_RATE_HZ // 50
TYPED = {
    "script": ("say: one two three", "long 30", "said"),
    "nano": ("what is two plus three?", "spell house"),
}
OPEN = ("What is the capital of France?", "Tell me a short story about a cat.")
"""Typed questions for other models."""
ANSWER_S = 20.0
"""Seconds to wait for the end of an answer."""


class Caller:
    """A client that sends its microphone in real time."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._lines: asyncio.Queue[Pcm] = asyncio.Queue()
        self._done = asyncio.Event()

    async def send(self, type: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": type, **fields}))

    async def microphone(self) -> None:
        """Send the queued speech, and silence otherwise."""
        line = np.zeros(0, np.int16)
        begun_s = asyncio.get_running_loop().time()
        sent = 0
        while True:
            if not len(line) and not self._lines.empty():
                line = self._lines.get_nowait()
            piece = np.zeros(PIECE, np.int16)
            piece[: len(line[:PIECE])] = line[:PIECE]
            line = line[PIECE:]
            await self.send("input_audio_buffer.append", audio=base64.b64encode(piece.tobytes()).decode())
            sent += 1
            await asyncio.sleep(max(0.0, begun_s + sent * 0.02 - asyncio.get_running_loop().time()))

    async def listen(self) -> None:
        async for message in self._socket:
            if json.loads(message)["type"] == "response.done":
                self._done.set()

    async def say(self, line: Pcm) -> None:
        """Speak, without waiting for the answer."""
        self._lines.put_nowait(line)
        await asyncio.sleep(len(line) / SPEAKER_RATE_HZ)

    async def answered(self) -> None:
        """Wait for the end of an answer."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._done.wait()
        except TimeoutError:
            pass
        self._done.clear()

    async def type(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        await self.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        await self.send("response.create")


@asynccontextmanager
async def calling(url: str) -> AsyncGenerator[Caller]:
    """Connect a recorded session."""
    async with connect(f"{url}/v1/realtime?record=true", max_size=None) as socket:
        caller = Caller(socket)
        tasks = [asyncio.create_task(caller.microphone()), asyncio.create_task(caller.listen())]
        try:
            yield caller
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def call(url: str, model: str, number: int, lines: list[Pcm]) -> None:
    """Hold one conversation of three turns."""
    async with calling(url) as caller:
        detection: dict[str, Any] = {"type": "semantic_vad"} if number % 2 else {"type": "server_vad"}
        audio = {"input": {"turn_detection": detection, "transcription": {}}}
        parley = {"partials": True, "alignment": number % 3 == 0, "pauses": number % 4 == 0}
        await caller.send("session.update", session={"type": "realtime", "audio": audio, "parley": parley})
        await caller.say(lines[number % len(lines)])
        if number % 3 == 1:  # speak over the answer
            await asyncio.sleep(1.2 + 0.037 * number % 1)
            await caller.say(lines[(number + 7) % len(lines)])
        await caller.answered()
        typed = TYPED.get(model, OPEN)
        await caller.type(typed[number % len(typed)])
        if number % 5 == 0:
            await asyncio.sleep(0.3)
            await caller.send("response.cancel")
        await caller.answered()
        await caller.say(lines[(number + 3) % len(lines)])
        await caller.answered()


async def record(folder: Path, model: str, sessions: int, at_once: int) -> None:
    """Record sessions with a server of its own process."""
    with running(model, changes={"server.recordings": str(folder)}) as server:
        places = asyncio.Semaphore(at_once)
        lines = [spoken(file) for file in sorted(SPOKEN.glob("in_*.ogg"))]

        async def one(number: int) -> None:
            async with places:
                await call(server.url, model, number, lines)

        await asyncio.gather(*(one(number) for number in range(sessions)))


def report(folder: Path) -> dict[str, float]:
    """Replay all recordings of a folder, print the differences, and return the figures."""
    equal = took_s = lasted_s = 0.0
    paths = sorted(folder.glob("*.jsonl"))
    for path in paths:
        recorded = read(path)
        done = replay(recorded)
        found = differences(events_of(recorded.server), done.events)
        equal += not found
        took_s += done.took_s
        lasted_s += recorded.end_s
        ratio = done.took_s / recorded.end_s
        print(f"{path.name}: {recorded.end_s:.1f} s, {ratio:.2f} of real time, {'different' if found else 'equal'}")
        for line in found:
            print(f"  {line}")
    return {"sessions": len(paths), "equal": equal, "share_of_real_time": took_s / lasted_s}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--sessions", type=int, default=100)
    made.add_argument("--at-once", type=int, default=4)
    made.add_argument("--folder", type=Path)
    made.add_argument("--only", type=Path)
    made.add_argument("--models", default="script,nano")
    made.add_argument("--json", type=Path)
    options = made.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.only or options.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        models = options.models.split(",") if options.only is None else []
        for model in models:
            asyncio.run(record(folder, model, options.sessions // len(models), options.at_once))
        figures = report(folder)
    print(
        f"{figures['equal']:.0f} of {figures['sessions']:.0f} equal, {figures['share_of_real_time']:.3f} of real time"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
