"""Compare the Live and Realtime protocols over local sockets: first sound, interruption, and how far the stream is
ahead.

    python -m benchmarks.live [--rounds 20] [--config configs/script.yaml]

A user's recording is sent in real time. *First sound* is the time from its last sample to the arrival of the answer's
first audible sample, for Live and Realtime alternately. *Interruption* is the time from the first sample of a recording
that interrupts a long answer to the last sample of that answer that a player without a buffer plays. *Ahead* is the
maximum amount of audio sent beyond the clock that started at ``session.started``.

*Tool* is an interruption while a tool runs that never returns, over a Realtime socket: from the first sample to
``speech_started``, at which the client silences the line about the tool. Its parts are *detection*, the audio that the
input buffer needs, and *way*, all other time: sockets, event loop and pending work. *Line* is the time from
``speech_started`` to the end of the line's response.

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from websockets.asyncio.client import ClientConnection, connect

from app.bench import subject
from app.bench.figures import Figure, percentile, show
from app.bench.target import spoken
from benchmarks.overlaps import PIECE_MS, START_S, outcome
from engine import SPEAKER_RATE_HZ

RECORDING = Path(__file__).parents[1] / "tests" / "data" / "spoken" / "in_020.ogg"
PIECE = SPEAKER_RATE_HZ // 50
LOUD = 500
LONG, REST_S = "long 400", 1.5
TOOL = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object"},
    "parley": {"speech": True, "preamble_s": 0, "progress_s": 0.5},
}


@dataclass
class Heard:
    """The stream as its listener hears it: runs of samples with their start times in seconds."""

    runs: list[tuple[float, Any]] = field(default_factory=list[tuple[float, Any]])
    began_s: float = 0.0
    ahead_s: float = -1.0
    first_s: float | None = None
    _end_s: float = 0.0
    _sent_s: float = 0.0

    def take(self, pcm: Any) -> None:
        now_s = time.monotonic()
        start_s = max(now_s, self._end_s)
        self._end_s = start_s + len(pcm) / SPEAKER_RATE_HZ
        self._sent_s += len(pcm) / SPEAKER_RATE_HZ
        self.ahead_s = max(self.ahead_s, self._sent_s - (now_s - self.began_s))
        self.runs.append((start_s, pcm))
        if self.first_s is None and (loud := np.flatnonzero(np.abs(pcm.astype(int)) > LOUD)).size:
            self.first_s = now_s + loud[0] / SPEAKER_RATE_HZ

    def loud_s(self) -> Any:
        """Return the times of all audible samples."""
        found = [start + np.flatnonzero(np.abs(pcm.astype(int)) > LOUD) / SPEAKER_RATE_HZ for start, pcm in self.runs]
        return np.concatenate(found) if found else np.zeros(0)


async def microphone(socket: ClientConnection, event: str, pcm: Any) -> tuple[float, float]:
    """Send samples in real time. Returns the times of the first and the last one."""
    begun_s = time.monotonic()
    for i, at in enumerate(range(0, len(pcm), PIECE)):
        await asyncio.sleep(max(0.0, begun_s + i * PIECE / SPEAKER_RATE_HZ - time.monotonic()))
        audio = base64.b64encode(pcm[at : at + PIECE].astype("<i2").tobytes()).decode()
        await socket.send(json.dumps({"type": event, "audio": audio}))
    return begun_s, begun_s + len(pcm) / SPEAKER_RATE_HZ


async def listen(socket: ClientConnection, event: str, heard: Heard) -> None:
    async for text in socket:
        message = json.loads(text)
        if message["type"] == event:
            heard.take(np.frombuffer(base64.b64decode(message["delta"]), "<i2"))


async def round_of(url: str, event: str, delta: str, opening: list[dict[str, Any]], lead_s: float) -> tuple[Any, ...]:
    """Run one session after ``lead_s`` of silence. Returns the audio heard, and the start and end of the user's
    speech.
    """
    voice = spoken(RECORDING)
    quiet = np.zeros(round(lead_s * SPEAKER_RATE_HZ), np.int16)
    rest = np.zeros(round(REST_S * SPEAKER_RATE_HZ), np.int16)
    async with connect(url, max_size=None) as socket:
        for one in opening:
            await socket.send(json.dumps(one))
        await socket.recv()
        heard = Heard(began_s=time.monotonic())
        listening = asyncio.create_task(listen(socket, delta, heard))
        begun_s, _ = await microphone(socket, event, np.concatenate([quiet, voice, rest]))
        listening.cancel()
    onset_s = begun_s + lead_s
    return heard, onset_s, onset_s + len(voice) / SPEAKER_RATE_HZ


async def over_a_tool(url: str) -> dict[str, float]:
    """Interrupt the lines about a tool that never returns. Returns the parts of *tool* in milliseconds."""
    pcm = np.concatenate([np.zeros(round(START_S * SPEAKER_RATE_HZ), np.int16), spoken(RECORDING)])
    at_s: dict[str, float] = {}
    async with connect(url, max_size=None) as socket:
        await socket.send(json.dumps({"type": "session.update", "session": {"tools": [TOOL]}}))
        content = [{"type": "input_text", "text": 'tool weather {"city": "Paris"}'}]
        item = {"type": "message", "role": "user", "content": content}
        await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await socket.send(json.dumps({"type": "response.create"}))
        noting = asyncio.create_task(note(socket, at_s))
        begun_s, _ = await microphone(socket, "input_audio_buffer.append", pcm)
        noting.cancel()
    tool_ms = (at_s["speech_started"] - begun_s - START_S) * 1000
    detection_ms = float((await outcome(None, "", "", pcm)).held_at_ms or 0) - PIECE_MS  # pieces are sent early
    return {
        "tool": tool_ms,
        "tool: detection": detection_ms,
        "tool: way": tool_ms - detection_ms,
        "tool: line": (at_s["cancelled"] - at_s["speech_started"]) * 1000,
    }


async def note(socket: ClientConnection, at_s: dict[str, float]) -> None:
    """Note when the user's speech is reported, and when the line about the tool ends because of it."""
    async for text in socket:
        message = json.loads(text)
        if message["type"] == "input_audio_buffer.speech_started":
            at_s.setdefault("speech_started", time.monotonic())
        elif message["type"] == "response.done" and message["response"]["status"] == "cancelled":
            at_s.setdefault("cancelled", time.monotonic())


