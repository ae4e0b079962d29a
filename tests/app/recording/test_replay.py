"""A replay of a recorded session has the same events, and a change of the deployment is found."""

from __future__ import annotations

import asyncio
import dataclasses
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.commands.replay import write_case
from app.limits.fair_scheduler import LoopTimeBudget
from app.realtime.input.turn_detector import Silero
from app.recording.file import read
from tests.app.recording.recorded import differences_of, only, recording, replayed
from tests.app.rig import Client, LoudnessVad, script_spec, silence, tone

PIECE = 480
"""20 ms at 24 kHz."""


async def say(client: Client, *pieces: Any) -> None:
    """Send audio as a microphone would, four times as fast."""
    pcm = np.concatenate(pieces)
    for at in range(0, len(pcm), PIECE):
        await client.append(pcm[at : at + PIECE])
        await asyncio.sleep(0.005)


async def test_typed_turns(tmp_path: Path) -> None:
    async with recording(tmp_path) as client:
        await client.ask("say: one two three")
        await client.ask("said")
        await client.send("response.create", response={"output_modalities": ["smell"]})
        await client.until("error")
    assert await differences_of(only(tmp_path)) == []


async def test_a_spoken_turn_and_a_question_over_the_answer(tmp_path: Path) -> None:
    async with recording(tmp_path) as client:
        turns = {"type": "server_vad", "silence_duration_ms": 300}
        await client.configure(audio={"input": {"turn_detection": turns}}, parley={"partials": True, "alignment": True})
        await say(client, tone(1.0), silence(0.6))
        await client.until("response.output_audio.delta")
        await say(client, tone(1.3), silence(0.6))
        await client.until("response.done")
        await client.until("response.done")
    recorded = read(only(tmp_path))
    kinds = {chunk.kind for request in recorded.requests.values() for chunk in request.chunks}
    assert {"Transcript", "Final", "Text", "Audio"} <= kinds
    assert await differences_of(only(tmp_path)) == []


async def test_transcripts_that_arrive_within_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server hears a long message in pieces, and receives interim transcripts in between."""

    async def busy(self: LoopTimeBudget) -> None:
        await asyncio.sleep(0.01)

    async with recording(tmp_path) as client:
        monkeypatch.setattr(LoopTimeBudget, "turn", busy)
        turns = {"type": "semantic_vad"}
        await client.configure(
            audio={"input": {"turn_detection": turns, "transcription": {}}}, parley={"partials": True}
        )
        for pcm in (tone(0.9), silence(0.4), tone(0.9), silence(0.9), silence(0.9), silence(0.9)):
            await client.append(pcm)
        await client.until("response.done")
    monkeypatch.undo()
    assert read(only(tmp_path)).waits_s
    assert await differences_of(only(tmp_path)) == []


async def test_a_session_that_the_server_ends(tmp_path: Path) -> None:
    async with recording(tmp_path, limits={"session_s": 0.5}) as client:
        await client.say("long 100")
        await client.send("response.create")
        assert (await client.error())["code"] == "session_expired"
    assert await differences_of(only(tmp_path)) == []


async def test_client_events_get_the_ids_of_the_replay(tmp_path: Path) -> None:
    async with recording(tmp_path) as client:
        await client.ask('tool look {"at": 1}', tools=[{"type": "function", "name": "look"}])
        call = client.of("response.output_item.done")[-1]["item"]["call_id"]
        item = {"type": "function_call_output", "call_id": call, "output": "a cat"}
        await client.send("conversation.item.create", item=item)
        await client.send("response.create")
        await client.until("response.done")
        deleted = client.of("conversation.item.added")[0]["item"]["id"]
        await client.send("conversation.item.delete", item_id=deleted)
        await client.until("conversation.item.deleted")
    done = await replayed(only(tmp_path))
    assert deleted not in str(done.events)
    assert await differences_of(only(tmp_path)) == []


async def test_another_configuration_differs(tmp_path: Path) -> None:
    async with recording(tmp_path) as client:
        await client.ask("say: one two three")
    slower = dataclasses.replace(script_spec(), options={"frames_per_word": 3})
    found = await differences_of(only(tmp_path), slower)
    assert found[0] == "The conversation is equal. Other events differ:"
    assert any(line.startswith("+ response.output_audio.delta") for line in found)


async def test_a_replay_is_faster_than_the_session(tmp_path: Path) -> None:
    async with recording(tmp_path) as client:
        await client.ask("say: one two three")
        await asyncio.sleep(3)
        await client.ask("say: four")
    done = await replayed(only(tmp_path))
    assert done.took_s < read(only(tmp_path)).end_s / 2


async def test_a_recording_becomes_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with recording(tmp_path) as client:
        await client.ask("say: one two three")
    case = tmp_path / "test_call.py"
    assert write_case(only(tmp_path), case) == 0
    assert "answer: one two three" in case.read_text()
    monkeypatch.setattr(Silero, "probability", LoudnessVad.probability)
    run = runpy.run_path(str(case))["test_the_conversation"]
    await asyncio.to_thread(run)
    case.write_text(case.read_text().replace("one two three", "one two four"))
    run = runpy.run_path(str(case))["test_the_conversation"]
    with pytest.raises(AssertionError):
        await asyncio.to_thread(run)
