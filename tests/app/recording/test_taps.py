"""A recording contains what decided: the order in which a session took its input, not the order of arrival."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from app.realtime.inference_thread import InferenceThread
from app.realtime.protocol.client_events import InputSamples, Received
from app.realtime.protocol.dialect import REALTIME
from app.recording.client_tap import ClientTap
from app.recording.lines import HEAD, VERSION
from app.recording.taps import RecordedInference, RecordedWaits, StepClock, part_names
from app.recording.writer import RecordingWriter


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def writing(folder: Path, clock: Clock) -> AsyncGenerator[RecordingWriter]:
    writer = RecordingWriter(folder / "one.jsonl", StepClock(clock).tick)
    writer.open({HEAD: VERSION})
    try:
        yield writer
    finally:
        writer.close()
        await writer.finished()


def lines(folder: Path) -> list[tuple[float, dict[str, Any]]]:
    """The times and events of the only recording, without its head and its end."""
    found = [json.loads(line) for line in (folder / "one.jsonl").read_text().splitlines()]
    return [(line["at_ms"], line["event"]) for line in found[1:-2]]


async def test_a_message_is_recorded_when_the_session_takes_it(tmp_path: Path) -> None:
    """The sound of a turn arrived before a transcript, but was used after it: that decided where the turn ended."""
    clock = Clock()
    async with writing(tmp_path, clock) as writer:
        client = ClientTap(REALTIME, writer)
        message = client.decode('{"type": "input_audio_buffer.append", "audio": "AAAA"}')
        await asyncio.sleep(0)
        clock.now_s = 0.1
        writer.add("engine", {"type": "chunk", "request": 1, "kind": "Transcript"})
        await asyncio.sleep(0)
        clock.now_s = 0.2
        client.record(message)
        client.record(Received(InputSamples(np.zeros(320, np.int16))))
    assert [(at_ms, event["type"]) for at_ms, event in lines(tmp_path)] == [
        (100, "chunk"),
        (200, "input_audio_buffer.append"),
        (200.001, "follows"),
        (200.002, "parley.microphone"),
    ]


async def test_a_wait_is_recorded_if_something_else_happened_meanwhile(tmp_path: Path) -> None:
    clock = Clock()
    async with writing(tmp_path, clock) as writer:
        waits = RecordedWaits(writer, part_names())
        await waits.result(asyncio.sleep(0))

        async def interrupted() -> None:
            writer.add("engine", {"type": "chunk", "request": 1, "kind": "Transcript"})
            await asyncio.sleep(0)
            clock.now_s = 0.3

        await waits.result(interrupted())
        await waits.alarm(asyncio.Event(), 0.0)
    assert [event for _, event in lines(tmp_path)[1:]] == [
        {"type": "waited", "wait": "0.2"},
        {"type": "waited", "wait": "0.3"},
    ]
    assert lines(tmp_path)[1][0] == 300


async def test_a_clock_stands_still_within_one_step() -> None:
    clock = Clock()
    now = StepClock(clock)
    first_s = now()
    clock.now_s = 1.0
    assert now() == first_s
    await asyncio.sleep(0)
    assert now() == 1.0


class Judge(InferenceThread):
    """Judges when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.judged: list[Future[float]] = []

    def run(self, work: Any, pcm: Any) -> Future[Any]:
        self.judged.append(Future())
        return self.judged[-1]


async def test_the_time_of_an_embedding_is_recorded_and_the_embedding_is_not(tmp_path: Path) -> None:
    judge = Judge()
    async with writing(tmp_path, Clock()) as writer:
        known = RecordedInference(judge, writer).run(len, np.zeros(0, np.int16))
        judge.judged[0].set_result(np.ones(192))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert known.done()
    assert [event for _, event in lines(tmp_path)] == [{"type": "asked", "pause": 1}, {"type": "judged", "pause": 1}]


async def test_a_judgement_becomes_known_when_it_is_recorded(tmp_path: Path) -> None:
    judge = Judge()
    async with writing(tmp_path, Clock()) as writer:
        inference = RecordedInference(judge, writer)
        known = inference.run(len, np.zeros(0, np.int16))
        dropped = inference.run(len, np.zeros(0, np.int16))
        judge.judged[0].set_result(0.7)
        assert (known.done(), writer.lines) == (False, 2)
        dropped.cancel()
        await asyncio.sleep(0)
        assert (known.result(), writer.lines) == (0.7, 4)
        assert judge.judged[1].cancelled()
    assert [event.get("probability", "asked") for _, event in lines(tmp_path)] == ["asked", "asked", 0.7, None]