async def measure(url: str, rounds: int) -> dict[str, list[float]]:
    base = url.replace("http", "ws", 1)
    start = {"type": "session.start", "session": {"model": "m"}}
    say = {"type": "session.commentary.append", "delegation_id": None, "content": LONG}
    live = (f"{base}/v1/live/sessions", "session.input_audio.append", "session.output_audio.delta")
    realtime = (f"{base}/v1/realtime", "input_audio_buffer.append", "response.output_audio.delta")
    found: dict[str, list[float]] = {"first, Live": [], "first, Realtime": [], "interruption": [], "ahead": []}
    for _ in range(rounds):
        for name, place, opening in (("Live", live, [start]), ("Realtime", realtime, [])):
            heard, _, end_s = await round_of(*place, opening, 0.5)
            if heard.first_s is not None:
                found[f"first, {name}"].append((heard.first_s - end_s) * 1000)
        heard, onset_s, _ = await round_of(*live, [start, say], 1.0)
        loud = heard.loud_s()
        after = loud[loud > onset_s]
        gaps = np.flatnonzero(np.diff(after) > 0.3)
        found["interruption"].append(((after[gaps[0]] if len(gaps) else after[-1]) - onset_s) * 1000)
        found["ahead"].append(heard.ahead_s * 1000)
        for name, part_ms in (await over_a_tool(realtime[0])).items():
            found.setdefault(name, []).append(part_ms)
    return found


def figures_of(found: dict[str, list[float]]) -> list[Figure]:
    """Return the figures with bars, from the results of ``measure`` in milliseconds."""
    live, realtime = (percentile(found[f"first, {name}"], 50) for name in ("Live", "Realtime"))
    apart = None if live is None or realtime is None else abs(live - realtime)
    note = f"{len(found['first, Live'])} rounds"
    return [
        Figure(name="first sound, p50, Live and Realtime apart", value=apart, unit="ms", bar=10, note=note),
        Figure(
            name="end of an interrupted answer, p95", value=percentile(found["interruption"], 95), unit="ms", bar=400
        ),
        Figure(name="interruption while a tool runs, p95", value=percentile(found["tool"], 95), unit="ms", bar=400),
        Figure(name="ahead of the clock, most", value=percentile(found["ahead"], 100), unit="ms", bar=100),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="sessions of each kind")
    parser.add_argument("--config", default="configs/script.yaml", help="the configuration that is served")
    options = parser.parse_args()
    with subject.running(options.config) as server:
        found = asyncio.run(measure(server.url, options.rounds))
    table = Table("ms", "n", "p50", "p95", "most")
    for name, values in found.items():
        table.add_row(name, str(len(values)), *(f"{np.percentile(values, q):.0f}" for q in (50, 95, 100)))
    Console().print(table)
    figures = figures_of(found)
    show(figures, Console(emoji=False))
    return int(not all(figure.passed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
