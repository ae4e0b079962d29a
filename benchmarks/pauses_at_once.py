"""Measure the waits if many users pause at the same moment: two threads of the server judge all pauses.

    python -m benchmarks.pauses_at_once [--sessions 16] [--recordings 8]

Each session is an input buffer with its own voice activity detector, fed with the same recording in real time. No ASR
runs, so that the sound of the pause decides alone: the case that depends most on the judgement.

Wait   silence that ended the turn. *Added* is the difference to the same recording with one session.
Late   how far behind real time the sessions' audio was taken.

Run it on an idle machine. If even the row of one session is late, ignore the other rows.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from rich.console import Console
from rich.table import Table

from app.realtime.input import InputAudioBuffer, TurnEvent
from app.realtime.input.end_of_turn_choice import EndOfTurnChoice
from app.realtime.input.turn_detector import Silero
from app.realtime.input.turn_events import TurnStopped
from app.realtime.protocol import SessionOptions, session_options
from app.realtime.session_context import SessionContext
from app.settings import Limits, TurnSettings
from app.telemetry import Metrics
from benchmarks.program import parser, spread
from engine import MIC_RATE_HZ, Engine, EngineSpec, StageSpec
from engine.audio.resampler import resample
from engine.core import Pcm

SPOKEN = Path(__file__).parents[1] / "tests" / "data" / "spoken"
PIECE_S = 0.02
LEAD_S = 0.5
SILENCE_S = 3.0
SEMANTIC = {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "end_of_turn": "smart_turn"}}}}


@dataclass(slots=True)
class Result:
    """Figures of all sessions and recordings."""

    waits_ms: list[float] = field(default_factory=list[float])
    added_ms: list[float] = field(default_factory=list[float])
    late_ms: list[float] = field(default_factory=list[float])


async def speak(context: SessionContext, pcm: Pcm, sessions: int, result: Result) -> list[float]:
    """Feed a recording to the sessions in real time. Return the waits in ms of all turns."""
    events: list[TurnEvent] = []
    options, _ = session_options(SessionOptions(), SEMANTIC)
    buffers = [InputAudioBuffer(context, options, events.append) for _ in range(sessions)]
    size = round(PIECE_S * MIC_RATE_HZ)
    began_s = time.monotonic()
    for n in range(len(pcm) // size):
        due_s = began_s + (n + 1) * PIECE_S
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        for buffer in buffers:
            await buffer.add_samples(pcm[n * size : (n + 1) * size])
            result.late_ms.append(max(0.0, time.monotonic() - due_s) * 1000)
            await asyncio.sleep(0)
    for buffer in buffers:
        buffer.forget()
    waits_ms = [event.utterance.silence_ms or 0.0 for event in events if isinstance(event, TurnStopped)]
    result.waits_ms += waits_ms
    return waits_ms


def padded(path: Path) -> Pcm:
    """Return a recording at MIC_RATE_HZ, with faint noise for LEAD_S before it and SILENCE_S after it."""
    wave: Any
    wave, rate_hz = soundfile.read(path, dtype="float32")
    samples = resample(wave, rate_hz, MIC_RATE_HZ)
    whole = np.pad(samples, (round(LEAD_S * MIC_RATE_HZ), round(SILENCE_S * MIC_RATE_HZ)))
    noise = np.random.default_rng(0).normal(0, 1e-4, len(whole))
    return (np.clip(whole + noise, -1, 1) * 32767).astype(np.int16)


async def measure(paths: list[Path], sessions: int) -> list[Result]:
    """Return the results of one session, and of ``sessions`` at once."""
    spec = EngineSpec(stages=(StageSpec(use="script.thinker", name="thinker"),), launcher="inline")
    model = EndOfTurnChoice("smart_turn").models["smart_turn"]
    async with Engine(spec) as engine:
        context = SessionContext(engine, Metrics(), Limits(), TurnSettings(), Silero, model)
        await asyncio.wrap_future(context.inference.submit(model, np.zeros(0, np.int16)))  # load the network
        results = [Result(), Result()]
        for path in paths:
            pcm = padded(path)
            alone_ms = await speak(context, pcm, 1, results[0])
            waits_ms = await speak(context, pcm, sessions, results[1])
            results[1].added_ms += [wait_ms - float(np.mean(alone_ms)) for wait_ms in waits_ms if alone_ms]
        context.inference.close()
        await context.decoding.close()
    return results


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--sessions", type=int, default=16)
    options.add_argument("--recordings", type=int, default=8)
    args = options.parse_args()
    paths = sorted(SPOKEN.glob("*.ogg"))[: args.recordings]
    alone, together = asyncio.run(measure(paths, args.sessions))
    table = Table("sessions", "turns", "wait ms", "added ms", "late ms", title="p50 / p95")
    for count, one in ((1, alone), (args.sessions, together)):
        columns = (spread(values) for values in (one.waits_ms, one.added_ms, one.late_ms))
        table.add_row(str(count), str(len(one.waits_ms)), *columns)
    console = Console()
    console.print(table)
    console.print(f"Load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
